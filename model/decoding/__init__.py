"""Decoding: sampling, drafts, the loop, traces."""
