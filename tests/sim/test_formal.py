"""Formal proofs: what holds is proven, what is broken is found, and nothing is vacuous."""

from __future__ import annotations

from sim.formal.registry import BROKEN, PROOFS


def test_every_broken_copy_has_its_proof() -> None:
    assert {fault.bench for fault in BROKEN} <= {proof.name for proof in PROOFS}
