"""Kernels in PTX with faults planted by hand, for the tests of the fault finder.

They are written as a user writes them: addresses, index formulas and descriptors come from the
manual's text, none from this package's fragments.
"""

import numpy as np
from paths import PTX

from emulator import Instruction

LANE = np.arange(32)
#: groupID and threadID_in_group
G, T = LANE // 4, LANE % 4
DENSE = Instruction.parse("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")


def dense_matrices():
    """A, B and C of DENSE."""
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((16, 16)).astype("f2"), rng.standard_normal((16, 8)).astype("f2")
    return a, b, rng.standard_normal((16, 8)).astype("f4")


def text(name, *edits):
    """A kernel of tests/ptx with words replaced: its declarations, and the rest."""
    out = (PTX / f"{name}.ptx").read_text()
    for old, new in edits:
        assert old in out, old
        out = out.replace(old, new)
    return out.split("\n\n", 1)


def halves(low, high):
    return low.astype(np.uint32) | high.astype(np.uint32) << 16


def row_of_a(i):
    """Row of element i of an f16 A fragment, 16 × 16, in every lane."""
    return G + i // 2 % 2 * 8


def col_of_a(i):
    return T * 2 + i % 2 + i // 4 * 8


def packed(x, row=row_of_a, col=col_of_a):
    """Registers ``(32, 4)`` of f16 pairs: element i of a lane is ``x[row(i), col(i)]``."""
    bits = [x.view("u2")[row(i), col(i)] for i in range(8)]
    return np.stack([halves(bits[i], bits[i + 1]) for i in range(0, 8, 2)], -1)


def c_registers(c):
    """Register i of the accumulator, for i < 4."""
    return [c[G + i // 2 * 8, T * 2 + i % 2].view("u4") for i in range(4)]


def best(report):
    """The first fault, which must explain every bit."""
    assert report.verdict == "found", str(report)
    assert report[0].exact
    return report[0]
