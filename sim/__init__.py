"""cocotb benches: the hardware and the golden model held against each other, bit for bit."""
