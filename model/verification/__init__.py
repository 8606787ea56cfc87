"""Speculative decoding shown to be lossless, at five levels, each with faults that it must find."""
