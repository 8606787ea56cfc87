"""One module a component: stimulus, what the design saw, and the golden model's word on it."""
