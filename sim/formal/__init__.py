"""Formal proofs: properties of components for every input, by k-induction (``make formal``)."""
