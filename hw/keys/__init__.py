"""Keys and values on their way into memory, and open keys on their way into the array."""
