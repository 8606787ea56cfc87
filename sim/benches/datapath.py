"""Bench of the data path: whole products from a memory image, and how busy the array is."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np
import torch

from hw.control.matrix import matrix_layout
from hw.control.works import Work, work_layout
from hw.datapath import Datapath
from model.datapath import matmul
from model.datapath.special import residual_add, silu_times_up
from model.formats.bf16 import from_codes, to_codes
from model.formats.bfp import Bfp, quantize
from model.formats.commands import BANK_WORD, Epilogue
from model.formats.planes import to_image
from sim import words
from sim.axi_memory import AxiMemory, Behaviour
from sim.chips import chip_of
from sim.environment import Environment
from sim.harness import Bench, MismatchError
from sim.stimulus import bf16
from sim.words import Array

#: Memory of the bench.
MEMORY_BYTES = 1 << 23


class _DatapathBench(Bench):
    """The data path with a memory behind it and rows in its banks."""

    def __init__(self, dut: object, env: Environment, seed: int, behaviour: Behaviour) -> None:
        self.config = chip_of(env.config)
        super().__init__(dut, seed, Datapath(self.config))
        core = self.config.core
        self.data = np.random.default_rng(seed)
        self.content = bytearray(self.data.bytes(MEMORY_BYTES))
        prefixes = [f"m{i}_axi" for i in range(self.config.ports)]
        self.memory = AxiMemory(
            self,
            prefixes,
            self.content,
            behaviour,
            seed=seed,
            max_beats=self.config.memory.max_beats,
        )
        self.agents.append(self.memory)
        self.works = self.source("works")
        self.used = 4096
        self.planes: list[int] = []
        self.watchers.append(self._watch)
        self.rows = (1 << core.t_m) - 1
        self.put(
            rows=self.rows,
            load_enable=0,
            load_word=None,
            load_data=None,
            other_read=0,
            other_word=None,
            clear=0,
            stop=0,
            forget=0,
            gates=0,
            head_tiles=1,
            factor=None,
            rope_write=0,
            rope_row=None,
            rope_data=None,
            inverse_width=None,
            eps=None,
        )
        for name in ("weights", "key_jobs", "key_rows"):
            self.source(name)
        self.sink("key_lines")

    def _watch(self) -> None:
        if self.bit(self.port("plane_read")):
            self.planes.append(self.cycle_count)

    def place(self, weight: Bfp, per_block: int) -> int:
        """A matrix into memory, at a multiple of 4 KiB or anywhere; its first line."""
        image = to_image(weight, tiles_per_block=per_block).tobytes()
        at = -(-self.used // 64) * 64 if self.rng.random() < 0.5 else -(-self.used // 4096) * 4096
        self.content[at : at + len(image)] = image
        self.used = at + len(image)
        if self.used > MEMORY_BYTES:
            raise ValueError(f"the bench's memory must have {self.used} bytes, not {MEMORY_BYTES}")
        return at // 64

    async def load(self, first: int, rows: Array) -> None:
        """Writes (rows, elements) BF16 codes into the banks from a word on."""
        for number in range(rows.shape[1] // BANK_WORD):
            part = rows[:, number * BANK_WORD : (number + 1) * BANK_WORD]
            self.put(
                load_enable=self.rows,
                load_word=first + number,
                load_data=[words.from_array(row) for row in part],
            )
            await self.cycle()
        self.put(load_enable=0, load_word=None, load_data=None)

    async def dump(self, first: int, count: int) -> Array:
        """Reads words of all banks; nothing else goes on."""
        result = []
        for number in range(count + 1):
            more = number < count
            self.put(other_read=int(more), other_word=first + number if more else None)
            await self.settle()
            if number:
                shown = self.get("data")
                result.append([words.to_array(each, "u2", (BANK_WORD,)) for each in shown])
            await self.clock()
        return np.array(result).transpose(1, 0, 2).reshape(len(result[0]), -1)

    def product(self, weight: Bfp, line: int, per_block: int, **fields: int) -> None:
        """Queues a product."""
        k, n = weight.shape
        values: dict[str, Any] = {
            "line": line,
            "k_tiles": k // 64,
            "n_tiles": n // 64,
            "tiles_per_block": per_block,
            "p": 9,
            "p_full": weight.p_full,
            "midpoint": 0,
            "source": 0,
            "target": 0,
            "epilogue": 0,
            "tap": 0,
            "gate": 0,
            "head": 0,
            "columns": 64,
            "rows": self.rows,
            **fields,
        }
        content = words.pack(matrix_layout(self.config), values)
        self.works.send([content << work_layout(self.config)["content"].offset | Work.MATRIX])

    async def finish(self, limit: int) -> None:
        """Until nothing is on its way."""
        await self.run(lambda: not self.works.queue and bool(self.get("idle")), limit=limit)
        if self.get("error"):
            raise MismatchError("an error response where there was none")


def _weight(bench: _DatapathBench, k: int, n: int, p_full: int) -> Bfp:
    values = bench.data.normal(0, 1, (k, n)).astype(np.float32)
    return quantize(torch.from_numpy(values).bfloat16(), p_full=p_full)


def _numbers(codes: Array) -> torch.Tensor:
    return from_codes(torch.from_numpy(codes.astype(np.int64)))


def _codes(numbers: torch.Tensor) -> Array:
    return to_codes(numbers).numpy().astype(np.uint16)


def _expect(got: Array, want: Array, what: str) -> None:
    if (got != want).any():
        where = tuple(np.argwhere(got != want)[0])
        raise MismatchError(f"{what} {where}: {got[where]:#06x}, not {want[where]:#06x}")


@cocotb.test()
async def products(dut: object) -> None:
    """Products of every epilogue, one behind the other, over memories of every kind."""
    env = Environment.get()
    kinds = (
        Behaviour(),
        Behaviour(latency=(20, 60)),
        Behaviour(latency=(1, 100), stall=0.3, slow=0.3, swap=0.3),
        Behaviour(latency=(5, 5), rate=24.0),
    )
    for number, behaviour in enumerate(kinds):
        seed = env.seed + number
        bench = _DatapathBench(dut, env, seed, behaviour)
        await bench.reset()
        core, config, rng = bench.config.core, bench.config, bench.rng
        for _ in range(env.scale(1, 4)):
            k = 64 * rng.randint(1, env.scale(2, 9 if config.bank_words > 250 else 4))
            d = 64 * rng.randint(1, 2)
            x = bf16(bench.data, (core.t_m, k), 118, 130)
            base = bf16(bench.data, (core.t_m, d), 118, 130)
            at_base, at_out = k // 16, k // 16 + d // 16
            await bench.load(0, x)
            await bench.load(at_base, base)
            cases = []
            for n in (d, d, 2 * d):
                p_full = rng.choice((9, core.p_max))
                weight = _weight(bench, k, n, p_full)
                per_block = rng.randint(1, config.block_tiles)
                p, midpoint = rng.randint(5, p_full), rng.randrange(2)
                reconstruct = "midpoint" if midpoint and p < p_full else "truncate"
                y = matmul(_numbers(x), weight, p=p, reconstruct=reconstruct)
                fields = {"p": p, "midpoint": int(reconstruct == "midpoint")}
                cases.append((weight, bench.place(weight, per_block), per_block, fields, y))
            for (weight, line, per_block, fields, _), epilogue, target in zip(
                cases,
                (Epilogue.NONE, Epilogue.RESIDUAL, Epilogue.SILU_UP),
                (at_out, at_base, at_out + d // 16),
                strict=True,
            ):
                bench.product(
                    weight, line, per_block, epilogue=int(epilogue), target=target, **fields
                )
            await bench.finish(400_000)
            _expect(await bench.dump(at_out, d // 16), _codes(cases[0][4]), "plain")
            sums = residual_add(_numbers(base), cases[1][4], form="hardware")
            _expect(await bench.dump(at_base, d // 16), _codes(sums), "residual")
            gate_up = cases[2][4].unflatten(-1, (-1, 2, 64))
            gate, up = gate_up[:, :, 0].flatten(1), gate_up[:, :, 1].flatten(1)
            y = silu_times_up(gate.contiguous(), up.contiguous(), form="hardware")
            _expect(await bench.dump(at_out + d // 16, d // 16), _codes(y), "SiLU")
        name = f"latency {behaviour.latency}, stalls {behaviour.stall}, rate {behaviour.rate}"
        env.report(name, transactions=4 * d * core.t_m, cycles=bench.cycle_count, seed=seed)


@cocotb.test()
async def busy(dut: object) -> None:
    """A slice of a wide layer: cycles from the first plane to the last, against what may be had.

    Bound: a plane a cycle, or the bytes that memory offers over the 512 + 64 / p that a plane
    costs, in ``fold`` cycles. What is below it is the first block: its first tile is there only
    when most of it is. So the wider the slice, the nearer.
    """
    env = Environment.get()
    config = chip_of(env.config)
    core = config.core
    offered = config.ports * config.port_bits / 8
    k_tiles = min(64, (config.bank_words - config.staging_words) // 4 - 8)
    for p in (5, 9):
        bench = _DatapathBench(dut, env, env.seed, Behaviour(latency=(40, 40)))
        await bench.reset()
        k, n = 64 * min(k_tiles, env.scale(8, 64)), 64 * env.scale(2, 16)
        x = bf16(bench.data, (core.t_m, k), 118, 130)
        await bench.load(0, x)
        weight = _weight(bench, k, n, 9)
        line = bench.place(weight, config.block_tiles)
        bench.product(weight, line, config.block_tiles, p=p, target=k // 16)
        await bench.finish(2_000_000)
        y = matmul(_numbers(x), weight, p=p)
        _expect(await bench.dump(k // 16, n // 16), _codes(y), "product")
        took = bench.planes[-1] - bench.planes[0] + 1
        bound = min(1.0, offered * core.fold / (512 + 64 / p))
        share = len(bench.planes) / took
        env.report(
            f"p {p}: busy {share:.4f}, {share / bound:.4f} of the bound {bound:.4f}",
            transactions=n * core.t_m,
            cycles=bench.cycle_count,
            seed=env.seed,
        )
