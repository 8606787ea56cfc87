"""Bench of the matrix walker: fetches, pieces and jobs of matrices of every shape."""

from __future__ import annotations

from collections import deque
from typing import Any

import cocotb

from hw.control.matrix import MatrixWalker, fetch_layout, matrix_layout
from hw.issue.pieces import piece_layout
from hw.special.epilogue import epilogue_job_layout
from hw.special.slice import Op
from model.formats.commands import Epilogue
from model.formats.planes import block_tiles, load_run
from sim import words
from sim.chips import chip_of
from sim.environment import Environment
from sim.harness import MOODS, Bench, MismatchError

STREAMS = {"fetches": fetch_layout, "pieces": piece_layout, "jobs": epilogue_job_layout}


class _WalkerBench(Bench):
    """Matrices in; what comes out is compared with the memory image's own arithmetic."""

    def __init__(self, dut: object, env: Environment, seed: int, mood: str) -> None:
        self.config = chip_of(env.config)
        super().__init__(dut, seed, MatrixWalker(self.config))
        gap, stall = MOODS[mood]
        self.matrices = self.source("matrices", gap=gap)
        self.layouts = {name: layout(self.config) for name, layout in STREAMS.items()}
        self.expected: dict[str, deque[dict[str, Any]]] = {name: deque() for name in STREAMS}
        self.compared = 0
        for name in STREAMS:
            self.sink(name, stall=stall).observers.append(self._check(name))

    def _check(self, name: str) -> Any:
        layout = self.layouts[name]

        def check(word: int) -> None:
            got, want = words.unpack(layout, word), self.expected[name].popleft()
            wrong = {key: (got[key], value) for key, value in want.items() if got[key] != value}
            if wrong:
                raise MismatchError(f"{name} {self.compared}: {wrong}")
            self.compared += 1

        return check

    def send(self) -> None:
        """A matrix of any shape, and what is to come of it."""
        rng, config, core = self.rng, self.config, self.config.core
        epilogue = rng.choice(list(Epilogue))
        head = int(epilogue == Epilogue.NONE and rng.random() < 0.5)
        n_tiles = rng.randint(1, 4) * (2 if epilogue == Epilogue.SILU_UP else 1)
        most = max(1, config.bank_words // 4 - 4)
        k_tiles = rng.choice((1, 8, 9, 16, rng.randint(1, 20)))
        k_tiles = min(k_tiles, most)
        per_block = rng.randint(1, config.block_tiles)
        p_full = rng.choice((9, core.p_max))
        p = rng.randint(5, p_full)
        line = rng.getrandbits(20)
        source = 4 * rng.randint(0, most - k_tiles)
        target = 4 * rng.randint(0, most - min(most, n_tiles))
        matrix = {
            "line": line,
            "k_tiles": k_tiles,
            "n_tiles": n_tiles,
            "tiles_per_block": per_block,
            "p": p,
            "p_full": p_full,
            "midpoint": rng.randrange(2),
            "source": source,
            "target": target,
            "epilogue": int(epilogue),
            "tap": rng.randrange(2),
            "gate": rng.getrandbits(4),
            "head": head,
            "columns": rng.randint(1, 64),
            "rows": rng.getrandbits(core.t_m),
        }
        self.matrices.send([words.pack(matrix_layout(config), matrix)])
        blocks = -(-k_tiles // per_block)
        shape = {"k": 64 * k_tiles, "n": 64 * n_tiles, "p_full": p_full}
        for n in range(n_tiles):
            for b in range(blocks):
                run = load_run(**shape, n_tile=n, block=b, p=p, tiles_per_block=per_block)
                tiles = block_tiles(shape["k"], b, tiles_per_block=per_block)
                self._fetches(line + run.offset // 64, tiles, run.length // 64)
                self.expected["pieces"].append(
                    {
                        **{name: matrix[name] for name in ("p", "midpoint", "rows", "gate")},
                        "tiles": tiles,
                        "first": int(b == 0),
                        "last": int(b == blocks - 1),
                        "fp32": head,
                        "source": source + 4 * b * per_block,
                        **dict.fromkeys(("opened", "context", "scaled", "mix", "needs"), 0),
                    }
                )
            self._job(matrix, n)

    def _fetches(self, line: int, tiles: int, lines: int) -> None:
        self.expected["fetches"] += [
            {"line": line, "count": tiles, "exponents": 1},
            {"line": line + tiles, "count": lines - tiles, "exponents": 0},
        ]

    def _job(self, matrix: dict[str, int], n: int) -> None:
        last = n == matrix["n_tiles"] - 1
        at = matrix["target"] + 4 * n
        common = {"words": 4, "ends": int(last)}
        if matrix["head"]:
            columns = matrix["columns"] if last else 64
            job = {"op": Op.LOGITS, "columns": columns, "barrier": 0}
        elif matrix["epilogue"] == Epilogue.RESIDUAL:
            job = {"op": Op.RESIDUAL, "source": at, "target": at, "barrier": int(n == 0)}
            job["tap"] = matrix["tap"]
        elif matrix["epilogue"] == Epilogue.SILU_UP:
            half = matrix["target"] + 4 * (n // 2)
            job = {"op": Op.UP, "target": half} if n % 2 else {"op": Op.GATE}
            job["barrier"] = 0
        else:
            job = {"op": Op.PASS, "target": at, "tap": 0, "barrier": 0}
        self.expected["jobs"].append({**common, **job})

    async def finish(self) -> None:
        """Until all has come, and no more."""
        await self.run(lambda: not any(self.expected.values()), limit=100_000)
        for _ in range(8):
            await self.cycle()


@cocotb.test()
async def random_matrices(dut: object) -> None:
    """Shapes, blocks and loads of every kind, in all moods."""
    env = Environment.get()
    for number, mood in enumerate(MOODS):
        seed = env.seed + number
        bench = _WalkerBench(dut, env, seed, mood)
        await bench.reset()
        for _ in range(env.scale(8, 80)):
            bench.send()
        await bench.finish()
        env.report(mood, transactions=bench.compared, cycles=bench.cycle_count, seed=seed)
