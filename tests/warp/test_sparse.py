"""Sparse A: compress and decompress, metadata words, and what PTX leaves undefined.

Facts from PTX ISA 9.7.14.6 and, where it only draws them, from recordings of an H200.
"""

import itertools
import tracemalloc

import numpy as np
import pytest
from bits import assert_same_codes

from dtypes import FORMATS
from emulator import (
    Instruction,
    OperandError,
    ParseError,
    UndefinedError,
    compress,
    decompress,
    execute,
    mma,
)
from emulator.isa.matrix_opcodes import expand as matrix_instructions
from emulator.layout.descriptor import Descriptor
from emulator.memory.descriptors import store_tile

pytestmark = pytest.mark.sampled(12)

MMA = list(matrix_instructions("mma.sp"))
WGMMA = [x for x in matrix_instructions("wgmma.sp") if x.n in (8, 24, 256)]
ORDERED = (0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110)
DESCENDING = (0b0001, 0b0010, 0b0110, 0b0011, 0b0111, 0b1011)
EQUAL = (0b0000, 0b0101, 0b1010, 0b1111)


def words(types):
    return "mma.sp.sync.aligned." + types


S8 = Instruction.parse(words("m16n8k32.row.col.s32.s8.s8.s32"))
S4 = Instruction.parse(words("m16n8k64.row.col.s32.s4.s4.s32"))
F16 = Instruction.parse(words("m16n8k16.row.col.f32.f16.f16.f32"))
TF32 = Instruction.parse(words("m16n8k8.row.col.f32.tf32.tf32.f32"))
F16_ORDERED = Instruction.parse(
    "mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
)


def one_of_each(instructions):
    """One instruction of each shape, type pair and variant; .satfinite changes nothing here."""
    kept = {}
    for ins in instructions:
        key = (ins.shape, ins.a_type, ins.b_type, ins.form.kind, ins.ordered_metadata, ins.d_type)
        kept.setdefault(key, ins)
    return list(kept.values())


def pattern(ins):
    """(columns of a chunk, columns kept or dropped together, such groups kept of a chunk)."""
    if ins.a_type == "tf32":
        return 2, 1, 1
    pairs = ins.a_type in ("s4", "u4") or ins.form.kind.startswith("mxf4")
    return (8, 2, 2) if pairs else (4, 1, 2)


def random_sparse(rng, ins, batch=()):
    """Codes (…, m, k) that satisfy the pattern, with every choice of columns."""
    width, group, keep = pattern(ins)
    fmt, rows, k = FORMATS[ins.a_type], ins.m, ins.k
    codes = rng.integers(0, fmt.code_mask, (*batch, rows, k), np.uint64, endpoint=True)
    rank = np.argsort(rng.random((*batch, rows, k // width, width // group)), -1)
    kept = np.repeat(rank < keep, group, -1).reshape(*batch, rows, k)
    return (codes * kept).astype(np.uint32 if fmt.bits > 16 else np.uint16)


def random_codes(rng, fmt, shape):
    return rng.integers(0, fmt.code_mask, shape, np.uint64, endpoint=True).astype(
        np.uint32 if fmt.bits > 16 else np.uint16 if fmt.bits > 8 else np.uint8
    )


def narrow(codes, fmt):
    return codes.astype(np.uint32 if fmt.bits > 16 else np.uint16 if fmt.bits > 8 else np.uint8)


def signed(codes, type_):
    bits = int(type_[1:])
    values = codes.astype(np.int64)
    return np.where(values >> bits - 1 & (type_[0] == "s"), values - (1 << bits), values)


def place_of_nibble(ins, row, chunk, selector):
    """(lane, bit) of the metadata of a chunk, by the four cases of a 16-row tile."""
    warp, row = divmod(row, 16)
    g, h = row % 8, row // 8
    chunks = ins.k // pattern(ins)[0]
    if chunks == 4:
        lane, bit = 4 * g + selector, 16 * h + 4 * chunk
    elif chunks == 16:
        lane, bit = 4 * g + h + 2 * (chunk // 8), 4 * (chunk % 8)
    elif ins.a_type in ("f16", "bf16", "tf32"):
        lane, bit = 4 * g + 2 * selector + chunk // 4, 16 * h + 4 * (chunk % 4)
    else:
        lane, bit = 4 * g + 2 * selector + h, 4 * chunk
    return 32 * warp + lane, bit


def expand(ins, stored, e, selector):
    """The full matrix that compressed codes and metadata stand for, one chunk at a time."""
    width, group, keep = pattern(ins)
    full = np.zeros((ins.m, ins.k), stored.dtype)
    for row, chunk in itertools.product(range(ins.m), range(ins.k // width)):
        lane, bit = place_of_nibble(ins, row, chunk, selector)
        nibble = int(e[lane]) >> bit & 0xF
        picks = [nibble >> 3] if ins.a_type == "tf32" else [nibble & 3, nibble >> 2]
        for slot, pick in enumerate(picks):
            for i in range(group):
                column = chunk * width + pick * group + i
                full[row, column] = stored[row, (chunk * keep + slot) * group + i]
    return full


# --- every form, every selector ---


@pytest.mark.parametrize("ins", one_of_each(MMA) + one_of_each(WGMMA), ids=str)
def test_compress_follows_the_tables(ins):
    rng = np.random.default_rng(ins.n + ins.k)
    full = random_sparse(rng, ins)
    contributing = {4: 4, 8: 2, 16: 1}[ins.k // pattern(ins)[0]]
    selectors = range(contributing)
    for selector in selectors:
        stored, e = compress(ins, full, selector)
        assert e.dtype == np.uint32 and e.shape == (ins.lanes,)
        want = narrow(full, FORMATS[ins.a_type])
        assert_same_codes(expand(ins, stored, e, selector), want)
        assert_same_codes(decompress(ins, stored, e, selector), want)
        idle = [lane for lane in range(ins.lanes) if lane % 4 * contributing // 4 != selector]
        assert not e[idle].any()
    for selector in (-1, contributing, True, 0.0, None):
        with pytest.raises(OperandError, match="selector"):
            compress(ins, full, selector)


@pytest.mark.parametrize("ins", one_of_each(MMA), ids=str)
def test_execute_on_compressed_registers_is_mma_on_the_full_matrix(ins):
    rng = np.random.default_rng(ins.k)
    types = [FORMATS[t] for t in (ins.b_type, ins.c_type)]
    a = narrow(random_sparse(rng, ins), FORMATS[ins.a_type])
    b = random_codes(rng, types[0], (ins.k, ins.n))
    c = random_codes(rng, types[1], (ins.m, ins.n))
    registers, matrices = {}, {}
    if ins.is_block_scaled:
        v, one = int(ins.scale_vec[0]), {"ue8m0": 0x7F, "ue4m3": 0x38}[ins.scale_type]
        registers = {x: np.full(32, one * 0x01010101, np.uint32) for x in ("scale_a", "scale_b")}
        matrices = {
            "scale_a": np.full((ins.m, v), one, np.uint8),
            "scale_b": np.full((v, ins.n), one, np.uint8),
        }
    target = ins.targets[0]
    want = mma(ins, a, b, c, target=target, codes=True, **matrices)
    if ins.a_type[0] in "su":
        exact = signed(a, ins.a_type) @ signed(b, ins.b_type) + signed(c, "s32")
        low, high = -(1 << 31), (1 << 31) - 1
        exact = np.clip(exact, low, high) if ins.satfinite else exact
        assert_same_codes(want, (exact & 0xFFFFFFFF).astype(np.uint32))
    for selector in range(ins.fragment("e").groups):
        stored, e = compress(ins, a, selector)
        d = execute(
            ins, ins.fragment("a").scatter(stored), ins.fragment("b").scatter(b),
            ins.fragment("c").scatter(c), e, selector=selector, target=target, **registers,
        )  # fmt: skip
        assert_same_codes(ins.fragment("d").gather(d), want)


@pytest.mark.parametrize("ins", [x for x in one_of_each(WGMMA) if x.n != 256], ids=str)
def test_wgmma_on_compressed_registers_is_mma_on_the_full_matrix(ins):
    rng = np.random.default_rng(ins.k)
    a = narrow(random_sparse(rng, ins), FORMATS[ins.a_type])
    b = random_codes(rng, FORMATS[ins.b_type], (ins.n, ins.k))
    d = random_codes(rng, FORMATS[ins.d_type], (ins.m, ins.n))
    descriptor, size = Descriptor.for_tile(ins.n, ins.k, ins.b_type, swizzle_bytes=64)
    memory = np.zeros(size, np.uint8)
    store_tile(memory, descriptor, b, FORMATS[ins.b_type])
    want = mma(ins, a, b.T, d, target="sm_90a", codes=True)
    if ins.a_type[0] in "su":
        exact = signed(a, ins.a_type) @ signed(b, ins.b_type).T + signed(d, "s32")
        exact = np.clip(exact, -(1 << 31), (1 << 31) - 1) if ins.satfinite else exact
        assert_same_codes(want, (exact & 0xFFFFFFFF).astype(np.uint32))
    for selector in range(ins.fragment("e").groups):
        stored, e = compress(ins, a, selector)
        got = execute(
            ins, ins.fragment("a").scatter(stored), descriptor.encode(),
            ins.fragment("d").scatter(d), e, selector=selector, shared=memory, target="sm_90a",
        )  # fmt: skip
        assert_same_codes(ins.fragment("d").gather(got), want)


def test_one_wrong_metadata_bit_shows():
    full = np.tile(np.array([5, 0, 7, 0], np.uint16), (16, 8))
    stored, e = compress(S8, full)
    assert (e[[0, 1]] == 0x88888888).all() and not e[[2, 3]].any()
    e[0] ^= 1 << 2  # index 2 of row 0, chunk 0 becomes 3
    moved = full.copy()
    moved[0, 2:4] = moved[0, [3, 2]]
    assert_same_codes(decompress(S8, stored, e), narrow(moved, FORMATS["s8"]))
    with pytest.raises(AssertionError, match="2 of 512 codes differ"):
        assert_same_codes(decompress(S8, stored, e), narrow(full, FORMATS["s8"]))


def test_batches_broadcast():
    rng = np.random.default_rng(2)
    full = random_sparse(rng, F16, (2, 3))
    stored, e = compress(F16, full, 3)
    assert stored.shape == (2, 3, 16, 8) and e.shape == (2, 3, 32)
    assert_same_codes(decompress(F16, stored, e, 3), full)
    for i, j in itertools.product(range(2), range(3)):
        alone = compress(F16, full[i, j], 3)
        assert_same_codes(stored[i, j], alone[0])
        assert_same_codes(e[i, j], alone[1])
    wide = decompress(F16, stored[0, 0], e[0], 3)
    assert wide.shape == (3, 16, 16) and np.array_equal(wide[0], full[0, 0])
    none = [x[:0] for x in (full, stored, e)]
    assert [x.shape for x in compress(F16, none[0], 3)] == [x.shape for x in none[1:]]
    assert decompress(F16, *none[1:], 3).shape == none[0].shape
    with pytest.raises(OperandError, match=r"do not broadcast: a \(2, 3, 16, 8\), e \(2, 32\)"):
        decompress(F16, stored, e[:, 0], 3)


# --- zeros ---


def nibbles_of_row_0(ins, row):
    full = np.zeros((ins.m, ins.k), np.uint32)
    full[0, : len(row)] = row
    stored, e = compress(ins, full)
    lane, bit = place_of_nibble(ins, 0, 0, 0)
    kept = pattern(ins)[1] * pattern(ins)[2]
    return stored[0, :kept].tolist(), int(e[lane]) >> bit & 0xF


@pytest.mark.parametrize(
    ("ins", "row", "kept", "nibble"),
    [
        (F16, [0, 0, 0, 0], [0, 0], 0b0100),
        (F16, [1, 0, 0, 0], [1, 0], 0b0100),
        (F16, [0, 0, 0, 1], [0, 1], 0b1100),
        (F16, [0, 0, 1, 2], [1, 2], 0b1110),
        # −0 counts as zero, and is kept where there is room
        (F16, [1, 0x8000, 2, 0x8000], [1, 2], 0b1000),
        (F16, [0, 0x8000, 0, 2], [0x8000, 2], 0b1101),
        (F16, [0, 0, 0x8000, 0x8000], [0x8000, 0x8000], 0b1110),
        # the lowest f16 number is no zero, the sign bit of an integer neither
        (F16, [0x8001, 0, 1, 0], [0x8001, 1], 0b1000),
        (S8, [0x80, 0, 0x80, 0], [0x80, 0x80], 0b1000),
        # tf32: bits 12:0 are ignored
        (TF32, [0, 0], [0], 0b0100),
        (TF32, [0x3F800000, 0x1FFF], [0x3F800000], 0b0100),
        (TF32, [0x80001FFF, 0x2000], [0x2000], 0b1110),
        (TF32, [0, 0x80000001], [0x80000001], 0b1110),
        # pairs of 4-bit elements
        (S4, [0, 0, 1, 0, 0, 0, 0, 2], [1, 0, 0, 2], 0b1101),
        (S4, [0, 8, 0, 0, 8, 0, 0, 0], [0, 8, 8, 0], 0b1000),
    ],
)
def test_zeros(ins, row, kept, nibble):
    assert nibbles_of_row_0(ins, row) == (kept, nibble)


@pytest.mark.parametrize(
    ("ins", "row", "words"),
    [
        (F16, [1, 2, 0x8000, 3], "row 3, columns 8…11 of A have 3 non-zero elements; .*2 of 4"),
        (TF32, [0x3F800000, 0x2000], "columns 4…5 of A have 2 non-zero elements; .*keeps 1 of 2"),
        (S4, [1, 0, 0, 1, 1, 1, 0, 0], "columns 16…23 of A have 3 non-zero pairs; .*2 of 4"),
    ],
)
def test_a_chunk_that_is_too_full_is_named(ins, row, words):
    full = np.zeros((16, ins.k), np.uint32)
    full[3, 2 * len(row) : 3 * len(row)] = row
    with pytest.raises(OperandError, match=f"row 3, {words.removeprefix('row 3, ')}"):
        compress(ins, full)
    with pytest.raises(OperandError, match=r"\(batch \(1,\)\)"):
        compress(ins, np.stack([full * 0, full]))


@pytest.mark.parametrize("function", [compress, decompress])
def test_operands_that_do_not_fit(function):
    e = () if function is compress else (np.full(32, 0x44444444, np.uint32),)
    columns = 16 if function is compress else 8
    full = np.zeros((16, columns), np.uint16)
    dense = Instruction.parse("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    for ins, got in ((dense, "got mma.sync"), (str(dense), "got mma.sync"), (None, "NoneType")):
        with pytest.raises(OperandError, match=rf"sparse [Ii]nstruction.* is needed.*{got}"):
            function(ins, full, *e)
    with pytest.raises(ParseError):
        function("mma.sp", full, *e)
    for bad in (full.astype(np.float16), full[:, :-1], full[0], full.astype(np.int64)):
        with pytest.raises(OperandError, match=rf"codes \(…, 16, {columns}\); got"):
            function(F16, bad, *e)
    with pytest.raises(OperandError, match="code 0x10000 does not fit the 16 bits of f16"):
        function(F16, full.astype(np.uint32) + 0x10000, *e)
    if function is decompress:
        for bad in (e[0][:31], e[0].astype(np.uint64), e[0].astype(np.int32)):
            with pytest.raises(OperandError, match="e is one metadata word per lane"):
                decompress(F16, full, bad)


# --- what is defined ---


def run_nibble(ins, nibble, stored, **options):
    """decompress and execute with one value in all metadata, one in all of A."""
    e = np.full(ins.lanes, nibble * 0x11111111, np.uint32)
    a = np.full((ins.m, ins.k // 2), stored, np.uint32)
    b = ins.fragment("b").zeros()
    c = ins.fragment("c").zeros()
    execute(ins, ins.fragment("a").scatter(a), b, c, e, target="sm_90a", **options)
    return decompress(ins, a, e)


@pytest.mark.parametrize("nibble", range(16))
@pytest.mark.parametrize("ins", [F16, F16_ORDERED, S4, S8, TF32], ids=str)
def test_which_nibbles_are_defined(ins, nibble):
    legal = (0b0100, 0b1110) if ins is TF32 else ORDERED
    if ins in (F16, S4, S8):
        legal += DESCENDING  # only ::ordered_metadata asks for ascending indices
    one = 0x2000 if ins is TF32 else 1
    if nibble in legal:
        full = run_nibble(ins, nibble, one)
        assert np.count_nonzero(full) == ins.m * ins.k // 2
        return
    for function in (run_nibble, lambda *x: run_nibble(*x, undefined="hardware")):
        with pytest.raises(UndefinedError, match=rf"row 0, chunk 0 .* is {nibble:#06b}"):
            function(ins, nibble, one)
    # CUTLASS writes nibble 0 for a chunk of zeros; equal indices over zeros are harmless.
    zero = 0x80000000 if ins is TF32 else 0x8000 if ins in (F16, F16_ORDERED) else 0
    if nibble in EQUAL:
        assert not (run_nibble(ins, nibble, zero).astype(np.uint32) & 0x7FFF).any()
    else:
        with pytest.raises(UndefinedError):
            run_nibble(ins, nibble, zero)


def test_descending_indices_swap_the_stored_elements():
    stored = np.tile(np.array([1, 2], np.uint16), (16, 4))
    e = np.full(32, 0x11111111, np.uint32)  # low index 1, high index 0
    full = decompress(F16, stored, e)
    assert full[0, :4].tolist() == [2, 1, 0, 0]
    again, ascending = compress(F16, full)
    assert again[0, :2].tolist() == [2, 1] and ascending[0] == 0x44444444


def test_mma_takes_the_zeros_of_cutlass():
    nibbles, a = np.zeros((16, 4), np.uint8), np.zeros((16, 8), np.float16)
    b, c = np.ones((16, 8), np.float16), np.full((16, 8), 3, np.float32)
    got = mma(F16_ORDERED, a, b, c, target="sm_80", nibbles=nibbles)
    assert (got == 3).all()


# --- what a call may hold, and what it may be given ---


@pytest.mark.parametrize("undefined", ["raise", "hardware"])
def test_a_nibble_has_four_bits(undefined):
    """A fifth bit would read the next chunk, or another case's B."""
    ins = Instruction.parse("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32")
    rng = np.random.default_rng(0)
    a = rng.integers(0, 1 << 16, (3, 16, 16)).astype(np.uint16)
    b = rng.integers(0, 1 << 16, (3, 32, 8)).astype(np.uint16)
    nibbles = np.full((3, 16, 8), 0b0100)
    options = {"target": "sm_90", "codes": True, "undefined": undefined}
    want = mma(ins, a, b, nibbles=nibbles, **options)
    for type_ in (np.uint8, np.int8, np.uint64, np.dtype(">u4")):
        assert np.array_equal(mma(ins, a, b, nibbles=nibbles.astype(type_), **options), want)
    for wrong in (16, -1, 1 << 40):
        nibbles[1, 2, 3] = wrong
        with pytest.raises(OperandError, match=f"a nibble has 4 bits; got {wrong}"):
            mma(ins, a, b, nibbles=nibbles, **options)
    for other in (nibbles.astype(float), nibbles > 3):
        with pytest.raises(OperandError, match=f"nibbles are integers; got {other.dtype}"):
            mma(ins, a, b, nibbles=other, **options)


def test_a_long_batch_holds_no_more_than_it_must():
    """Every row of A selects a B of its own: 8 times the result here, if all were held at once."""
    ins = Instruction.parse("wgmma.mma_async.sp.sync.aligned.m64n256k32.f32.f16.f16")
    count = 160
    rng = np.random.default_rng(0)
    a = rng.integers(0, 1 << 32, (count, 128, 4), np.uint32) & 0x3FFF3FFF
    e = np.full((count, 128), 0x44444444, np.uint32)
    d = ins.fragment("d").zeros(count)
    shared = rng.integers(0, 256, 1 << 15).astype(np.uint8) & 0x3F
    descriptor = Descriptor.for_tile(256, 32, "f16", swizzle_bytes=64).descriptor
    options = {"shared": shared, "target": "sm_90a", "engine": "vector"}
    tracemalloc.start()
    try:
        got = execute(ins, a, descriptor, d, e, **options)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 9 * got.nbytes
    for case in (0, 63, 64, count - 1):
        one = execute(ins, a[case], descriptor, d[case], e[case], **options)
        assert np.array_equal(got[case], one), case


def test_pieces_of_a_batch_are_cut_along_any_axis(monkeypatch):
    ins = Instruction.parse("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32")
    rng = np.random.default_rng(1)
    a = rng.integers(0, 1 << 32, (3, 1, 5, 32, 4), np.uint32) & 0x3FFF3FFF
    b = rng.integers(0, 1 << 32, (2, 1, 32, 4), np.uint32) & 0x3FFF3FFF
    c = rng.integers(0, 1 << 32, (5, 32, 4), np.uint32) & 0x3FFFFFFF
    e = rng.choice(np.array([0x44444444, 0xEEEEEEEE], np.uint32), (3, 2, 1, 32))
    want = execute(ins, a, b, c, e, target="sm_90")
    assert want.shape == (3, 2, 5, 32, 4)
    for at_once in (1, 5000, 13000, 40000):
        monkeypatch.setattr("emulator.warp.sparse._SELECTED_AT_ONCE", at_once)
        assert np.array_equal(execute(ins, a, b, c, e, target="sm_90"), want), at_once
