"""Number formats: BF16 fields and rounding, BFP groups and partial loads, bit-plane tiles.

Import the module that you need; this package imports nothing by itself, so that
`model.formats.constants` can be read without torch.

- `model.formats.constants`: group, tile and format constants (no torch)
- `model.formats.floats`: fields of BF16 and FP32, exact rounding from integers
- `model.formats.bf16`: BF16 codes and checked conversion
- `model.formats.bfp`: BFP groups (`quantize`, `Bfp`)
- `model.formats.planes`: bit-plane-major tiles as bytes
"""
