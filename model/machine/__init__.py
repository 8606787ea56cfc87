"""The accelerator as software: its memory image, its commands, and a simulator of what it does.

- `shape`: sizes of a chip
- `layout`: where everything lies in memory (`Manifest`)
- `image`: the bytes of a model, in files
- `encode`, `listing`: command lists, and a table of what they say
- `simulator`: runs jobs on bytes, with the golden model's arithmetic
- `runtime`: what a host does; the same code drives the simulator and the RTL
- `draft`: a chip under `model.decoding.loop`, for sampled decoding

`docs/chip.md` is the specification.
"""
