"""clmad: the halves of carry-less products, by hand and as an H100 has them."""

import hashlib

import numpy as np
import pytest

from emulator import Instruction
from emulator.arith.scalar.rule import bind_reference, bind_vector

EDGES = (0, 1, 2, 3, 1 << 63, (1 << 64) - 1, 0x5555555555555555, 0xAAAAAAAAAAAAAAAA, 0xFFFFFFFF)
#: of the words (lo, hi) of 200,000 operands, seed 7, that an H100 of 2026-11-27 made (driver 580,
#: a cubin of ptxas 13.5 for sm_90)
RECORDED = "45bc9e3fd93cef2b00319e26752172cb51a9f0a9a513eb47aacc599b3680e220"


def operands(count=200_000):
    words = np.random.default_rng(7).integers(0, 1 << 64, (count, 3), np.uint64)
    pairs = [(a, b) for a in EDGES for b in EDGES]
    words[: len(pairs), :2] = np.array(pairs, np.uint64)
    return words


def digest(results):
    return hashlib.sha256(np.stack(results, axis=1).tobytes()).hexdigest()


def halves(a, b, c):
    return [bind_vector(Instruction.parse(f"clmad.{x}.u64"))(a, b, c) for x in ("lo", "hi")]


def test_it_is_what_an_h100_computes():
    results = halves(*operands().T.copy())
    assert digest(results) == RECORDED
    results[1][199_999] ^= 1
    assert digest(results) != RECORDED


@pytest.mark.parametrize(
    ("mode", "a", "b", "c", "d"),
    [
        ("lo", 3, 3, 0, 5),  # (x + 1)² = x² + 1: no carry
        ("lo", 3, 3, 1, 4),
        ("hi", 1 << 63, 2, 0, 1),
        ("hi", 1 << 63, 1, 7, 7),
        ("hi", 1 << 63, 1 << 63, 0, 1 << 62),
    ],
)
def test_by_hand(mode, a, b, c, d):
    assert bind_reference(Instruction.parse(f"clmad.{mode}.u64"))(a, b, c) == d


@pytest.mark.parametrize("opcode", ["clmad.lo.u64", "clmad.hi.s64"])
def test_the_reference_is_equal(opcode):
    words = operands(300)
    rule = bind_reference(Instruction.parse(opcode))
    expected = [rule(*row) for row in words.tolist()]
    assert bind_vector(Instruction.parse(opcode))(*words.T.copy()).tolist() == expected
