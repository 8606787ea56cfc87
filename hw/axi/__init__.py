"""AXI4 masters: the chip's way to memory, in lines of 64 bytes."""
