"""The paper's numbers, what follows from them, and files of measured ones."""

from __future__ import annotations

import copy
import json
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from model.calibration.cost import PaperCost
from model.calibration.curves import GAMMAS, curves, footprint, gamma_curve
from model.calibration.machine import MachineCost
from model.calibration.measured import Measured, load_measured, merged, parse_measured
from model.calibration.models import SMOLLM2, SMOLLM2_CONFIG, find_shape
from model.calibration.paper import TOTALS, paper_tables, parse_paper
from model.calibration.peers import compare, worth_a_bit
from model.calibration.search import best_draft, candidates
from model.calibration.table_v import NEAR, agreement, alpha_for, column, recompute, what_if
from model.lm import smollm2
from model.lm.paper_models import PAPER_MODELS
from model.lm.precision import Precision

PAPER = paper_tables()
RAW = json.loads(resources.files("model.calibration").joinpath("paper_tables.json").read_text())
P = Precision.parse


class TestPaper:
    def test_samples(self) -> None:
        by_pair = PAPER.acceptance("Qwen3-14B").by_pair
        assert by_pair[P("W5KV8")] == {"HumanEval": 0.911, "GSM8K": 0.937, "MBPP": 0.92}
        assert PAPER.table_v["Llama-3.2-3B"][1 << 17] == P("W7KV5")
        assert PAPER.table_iv["Llama-3.1-8B"]["QuantSpec W16KV4"] == 0.913
        assert PAPER.table_vi["Qwen3-14B"]["BS-Spec BFP9"] == 0.91
        assert PAPER.suspects == (("Llama-3.2-3B", P("W7KV5")),)
        mean = PAPER.acceptance("Qwen3-14B").of_set("mean")[P("W5KV8")]
        assert mean == pytest.approx((0.911 + 0.937 + 0.92) / 3)

    @pytest.mark.parametrize(
        ("path", "value", "said"),
        [
            (("table_III", "Qwen3-14B"), {}, "table_III must be of Llama-3.2-3B"),
            (("table_III", "Qwen3-14B", "W5KV8", "GSM8K"), 93.7, r"W5KV8\.GSM8K must be in \[0, 1"),
            (("table_III", "Qwen3-14B", "W5KV8"), {"GSM8K": 0.9}, "must be 15 pairs of 3 data"),
            (("table_IV", "Qwen3-14B"), [0.9], "Qwen3-14B must be 4 numbers"),
            (("table_IV", "columns"), ["SPEQ"], r"table_IV\.columns must be"),
            (("table_V", "Qwen3-14B", "2048"), "W9KV9", "W9KV9 is not in table_III"),
            (("table_V", "Qwen3-14B"), {"2048": "W5KV8"}, "must be of B S"),
            (("table_VI", "Qwen3-14B"), [0.9, 0.9, 0.9, None], "must be a number, not None"),
        ],
    )
    def test_a_damaged_copy_is_refused(self, path: tuple[str, ...], value: Any, said: str) -> None:
        damaged = copy.deepcopy(RAW)
        place = damaged
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        with pytest.raises(ValueError, match=said):
            parse_paper(damaged)


class TestTableV:
    CELLS = recompute(PAPER)

    def test_agreement(self) -> None:
        counts = agreement(self.CELLS)
        assert counts[:3] == (24, 5, 1)
        assert counts.worst_near == pytest.approx(0.0033980, abs=1e-7)

    def test_the_far_cell_is_the_suspect_one(self) -> None:
        far = [cell for cell in self.CELLS if cell.loss > NEAR]
        assert [(c.model, c.total, str(c.printed)) for c in far] == [
            ("Llama-3.2-3B", 1 << 17, "W7KV5")
        ]
        assert far[0].suspect
        assert sum(cell.suspect for cell in self.CELLS) == 1

    def test_no_printed_pair_beats_the_computed_one(self) -> None:
        assert all(cell.loss >= 0 and (cell.loss == 0) == cell.equal for cell in self.CELLS)

    def test_what_if(self) -> None:
        cell = next(cell for cell in self.CELLS if cell.loss > NEAR)
        found = what_if(PAPER, cell)
        assert found.low == pytest.approx(0.936254, abs=1e-6)
        assert found.high == pytest.approx(0.940273, abs=1e-6)
        assert found.bound_by == 1 << 18
        assert found.tried == (0.937, 0.938, 0.939, 0.94)
        assert found.equal == (10, 10, 10, 10)
        # Just outside the interval the column is no longer the printed one.
        rates = PAPER.acceptance(cell.model).of_set("GSM8K")
        for rate in (found.low - 1e-9, found.high + 1e-9):
            cells = column(cell.model, {**rates, found.pair: rate}, PAPER.table_v[cell.model])
            assert sum(each.equal for each in cells) == 9

    def test_what_if_needs_a_cell_that_differs(self) -> None:
        with pytest.raises(ValueError, match=r"Llama-3\.2-3B at 2048 is W6KV8 already"):
            what_if(PAPER, self.CELLS[0])

    def test_alpha_for_inverts_the_speedup(self) -> None:
        cost, pair = PaperCost(PAPER_MODELS["Qwen3-14B"]), P("W5KV8")
        speedup = cost.speedup(pair, 7, 0.937, 1, 2048)
        assert alpha_for(cost, pair, 7, 2048, speedup) == pytest.approx(0.937, abs=1e-14)
        assert alpha_for(cost, pair, 7, 2048, 100.0) is None
        assert alpha_for(cost, pair, 7, 2048, 0.01) is None


class TestCurves:
    def test_footprint(self) -> None:
        point = footprint("Qwen3-14B", 2048)
        assert point.weights == 14_768_307_200 * 9 / 8
        assert point.ratios[P("W9KV9")] == 1
        assert point.ratios[P("W5KV5")] == pytest.approx(5 / 9)
        assert len(point.ratios) == 25

    @pytest.mark.parametrize("p_full", [9, 16])
    def test_envelope_is_the_highest_curve(self, p_full: int) -> None:
        found = curves(PAPER, "Llama-3.1-8B", p_full, TOTALS)
        for place, best in enumerate(found.envelope):
            assert best.speedup == max(each[place] for each in found.speedups.values())

    def test_a_bfp9_target_is_faster_than_a_bfp16_target(self) -> None:
        both = [curves(PAPER, "Qwen3-14B", p_full, TOTALS) for p_full in (16, 9)]
        assert [each.alone for each in both] == [1.0, pytest.approx(16 / 9)]
        for wide, narrow in zip(both[0].envelope, both[1].envelope, strict=True):
            assert narrow.speedup > wide.speedup

    def test_gamma_peaks_at_3_or_4_and_once_at_2(self) -> None:
        peaks = {}
        for model in PAPER_MODELS:
            for total in TOTALS:
                curve = gamma_curve(PAPER, model, total)
                assert [best.gamma for best in curve.best] == list(GAMMAS)
                peaks[model, total] = GAMMAS[curve.fixed.index(max(curve.fixed))]
        odd = [place for place, peak in peaks.items() if peak not in (3, 4)]
        assert odd == [("Llama-3.2-3B", 1 << 17)]  # the suspect cell, with its low rate


class TestSearch:
    COST = PaperCost(PAPER_MODELS["Qwen3-14B"])

    def test_of_equals_the_one_with_more_bits_is_kept(self) -> None:
        # Equal rates do not make equal speedups: the shorter load is the faster one.
        flat = {P("W5KV5"): 0.5, P("W5KV6"): 0.5}
        assert best_draft(self.COST, flat, [3], 1, 2048).precision == P("W5KV5")

        class Same(PaperCost):
            def speedup(self, *_: object) -> float:  # type: ignore[override]
                return 2.0

        given = {P(text): 0.5 for text in ("W5KV5", "W6mKV7m", "W6mKV7", "W6KV7m", "W6KV7")}
        found = best_draft(Same(self.COST.config), given, [7, 3], 1, 2048)
        assert (str(found.precision), found.gamma) == ("W6KV7", 3)

    def test_reconstruct(self) -> None:
        texts = ("W9KV9", "W6KV7", "W6mKV7m", "W6mKV7", "W9KV7m", "W9KV7")
        rates = {P(text): 0.9 for text in texts}
        kept = {r: set(map(str, candidates(rates, r))) for r in ("truncate", "midpoint", "best")}
        assert kept["truncate"] == {"W9KV9", "W6KV7", "W9KV7"}
        assert kept["midpoint"] == {"W9KV9", "W6mKV7m", "W9KV7m"}
        assert kept["best"] == set(texts)

    def test_refusals(self) -> None:
        rates = {P("W6KV7"): 0.9}
        with pytest.raises(ValueError, match="reconstruct must be 'truncate' or 'midpoint' or"):
            candidates(rates, "round")
        with pytest.raises(ValueError, match="no draft of 1 measured ones is midpoint"):
            candidates(rates, "midpoint")
        with pytest.raises(ValueError, match="rates and gammas must not be empty"):
            best_draft(self.COST, rates, [], 1, 2048)
        with pytest.raises(ValueError, match=r"gamma must be in 1\.\.255, not 0"):
            best_draft(self.COST, rates, [0], 1, 2048)

    def test_batch_matters_to_the_machine_alone(self) -> None:
        rates = candidates(PAPER.acceptance("Qwen3-14B").of_set("GSM8K"))
        machine = MachineCost(self.COST.config)
        whole = [best_draft(c, rates, [7], 1, 1 << 14) for c in (self.COST, machine)]
        split = [best_draft(c, rates, [7], 32, 1 << 9) for c in (self.COST, machine)]
        assert whole[0] == split[0]
        assert split[1].speedup < 0.6 * whole[1].speedup


def measured(**tables: Any) -> Measured:
    return parse_measured(tables, "m.json")


class TestMeasured:
    def test_names_pairs_and_gaps(self, tmp_path: Path) -> None:
        path = tmp_path / "m.json"
        content = {
            "table_III": {"smollm2": {"W8mKV9m": {"A": 0.9, "B": 0.8}, "W5KV5": {"A": None}}},
            "table_IV": {SMOLLM2: {"speq": {"A": 0.5, "B": 0.7}, "quantspec-s": None}},
            "details": 1,
        }
        path.write_text(json.dumps(content))
        found = load_measured(path)
        acceptance = found.of_model("SmolLM2-135M-Instruct")
        assert acceptance.by_pair == {P("W8mKV9"): {"A": 0.9, "B": 0.8}}
        assert acceptance.usual() == "mean"
        assert acceptance.of_set("mean") == {P("W8mKV9"): pytest.approx(0.85)}
        assert found.drafts == {SMOLLM2: {"speq": pytest.approx(0.6)}}

    def test_only_sets_of_every_pair(self) -> None:
        found = measured(table_III={"x": {"W5KV5": {"A": 0.5}, "W6KV5": {"A": 0.6, "B": 0.7}}})
        assert found.of_model("x").sets() == ["A"]
        said = r"dataset must be one of m\.json for x \(A, mean\), not 'B'"
        with pytest.raises(ValueError, match=said):
            found.of_model("x").of_set("B")
        with pytest.raises(ValueError, match=r"m\.json has no table_III of 'y'; it has x"):
            found.of_model("y")

    @pytest.mark.parametrize(
        ("tables", "said"),
        [
            ({"table_III": []}, r"m\.json: table_III must be a JSON object, not \[\]"),
            ({"table_III": {"x": {"W5": {"A": 1}}}}, r"table_III\.x\.W5: a precision must be"),
            ({"table_III": {"x": {"W12KV5": {"A": 1}}}}, r"W12KV5: p must be in 2\.\.p_full = 9"),
            ({"table_III": {"x": {"W5KV5": {"A": 98}}}}, r"W5KV5\.A must be in \[0, 1\], not 98"),
            ({"table_III": {"x": {"W5KV5": {"A": "1"}}}}, r"W5KV5\.A must be a number, not '1'"),
            ({"table_III": {"x": {"W5KV5": 0.9}}}, r"W5KV5 must be a JSON object, not 0\.9"),
            (
                {"table_III": {"x": {"W5KV9": {"A": 0.5}, "W5KV9m": {"A": 0.6}}}},
                "W5KV9m: W5KV9 is there twice, with other rates",
            ),
            (
                {"table_IV": {"smollm2": {}, SMOLLM2: {}}},
                "table_IV has SmolLM2-135M twice, as smollm2 and as SmolLM2-135M",
            ),
            ({"table_VI": {"x": {"bf16": -1}}}, r"table_VI\.x\.bf16 must be in \[0, 1\]"),
        ],
    )
    def test_refusals(self, tables: dict[str, Any], said: str) -> None:
        with pytest.raises(ValueError, match=said):
            measured(**tables)

    def test_files_that_are_none(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match=r"x\.json is missing"):
            load_measured(tmp_path / "x.json")
        (tmp_path / "y.json").write_text("[1]")
        with pytest.raises(ValueError, match=r"y\.json must hold a JSON object, not list"):
            load_measured(tmp_path / "y.json")
        (tmp_path / "z.json").write_bytes(b"\xff")
        with pytest.raises(ValueError, match=r"z\.json is not JSON"):
            load_measured(tmp_path / "z.json")

    def test_merging(self) -> None:
        one = measured(table_III={"x": {"W5KV5": {"A": 0.5}}}, table_IV={"x": {}})
        two = measured(table_IV={"x": {"speq": 0.5}}, table_VI={"x": {"bf16": 0.4}})
        whole = merged([one, two])
        assert list(whole.acceptance) == ["x"]
        assert whole.drafts == {"x": {"speq": 0.5}}
        with pytest.raises(ValueError, match="table_III of x is in more than one file"):
            merged([one, one])


class TestMidpoint:
    RATES = {
        P("W9KV9"): 1.0,
        P("W6KV9"): 0.90,
        P("W6mKV9"): 0.95,
        P("W7KV9"): 0.95,
        P("W7KV5"): 0.80,
        P("W6mKV5m"): 0.79,
    }

    def test_comparison(self) -> None:
        found = compare(self.RATES, SMOLLM2_CONFIG)
        assert [str(each.truncate) for each in found] == ["W7KV9", "W7KV5", "W6KV9", "W6KV5"]
        assert found[2].alphas == (0.90, 0.95)
        assert found[3].alphas == (None, 0.79)
        cost = PaperCost(SMOLLM2_CONFIG)
        assert found[2].speedups[0] == (
            cost.speedup(P("W6KV9"), 7, 0.90, 1, 2048),
            cost.speedup(P("W6mKV9"), 7, 0.95, 1, 2048),
        )
        assert compare(self.RATES, None)[0].speedups == []

    def test_worth_a_bit(self) -> None:
        found = [(str(w.midpoint), str(w.longer), w.holds) for w in worth_a_bit(self.RATES)]
        assert found == [("W6mKV9", "W7KV9", True), ("W6mKV5m", "W7KV5", False)]


class TestShapes:
    @pytest.mark.slow
    def test_smollm2_is_what_its_file_says(self) -> None:
        # The header alone: load() reads the weights too.
        assert smollm2._config(smollm2._open(smollm2.find())) == SMOLLM2_CONFIG

    def test_folder(self, tmp_path: Path) -> None:
        config = {
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "vocab_size": 100,
            "rms_norm_eps": 1e-5,
            "max_position_embeddings": 512,
            "tie_word_embeddings": True,
        }
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "config.json").write_text(json.dumps(config))
        shape = find_shape(str(tmp_path / "mine"))
        assert (shape.name, shape.config.width) == ("mine", 64)

    def test_refusals(self) -> None:
        with pytest.raises(ValueError, match=r"model must be Llama-3\.2-3B, .* not 'GPT'"):
            find_shape("GPT")
        with pytest.raises(TypeError, match="model must be a string, not 3"):
            find_shape(3)  # type: ignore[arg-type]
