"""Lane maps: bijections, agreement of all views of a fragment, and the formulas of the manual.

The formulas are those of PTX ISA 9.7.14.5 (dense), 9.7.14.6.2 (sparse), 9.7.14.3 (block scales) and
9.7.15.5.1 (wgmma), stated here anew; what the manual draws was measured on an H200.
"""

import itertools
import random

import numpy as np
import pytest

from emulator import Instruction, OperandError
from emulator.isa.matrix_forms import FORMS
from emulator.isa.matrix_opcodes import expand as instructions
from emulator.warp.scales import gather_scales

pytestmark = pytest.mark.sampled(4)

LANE = np.arange(32)[:, None]
G, T = LANE >> 2, LANE & 3
#: elements of a register, by type
PER_REGISTER = {
    1: "f64 tf32", 2: "f16 bf16", 4: "e4m3 e5m2 e3m2 e2m3 s8 u8", 8: "e2m1 s4 u4", 32: "b1",
}  # fmt: skip


def a_sample():
    """One instruction of every form, layout and accumulator type, and forty more."""
    found = {}
    for ins in instructions():
        key = ins.form, ins.layouts, ins.d_type, ins.c_type, ins.scale_vec
        found.setdefault(key, ins)
    chosen = {str(ins) for ins in found.values()}
    rest = [ins for ins in instructions() if str(ins) not in chosen]
    return [*found.values(), *random.Random(1).sample(rest, 40)]


SAMPLE = a_sample()
of_sample = pytest.mark.parametrize("ins", SAMPLE, ids=str)


def fragments(ins):
    return list(ins.fragments.values())


def per_register(ins, type_):
    if ins.form.kind in ("f8f6f4", "mxf8f6f4"):  # 8-bit containers, 9.7.14.5.14
        return 4
    return next(e for e, types in PER_REGISTER.items() if type_ in types.split())


def same_coords(fragment, row, col):
    """True if every element lies at (row, col), arrays over (lane, element)."""
    stated = np.stack(np.broadcast_arrays(row, col), -1)
    return np.array_equal(fragment.coords, stated)


def random_registers(fragment, *batch):
    rng = np.random.default_rng(fragment.elements)
    shape = (*batch, fragment.lanes, fragment.registers)
    return rng.integers(0, 1 << fragment.word_bits, shape, fragment.zeros().dtype)


def test_same_coords_can_fail():
    fragment = Instruction.parse("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32").fragment("a")
    i = np.arange(4)
    assert same_coords(fragment, G, 4 * T + i)
    assert not same_coords(fragment, G, 4 * T + (i ^ 1))
    assert not same_coords(fragment, G, 4 * T + np.arange(5) % 4)


# --- every fragment ---


def test_sample_covers_every_form():
    assert {ins.form for ins in SAMPLE} == set(FORMS)


@of_sample
def test_map_is_a_bijection(ins):
    for fragment in fragments(ins):
        rows, cols = fragment.shape
        row, col = np.moveaxis(fragment.coords, -1, 0)
        places = set(((fragment.group * rows + row) * cols + col).reshape(-1).tolist())
        assert places == set(range(fragment.groups * rows * cols))
        assert fragment.coords.shape == (fragment.lanes, fragment.elements, 2)
        assert len(places) == fragment.lanes * fragment.elements


@of_sample
def test_round_trip_of_random_registers(ins):
    for fragment in fragments(ins):
        words = random_registers(fragment, 2, 3)
        codes = fragment.gather(words)
        groups = (fragment.groups,) if fragment.groups > 1 else ()
        assert codes.shape == (2, 3, *groups, *fragment.shape)
        back = fragment.scatter(codes)
        padding = sum(
            fragment.place.padding << s for s in range(0, fragment.word_bits, fragment.place.width)
        )
        assert back.dtype == words.dtype
        assert np.array_equal(back, words & ~words.dtype.type(padding))
        assert np.array_equal(fragment.gather(back), codes)


@of_sample
def test_gather_takes_elements_low_to_high(ins):
    """The bits of a register, read one by one here, are where coords says they are."""
    for fragment in fragments(ins):
        words, place = random_registers(fragment), fragment.place
        codes = fragment.gather(words).reshape(fragment.groups, *fragment.shape)
        per = fragment.word_bits // place.width
        i = np.arange(fragment.elements)
        shift = (place.width * (i % per) + place.shift).astype(words.dtype)
        mask = words.dtype.type((1 << place.code_bits) - 1)
        by_hand = words[:, i // per] >> shift & mask
        row, col = np.moveaxis(fragment.coords, -1, 0)
        assert np.array_equal(codes[fragment.group, row, col], by_hand)


@of_sample
def test_lane_and_element_agree_with_coords(ins):
    rng = random.Random(str(ins))
    for fragment in fragments(ins):
        per = fragment.word_bits // fragment.place.width
        for _ in range(20):
            lane, i = rng.randrange(fragment.lanes), rng.randrange(fragment.elements)
            row, col = fragment.coords[lane, i].tolist()
            register, low = i // per, i % per * fragment.place.width + fragment.place.shift
            found = fragment.lane(row, col, int(fragment.group[lane, i]))
            assert found == (lane, register, low, fragment.place.code_bits)
            assert fragment.element(lane, register)[i % per] == (row, col)
            assert len(fragment.element(lane, register)) == per


# --- dense mma, 9.7.14.5 ---


@pytest.mark.parametrize("family", ["mma", "mma.sp"])
def test_universal_formulas(family):
    """One formula each for A, B and C/D of all shapes; A of mma.sp is the stored matrix."""
    seen = 0
    for ins in instructions(family):
        if ins.form.pipe == "quad":
            continue
        seen += 1
        e = per_register(ins, ins.a_type)
        a, b = ins.fragment("a"), ins.fragment("b")
        stored_k = ins.k // 2 if family == "mma.sp" else ins.k
        assert (a.shape, b.shape) == ((ins.m, stored_k), (ins.k, ins.n))
        i = np.arange(ins.m * stored_k // 32)
        r, j = i // e, i % e
        if ins.m == 16:
            assert same_coords(a, G + 8 * (r & 1), e * T + j + 4 * e * (r >> 1))
        else:
            assert same_coords(a, G, e * T + i)
        i = np.arange(ins.k * ins.n // 32)
        assert same_coords(b, e * T + i % e + 4 * e * (i // e), G)
        i = np.arange(ins.m * ins.n // 32)
        for x, type_ in (("c", ins.c_type), ("d", ins.d_type)):
            assert same_coords(ins.fragment(x), G + 8 * (i >> 1), 2 * T + (i & 1))
            assert ins.fragment(x).registers == len(i) // (2 if type_ == "f16" else 1)
        assert (a.registers, b.registers) == (ins.m * stored_k // 32 // e, ins.k * ins.n // 32 // e)
    assert seen


def where(condition, yes, no=0):
    return np.where(condition, yes, no)


def among(i, *ranges):
    """i lies in one of the ranges (first, last)."""
    return np.any([(first <= i) & (i <= last) for first, last in ranges], axis=0)


#: types of A, shape -> row and column of a_i, row of b_i (its column is g), as 9.7.14.5.x writes
PIECEWISE = {
    ("s8 u8", "m8n8k16"): lambda i: (G, 4 * T + i, 4 * T + i),  # .3
    ("s4 u4", "m8n8k32"): lambda i: (G, 8 * T + i, 8 * T + i),  # .4
    ("b1", "m8n8k128"): lambda i: (G, 32 * T + i, 32 * T + i),  # .5
    ("tf32 f64", "m16n8k4"): lambda i: (where(i == 0, G, G + 8), T, T),  # .6
    ("f16 bf16", "m16n8k8"): lambda i: (where(i < 2, G, G + 8), 2 * T + (i & 1), 2 * T + i),  # .7
    ("tf32 f64", "m16n8k8"): lambda i: (
        where((i == 0) | (i == 2), G, G + 8), where(i < 2, T, T + 4), where(i == 0, T, T + 4),
    ),
    ("f16 bf16", "m16n8k16"): lambda i: (  # .8
        where(among(i, (0, 1), (4, 5)), G, G + 8),
        2 * T + (i & 1) + where(i >= 4, 8),
        2 * T + (i & 1) + where(i >= 2, 8),
    ),
    ("f64", "m16n8k16"): lambda i: (
        where(i % 2 == 0, G, G + 8), where(i % 2 == 0, i * 2 + T, i * 2 - 2 + T), T + 4 * i,
    ),
    ("s8 u8 e4m3 e5m2", "m16n8k16"): lambda i: (  # .9
        where(i < 4, G, G + 8), 4 * T + (i & 3), 4 * T + i,
    ),
    ("s4 u4", "m16n8k32"): lambda i: (where(i < 8, G, G + 8), 8 * T + (i & 7), 8 * T + i),  # .10
    ("s8 u8 e4m3 e5m2 e3m2 e2m3 e2m1", "m16n8k32"): lambda i: (
        where(among(i, (0, 3), (8, 11)), G, G + 8),
        4 * T + (i & 3) + where(i >= 8, 16),
        4 * T + (i & 3) + where(i >= 4, 16),
    ),
    ("s4 u4 e2m1", "m16n8k64"): lambda i: (  # .11
        where(among(i, (0, 7), (16, 23)), G, G + 8),
        8 * T + (i & 7) + where(i >= 16, 32),
        8 * T + (i & 7) + where(i >= 8, 32),
    ),
    ("b1", "m16n8k128"): lambda i: (  # .12
        where(i < 32, G, G + 8), 32 * T + (i & 31), 32 * T + i,
    ),
    ("b1", "m16n8k256"): lambda i: (  # .13
        where(among(i, (0, 31), (64, 95)), G, G + 8),
        32 * T + (i & 31) + where(i >= 64, 128),
        32 * T + (i & 31) + where(i >= 32, 128),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("types", "shape"), PIECEWISE)
def test_formulas_of_every_shape(types, shape):
    formula = PIECEWISE[types, shape]
    found = [x for x in instructions("mma") if x.shape == shape and x.a_type in types.split()]
    assert {ins.a_type for ins in found} == set(types.split())
    for ins in found:
        a, b = ins.fragment("a"), ins.fragment("b")
        row, col, _ = formula(np.arange(a.elements))
        assert same_coords(a, row, col)
        assert same_coords(b, formula(np.arange(b.elements))[2], G)


def test_formulas_of_every_shape_are_all():
    shapes = {(x.a_type, x.shape) for x in instructions("mma") if x.form.pipe != "quad"}
    stated = {(t, shape) for types, shape in PIECEWISE for t in types.split()}
    assert stated | {("f64", "m8n8k4")} == shapes  # m8n8k4 has its test in test_seeds.py


# --- sparse, 9.7.14.6.2: "elements i -> row; columns firstcol … lastcol" and the metadata ---

#: types, shape -> element numbers of row g (first, last), first column, columns, metadata case
SPARSE = {
    ("f16 bf16", "m16n8k16"): ([(0, 1)], lambda i: 4 * T + 0 * i, 4, "S1"),
    ("f16 bf16", "m16n8k32"): ([(0, 1), (4, 5)], lambda i: 4 * T + where(i >= 4, 16), 4, "S2"),
    ("tf32", "m16n8k8"): ([(0, 0)], lambda i: 2 * T + 0 * i, 2, "S1"),
    ("tf32", "m16n8k16"): ([(0, 0), (2, 2)], lambda i: 2 * T + where(i >= 2, 8), 2, "S2"),
    ("s8 u8", "m16n8k32"): ([(0, 3)], lambda i: 8 * T + 0 * i, 8, "S3"),
    ("s8 u8 e4m3 e5m2 e3m2 e2m3 e2m1", "m16n8k64"): (
        [(0, 3), (8, 11)], lambda i: 8 * T + where(i >= 8, 32), 8, "S4",
    ),
    ("s4 u4", "m16n8k64"): ([(0, 7)], lambda i: 16 * T + 0 * i, 16, "S3"),
    ("s4 u4 e2m1", "m16n8k128"): (
        [(0, 7), (16, 23)], lambda i: 16 * T + where(i >= 16, 64), 16, "S4",
    ),
}  # fmt: skip
#: case -> selectors, chunks of a row, (lane, bit) of the nibble of row g + 8h, chunk c, selector f
METADATA = {
    "S1": (4, 4, lambda g, h, c, f: (4 * g + f, 16 * h + 4 * c)),
    "S2": (2, 8, lambda g, h, c, f: (4 * g + 2 * f + (c >> 2), 16 * h + 4 * (c & 3))),
    "S3": (2, 8, lambda g, h, c, f: (4 * g + 2 * f + h, 4 * c)),
    "S4": (1, 16, lambda g, h, c, f: (4 * g + h + 2 * (c >> 3), 4 * (c & 7))),
}


def chunk_width(ins):
    """Columns that one nibble describes: 1:2 of tf32, 4:8 of packed 4-bit elements, else 2:4."""
    return {1: 2, 8: 8}.get(per_register(ins, ins.a_type), 4)


@pytest.mark.parametrize(("types", "shape"), SPARSE)
def test_sparse_a_and_metadata(types, shape):
    first_rows, firstcol, columns, case = SPARSE[types, shape]
    found = [x for x in instructions("mma.sp") if x.shape == shape and x.a_type in types.split()]
    assert {ins.a_type for ins in found} == set(types.split())
    for ins in found:
        a, i = ins.fragment("a"), np.arange(ins.fragment("a").elements)
        row, stored = np.moveaxis(a.coords, -1, 0)
        assert np.array_equal(row, where(among(i, *first_rows), G, G + 8))
        width = chunk_width(ins)
        assert ins.chunk == width
        chunk = stored // (width // 2)
        first = firstcol(i)
        assert (first <= chunk * width).all() and (chunk * width + width <= first + columns).all()
        check_metadata(ins, case, warps=1)


def check_metadata(ins, case, warps):
    selectors, chunks, formula = METADATA[case]
    e = ins.fragment("e")
    assert (e.groups, e.shape, e.registers) == (selectors, (16 * warps, chunks), 1)
    assert chunks * chunk_width(ins) == ins.k
    places = itertools.product(range(warps), range(8), range(2), range(chunks), range(selectors))
    for w, g, h, c, f in places:
        lane, bit = formula(g, h, c, f)
        assert e.lane(16 * w + g + 8 * h, c, f) == (32 * w + lane, 0, bit, 4)


# --- block scales, 9.7.14.3 ---


@pytest.mark.parametrize("vec", [1, 2, 4])
def test_scales(vec):
    found = [ins for ins in instructions() if ins.scale_vec == f"{vec}X"]
    assert found
    words = np.random.default_rng(vec).integers(0, 1 << 32, 32, np.uint32)
    ins = found[0]
    byte_of = words.view("<u1").reshape(32, 4)
    code = 0x7F if ins.scale_type == "ue4m3" else 0xFF  # seven bits of a byte
    for byte_id, thread_id in itertools.product(range(0, 4, vec), range(4)):
        b = np.arange(vec)
        if thread_id < 2:
            m = np.arange(16)[:, None]
            want = byte_of[4 * (m % 8) + 2 * thread_id + m // 8, byte_id + b] & code
            assert np.array_equal(gather_scales(ins, "scale_a", words, byte_id, thread_id), want)
        n = np.arange(8)
        want = byte_of[4 * n + thread_id, byte_id + b[:, None]] & code
        assert np.array_equal(gather_scales(ins, "scale_b", words, byte_id, thread_id), want)


# --- wgmma, 9.7.15.5.1 ---


@pytest.mark.parametrize("family", ["wgmma", "wgmma.sp"])
def test_wgmma_fragments(family):
    lane = np.arange(128)[:, None]
    warp, g, t = lane >> 5, lane >> 2 & 7, lane & 3
    for ins in SAMPLE:
        if ins.form.family != family:
            continue
        i = np.arange(ins.n // 2)
        d = ins.fragment("d")
        assert same_coords(d, 16 * warp + g + 8 * (i >> 1 & 1), 8 * (i >> 2) + 2 * t + (i & 1))
        assert d.registers == ins.n // (4 if ins.d_type == "f16" else 2)
        assert ins.fragment("c") is d
        e, a = per_register(ins, ins.a_type), ins.fragment("a")
        i = np.arange(4 * e)
        r, j = i // e, i % e
        assert same_coords(a, 16 * warp + g + 8 * (r & 1), e * t + j + 4 * e * (r >> 1))
        assert (a.registers, a.shape) == (4, (64, 8 * e))
        if ins.is_sparse:
            check_metadata(ins, "S4" if e == 4 else "S2", warps=4)


# --- mistakes ---

A = Instruction.parse("mma.sync.aligned.m16n8k32.row.col.s32.s4.s4.s32").fragment("a")
QUAD = Instruction.parse("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32").fragment("a")
F64 = Instruction.parse("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64").fragment("b")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: A.gather(A.zeros()[:, :1]), r"operand a.*32 lanes, 2 registers.*\(32, 1\)"),
        (lambda: A.gather(A.zeros().T), r"\(2, 32\)"),
        (lambda: A.gather(A.zeros()[0]), r"\(2,\)"),
        (lambda: A.gather(A.zeros().astype(np.int32)), "uint32.*int32.*view"),
        (lambda: A.gather(A.zeros().astype(np.uint64)), "uint32.*uint64"),
        (lambda: A.gather(A.zeros().astype(np.float32)), "uint32.*float32"),
        (lambda: A.gather([[1, 2]]), "uint32"),
        (lambda: A.gather(None), "uint32"),
        (lambda: F64.gather(np.zeros((32, 1), np.uint32)), "operand b.*uint64.*uint32"),
        (lambda: A.scatter(np.zeros((32, 16), np.uint8)), r"16, 32.*\(32, 16\)"),
        (lambda: A.scatter(np.zeros(32, np.uint8)), r"16, 32.*\(32,\)"),
        (lambda: A.scatter(np.zeros((16, 32), np.int8)), "unsigned.*int8"),
        (lambda: A.scatter(np.zeros((16, 32))), "unsigned.*float64"),
        (lambda: QUAD.scatter(np.zeros((8, 4), np.uint16)), r"4 matrices, 8, 4.*\(8, 4\)"),
        (lambda: A.lane(16, 0), "row 16 is out of range.*16 rows"),
        (lambda: A.lane(-1, 0), "row -1"),
        (lambda: A.lane(0, 32), "column 32.*32 columns"),
        (lambda: A.lane(0, 0, 1), "group 1.*1 group"),
        (lambda: QUAD.lane(0, 0, 4), "group 4.*4 groups"),
        (lambda: A.element(32, 0), "lane 32.*32 lanes"),
        (lambda: A.element(0, 2), "register 2.*2 registers"),
        (lambda: A.element(0, -1), "register -1"),
        (lambda: SAMPLE[0].fragment("e"), "no fragment 'e'.*d, a, b, c"),
        (lambda: SAMPLE[0].fragment(""), "no fragment ''"),
    ],
)  # fmt: skip
def test_mistakes_say_what_is_legal(call, message):
    with pytest.raises(OperandError, match=message):
        call()


def test_wgmma_has_no_fragment_of_b():
    ins = next(instructions("wgmma"))
    with pytest.raises(OperandError, match=r"no fragment 'b'.*d, a"):
        ins.fragment("b")
