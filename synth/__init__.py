"""What the silicon costs: Yosys areas, longest paths, and the libraries behind them."""
