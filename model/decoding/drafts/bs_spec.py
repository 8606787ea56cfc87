"""BS-Spec: the draft is the target's own stored bits, partially loaded. And AR: no draft at all.

Sources: the BS-Spec paper, section III; contract sections 4 and 9.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from model.decoding.drafts.base import Loaded
from model.decoding.drafts.shared import SharedCacheDraft
from model.lm.cache import KVCache
from model.lm.dense import DenseWeights
from model.lm.exact import ExactPath, ExactView, OpenKeys
from model.lm.fast import BfpView, FastPath
from model.lm.footprint import bfp_kv_bits, bfp_weight_bits
from model.lm.precision import Load, Precision
from model.lm.stored import StoredModel
from model.lm.transformer import Path

#: Dequantised copies of a model that are kept: the target and two drafts.
KEPT_WEIGHTS = 3


class BsSpec(SharedCacheDraft):
    """Target at full precision, draft at `precision`; one cache, one copy of the weights.

    Args:
        model: the stored bits.
        precision: of the draft; None for no draft (autoregressive decoding).
        exact: the exact path, or else the fast one.
        device: of the fast path; the exact path runs on the processor.
        dtype: of the fast path's products.

    Attributes:
        cache: the stored keys and values of the batch in work.

    Raises:
        TypeError, ValueError: a precision that the model has not, by name.
    """

    def __init__(
        self,
        model: StoredModel,
        precision: Precision | None,
        *,
        exact: bool = False,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.full = Precision.full(model.p_full)
        self.precision = None if precision is None else precision.exact(model.p_full)
        super().__init__(str(precision or "none"), model.config, "cpu" if exact else device)
        self.model, self.exact, self.dtype = model, exact, dtype
        self.drafts = precision is not None
        self._weights: dict[Load, DenseWeights] = {}
        self._views: dict[Load, ExactView | BfpView] = {}
        self._open_keys: OpenKeys | None = None

    def open_paths(self, batch: int, capacity: int) -> tuple[Path, Path | None]:
        """Paths over a new cache."""
        self._views, self._open_keys = {}, None
        self.__dict__.pop("cache", None)
        # The codes stay with the processor where a device lacks 64-bit numbers (MPS).
        codes = self.device if torch.device(self.device).type != "mps" else "cpu"
        self.cache = KVCache(self.config, batch, capacity, p_full=self.model.p_full, device=codes)
        self._open_keys = OpenKeys(self.cache) if self.exact else None
        draft = None if self.precision is None else self.path(self.precision)
        return self.path(self.full), draft

    def path(self, precision: Precision) -> Path:
        """The path at a precision over the cache in work."""
        if self._open_keys is not None:
            exact_view = self._views.get(precision.kv)
            if not isinstance(exact_view, ExactView):
                exact_view = ExactView(self.cache, self._open_keys, precision.kv)
                self._views[precision.kv] = exact_view
            return ExactPath(self.model, precision, exact_view)
        view = self._views.get(precision.kv)
        if not isinstance(view, BfpView):
            view = BfpView(self.cache, precision.kv, self.dtype, self.device)
            self._views[precision.kv] = view
        return FastPath(self._dense(precision.w), view)

    def _dense(self, load: Load) -> DenseWeights:
        if load not in self._weights:
            while len(self._weights) >= KEPT_WEIGHTS:
                # The target's own are always wanted again.
                oldest = next(kept for kept in self._weights if kept != self.full.w)
                del self._weights[oldest]
            self._weights[load] = DenseWeights.of_stored(self.model, load, self.dtype, self.device)
        return self._weights[load]

    def commit(self, tokens: Sequence[Sequence[int]]) -> None:
        """Moves the committed ends, the cache's too."""
        super().commit(tokens)
        self.cache.commit([len(given) for given in tokens])

    def rewind(self, lengths: Sequence[int]) -> None:
        """Moves the committed ends back, the cache's too."""
        super().rewind(lengths)
        self.cache.lengths = self.lengths

    def verify_loads(self, fed: Sequence[int]) -> Loaded:
        """Bits of a target pass."""
        return self._loads(self.full, fed)

    def draft_loads(self, fed: Sequence[int]) -> Loaded:
        """Bits of a draft pass."""
        assert self.precision is not None
        return self._loads(self.precision, fed)

    def _loads(self, precision: Precision, fed: Sequence[int]) -> Loaded:
        kv = sum(
            bfp_kv_bits(self.config, length + count, precision.kv.p)
            for length, count in zip(self._lengths, fed, strict=True)
            if count
        )
        return Loaded(bfp_weight_bits(self.config, precision.w.p), kv)


#: From the sum of the committed lengths to a precision and a gamma (None: the caller's).
Choice = Callable[[int], tuple[Precision, int | None]]


class AutoBsSpec(BsSpec):
    """BS-Spec whose precision follows a lookup table as the sequences grow.

    Args:
        model: the stored bits.
        choose: the table; asked before each round.
        exact, device, dtype: as in `BsSpec`.

    Attributes:
        chosen: the precisions that rounds have used, in order, without repetitions in a row.
    """

    def __init__(
        self,
        model: StoredModel,
        choose: Choice,
        *,
        exact: bool = False,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        precision, _ = choose(1)
        super().__init__(model, precision, exact=exact, device=device, dtype=dtype)
        self.name, self._choose = "auto", choose
        self.chosen: list[Precision] = []

    def begin_round(self, live: Sequence[int]) -> int | None:
        """Looks up the live sequences' total length."""
        precision, gamma = self._choose(max(sum(self._lengths[b] for b in live), 1))
        self.precision = precision.exact(self.model.p_full)
        if not self.chosen or self.chosen[-1] != self.precision:
            self.chosen.append(self.precision)
        self._draft = self.path(self.precision)
        return gamma
