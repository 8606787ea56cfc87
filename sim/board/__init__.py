"""A board for the chip in simulation: memory in C++, and the host's side of the register window."""
