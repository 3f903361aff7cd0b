"""Packed fp8, fp6 and fp4 arithmetic and the sparse form of vectors, against sums written anew."""

import itertools
import random
from fractions import Fraction

import numpy as np
import pytest

from emulator import Instruction, execute
from emulator.arith.scalar import bind_reference, bind_vector, sparse_vectors
from emulator.isa.ordinary import packed

pytestmark = pytest.mark.sampled(12)

#: exponent bits, fraction bits, bias; e5m2 alone has infinities, fp6 and fp4 have no NaN
SHAPES = {
    "e4m3": (4, 3, 7),
    "e5m2": (5, 2, 15),
    "e2m3": (2, 3, 1),
    "e3m2": (3, 2, 3),
    "e2m1": (2, 1, 1),
}


def value(name, code):
    """The number of a code: a fraction, or a float where it is infinite or none."""
    if name == "ue8m0":
        return float("nan") if code == 255 else Fraction(2) ** (code - 127)
    exponent, fraction, bias = SHAPES[name]
    field, rest = code >> fraction & (1 << exponent) - 1, code & (1 << fraction) - 1
    sign = -1 if code >> (exponent + fraction) & 1 else 1
    if name == "e4m3" and code & 0x7F == 0x7F:
        return float("nan")
    if name == "e5m2" and field == 31:
        return float("nan") if rest else sign * float("inf")
    size = Fraction(rest, 1 << fraction) + (field > 0)
    return sign * size * Fraction(2) ** (max(field, 1) - bias)


FINITE = {
    name: sorted({abs(v) for c in range(256) if isinstance(v := value(name, c), Fraction)})
    for name in ("e4m3", "e5m2")
}


def nearest(name, number, satfinite):
    """The magnitude's code: the nearest number, ties to the even code."""
    table = FINITE[name]
    top, step = table[-1], table[-1] - table[-2]
    if isinstance(number, float):
        if number != number:
            return 0x7F
        return len(table) - 1 if satfinite else {"e4m3": 0x7F, "e5m2": 0x7C}[name]
    if number >= top + step / 2:
        # Half way the even one is above the largest of e5m2 and e4m3's NaN is odd.
        over = number > top + step / 2 or (len(table) - 1) % 2 == 1
        if over:
            return len(table) - 1 if satfinite else {"e4m3": 0x7F, "e5m2": 0x7C}[name]
        return len(table) - 1
    return min(range(len(table)), key=lambda i: (abs(table[i] - number), i % 2))


def one(d, opcode, x, y, z):
    """A result written anew: x · y + z as fractions or floats, by the name of the instruction."""
    name, *words = opcode.split(".")
    floats = [float(v) for v in (x, y, z) if v is not None]
    if any(v != v or abs(v) == float("inf") for v in floats):
        a, b, c = (None if v is None else float(v) for v in (x, y, z))
        total = a if b is None else a * b
        total = total if c is None else total + (-c if name == "sub" else c)
    else:
        total = x if y is None else x * y
        total = total if z is None else total + (-z if name == "sub" else z)
    code = nearest(d, abs(total), "satfinite" in words)
    return code, total


OPCODES = [
    "add.e4m3x4.e2m3x4", "sub.rn.satfinite.e5m2x4.e4m3x4", "mul.e4m3x4.e5m2x4.e4m3x4",
    "mul.satfinite.e5m2x4.e2m1p4x4.ue8m0x4", "fma.e5m2x4.e5m2x4.e2m1x4",
    "fma.satfinite.e4m3x4.e3m2x4.ue8m0x4", "add.e5m2x4.ue8m0x4", "mul.e4m3x4.e2m1x4.e2m1p4x4",
]  # fmt: skip


@pytest.mark.parametrize("opcode", OPCODES)
def test_results_are_the_nearest_numbers(opcode):
    ins, rng = Instruction.parse(opcode), random.Random(opcode)
    types = [word.removesuffix("x4") for word in opcode.split(".") if word.endswith("x4")]
    d, *sources = types
    operands = [*sources, d] if opcode[:3] != "mul" else sources
    columns = [
        [
            rng.randrange(1 << (4 if "e2m1" in t else 6 if t in ("e2m3", "e3m2") else 8))
            for _ in range(400)
        ]
        for t in operands
    ]
    widths = [4 if t == "e2m1" else 8 for t in operands]
    words = [
        [sum(c << w * i for i, c in enumerate(column[n : n + 4])) for n in range(0, 400, 4)]
        for column, w in zip(columns, widths, strict=True)
    ]
    arrays = [
        np.array(w, np.uint32 if t != "e2m1" else np.uint16)
        for w, t in zip(words, operands, strict=True)
    ]
    got = execute(ins, *arrays, target="sm_100a")
    reference = bind_reference(ins)
    for n, given in enumerate(zip(*words, strict=True)):
        assert int(got[n]) == reference(*given)
        for i in range(4):
            values = [
                value(t.removesuffix("p4"), column[4 * n + i])
                for t, column in zip(operands, columns, strict=True)
            ]
            x, y, z = {"mul": (*values[:2], None), "fma": values}.get(
                opcode[:3], (values[0], None, values[-1])
            )
            code, total = one(d, opcode, x, y, z)
            result = int(got[n]) >> 8 * i & 0xFF
            if total == total and total != 0:
                code |= 0x80 if total < 0 else 0
                assert code == 0x7F or result == code, (given, i, hex(result), hex(code))
            assert result & 0x7F == code & 0x7F, (given, i, hex(result), hex(code))


def test_signs_of_zero():
    # e4m3: 80 is -0, 38 is 1
    add, mul = Instruction.parse("add.e4m3x4.e4m3x4"), Instruction.parse("mul.e4m3x4.e4m3x4.e4m3x4")
    sub = Instruction.parse("sub.e4m3x4.e4m3x4")
    a, c = 0x8080_0038, 0x8000_80B8
    assert bind_reference(add)(a, c) == int(execute(add, *map(np.uint32, (a, c)), target="sm_100a"))
    assert bind_reference(add)(a, c) == 0x8000_0000
    assert bind_reference(sub)(0x80_38, 0x00_38) == 0x8000
    assert bind_reference(mul)(0x80_B8, 0x38_00) == 0x8080


# --- spcompress, spdecompress ---


def instruction(row):
    (words,) = row.expand()
    return Instruction.parse(row.spell(words))


COMPRESSIONS = [row for row in packed.ROWS if row.rule == "sparse_vectors.compress"]
DECOMPRESSIONS = [row for row in packed.ROWS if row.rule == "sparse_vectors.decompress"]


def registers(ins, use):
    return sum(x.count for x in ins.signature().operands if x.use == use)


@pytest.mark.parametrize("row", COMPRESSIONS + DECOMPRESSIONS, ids=lambda row: row.form)
def test_the_engines_agree(row):
    ins, rng = instruction(row), np.random.default_rng(len(row.form))
    words = rng.integers(0, 1 << 32, (registers(ins, "read"), 6), np.uint32)
    words[:, 0] &= 0x7F7F7F7F
    words[:, 1] &= np.uint32(0x80018001)
    got = bind_vector(ins)(*words)
    for lane in range(6):
        want = bind_reference(ins)(*words[:, lane].tolist())
        assert [int(x[lane]) for x in got] == list(want)
    assert len(got) == registers(ins, "written")


def test_the_two_that_are_kept():
    ins = instruction(next(r for r in COMPRESSIONS if "b8.index=b2" in r.form and "=x1" in r.form))
    run = bind_reference(ins)
    data = (0x04_FF_02_01, 0x80_00_7F_81)  # elements from the right
    # u8, largest: FF at 2 and 4 at 3; 80 at 3 and 81 at 0
    assert run(*data, 0) == (0b1100_1110, 0x80_81_04_FF)
    # s8, largest: 2 at 1 and 4 at 3; 7F at 1 and 0 at 2
    assert run(*data, 1 << 2) == (0b1001_1101, 0x00_7F_04_02)
    # s8, smallest magnitudes: 1 at 0, FF (-1) at 2; 0 at 2, and 81 or 7F (127): the lower place
    assert run(*data, 3 | 1 << 2) == (0b1000_1000, 0x00_81_FF_01)
    # e4m3: 7F and FF are NaN, and kept first
    assert run(*data, 3 << 2) == (0b1001_1110, 0x00_7F_04_FF)


def test_what_is_decompressed_was_compressed():
    small = Instruction.parse("spcompress.b16.b2.sp::2:4.x4")
    large = Instruction.parse("spdecompress.b16.b2.sp::2:4.x4")
    rng = np.random.default_rng(3)
    data = rng.integers(0, 1 << 16, 16, np.uint16)
    data.reshape(4, 4)[:, [0, 2]] = 0
    words = data.view(np.uint32).tolist()
    mdata, *cdata = bind_reference(small)(*words, 1)  # f16, largest magnitudes
    assert list(bind_reference(large)(mdata, *cdata)) == words


def test_a_wrong_key_is_noticed(monkeypatch):
    ins = Instruction.parse("spcompress.b8.b2.sp::2:4.x1")
    data = [(0x04FF0201, 0x80007F81, d) for d in range(32)]
    right = [bind_reference(ins)(*given) for given in data]
    monkeypatch.setattr(sparse_vectors, "_FIRST", -1)
    assert [bind_reference(ins)(*given) for given in data] != right


def test_every_count_of_ptxas():
    counts = {row.form.rpartition("=x")[2] for row in itertools.chain(COMPRESSIONS, DECOMPRESSIONS)}
    assert counts == {"1", "2", "4", "8", "16", "32", "64"}
