"""The sparse one of the manual sections that the project was created from: 9.7.14.6.2.8.

Beside test_seeds.py. The formulas stand here as the page prints them; the metadata, which it draws,
stands as measured on an H200.
"""

import itertools

import numpy as np
import pytest
from lanes import (
    c_m16,
    check_fragment,
    codes_of,
    group,
    integers,
    on_targets,
    pack_by,
    range_of,
    thread,
    unpack_by,
)

from emulator import Instruction

# --- 9.7.14.6.2.8. sparse mma.m16n8k128 ---


def a_sparse_row(lane, i):
    return group(lane) if 0 <= i < 8 or 16 <= i < 24 else group(lane) + 8


def a_sparse_firstcol(lane, i):
    return thread(lane) * 16 if i < 16 else thread(lane) * 16 + 64


def a_sparse(lane, i):
    """The stored matrix, 16 × 64: half of the columns of every 8-wide chunk."""
    return a_sparse_row(lane, i), a_sparse_firstcol(lane, i) // 2 + i % 8


def b_sparse(lane, i):
    """Figures 142–145: register r holds rows 32r … 32r+31, a lane eight rows of column groupID."""
    return 32 * (i // 8) + thread(lane) * 8 + i % 8, group(lane)


def e_sparse(lane, nibble):
    """Figures 146, 147: (row, chunk) of a nibble; lanes 0, 1 of a quad for columns 0–63."""
    return group(lane) + 8 * (lane & 1), nibble + 8 * (thread(lane) >> 1)


SPARSE = [
    f"mma.sp{ordered}.sync.aligned.m16n8k128.row.col.s32.{a}.{b}.s32"
    for ordered, a, b in itertools.product(("", "::ordered_metadata"), ("s4", "u4"), ("s4", "u4"))
] + [
    "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.kind::mxf4.block_scale.scale_vec::2X"
    ".f32.e2m1.e2m1.f32.ue8m0"
]


@pytest.fixture(params=SPARSE)
def m16n8k128(request):
    return Instruction.parse(request.param)


def random_metadata(rng, ordered):
    """(16, 16, 2) pair indices of every chunk: ascending, or any two that differ."""
    choices = list(itertools.permutations(range(4), 2))
    choices = [pair for pair in choices if pair[0] < pair[1]] if ordered else choices
    return np.array(choices)[rng.integers(0, len(choices), (16, 16))]


def test_9_7_14_6_2_8_sparse_m16n8k128_a(m16n8k128):
    fragment = m16n8k128.fragment("a")
    check_fragment(fragment, a_sparse, registers=4, elements=32, shape=(16, 64))
    # "eight non-zero elements out of 16 consecutive elements": two chunks of eight per register
    for lane, i in itertools.product(range(32), range(32)):
        row, stored = (int(x) for x in fragment.coords[lane, i])
        chunk_first = stored // 4 * 8
        firstcol = a_sparse_firstcol(lane, i)
        assert row == a_sparse_row(lane, i)
        assert firstcol <= chunk_first and chunk_first + 7 <= firstcol + 15


def test_9_7_14_6_2_8_sparse_m16n8k128_b(m16n8k128):
    check_fragment(m16n8k128.fragment("b"), b_sparse, registers=4, elements=32, shape=(128, 8))


def test_9_7_14_6_2_8_sparse_m16n8k128_accumulators(m16n8k128):
    """ "The same as in case of Matrix Fragments for mma.m16n8k64"."""
    dense = Instruction.parse("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32")
    for operand in "cd":
        fragment = m16n8k128.fragment(operand)
        check_fragment(fragment, c_m16, registers=4, elements=4, shape=(16, 8))
        assert np.array_equal(fragment.coords, dense.fragment(operand).coords)


def test_9_7_14_6_2_8_sparse_m16n8k128_metadata(m16n8k128):
    """One register, 16 2-bit vectors; a pair of them for each 8-wide chunk; selector 0 alone."""
    fragment = m16n8k128.fragment("e")
    check_fragment(fragment, e_sparse, registers=1, elements=8, shape=(16, 16))
    assert (fragment.groups, m16n8k128.chunk) == (1, 8)


def test_9_7_14_6_2_8_sparse_m16n8k128_executes(m16n8k128):
    ins, rng = m16n8k128, np.random.default_rng(128)
    stored = integers(rng, *range_of(ins.a_type), (16, 64))
    b = integers(rng, *range_of(ins.b_type), (128, 8))
    c = integers(rng, -(1 << 12), 1 << 12, (16, 8))
    pairs = random_metadata(rng, ins.ordered_metadata)
    full = np.zeros((16, 128), np.int64)
    for row, chunk, s in itertools.product(range(16), range(16), range(4)):
        full[row, 8 * chunk + 2 * pairs[row, chunk, s // 2] + s % 2] = stored[row, 4 * chunk + s]
    assert (np.count_nonzero(full.reshape(16, 16, 8), -1) <= 4).all()  # "four non-zero elements"
    nibbles = pairs[..., 0] | pairs[..., 1] << 2
    one = np.full(32, 0x7F7F7F7F, np.uint32)  # ue8m0: 1.0 four times
    d = on_targets(
        ins,
        pack_by(a_sparse, codes_of(stored, ins.a_type), 4, 32),
        pack_by(b_sparse, codes_of(b, ins.b_type), 4, 32),
        pack_by(c_m16, codes_of(c, ins.c_type), 32, 4),
        pack_by(e_sparse, nibbles, 4, 8)[:, 0],
        **({"scale_a": one, "scale_b": one} if ins.is_block_scaled else {}),
    )
    want = codes_of(full @ b + c, ins.d_type)
    assert np.array_equal(unpack_by(c_m16, d, 32, 4, (16, 8)), want)
