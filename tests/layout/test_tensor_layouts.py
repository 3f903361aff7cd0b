"""Where tcgen05 keeps matrices in tensor memory: every formula, one element at a time."""

import itertools

import numpy as np
import pytest

from emulator import InstructionDescriptor, OperandError, UnsupportedError
from emulator.layout.tensor_memory import (
    COPIES,
    ROWS,
    TRANSFERS,
    TensorAddress,
    TensorLayout,
    copy_lanes,
    shown_places,
    transfer_places,
)

pytestmark = pytest.mark.sampled(4)

#: letter, M, cta_group, .ws, sparse -> CTA, lane and column of D[m, n]
D = {
    ("A", 256, 2, False, False): lambda m, n, N, l0: (m // 128, m % 128, n),
    ("A", 256, 2, False, True): lambda m, n, N, l0: (m // 128, m % 128, n),
    ("B", 128, 2, False, False): lambda m, n, N, l0: (
        m // 64, m % 64 + 64 * (n // (N // 2)), n % (N // 2),
    ),
    ("C", 128, 2, False, True): lambda m, n, N, l0: (
        m // 64, 32 * ((m % 64) // 16) + m % 16 + l0, n,
    ),
    ("D", 128, 1, False, False): lambda m, n, N, l0: (0, m, n),
    ("D", 128, 1, True, True): lambda m, n, N, l0: (0, m, n),
    ("E", 64, 1, True, False): lambda m, n, N, l0: (
        0, m + 64 * (n // (N // 2)), n % (N // 2),
    ),
    ("F", 64, 1, False, False): lambda m, n, N, l0: (0, 32 * (m // 16) + m % 16 + l0, n),
    ("F", 64, 1, False, True): lambda m, n, N, l0: (0, 32 * (m // 16) + m % 16 + l0, n),
    ("G", 32, 1, True, False): lambda m, n, N, l0: (
        0, m + 32 * (n // (N // 4)), n % (N // 4),
    ),
}  # fmt: skip


def layout(m, group, ws, sparse, lane=0, n=64, kind="f16", **more):
    descriptor = InstructionDescriptor(kind, m=m, n=n, sparse=sparse, **more)
    return TensorLayout(descriptor, group, ws, lane=lane)


def four(places, *index):
    return tuple(int(x[index]) for x in places)


@pytest.mark.parametrize("case", D, ids=lambda x: f"{x[0]}-{x[1]}-{x[3]}-{x[4]}")
def test_d(case):
    letter, m, group, ws, sparse = case
    for lane in (0, 16) if letter in "CF" else (0,):
        found = layout(m, group, ws, sparse, lane)
        assert found.rows.letter == letter
        for i, j in itertools.product(range(m), range(0, 64, 3)):
            assert four(found.d, i, j) == (*D[case](i, j, 64, lane), 0)
        flat = np.stack(found.d, -1).reshape(-1, 4)
        assert len(np.unique(flat, axis=0)) == m * 64


def test_every_row_of_the_table_has_a_formula():
    assert {x.letter for x in ROWS} == {case[0] for case in D}


@pytest.mark.parametrize(
    ("kind", "a", "bits"),
    [("tf32", "", 32), ("f16", "", 16), ("f8f6f4", "e2m3", 8), ("f8f6f4", "e2m1", 8),
     ("i8", "s8", 8)],
)  # fmt: skip
@pytest.mark.parametrize("case", D, ids=lambda x: f"{x[0]}-{x[1]}-{x[3]}-{x[4]}")
def test_a(case, kind, a, bits):
    letter, m, group, ws, sparse = case
    found = layout(m, group, ws, sparse, kind=kind, a=a, b=a)
    copies = {"B": 2, "E": 2, "G": 4}.get(letter, 1)
    stored = found.instruction.k // (2 if sparse else 1)
    assert found.a.lane.shape == (copies, m, stored)
    for copy, i, k in itertools.product(range(copies), range(0, m, 5), range(stored)):
        cta, row = (i // (m // group), i % (m // group))
        lane = 32 * (row // 16) + row % 16 if letter in "CF" else row + copy * (128 // copies)
        assert four(found.a, copy, i, k) == (cta, lane, k * bits // 32, k * bits % 32)


def test_a_of_fp4_is_packed():
    found = TensorLayout(InstructionDescriptor("mxf4", m=128, n=64), scales=2)
    assert four(found.a, 0, 77, 33) == (0, 77, 4, 4)
    assert found.a.columns == 8


@pytest.mark.parametrize(("a", "bits"), [("e2m3", 6), ("e2m1", 4), ("e4m3", 8)])
def test_a_of_k_64_has_no_padding(a, bits):
    found = TensorLayout(InstructionDescriptor("mxf8f6f4", a, a, m=128, n=64, k=64), scales=2)
    for i, k in itertools.product((0, 5, 127), range(64)):
        assert four(found.a, 0, i, k) == (0, i, k * bits // 32, k * bits % 32)
    assert found.a.columns == 2 * bits


@pytest.mark.parametrize(
    "fields",
    [{"kind": "mxf4", "sparsity_version": 1}, {"kind": "mxf8f6f4", "a": "e2m3", "b": "e2m3",
                                               "k": 128}],
    ids=str,
)  # fmt: skip
def test_metadata_of_128_columns_in_fours(fields):
    found = TensorLayout(InstructionDescriptor(sparse=True, m=128, n=64, **fields), scales=2)
    assert found.metadata.lane.shape == (1, 128, 32)
    for i, c in itertools.product(range(0, 128, 7), range(32)):
        assert four(found.metadata, 0, i, c) == (0, i, c // 8, 4 * (c % 8))


def test_metadata_and_a_of_ti16_are_those_of_16_bits():
    for more in ({"sparse": True, "selector": 1}, {}):
        ti16, f16 = (layout(64, 1, False, bool(more), 16, kind=kind, **(
            more and {"selector": 1})) for kind in ("ti16", "f16"))  # fmt: skip
        for name in ("a", "d", "metadata")[: 3 if more else 2]:
            for ours, theirs in zip(getattr(ti16, name), getattr(f16, name), strict=True):
                assert (ours == theirs).all()


@pytest.mark.parametrize(("m", "group", "scales", "k", "a_id"), [
    (128, 1, 2, 0, 2), (256, 2, 2, 0, 0), (128, 1, 3, 96, 2), (128, 1, 4, 128, 0),
])  # fmt: skip
def test_scales_of_a_in_128_lanes(m, group, scales, k, a_id):
    descriptor = InstructionDescriptor("mxf4", m=m, n=64, k=k, scale_a_id=a_id, scale_a_rows=True)
    found = TensorLayout(descriptor, group, scales=scales)
    assert found.scale_a.lane.shape == (1, m, scales)
    for r, b in itertools.product(range(0, m, 3), range(scales)):
        byte = a_id + b
        assert four(found.scale_a, 0, r, b) == (r // 128, r % 128, byte // 4, byte % 4 * 8)
    assert found.scale_b.lane.shape == (group, 4, 64, scales)


def test_scales_in_128_lanes_of_fewer_rows_are_not_known():
    descriptor = InstructionDescriptor("mxf4", m=128, n=64, scale_a_rows=True)
    with pytest.raises(UnsupportedError, match="no source says which lanes hold those of 64 rows"):
        _ = TensorLayout(descriptor, 2, scales=2).scale_a


@pytest.mark.parametrize(("m", "group"), [(128, 1), (256, 2)])
def test_lookup_tables(m, group):
    found = layout(m, group, False, False, n=48, kind="f8f6f4", a="e4m3", b="e4m3", k=64).lookup
    assert found.lane.shape == (group, 6 // group, 8)
    for cta, table, entry in np.ndindex(found.lane.shape):
        assert four(found, cta, table, entry) == (cta, table, entry // 4, entry % 4 * 8)


WIDE = [(128, 1, False, 0), (256, 2, False, 0)]
NARROW = [
    (64, 1, False, 0), (64, 1, False, 16), (128, 2, False, 16), (64, 1, True, 0), (32, 1, True, 0),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "m", "group", "ws", "l0"),
    [
        (kind, *shape)
        for kind in ("tf32", "f16", "f8f6f4", "mxf4")
        for shape in (WIDE if kind == "mxf4" else WIDE + NARROW)
    ],
)
def test_metadata(kind, m, group, ws, l0):
    a = "e4m3" if kind == "f8f6f4" else ""
    for selector in (0, 1) if kind in ("tf32", "f16") else (0,):
        found = layout(m, group, ws, True, l0, kind=kind, a=a, b=a, selector=selector)
        copies = found.rows.blocks
        chunks = 8 if kind in ("tf32", "f16") else 16
        assert found.metadata.lane.shape == (copies, m, chunks)
        for copy, i, c in itertools.product(range(copies), range(m), range(chunks)):
            row, start = i % (m // group), copy * (128 // copies)
            wide = 32 if found.rows.halves else 16
            if chunks == 8:
                lane = wide * (row // 16) + row % 8 + 8 * (c // 4) + l0
                bit, column = 16 * (row // 8 % 2) + 4 * (c % 4), selector
            else:
                lane = 32 * (row // 16) + row % 16 + l0 if found.rows.halves else row
                bit, column = 4 * (c % 8), c // 8
            want = (i // (m // group), lane + start, column, bit)
            assert four(found.metadata, copy, i, c) == want
        flat = np.stack(found.metadata, -1).reshape(-1, 4)
        assert len(np.unique(flat, axis=0)) == len(flat)


@pytest.mark.parametrize(("m", "group", "n", "scales", "k", "a_id", "b_id"), [
    (128, 1, 256, 2, 0, 2, 0), (256, 2, 192, 4, 0, 0, 0), (128, 2, 128, 2, 0, 0, 2),
    (128, 1, 64, 3, 96, 2, 0), (128, 1, 192, 6, 96, 0, 0),
])  # fmt: skip
def test_scales(m, group, n, scales, k, a_id, b_id):
    descriptor = InstructionDescriptor("mxf4nvf4", m=m, n=n, k=k, scale_a_id=a_id, scale_b_id=b_id)
    found = TensorLayout(descriptor, group, scales=scales)
    assert found.scale_a.lane.shape == (4, m, scales)
    for q, r, b in itertools.product(range(4), range(0, m, 3), range(scales)):
        row, byte = r % (m // group), a_id + b
        column = row // 32 + byte // 4 * 4
        want = (r // (m // group), row % 32 + 32 * q, column, byte % 4 * 8)
        assert four(found.scale_a, q, r, b) == want
    assert found.scale_b.lane.shape == (group, 4, n, scales)
    split = m == 128 and group == 2
    wide = n // 2 if split else n
    for cta, q, j, b in itertools.product(range(group), range(4), range(0, n, 3), range(scales)):
        byte = b_id + b
        if split and (j < wide) != (q < 2):
            assert four(found.scale_b, cta, q, j, b)[1] == -1
            continue
        column = j % wide // 32 + byte // 4 * (8 if wide > 128 else 4)
        want = (cta, j % wide % 32 + 32 * q, column, byte % 4 * 8)
        assert four(found.scale_b, cta, q, j, b) == want


@pytest.mark.parametrize("shape", TRANSFERS)
@pytest.mark.parametrize("packed", [False, True])
def test_ld_and_st(shape, packed):
    facts = TRANSFERS[shape]
    split = 256 if shape == "16x32bx2" else 0
    for num in (1, 4, facts.most):
        lanes, columns = transfer_places(shape, num, packed=packed, split=split)
        for lane, q in itertools.product(range(32), range(num * facts.registers)):
            g, t = lane >> 2, lane & 3
            row, column = {
                "32x32b": (lane, q),
                "16x64b": (g + 8 * (lane & 1), (lane >> 1 & 1) + 2 * q),
                "16x128b": (g + 8 * (q & 1), t + 4 * (q >> 1)),
                "16x256b": (g + 8 * (q >> 1 & 1), 2 * t + (q & 1) + 8 * (q >> 2)),
                "16x32bx2": (lane & 15, q),
            }[shape]
            own = split * (lane >> 4)
            if packed:
                assert lanes[lane, q].tolist() == [row, row]
                assert columns[lane, q].tolist() == [2 * column + own, 2 * column + 1 + own]
            else:
                assert (lanes[lane, q], columns[lane, q]) == (row, column + own)
        reached = {"16x64b": 2, "16x128b": 4, "16x256b": 8}.get(shape, 1) * num
        assert columns.max() == reached * (2 if packed else 1) + split - 1
        pairs = np.stack([lanes.ravel(), columns.ravel()])
        assert len(np.unique(pairs, axis=1).T) == lanes.size


#: shape of cp -> the lanes that row r goes to
LANES = {
    "128x256b": lambda r: [r],
    "128x128b": lambda r: [r],
    "4x256b": lambda r: [32 * r],
    "64x128b.warpx2::02_13": lambda r: [r, r + 64],
    "64x128b.warpx2::01_23": lambda r: [64 * (r // 32) + r % 32, 64 * (r // 32) + r % 32 + 32],
    "32x128b.warpx4": lambda r: [r, r + 32, r + 64, r + 96],
}


@pytest.mark.parametrize("shape", COPIES)
def test_cp(shape):
    lanes = copy_lanes(shape)
    assert lanes.shape[1] == int(shape.split("x")[0])
    for r in range(lanes.shape[1]):
        assert lanes[:, r].tolist() == LANES[shape](r)


def test_what_has_no_layout_is_refused():
    with pytest.raises(OperandError, match="m 64, 128"):
        TensorLayout(InstructionDescriptor(m=256))
    with pytest.raises(OperandError, match="layout D, of M = 128, starts in lane 0"):
        TensorLayout(InstructionDescriptor(), lane=16)
    with pytest.raises(OperandError, match="starts in lane 0 or 16"):
        TensorLayout(InstructionDescriptor(m=64), lane=8)
    with pytest.raises(OperandError, match="16x128b is one of 1, 2, 4, 8, 16, 32, 64; got 128"):
        transfer_places("16x128b", 128)
    with pytest.raises(OperandError, match=r"shapes of tcgen05\.ld"):
        transfer_places("8x32b", 1)
    with pytest.raises(OperandError, match=r"shapes of tcgen05\.cp"):
        copy_lanes("32x128b")


def test_addresses():
    assert TensorAddress.decode(0x0020_0108) == (32, 264)
    assert TensorAddress(32, 264).encode() == 0x0020_0108
    found = shown_places(TensorLayout(InstructionDescriptor(m=64, n=64)).d)
    assert found == "lanes 0-15, 32-47, 64-79, 96-111, columns 0-63"
