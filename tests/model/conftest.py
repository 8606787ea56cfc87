"""One thread for torch: the machine is shared, and small products gain nothing from two."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
