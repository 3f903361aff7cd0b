"""The conversions of PTX 9.1 to 9.4, against the nearest number of a list written anew.

fp8, fp6, fp4, ue5m3 and the fixed point of s2f6, block scales of ue8m0, .pzo and .rz.
"""

from fractions import Fraction

import numpy as np
import pytest
from sweeps import swept

from emulator import Instruction, OperandError, execute
from emulator.arith import conversions as vector
from emulator.arith.scalar import bind_reference, bind_vector
from emulator.isa.conversion import expand

pytestmark = pytest.mark.sampled(40)

#: exponent bits, fraction bits, bias, sign
SHAPES = {
    "f32": (8, 23, 127, 1), "bf16": (8, 7, 127, 1), "f16": (5, 10, 15, 1), "e5m2": (5, 2, 15, 1),
    "e4m3": (4, 3, 7, 1), "e2m3": (2, 3, 1, 1), "e3m2": (3, 2, 3, 1), "e2m1": (2, 1, 1, 1),
    "ue5m3": (5, 3, 15, 0), "tf32": (8, 10, 127, 1),
}  # fmt: skip
BITS = {"e2m1": 4, "f32": 32, "tf32": 32, "f16": 16, "bf16": 16}
NANS = {"e5m2": 0x7F, "e4m3": 0x7F, "ue5m3": 0xFF, "bf16": 0x7FFF, "f16": 0x7FFF,
        "tf32": 0x7FFFE000, "e2m3": 0x1F, "e3m2": 0x1F, "e2m1": 7, "s2f6": 0x7F}  # fmt: skip
NEW = [ins for ins in expand() if ins.ptx_version >= (9, 1)]


def parts(name, code):
    """(sign, magnitude): a fraction, "inf" or "nan"; and whether it is subnormal."""
    if name == "s2f6":
        number = code - 256 if code & 0x80 else code
        return int(number < 0), Fraction(abs(number), 64), False
    exponent, fraction, bias, signed = SHAPES[name]
    sign = code >> (exponent + fraction) & signed
    field, rest = code >> fraction & (1 << exponent) - 1, code & (1 << fraction) - 1
    if name in ("e4m3", "ue5m3") and field == (1 << exponent) - 1 and rest == (1 << fraction) - 1:
        return sign, "nan", False
    if name in ("f32", "bf16", "f16", "e5m2") and field == (1 << exponent) - 1:
        return sign, "nan" if rest else "inf", False
    size = Fraction(rest, 1 << fraction) + (field > 0)
    return sign, size * Fraction(2) ** (max(field, 1) - bias), field == 0


def rounded(name, sign, size, rounding, satfinite):
    """The code of a number, from the spacing of the format where it lies."""
    if name == "s2f6":
        limit = 128 if sign else 127
        units = limit if size == "inf" else size * 64
        whole = limit if size == "inf" else round(units) if rounding == "rn" else int(units)
        whole = min(whole, limit)
        return -whole & 0xFF if sign else whole
    exponent, fraction, bias, signed = SHAPES[name]
    nan, cut = NANS[name], 13 if name == "tf32" else 0
    top = (1 << exponent + fraction) - 1
    top -= {"e4m3": 1, "ue5m3": 1, "e2m3": 0, "e3m2": 0, "e2m1": 0}.get(name, 1 << fraction)
    infinity = top + 1 if name in ("e5m2", "bf16", "f16", "tf32") else None
    if size == "inf":
        code = top if satfinite else infinity
    else:
        power = 1 - bias
        while size >= Fraction(2) ** (power + 1):
            power += 1
        units = size / Fraction(2) ** (power - fraction)
        whole = int(units)
        rest = units - whole
        whole += {"rn": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1),
                  "rz": False, "rp": rest > 0}[rounding]  # fmt: skip
        code = whole + (power - 1 + bias << fraction)
        if code > top:
            over = infinity if rounding != "rz" else top
            code = top if satfinite else over
    if code is None:
        return nan
    return code << cut | (sign << (exponent + fraction + cut) if signed else 0)


def expected(ins, code, scale):
    """The code of one element."""
    to, source = ins.to.partition("x")[0], ins.source.partition("x")[0]
    sign, size, subnormal = parts(source, code)
    if size == "nan" or scale == 255:
        return NANS[to]
    if ins.relu and sign:
        sign, size = 0, Fraction(0)
    up = ins.source not in ("f32", "f16x2", "bf16x2")
    if size != "inf":
        size = Fraction(0) if "n1" in ins.scaled and subnormal else size
        size *= Fraction(2) ** ((scale - 127) * (1 if up else -1))
    out = rounded(to, sign, size, ins.rounding, ins.satfinite)
    zero = 1 << (BITS.get(to, 6 if to in ("e2m3", "e3m2") else 8) - 1)
    return 0 if ins.pzo and out == zero and SHAPES.get(to, (0, 0, 0, 0))[3] else out


def codes_of(name, rng):
    if name in ("f32", "bf16", "f16"):
        exponent, fraction, bias, _ = SHAPES[name]
        unit = 1 << fraction
        near = [(bias + e << fraction) + d for e in (-18, -10, -7, -3, -1, 0, 1, 2, 5, 9, 15)
                for d in (0, 1, unit // 2, unit // 4 + 1, unit - 1)]  # fmt: skip
        top = (1 << exponent) - 1 << fraction
        codes = [c & top + unit - 1 for c in near] + [0, 1, unit - 1, unit, top - 1, top, top + 1]
        codes += rng.integers(0, top + unit, 40).tolist()
        sign = 1 << exponent + fraction
        return [c | s for c in codes for s in (0, sign)]
    return list(range({"e2m1": 16, "e2m3": 64, "e3m2": 64}.get(name, 256)))


def words_of(ins, rng):
    """Codes of the low and the high element, source words, and scales."""
    source = ins.source.partition("x")[0]
    low = codes_of(source, rng)
    high = low[5:] + low[:5]
    scales = [127, 127, 126, 130, 120, 0, 254, 255] if ins.scaled else [127]
    chosen = np.resize(scales, len(low)), np.resize(scales[::-1], len(low))
    chosen = (chosen[0], chosen[0]) if "n1" in ins.scaled else chosen
    width = {"e2m1": 4, "f16": 16, "bf16": 16}.get(source, 8)
    if ins.source == "f32":
        words = [np.array(x, np.uint32) for x in ((high, low) if "x" in ins.to else (low,))]
    else:
        words = [np.array(high, np.uint32) << width | np.array(low, np.uint32)]
    if ins.scaled:
        words.append((chosen[1] << 8 | chosen[0]).astype(np.uint32))
    return low, high, chosen, words


@pytest.mark.sampled(10)
@swept(NEW, 10)
def test_the_nearest_number(ins):
    low, high, scales, words = words_of(ins, np.random.default_rng(7))
    got = execute(ins, *words, target=ins.targets[0])
    to = ins.to.partition("x")[0]
    width = BITS.get(to, 8)
    want = [expected(ins, c, int(s)) for c, s in zip(low, scales[0], strict=True)]
    if "x" in ins.to:
        upper = [expected(ins, c, int(s)) for c, s in zip(high, scales[1], strict=True)]
        want = [a | b << width for a, b in zip(want, upper, strict=True)]
    wrong = [(hex(low[i]), hex(high[i]), scales[0][i], hex(w), hex(int(g)))
             for i, (w, g) in enumerate(zip(want, got, strict=True)) if w != int(g)]  # fmt: skip
    assert wrong == []


@pytest.mark.parametrize("ins", NEW[::3], ids=str)
def test_the_engines_agree(ins):
    *_, words = words_of(ins, np.random.default_rng(8))
    got, one = bind_vector(ins)(*words), bind_reference(ins)
    assert got.tolist() == [one(*map(int, given)) for given in zip(*words, strict=True)]


def test_known_codes():
    def cvt(opcode, *words):
        return int(execute(Instruction.parse(opcode), *map(np.uint32, words), target="sm_107a"))

    def bits(x):
        return int(np.float32(x).view(np.uint32))

    # 1.5 is 60 units of 1/64; -2 is the least, 127/64 the largest
    assert cvt("cvt.rn.satfinite.s2f6x2.f32", bits(1.5), bits(-3.0)) == 0x6080
    assert cvt("cvt.rn.satfinite.relu.s2f6x2.f32", bits(9.0), bits(-3.0)) == 0x7F00
    # the scale 2 halves what is converted, 1/2 doubles it; the low byte is of the low element
    assert (
        cvt("cvt.rn.satfinite.scaled::n2::ue8m0.s2f6x2.f32", bits(1.0), bits(1.0), 0x7E80) == 0x7F20
    )
    assert cvt("cvt.rn.bf16x2.s2f6x2", 0x80C0) == 0xC000BF80
    assert cvt("cvt.rn.scaled::n2::ue8m0.bf16x2.s2f6x2", 0x4040, 0x807E) == 0x40003F00
    # 114688 is the largest of ue5m3
    assert cvt("cvt.rn.satfinite.ue5m3x2.f32", bits(1e9), bits(1.0)) == 0xFE78
    assert cvt("cvt.rn.ue5m3x2.f32", bits(1e9), bits(2.0**-17)) == 0xFF01
    assert cvt("cvt.rn.satfinite.pzo.e4m3x2.f32", bits(-0.0), bits(-1e-9)) == 0
    assert cvt("cvt.rn.satfinite.e4m3x2.f32", bits(-0.0), bits(-1e-9)) == 0x8080
    assert cvt("cvt.rz.satfinite.e4m3x2.f32", bits(1.99), bits(-1.99)) == 0x3FBF


def test_the_scale_is_an_operand():
    ins = Instruction.parse("cvt.rn.satfinite.scaled::n1::ue8m0.e4m3x2.f16x2")
    assert ins.operands == ("d", "a", "scale") and ins.targets == ("sm_107a", "sm_107f")
    assert ins.signature()["scale"].types == ("b8",)
    assert Instruction.parse(str(ins)) == ins
    with pytest.raises(OperandError, match="2 operands"):
        execute(ins, np.zeros(3, np.uint32), target="sm_107a")
    assert ins.fidelity("sm_107a").level == "modelled"


def test_a_wrong_scale_is_noticed(monkeypatch):
    ins = Instruction.parse("cvt.rn.scaled::n2::ue8m0.bf16x2.e4m3x2")
    words = np.uint32([0x3838]), np.uint32([0xFF80])
    assert bind_vector(ins)(*words).tolist() == [0x7FFF4000]
    monkeypatch.setattr(vector, "NO_EXPONENT", 1 << 13)
    monkeypatch.setattr(vector, "_scaled", lambda *given: given[2] * 0)
    assert bind_vector(ins)(*words).tolist() != [0x7FFF4000]
