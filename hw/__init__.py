"""The accelerator in Amaranth HDL: what is built in silicon."""
