"""Chains of conversions that ptxas folds: results, what prevents it, ptxas' own machine code."""

import re

import numpy as np
import pytest
from bits import assert_same_codes
from machine_code import MISSING, disassembled
from straight import kernel, run
from words import boundary_words

from emulator import Instruction
from emulator.arith.scalar import bind_vector

#: type -> bits of its registers
BITS = {
    **dict.fromkeys(["f16", "bf16", "s16", "u16"], 16),
    **dict.fromkeys(["f32", "s8", "u8", "s32", "u32"], 32),
    **dict.fromkeys(["f64", "s64", "u64"], 64),
}

#: two conversions, and the one of the first source that ptxas makes of them
FOLDED = {
    ("cvt.rmi.s64.f16", "cvt.sat.s32.s64"): "cvt.rmi.s32.f16",
    ("cvt.rni.s64.bf16", "cvt.sat.s32.s64"): "cvt.rni.s32.bf16",
    ("cvt.rmi.ftz.s64.f32", "cvt.sat.s32.s64"): "cvt.rmi.ftz.s32.f32",
    ("cvt.rpi.ftz.u64.f32", "cvt.sat.u32.u64"): "cvt.rpi.ftz.u32.f32",
    ("cvt.rpi.ftz.s32.f32", "cvt.sat.u16.s32"): "cvt.rpi.u16.f32",
    ("cvt.rmi.ftz.s32.f32", "cvt.sat.s16.s32"): "cvt.rmi.s16.f32",
    ("cvt.rzi.u32.f32", "cvt.sat.s16.u32"): "cvt.rzi.s16.f32",
    ("cvt.rpi.ftz.u32.f32", "cvt.sat.u16.u32"): "cvt.rpi.u16.f32",
    ("cvt.rni.f16.f16", "cvt.rzi.u64.bf16"): "cvt.rni.u64.bf16",
    ("cvt.rn.f16.bf16", "cvt.rzi.u32.f16"): "cvt.rni.u32.f16",
    ("cvt.rp.bf16.f16", "cvt.rzi.s16.bf16"): "cvt.rpi.s16.bf16",
    ("cvt.rm.bf16.f16", "cvt.rzi.u8.f16"): "cvt.rmi.u8.f16",
    ("cvt.f16.f16", "cvt.rzi.s32.f16"): "cvt.rni.s32.f16",
    ("cvt.bf16.bf16", "cvt.rzi.s32.bf16"): "cvt.rni.s32.bf16",
}
#: which are not folded
KEPT = [
    ("cvt.rmi.s64.f64", "cvt.sat.s32.s64"), ("cvt.rmi.s64.f16", "cvt.sat.u32.u64"),
    ("cvt.rmi.s64.f16", "cvt.sat.s16.s64"), ("cvt.rmi.s32.f16", "cvt.sat.s16.s32"),
    ("cvt.rmi.s64.f16", "cvt.s32.s64"), ("cvt.rmi.u32.f32", "cvt.sat.s16.s32"),
    ("cvt.rmi.sat.f16.f16", "cvt.rzi.u64.bf16"), ("cvt.rmi.f16.f16", "cvt.rmi.s32.bf16"),
    ("cvt.rn.f16.f32", "cvt.rzi.s32.bf16"),
]  # fmt: skip


def types_of(opcode):
    return opcode.split(".")[-2:]


def converted(first, second, between=""):
    """Statements of two conversions of the low bits of a; d has the result, with zeros above."""
    (made, source), (to, read) = types_of(first), types_of(second)
    assert BITS[made] == BITS[read]
    sizes = BITS[source], BITS[made], BITS[to]
    registers = " ".join(f".reg .b{bits} {name};" for name, bits in zip("xyz", sizes, strict=True))
    load = "mov.b64 x, a;" if sizes[0] == 64 else f"cvt.u{sizes[0]}.u64 x, a;"
    store = "mov.b64 d, z;" if sizes[2] == 64 else f"cvt.u64.u{sizes[2]} d, z;"
    return f"{{ {registers} {load} {first} y, x; {between} {second} z, y; {store} }}"


def sources(type_):
    codes = [int(word) for word in boundary_words(type_)]
    rng = np.random.default_rng(1)
    more = rng.integers(0, 1 << BITS[type_], 500, dtype=np.uint64).tolist()
    a = np.array(codes + more, np.uint64)
    return a, a, a


def applied(opcode, words):
    """A conversion of words, as the register holds it."""
    to, source = types_of(opcode)
    found = bind_vector(Instruction.parse(opcode))(words.astype(f"u{BITS[source] // 8}"))
    return np.asarray(found).astype(f"u{BITS[to] // 8}")


@pytest.mark.parametrize("pair", FOLDED)
def test_two_conversions_are_one(pair):
    first, second = pair
    a = sources(types_of(first)[1])
    together = applied(FOLDED[pair], a[0]).astype(np.uint64)
    apart = applied(second, applied(first, a[0])).astype(np.uint64)
    assert (together != apart).any()
    assert_same_codes(run("u64", converted(first, second), a), together)
    assert_same_codes(run("u64", converted(first, second), a, "O0"), apart)
    assert_same_codes(run("u64", converted(first, second), a, "none"), together)


@pytest.mark.parametrize("pair", KEPT)
def test_these_conversions_stay(pair):
    assert kernel("u64", converted(*pair)).contracted == []


def test_a_guard_of_the_first_prevents_it_and_one_of_the_second_does_not():
    first, second = "cvt.rmi.s64.f16", "cvt.sat.s32.s64"
    body = "setp.ne.u32 p, i, 0; " + converted(first, second)
    assert kernel("u64", body.replace(first, f"@p {first}")).contracted == []
    (found,) = kernel("u64", body.replace(second, f"@p {second}")).contracted
    assert found.kind == "converted"
    assert str(found).endswith("cvt.sat.s32.s64 is, with line 15, one conversion")


def test_the_source_is_that_of_the_first_even_if_it_is_overwritten():
    a = sources("f16")
    body = converted("cvt.rmi.s64.f16", "cvt.sat.s32.s64", "mov.b16 x, 0;")
    expected = applied("cvt.rmi.s32.f16", a[0]).astype(np.uint64)
    assert_same_codes(run("u64", body, a), expected)


def test_three_conversions_are_one():
    a = sources("f32")
    body = """{ .reg .b32 x, y; .reg .b64 w; .reg .b16 z; cvt.u32.u64 x, a; cvt.rmi.s64.f32 w, x;
        cvt.sat.s32.s64 y, w; cvt.sat.s16.s32 z, y; cvt.u64.u16 d, z; }"""
    expected = applied("cvt.rmi.s16.f32", a[0]).astype(np.uint64)
    assert_same_codes(run("u64", body, a), expected)


@pytest.mark.parametrize("second", ["cvt.rzi.s32.bf16", "cvt.rmi.u32.bf16", "cvt.rpi.s32.f16"])
def test_what_set_makes_is_one_whatever_it_is_read_as(second):
    a = np.arange(200, dtype=np.uint64)
    b = a[::-1].copy()
    body = f"""{{ .reg .b16 x, y, z; .reg .b32 w; cvt.u16.u64 x, a; cvt.u16.u64 y, b;
        set.lt.f16.u16 z, x, y; {second} w, z; cvt.u64.u32 d, w; }}"""
    assert_same_codes(run("u64", body, (a, b, a)), (a < b).astype(np.uint64))
    guarded = body.replace("set.lt", "setp.eq.u32 q, i, i; set.lt.and")
    guarded = guarded.replace("z, x, y;", "z, x, y, q;")
    assert not any(x.kind == "converted" for x in kernel("u64", guarded).contracted)


ROUNDINGS = {"rni": set(), "rmi": {"FLOOR"}, "rpi": {"CEIL"}, "rzi": {"TRUNC"}}


@pytest.mark.slow
@pytest.mark.skipif(bool(MISSING), reason=f"{MISSING} is not on this machine")
@pytest.mark.parametrize("pair", [*FOLDED, *KEPT])
def test_ptxas_does_the_same(pair, tmp_path):
    """A folded pair is one F2I with the rounding of the first one."""
    text = kernel("u64", converted(*pair)).module.text
    listing = disassembled(text, "sm_90a", tmp_path)["kernel"]
    flushes = any(line.startswith("FMUL.FTZ") for line in listing)
    found = [line for line in listing if re.match(r"F2I|F2F|FRND|I2I|HADD2|F2FP", line)]
    first, second = found[0].split()[0].split("."), found[1:]
    if pair in FOLDED:
        one = FOLDED[pair].split(".")
        assert not second and set(first) & {"FLOOR", "CEIL", "TRUNC"} == ROUNDINGS[one[1]]
        assert (one[-2].upper() in first) == (one[-2] != "s32")
        assert "FTZ" not in first and flushes == ("ftz" in one)
    else:
        # The first conversion is still there: its integer or its float stands in the opcode.
        made = types_of(pair[0])[0].upper()
        assert made in first or made == "S32" or first[0] == "FRND"
