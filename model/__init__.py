"""The golden model: what the silicon must compute, and the decoding algorithm around it."""
