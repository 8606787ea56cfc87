"""Memories: each one a module of its own, so that a foundry macro can take its place."""
