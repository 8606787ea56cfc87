"""The array under test: stimulus into its streams, the golden model on what it saw."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from hw.compute import layouts
from hw.config import Config
from model.datapath import TileMachine
from model.datapath.primitives import round_result
from model.formats.floats import float_format
from sim import words
from sim.harness import Bench, MismatchError
from sim.stimulus import Tile
from sim.words import Array


@dataclass
class _Output:
    """An output tile that left the golden model, not yet rounded: its scales may come later."""

    accumulators: torch.Tensor
    running: torch.Tensor
    p: int
    fp32: int
    rows: int
    context: int
    scaled: int


class CoreModel:
    """The golden model of the array, fed by what the design accepted.

    ``expect`` gives the next result word; a result without its inputs is a mismatch.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.machine = TileMachine(
            config.t_m,
            contexts=config.contexts,
            align_guard_bits=config.align_guard_bits,
            acc_guard_bits=config.acc_guard_bits,
            p_max=config.p_max,
            max_k=max(config.max_k, 64),
        )
        self.overflow = 0
        self._tiles: deque[dict[str, Any]] = deque()
        self._activations: list[Array] = []
        self._exponents: list[Array] = []
        self._ready: deque[tuple[Array, Array]] = deque()
        self._planes: list[int] = []
        self._scales: deque[Array] = deque()
        self._outputs: deque[_Output] = deque()
        self._beats: deque[int] = deque()

    def see_tile(self, word: int) -> None:
        """A word of ``tiles``."""
        self._tiles.append(words.unpack(layouts.tiles_layout(self.config), word))
        self._advance()

    def see_activations(self, word: int) -> None:
        """A word of ``activations``."""
        shape = (self.config.t_m, self.config.group_k)
        self._activations.append(words.to_array(word, "u2", shape))
        self._gather()

    def see_exponents(self, word: int) -> None:
        """A word of ``exponents``."""
        self._exponents.append(words.to_array(word, "u1", (self.config.group_k,)))
        self._gather()

    def see_plane(self, word: int) -> None:
        """A word of ``planes``."""
        self._planes.append(word)
        self._advance()

    def see_scales(self, word: int) -> None:
        """A word of ``scales``."""
        self._scales.append(words.to_array(word, "u1", (self.config.drain,)))

    def _gather(self) -> None:
        if len(self._activations) >= 4 and len(self._exponents) >= 4:
            self._ready.append(
                (np.concatenate(self._activations[:4], 1), np.concatenate(self._exponents[:4]))
            )
            del self._activations[:4], self._exponents[:4]
            self._advance()

    def _advance(self) -> None:
        while self._tiles and self._ready:
            tile = self._tiles[0]
            p = min(max(tile["p"], 5), self.config.p_max)
            context = tile["context"] if tile["context"] < self.config.contexts else 0
            beats = p * self.config.fold
            if len(self._planes) < beats:
                return
            signs, magnitudes = words.planes_from_words(self.config, self._planes[:beats], p)
            del self._planes[:beats]
            self._tiles.popleft()
            activations, exponents = self._ready.popleft()
            mask = torch.tensor([(tile["rows"] >> i) & 1 for i in range(self.config.t_m)])
            trace = self.machine.tile(
                torch.from_numpy(activations.astype(np.int64)),
                torch.from_numpy(exponents.astype(np.int64)),
                torch.from_numpy(signs),
                torch.from_numpy(magnitudes),
                p=p,
                midpoint=bool(tile["midpoint"]),
                first=bool(tile["first"]),
                context=context,
                row_mask=mask.bool(),
                rises=torch.tensor(tile["rises"]),
            )
            if tile["last"]:
                self._outputs.append(
                    _Output(
                        trace.accumulators,
                        trace.running,
                        p,
                        tile["fp32"],
                        tile["rows"],
                        context,
                        tile["scaled"],
                    )
                )

    def expected(self) -> list[int]:
        """Words of ``results`` that can be told by now, each given once.

        Results of a tile's first column group may leave while its last is still streaming in, so
        they are compared when the tile's inputs are complete.
        """
        beats = 64 // self.config.drain
        told: list[int] = []
        while self._outputs:
            output = self._outputs[0]
            scales = None
            if output.scaled:
                if len(self._scales) < beats:
                    break
                scales = np.concatenate([self._scales.popleft() for _ in range(beats)])
            told += self._words(self._outputs.popleft(), scales)
        return told

    def _words(self, output: _Output, scales: Array | None) -> list[int]:
        config = self.config
        codes, overflow = round_result(
            output.accumulators,
            output.running,
            p=output.p,
            g=config.align_guard_bits,
            f=config.acc_guard_bits,
            fmt=float_format("fp32" if output.fp32 else "bf16"),
            column_exponents=None if scales is None else torch.from_numpy(scales.astype(np.int64)),
        )
        layout = layouts.results_layout(config)
        result = []
        for column in range(0, 64, config.drain):
            columns = slice(column, column + config.drain)
            flags = [int(flag) for flag in overflow[:, columns].any(1)]
            fields = {
                "overflow": sum(flag << row for row, flag in enumerate(flags)),
                "rows": output.rows,
                "context": output.context,
                "column": column,
                "fp32": output.fp32,
            }
            self.overflow |= int(bool(fields["overflow"] & output.rows))
            result.append(
                words.from_array(codes[:, columns].numpy().astype(np.uint32))
                | words.pack(layout, fields)
            )
        return result

    @property
    def unfinished(self) -> bool:
        """Whether inputs are left that belong to no complete output tile's results."""
        return bool(self._outputs or self._tiles or self._ready or self._planes or self._scales)


class CoreBench(Bench):
    """An array with all its streams, and the golden model beside it."""

    def __init__(self, dut: object, config: Config, seed: int, mood: tuple[float, float]) -> None:
        super().__init__(dut, seed)
        gap, stall = mood
        self.config = config
        self.tiles = self.source("tiles", gap=gap)
        self.activations = self.source("activations", gap=gap)
        self.exponents = self.source("exponents", gap=gap)
        self.planes = self.source("planes", gap=gap)
        self.scales = self.source("scales", gap=gap)
        self.results = self.sink("results", stall=stall)
        self.plane_cycles: list[int] = []
        self.compared = 0
        self._got: deque[int] = deque()
        self._expected: deque[int] = deque()
        self.port("clear").value = 0
        self._status = self.port("status")
        self._idle = self.port("idle")
        self.restart()

    def restart(self) -> None:
        """A fresh golden model, as after reset."""
        self.model = CoreModel(self.config)
        self.tiles.observers = [self.model.see_tile]
        self.activations.observers = [self.model.see_activations]
        self.exponents.observers = [self.model.see_exponents]
        self.planes.observers = [self.model.see_plane, self._time_plane]
        self.scales.observers = [self.model.see_scales]
        self.results.observers = [self._got.append]
        self._got.clear()
        self._expected.clear()

    def _time_plane(self, _word: int) -> None:
        self.plane_cycles.append(self.cycle_count)

    def _compare(self) -> None:
        self._expected.extend(self.model.expected())
        layout = layouts.results_layout(self.config)
        while self._got and self._expected:
            word, expected = self._got.popleft(), self._expected.popleft()
            if word != expected:
                got, want = words.unpack(layout, word), words.unpack(layout, expected)
                fields = [name for name in want if got[name] != want[name]]
                detail = ", ".join(f"{name}: {got[name]}, not {want[name]}" for name in fields)
                raise MismatchError(f"result {self.compared}: {detail}")
            self.compared += 1

    def send(self, tiles: Iterable[Tile], **changes: int) -> int:
        """Queues tiles on all streams; returns the number of output tiles.

        ``changes`` replaces fields of the tiles' words, for words that do not fit their data.
        """
        count = 0
        config = self.config
        for tile in tiles:
            self.tiles.send(
                [
                    words.tile_word(
                        config,
                        **{
                            "p": tile.p,
                            "midpoint": tile.midpoint,
                            "first": tile.first,
                            "last": tile.last,
                            "context": tile.context,
                            "fp32": tile.fp32,
                            "scaled": int(tile.scales is not None),
                            "rows": tile.rows,
                            "rises": tile.rises or [0] * config.t_m,
                            **changes,
                        },
                    )
                ]
            )
            groups = tile.activations.reshape(config.t_m, 4, config.group_k)
            self.activations.send(
                words.from_array(groups[:, g].astype(np.uint16)) for g in range(4)
            )
            self.exponents.send(
                words.from_array(part) for part in tile.exponents.reshape(4, config.group_k)
            )
            self.planes.send(words.plane_words(config, tile.signs, tile.magnitudes, tile.p))
            if tile.scales is not None:
                self.scales.send(
                    words.from_array(part) for part in tile.scales.reshape(-1, config.drain)
                )
            count += tile.last
        return count

    async def finish(self, outputs: int, *, limit: int) -> None:
        """Runs until ``outputs`` more output tiles have left and the core is idle."""
        beats = self.results.count + outputs * (64 // self.config.drain)
        await self.run(
            lambda: (
                self.results.count >= beats and not any(source.queue for source in self.sources)
            ),
            limit=limit,
        )
        await self.run(lambda: bool(self.bit(self._idle)), limit=100)
        for _ in range(8):
            await self.cycle()
        self._compare()
        if self._got:
            raise MismatchError(
                f"{len(self._got)} results that no complete output tile accounts for"
            )
        if self._expected or self.model.unfinished:
            raise MismatchError("results are missing")

    def status(self) -> dict[str, int]:
        """The sticky status bits."""
        return words.unpack(layouts.STATUS, self.word(self._status))
