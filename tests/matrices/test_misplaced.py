"""Matrices in the wrong places: messages name what was swapped or transposed, and nothing else."""

import numpy as np
import pytest

from emulator import OperandError, gemm, mma

F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
SPARSE = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
A, B, C = np.ones((16, 16), "f2"), np.ones((16, 8), "f2"), np.ones((16, 8), "f4")
X, Y, Z = np.ones((64, 32), "f2"), np.ones((32, 48), "f2"), np.ones((64, 48), "f4")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((A, B.T, C), "B.T would fit: transposed?"),
        ((A, B, C.T), "C.T would fit: transposed?"),
        ((B, A, C), "A and B would fit in each other's places: swapped?"),
        ((A, C, B), "B and C would fit in each other's places: swapped?"),
        ((C, B, A), "A and C would fit in each other's places: swapped?"),
        ((B.T, A, C), "(B, A.T, C) would fit as (A, B, C): in other places?"),
        ((C, A, B), "(B, C, A) would fit as (A, B, C): in other places?"),
        ((B, A), "A and B would fit in each other's places: swapped?"),
        ((B.T, A), "(B, A.T) would fit as (A, B): in other places?"),
    ],
)
def test_mma(given, words):
    with pytest.raises(OperandError) as caught:
        mma(F16, *given, target="H100")
    assert str(caught.value).endswith(f"; {words}")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((X, Y.T), "B.T would fit: transposed?"),
        ((X.T, Y), "A.T would fit: transposed?"),
        ((X.T, Y.T, Z), "A.T and B.T would fit: transposed?"),
        ((X, Y, Z.T), "C.T would fit: transposed?"),
        ((Y, X, Z), "A and B would fit in each other's places: swapped?"),
        ((X, Z, Y), "B and C would fit in each other's places: swapped?"),
        ((X[None], Y.T[None]), "B.T would fit: transposed?"),
    ],
)
def test_gemm(given, words):
    with pytest.raises(OperandError) as caught:
        gemm(F16, *given, target="H100")
    assert str(caught.value).endswith(f"; {words}")


@pytest.mark.parametrize(
    "given",
    [
        (X, np.ones((5, 7), "f2")),  # fits nowhere
        (X.astype("f4"), Y),  # of another type
        (X, Y, np.ones(3, "f4")),  # no matrix
        (X, [[1.0]]),
        (X, Y, Z[:3]),
    ],
)
def test_nothing_is_said_of_what_fits_nowhere(given):
    with pytest.raises(OperandError) as caught:
        gemm(F16, *given, target="H100")
    assert "would fit" not in str(caught.value)


def test_several_ways_to_fit_are_none_to_name():
    """(8, 64) and (8, 64): either may be the transposed one."""
    with pytest.raises(OperandError) as caught:
        gemm(F16, np.ones((8, 64), "f2"), np.ones((8, 64), "f2"), target="H100")
    assert "would fit" not in str(caught.value)


def test_codes_and_sparse_matrices():
    with pytest.raises(OperandError, match=r"B\.T would fit"):
        mma(F16, A.view("u2"), B.view("u2").T, codes=True, target="H100")
    full = np.zeros((16, 32), "f2")
    with pytest.raises(OperandError, match=r"B\.T would fit"):
        mma(SPARSE, full, np.ones((8, 32), "f2"), target="H100")
