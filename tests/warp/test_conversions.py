"""The packing cvts against tables of all values of a format, searched; and what is refused.

PTX ISA 9.7.9.21; special values as recorded on an H200 for f16, bf16, tf32 and fp8, as the manual
says for the formats of later targets. test_stochastic.py has .rs.
"""

import itertools
import random
import shutil
import subprocess

import ml_dtypes
import numpy as np
import pytest
from bits import assert_same_codes

from emulator import Instruction, OperandError, ParseError, UnsupportedError, execute
from emulator.isa.conversion import expand as conversions

pytestmark = pytest.mark.sampled(3)

TARGETS = (
    "75 80 86 87 88 89 90 90a 100 100a 100f 103 103a 103f 107 107a 107f 110 110a 110f 120 120a "
    "120f 121 121a 121f"
)
SINCE_75 = TARGETS.split()
SINCE_80, SINCE_89 = SINCE_75[1:], SINCE_75[5:]
SINCE_90, SINCE_100 = SINCE_75[6:], SINCE_75[8:]
SPECIFIC = [t for t in SINCE_100 if t[-1] in "af"]
#: which 13.0 took before PTX had it
TAKEN_EARLY = "e2m1x2", "f16x2", "rn"
STOCHASTIC = ["100a", "103a", "107a"]

#: what ptxas 13.0 takes (newer forms have a file of their own): destinations, sources, modifiers
#: between them and cvt, targets
LEGAL = [
    ("f16x2 bf16x2 bf16", "f32", "rn rz relu satfinite", SINCE_80),
    ("f16", "f32", "rn rz satfinite", SINCE_75),
    ("f16", "f32", "rn rz relu! satfinite", SINCE_80),
    ("f16x2 bf16x2", "f32", "rs relu satfinite", STOCHASTIC),
    ("tf32", "f32", "rna satfinite", SINCE_80),
    ("tf32", "f32", "rn rz relu", SINCE_90),
    ("tf32", "f32", "rn rz relu satfinite!", SINCE_100),
    ("e4m3x2 e5m2x2", "f32 f16x2", "rn relu satfinite!", SINCE_89),
    ("f16x2", "e4m3x2 e5m2x2", "rn relu", SINCE_89),
    ("e2m1x2", "f32 f16x2", "rn relu satfinite!", SPECIFIC),
    ("e2m3x2 e3m2x2", "f32", "rn relu satfinite!", SPECIFIC),
    ("f16x2", "e2m3x2 e3m2x2 e2m1x2", "rn relu", SPECIFIC),
    ("ue8m0x2", "f32 bf16x2", "rz rp satfinite", SPECIFIC),
    ("bf16x2", "ue8m0x2", "rn", SPECIFIC),
    ("e4m3x4 e5m2x4 e2m3x4 e3m2x4 e2m1x4", "f32", "rs relu satfinite!", STOCHASTIC),
]


def legal_forms():
    """(destination, source, rounding, relu, satfinite) -> targets."""
    out = {}
    for to, source, words, targets in LEGAL:
        roundings = [w for w in words.split() if w[0] == "r" and "relu" not in w]
        choices = [(True,) if f"{w}!" in words else (False, True) if w in words else (False,)
                   for w in ("relu", "satfinite")]  # fmt: skip
        for form in itertools.product(to.split(), source.split(), roundings, *choices):
            out[form] = targets
    return out


FORMS = legal_forms()


def opcode(to, source, rounding, relu=False, satfinite=False):
    words = ["cvt", rounding, *["relu"] * relu, *["satfinite"] * satfinite, to, source]
    return ".".join(words)


def run(form, *operands):
    ins = Instruction.parse(form if isinstance(form, str) else opcode(*form))
    return execute(ins, *operands, target=ins.targets[-1])


# --- what is expected: the nearest of all values of the target ---

#: type -> (numpy type, bits, code of NaN, code of infinity)
TYPES = {
    "f16": (np.float16, 16, 0x7FFF, 0x7C00),
    "bf16": (ml_dtypes.bfloat16, 16, 0x7FFF, 0x7F80),
    "tf32": (np.float32, 32, 0x7FFFE000, 0x7F800000),
    "e5m2": (ml_dtypes.float8_e5m2, 8, 0x7F, None),
    "e4m3": (ml_dtypes.float8_e4m3fn, 8, 0x7F, None),
    "e3m2": (ml_dtypes.float6_e3m2fn, 6, 0x1F, None),
    "e2m3": (ml_dtypes.float6_e2m3fn, 6, 0x1F, None),
    "e2m1": (ml_dtypes.float4_e2m1fn, 4, 0x07, None),
    "ue8m0": (ml_dtypes.float8_e8m0fnu, 8, 0xFF, 0xFF),
}


def to_float64(values):
    with np.errstate(invalid="ignore"):  # of NaNs
        return values.astype(np.float64)


def finite_values(type_):
    """All finite values of a type that are not negative, ascending: the index is the code."""
    dtype, bits, _, _ = TYPES[type_]
    if type_ == "tf32":
        codes = np.arange(0, 0x7F800000, 0x2000, np.uint32)
    else:
        codes = np.arange(1 << (bits - (type_ != "ue8m0")), dtype=f"uint{max(8, bits)}")
    values = to_float64(codes.view(dtype))
    return values[np.isfinite(values)]


TABLES = {type_: finite_values(type_) for type_ in TYPES}


def expected(type_, values, rounding, relu=False, satfinite=True):
    """Codes of float64 values, found in the table."""
    table, (_, bits, nan, infinity) = TABLES[type_], TYPES[type_]
    size = np.abs(values)
    low = np.clip(np.searchsorted(table, size, side="right") - 1, 0, None)
    last = len(table) - 1
    beyond = 2 * table[last] - table[last - 1] if type_ != "ue8m0" else 2 * table[last]
    above = np.append(table, beyond)[low + 1]
    middle = (table[low] + above) / 2
    if rounding == "rn":
        up = (size > middle) | ((size == middle) & (low % 2 == 1))
    elif rounding == "rna":
        up = size >= middle
    else:
        up = (rounding == "rp") & (size > table[low])
    index = low + up
    unit = 0x2000 if type_ == "tf32" else 1
    top = last * unit
    codes = index * unit
    if infinity is not None and not satfinite:
        codes = np.where(index > last, infinity, codes)
        codes = np.where(np.isinf(size), infinity, codes)
    else:
        codes = np.where((index > last) | np.isinf(size), top, codes)
    if type_ != "ue8m0":
        negative = np.signbit(values)
        codes = np.where(negative, 0 if relu else codes | 1 << (bits - 1), codes)
    codes = np.where(np.isnan(values), nan, codes)
    return codes.astype(np.uint32)


def values_of(words):
    return to_float64(words.view(np.float32))


#: lower halves of f32 words: around every place where a target cuts
LOWER = (0, 0x8000, 0x1000, 1, 0xFFFF, 0x0FFF, 0x1001, 0x3000, 0x7FFF, 0x8001, 0xE000, 0xEFFF)
UPPER = np.arange(1 << 16, dtype=np.uint32) << 16
FROM_F32 = [f for f in FORMS if f[1] == "f32" and f[2] not in ("rs", "rna")]


def name(form):
    return opcode(*form)


def check_f32(form, lower):
    to, _, rounding, relu, satfinite = form
    type_, _, count = to.partition("x")
    width = {4: 4, 6: 8}.get(TYPES[type_][1], TYPES[type_][1])
    words = [UPPER | np.uint32(low) for low in lower]
    for first, second in zip(words[::2], words[1::2], strict=True):
        want = [expected(type_, values_of(w), rounding, relu, satfinite) for w in (first, second)]
        if count:
            got = run(form, first, second)
            assert_same_codes(got, (want[0] << width | want[1]).astype(got.dtype), a=first)
            assert got.dtype.itemsize * 8 == 2 * width
        else:
            for word, codes in zip((first, second), want, strict=True):
                got = run(form, word)
                assert_same_codes(got, codes.astype(got.dtype), a=word)
                assert got.dtype.itemsize * 8 == width


@pytest.mark.parametrize("form", FROM_F32, ids=name)
def test_from_f32(form):
    check_f32(form, LOWER[:2])


@pytest.mark.slow
@pytest.mark.parametrize("form", FROM_F32, ids=name)
def test_from_f32_all_lower_halves(form):
    check_f32(form, LOWER)


@pytest.mark.parametrize("form", [f for f in FORMS if f[1] in ("f16x2", "bf16x2")], ids=name)
def test_from_16_bits_all_patterns(form):
    to, source, rounding, relu, satfinite = form
    type_ = to[:-2]
    codes = np.arange(1 << 16, dtype=np.uint16)
    dtype = {"f16x2": np.float16, "bf16x2": ml_dtypes.bfloat16}[source]
    want = expected(type_, to_float64(codes.view(dtype)), rounding, relu, satfinite)
    word = codes[::-1].astype(np.uint32) << 16 | codes
    got = run(form, word)
    width = 4 if type_ == "e2m1" else 8
    assert_same_codes(got, (want[::-1] << width | want).astype(got.dtype), a=word)
    assert got.dtype.itemsize * 8 == 2 * width


@pytest.mark.parametrize(
    "form", [f for f in FORMS if f[0] in ("f16x2", "bf16x2") and f[1] != "f32"], ids=name
)
def test_to_16_bits_all_codes(form):
    to, source, _, relu, _ = form
    dtype, bits, _, _ = TYPES[source[:-2]]
    codes = np.arange(1 << bits, dtype=np.uint8)
    values = to_float64(codes.view(dtype))
    want = expected(to[:-2], values, "rn", relu, satfinite=False)
    assert_same_codes(want[::7], expected(to[:-2], values[::7], "rz", relu, False))  # exact
    width = 4 if bits == 4 else 8
    high, low = (x.reshape(-1) for x in np.meshgrid(codes, codes))
    # Bits above the packed source, and between 6-bit elements, are ignored.
    noise = np.random.default_rng(1).integers(0, 1 << 32, high.shape, np.uint32)
    used = ((1 << bits) - 1) << width | (1 << bits) - 1
    word = noise & np.uint32(~used & 0xFFFFFFFF) | high.astype(np.uint32) << width | low
    assert_same_codes(run(form, word), want[high] << 16 | want[low], a=word)


#: f32 words -> e4m3, e5m2, e2m1, f16 (rn), bf16 (rn): ties, edges and specials, by hand
BOUNDARIES = [
    (0x00000000, 0x00, 0x00, 0x0, 0x0000, 0x0000),
    (0x80000000, 0x80, 0x80, 0x8, 0x8000, 0x8000),
    (0x3F800000, 0x38, 0x3C, 0x2, 0x3C00, 0x3F80),  # 1
    (0x3A800000, 0x00, 0x14, 0x0, 0x1400, 0x3A80),  # 2^-10: half of the lowest e4m3
    (0x3AC00000, 0x01, 0x16, 0x0, 0x1600, 0x3AC0),
    (0x3F880000, 0x38, 0x3C, 0x2, 0x3C40, 0x3F88),  # 1.0625, a tie of e4m3
    (0x3F980000, 0x3A, 0x3D, 0x2, 0x3CC0, 0x3F98),  # 1.1875: to the even one above
    (0x3E800000, 0x28, 0x34, 0x0, 0x3400, 0x3E80),  # 0.25: half of the lowest e2m1
    (0x3E800001, 0x28, 0x34, 0x1, 0x3400, 0x3E80),
    (0x43E80000, 0x7E, 0x5F, 0x7, 0x5F40, 0x43E8),  # 464
    (0x47700000, 0x7E, 0x7B, 0x7, 0x7B80, 0x4770),  # 61440
    (0x477FF000, 0x7E, 0x7B, 0x7, 0x7C00, 0x4780),  # 65520
    (0x7F7FFFFF, 0x7E, 0x7B, 0x7, 0x7C00, 0x7F80),
    (0xFF800000, 0xFE, 0xFB, 0xF, 0xFC00, 0xFF80),
    (0xFFC12345, 0x7F, 0x7F, 0x7, 0x7FFF, 0x7FFF),  # any NaN loses its sign
    (0x7F800001, 0x7F, 0x7F, 0x7, 0x7FFF, 0x7FFF),
]


@pytest.mark.parametrize("row", BOUNDARIES, ids=lambda row: f"{row[0]:08X}")
def test_boundaries(row):
    word, zero = np.array([row[0]], np.uint32), np.zeros(1, np.uint32)
    forms = [f"cvt.rn.satfinite.{t}x2.f32" for t in ("e4m3", "e5m2", "e2m1")]
    forms += [f"cvt.rn.{t}x2.f32" for t in ("f16", "bf16")]
    for form, want in zip(forms, row[1:], strict=True):
        assert int(run(form, zero, word)[0]) == want
        shift = {"e4m3x2": 8, "e5m2x2": 8, "e2m1x2": 4}.get(form.split(".")[-2], 16)
        assert int(run(form, word, zero)[0]) == want << shift


def test_the_table_can_fail():
    """An expectation that rounds ties away, or toward zero, is found out."""
    words = UPPER | np.uint32(0x1000)
    got = run("cvt.rn.f16.f32", words)
    for wrong in ("rna", "rz"):
        with pytest.raises(AssertionError, match="codes differ"):
            assert_same_codes(got, expected("f16", values_of(words), wrong, False, False)
                              .astype(np.uint16))  # fmt: skip


@pytest.mark.parametrize("satfinite", [False, True])
def test_rna_tf32(satfinite):
    """An integer operation on the word, also for exponent 255 (recorded on an H200)."""
    for low in LOWER:
        words = UPPER | np.uint32(low)
        got = run(("tf32", "f32", "rna", False, satfinite), words)
        want = expected("tf32", values_of(words), "rna", False, satfinite)
        special = (words & 0x7F800000) == 0x7F800000
        cut = (words & 0xFFFFE000) - np.uint32(0x2000 if satfinite else 0)
        assert_same_codes(got, np.where(special, cut, want), a=words)


@pytest.mark.parametrize(
    ("word", "plain", "satfinite"),
    [
        (0x7F800001, 0x7F800000, 0x7F7FE000),  # a NaN that becomes infinity
        (0x7FFFFFFF, 0x7FFFE000, 0x7FFFC000),
        (0xFFC00000, 0xFFC00000, 0xFFBFE000),
        (0x7F800000, 0x7F800000, 0x7F7FE000),
        (0x7F7FFFFF, 0x7F800000, 0x7F7FE000),
        (0x00001000, 0x00002000, 0x00002000),
        (0x80000FFF, 0x80000000, 0x80000000),
    ],
)
def test_rna_tf32_by_hand(word, plain, satfinite):
    words = np.array([word], np.uint32)
    assert int(run("cvt.rna.tf32.f32", words)[0]) == plain
    assert int(run("cvt.rna.satfinite.tf32.f32", words)[0]) == satfinite


# --- operands ---


def test_first_source_comes_highest():
    one, two = np.uint32(0x3F800000), np.uint32(0x40000000)
    assert int(run("cvt.rn.f16x2.f32", one, two)) == 0x3C004000
    assert int(run("cvt.rn.satfinite.e2m3x2.f32", one, two)) == 0x0810
    assert int(run("cvt.rn.satfinite.e2m1x2.f32", one, two)) == 0x24
    assert int(run("cvt.rz.ue8m0x2.f32", one, two)) == 0x7F80
    zero = np.uint32(0)
    four = run("cvt.rs.satfinite.e2m1x4.f32", one, two, zero, one, zero)
    assert four.dtype == np.uint16 and int(four) == 0x2402
    assert int(run("cvt.rs.satfinite.e5m2x4.f32", one, two, zero, one, zero)) == 0x3C40003C


def test_shapes_and_operands():
    words = np.zeros((2, 1, 3), np.uint32)
    assert run("cvt.rn.f16x2.f32", words, words[:, :, :1]).shape == (2, 1, 3)
    assert run("cvt.rn.satfinite.e4m3x2.f32", words[:0], words[:0]).shape == (0, 1, 3)
    assert run("cvt.rn.f16x2.e4m3x2", np.zeros(4, np.uint16)).dtype == np.uint32
    for operands, message in (
        ((words,), r"takes 2 operands \(a, b\); got 1"),
        ((words, words.astype(np.int32)), "raw words, unsigned integers .* got int32"),
        ((words, words.view(np.float32)), "got float32 .use .view"),
        ((words, words.astype(np.uint64)), "got uint64"),
        ((words, np.zeros(2, np.uint32)), r"do not broadcast: \(2, 1, 3\), \(2,\)"),
    ):
        with pytest.raises(OperandError, match=message):
            run("cvt.rn.f16x2.f32", *operands)
    with pytest.raises(OperandError, match=r"takes 5 operands \(a, b, e, f, rbits\); got 4"):
        run("cvt.rs.satfinite.e2m1x4.f32", *[words] * 4)
    with pytest.raises(UnsupportedError, match="not available on sm_90a"):
        execute(Instruction.parse("cvt.rn.f16x2.e2m1x2"), words, target="sm_90a")


# --- spelling and legality ---


def test_every_form_there_is():
    old = [
        c
        for c in conversions()
        if c.ptx_version <= (9, 0) or (c.to, c.source, c.rounding) == TAKEN_EARLY
    ]
    found = {
        (c.to, c.source, c.rounding, c.relu, c.satfinite): c.targets
        for c in old
        if not c.pzo and not c.scaled
    }
    assert found == {form: tuple(f"sm_{t}" for t in targets) for form, targets in FORMS.items()}


def test_parse_and_print():
    for form in FORMS:
        ins = Instruction.parse(opcode(*form))
        assert Instruction.parse(str(ins)) == ins
        words = opcode(*form).split(".")[1:-2]
        shuffled = [*words, form[0], form[1]]
        for _ in range(4):
            random.Random(str(ins)).shuffle(shuffled)
            types = iter(form[:2])  # only the order of the types counts
            text = ["cvt", *(next(types) if w in form[:2] else w for w in shuffled)]
            assert Instruction.parse(".".join(text)) == ins
    assert str(Instruction.parse("cvt.relu.rn.e4m3x2.f32.satfinite")) == (
        "cvt.rn.satfinite.relu.e4m3x2.f32"
    )


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("cvt.rn.f16x2.f33", ParseError, r"unknown modifier '\.f33'.*nearest is '\.f32'"),
        ("cvt.rn.rz.f16x2.f32", ParseError, "two modifiers for its rounding: .rn and .rz"),
        ("cvt.rn.f16x2", ParseError, "must name two types"),
        ("cvt.rn.f16x2.f32.f32", ParseError, "more than 2 modifiers for its types"),
        ("cvt.rn.e4m3x2.f32", UnsupportedError, "nearest is cvt.rn.satfinite.e4m3x2.f32"),
        ("cvt.f16x2.f32", UnsupportedError, "nearest is cvt.r"),
        (
            "cvt.rn.ue8m0x2.f32",
            UnsupportedError,
            "rounding 'rn'.*legal here: rz, rp; nearest is cvt.rz.ue8m0x2.f32",
        ),
        ("cvt.rna.relu.tf32.f32", UnsupportedError, "nearest is cvt.rna.tf32.f32"),
        (
            "cvt.rn.satfinite.e2m3x2.e2m1x2",
            UnsupportedError,
            "source of e2m3x2 'e2m1x2'.*legal here: f32",
        ),
        ("cvt.rn.f32.f16x2", UnsupportedError, "nearest is cvt"),
    ],
)
def test_what_is_no_form(text, error, words):
    with pytest.raises(error, match=words):
        Instruction.parse(text)


def assembles(form, target):
    registers = {"f32": "f", "tf32": "w", "e2m1x2": "q", "e2m1x4": "h", "f16x2": "w", "bf16x2": "w"}
    to, source, rounding, _, _ = form
    count = int(to[-1]) if "x" in to else 1
    names = ", ".join(f"%f{i}" for i in range(count)) if source == "f32" else (
        f"%{registers.get(source, 'h')}1")  # fmt: skip
    d = registers.get(to, "w" if to.endswith("x4") else "h")
    operands = f"%{d}0, {{{names}}}" if count == 4 else f"%{d}0, {names}"
    operands += ", %w4" if rounding == "rs" else ""
    text = f""".version 9.0\n.target {target}\n.address_size 64\n.visible .entry k() {{
        .reg .b8 %q<2>; .reg .b16 %h<2>; .reg .b32 %w<5>; .reg .f32 %f<4>;
        {opcode(*form)} {operands}; ret; }}"""
    command = ["ptxas", "-arch", target, "-o", "/dev/null", "/dev/stdin"]
    return subprocess.run(command, input=text, text=True, capture_output=True).returncode == 0


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="no ptxas")
@pytest.mark.parametrize("form", random.Random(1).sample(sorted(FORMS), 12), ids=name)
def test_ptxas_agrees(form):
    for target in ("sm_75", "sm_89", "sm_90", "sm_100", "sm_100a", "sm_120f"):
        assert assembles(form, target) == (target[3:] in FORMS[form])
