"""Registers of a Warp: what sets them, what may be declared, and what nothing has written."""

import time

import numpy as np
import pytest

from emulator import OperandError, ParseError, UndefinedError, UnsupportedError, Warp, Warpgroup

TYPES = ("pred", "b8", "u8", "s8", "b16", "u16", "s16", "f16", "b32", "u32", "s32", "f32",
         "f16x2", "b64", "u64", "s64", "f64")  # fmt: skip


@pytest.fixture
def warp():
    machine = Warp("sm_90a")
    for type_ in TYPES:
        machine.declare(type_, f"%{type_}")
    return machine


LANES = np.arange(32)


# --- values ---


@pytest.mark.parametrize(
    ("name", "given", "word"),
    [
        # integers of any type that fit
        ("%b32", LANES, LANES),
        ("%b32", LANES.astype(np.uint8), LANES),
        ("%u32", range(32), LANES),
        ("%s32", -LANES.astype(np.int16), -LANES & 0xFFFFFFFF),
        ("%b32", -1, 0xFFFFFFFF),
        ("%b32", 0xFFFFFFFF, 0xFFFFFFFF),
        ("%b8", [-128, 255] * 16, [0x80, 0xFF] * 16),
        ("%b64", [-1] * 16 + [1 << 63] * 16, [(1 << 64) - 1] * 16 + [1 << 63] * 16),
        ("%u64", (1 << 64) - 1, (1 << 64) - 1),
        ("%s64", -(1 << 63), 1 << 63),
        ("%f16x2", 0x3C004000, 0x3C004000),
        # numbers of floating-point registers
        ("%f32", 1.5, 0x3FC00000),
        ("%f32", 1, 0x3F800000),
        ("%f32", 0.1, 0x3DCCCCCD),
        ("%f32", -0.0, 0x80000000),
        ("%f32", float("inf"), 0x7F800000),
        ("%f32", [float(i) for i in range(32)], LANES.astype(np.float32).view(np.uint32)),
        ("%f32", np.float16(0.5), 0x3F000000),
        ("%f32", np.full(32, 1 + 2.0**-30), 0x3F800000),
        ("%f32", np.array(0x7FA00001, np.uint32).view(np.float32), 0x7FA00001),
        ("%f16", 65504.0, 0x7BFF),
        ("%f16", 2.0**-24, 1),
        ("%f64", 0.1, 0x3FB999999999999A),
        ("%f64", 3, 0x4008000000000000),
        # bits of untyped registers, pairs of halves
        ("%b32", np.float32(1.5), 0x3FC00000),
        ("%b16", np.full(32, 1.5, np.float16), 0x3E00),
        ("%b64", np.float64(1.5), 0x3FF8000000000000),
        ("%f16x2", np.array([[1, -2]], np.float16), 0xC0003C00),
        # truth
        ("%pred", True, 1),
        ("%pred", 0, 0),
        ("%pred", LANES % 2, LANES % 2),
        ("%pred", LANES > 5, LANES > 5),
    ],
)
def test_values(warp, name, given, word):
    warp[name] = given
    want = np.broadcast_to(np.asarray(word, object), 32).tolist()
    assert warp[name].tolist() == [int(x) for x in want]
    assert warp[name].dtype == warp.registers[name].words.dtype
    again = Warp("sm_90a")
    again.declare(name[1:], name)
    again.registers[name].values = given
    assert np.array_equal(again[name], warp[name])


@pytest.mark.parametrize("order", ["<", ">"])
def test_the_byte_order_of_arrays_does_not_matter(warp, order):
    for name, type_ in (
        ("%b32", "u4"), ("%b32", "i4"), ("%b64", "u8"), ("%b32", "f4"), ("%f32", "f4"),
        ("%f32", "f8"), ("%f64", "f8"), ("%u32", "u2"),
    ):  # fmt: skip
        warp[name] = np.arange(32).astype(type_)
        want = warp[name]
        warp[name] = np.arange(32).astype(order + type_)
        assert np.array_equal(warp[name], want), (name, type_)
    warp.words["%f32"] = np.full(32, 0x3FC00000).astype(order + "u4")
    assert warp.registers["%f32"].values.tolist() == [1.5] * 32
    warp["%f16x2"] = np.full((32, 2), 1.0).astype(order + "f2")
    assert (warp["%f16x2"] == 0x3C003C00).all()


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("%b32", 1 << 32, r"holds 32 bits, -2147483648 … 4294967295; got 4294967296"),
        ("%b32", np.array([0, -(1 << 31) - 1] * 16), "got -2147483649"),
        ("%b64", [0, 1 << 64] * 16, "got 18446744073709551616"),
        pytest.param("%b64", 10**5000, "holds 64 bits.*got 0x", id="digits"),
        pytest.param("%f32", 10**5000, "numbers or arrays of floats.*got int", id="digits of f32"),
        ("%b32", 1.5, "give 32-bit words or integers that fit.*got 1.5"),
        ("%b32", [1, 1.0] * 16, r"integers that fit.*float64 \(32,\)"),
        ("%s32", np.zeros(32, np.float32), r"integers that fit.*float32 \(32,\)"),
        ("%b32", np.zeros(32, bool), "bool"),
        ("%b32", "0", "integers that fit.*got '0'"),
        ("%b32", None, "integers that fit.*None"),
        ("%f32", np.zeros(32, np.uint32), r'numbers or arrays of floats.*warp\.words\["%f32"\]'),
        ("%f64", np.int64(1), "numbers or arrays of floats"),
        ("%f32", "1.5", "numbers or arrays of floats.*got '1.5'"),
        ("%f32", 1e39, r"\.f32, which has no number as large as.*1e\+39"),
        ("%f16", 65520.0, "no number as large"),
        ("%pred", "0", "True or False, or 0 or 1.*got '0'"),
        ("%pred", 2, "True or False, or 0 or 1.*got 2"),
        ("%pred", [0.0, 1.0] * 16, "True or False"),
        ("%f16x2", np.zeros(32, np.float32), "integers that fit"),
        ("%b32", np.zeros(31, int), r"one word per lane, \(32,\); got \(31,\)"),
        ("%b32", np.zeros((2, 32), int), r"one word per lane, \(32,\); got \(2, 32\)"),
        ("%b32", [[1, 2], [3]], "the rows of the list are not of one length"),
        ("%b32", np.ma.zeros(32, int), "a masked array"),
        ("%nowhere", 1, "'%nowhere' is not declared"),
    ],
)
def test_values_that_do_not_fit(warp, name, given, message):
    with pytest.raises(OperandError, match=message) as error:
        warp[name] = given
    assert len(str(error.value)) < 1000
    assert not any(register.written for register in warp.registers.values())


def test_words(warp):
    """``words`` takes the raw words of a register of any type, and integers that fit."""
    for name, register in warp.registers.items():
        top = (1 << register.bits) - 1
        warp.words[name] = np.full(32, top, np.uint64).astype(register.words.dtype)
        assert warp.words[name].tolist() == [top] * 32
        register.words = 1
        assert (warp[name] == 1).all()
    assert list(warp.words) == list(warp.registers) and len(warp.words) == len(TYPES)
    with pytest.raises(OperandError, match="holds 32 bits"):
        warp.words["%f32"] = 1 << 32
    with pytest.raises(OperandError, match="integers that fit"):
        warp.registers["%f32"].words = 1.5
    with pytest.raises(ValueError, match="read-only"):
        warp.registers["%b32"].words[0] = 5
    assert (warp["%b32"] == 1).all() and (warp["%f32"] == 1).all()


# --- declarations ---


@pytest.mark.parametrize(
    "name", ["_", "%laneid", "%tid", "%tid.x", "%clock64", "%lanemask_lt", "%envreg3", "WARP_SZ"]
)
def test_names_of_ptx_cannot_be_declared(name):
    machine = Warp("sm_90a")
    with pytest.raises(OperandError, match="name of PTX's own"):
        machine.declare("b32", "%r0", name)
    with pytest.raises((OperandError, ParseError), match=r"line 1, .*(PTX's own|expected a name)"):
        machine.run(f".reg .b32 %r0, {name};")
    assert not machine.registers
    machine.run(".reg .b32 %laneid2, %tidx, __, %clocks;")


def test_many_registers_are_declared_at_once():
    machine = Warp("sm_90a")
    start = time.process_time()
    machine.run(".reg .b32 %a<40000>;")
    assert time.process_time() - start < 2
    assert len(machine.registers) == 40_000
    with pytest.raises(ParseError, match=r"line 1, .* a range of 1000000000000 names"):
        machine.run(".reg .b32 %b<1000000000000>;")
    with pytest.raises(ParseError, match="expected a number of names, found '-'"):
        machine.run(".reg .b32 %b<-1>;")
    with pytest.raises(OperandError, match="more than 131,072 registers"):
        machine.run(".reg .b32 %b<100000>;")
    assert len(machine.registers) == 40_000


@pytest.mark.parametrize(
    "text", [".reg .b32 %a<٣>;", ".reg .b32 é;", ".reg .b32 x; mov.b32 x, ５;"]
)
def test_only_ascii_is_ptx(text):
    with pytest.raises(ParseError, match=r"starts no PTX token|expected"):
        Warp("sm_90a").run(text)


def test_an_integer_of_thousands_of_digits():
    with pytest.raises(ParseError, match="does not fit 64 bits") as error:
        Warp("sm_90a").run(f".reg .b32 x; mov.b32 x, {'9' * 5000};")
    assert len(str(error.value)) < 300


# --- what nothing has written ---

READS = [
    "mov.b32 %r1, %r0;",
    "mov.b64 %q, {%r1, %r0};",
    "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r0];",
    "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r1], {%r0};",
    "movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r0;",
    "cvt.rn.f16x2.f32 %r1, %r0, %r1;",
    "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%r1,_}, {%r1}, {%r0}, {%r1,%r1};",
    "wmma.load.a.sync.aligned.row.m8n8k128.shared.b1 {%r1}, [%r1], %r0;",
]


@pytest.mark.parametrize("statement", READS)
@pytest.mark.parametrize("kind", [Warp, Warpgroup])
def test_a_register_that_nothing_has_written_is_not_read(statement, kind):
    declarations = ".reg .b32 %r<2>; .reg .b64 %q;"
    machine = kind("sm_90a")
    machine.run(declarations)
    machine["%r1"] = 0
    with pytest.raises(UndefinedError, match=r"line 2, .*'%r0' is read and nothing has written it"):
        machine.run(f"mov.b32 %r1, 128;\n{statement}")
    assert (machine["%r1"] == 0).all()
    with pytest.raises(UndefinedError, match="'%r0' is read and nothing"):
        machine["%r0"]
    hardware = kind("sm_90a", undefined="hardware")
    hardware.run(declarations)
    assert (hardware["%r0"] == 0).all()
    if "wmma" not in statement:  # whose stride of 0 is undefined in itself
        hardware.run(statement)
        machine["%r0"] = 0
        machine.run(statement)
        for name in machine.registers:
            assert np.array_equal(machine.registers[name].words, hardware.registers[name].words), (
                name
            )


WGMMA = "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 {d0,d1,d2,d3}, 0, 0, p;"


def test_an_accumulator_that_is_not_read_needs_no_value():
    """scale-d = 0 is how kernels start a sum."""
    group = Warpgroup("sm_90a", shared_bytes=1 << 16)
    group.run(".reg .s32 d0, d1, d2, d3; .reg .pred p;")
    finish = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
    text = f"wgmma.fence.sync.aligned; {WGMMA} {finish}"
    group["p"] = True
    with pytest.raises(UndefinedError, match="'d0' is read and nothing has written it"):
        group.run(text)
    group["p"] = False
    group.run(text)
    group["p"] = True
    group.run(text)
    assert (group["d3"] == 0).all()


# --- constructors ---


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"batch": 5}, OperandError, r"batch is a tuple of sizes, such as \(4,\).*got 5"),
        ({"batch": (2.0,)}, OperandError, "batch is a tuple of sizes"),
        ({"batch": (-1,)}, OperandError, "none of them negative"),
        ({"batch": (True,)}, OperandError, "batch is a tuple of sizes"),
        ({"batch": (1 << 40,)}, OperandError, "more than 4 GiB"),
        ({"batch": (1 << 30,), "shared_bytes": 0}, OperandError, "more than 4 GiB"),
        ({"shared_bytes": -1}, OperandError, "shared_bytes a number, none of them negative"),
        ({"shared_bytes": "48K"}, OperandError, "got .* and '48K'"),
        ({"shared_bytes": 1 << 40}, OperandError, "more than 4 GiB"),
        ({"engine": "bogus"}, OperandError, "no engine 'bogus'"),
        ({"engine": None}, OperandError, "no engine None"),
        ({"undefined": "ignore"}, OperandError, "undefined= is 'raise' or 'hardware'"),
        ({"target": "sm_1000"}, UnsupportedError, "no target 'sm_1000'"),
        ({"target": 90}, UnsupportedError, "must be a name"),
    ],
)
@pytest.mark.parametrize("kind", [Warp, Warpgroup])
def test_arguments_of_a_machine(kind, options, error, message):
    with pytest.raises(error, match=message):
        kind(**{"target": "sm_90a", **options})


def test_options_may_be_changed_between_runs():
    machine = Warp("sm_90a", engine="vector")
    assert (machine.engine, machine.undefined) == ("vector", "raise")
    machine.run(".reg .b32 r, s;")
    with pytest.raises(UndefinedError):
        machine.run("mov.b32 r, s;")
    machine.engine, machine.undefined = "reference", "hardware"
    machine.run("mov.b32 r, s;")
    assert (machine["r"] == 0).all()
    with pytest.raises(OperandError, match="no engine"):
        machine.engine = "bogus"
    with pytest.raises(OperandError, match="undefined="):
        machine.undefined = "ignore"
    assert (machine.engine, machine.undefined) == ("reference", "hardware")


def test_a_batch_may_be_empty():
    machine = Warp("sm_90a", batch=(2, 0))
    machine.run(
        ".reg .b32 p, r; .reg .pred q; mov.b32 p, 0; mov.b32 r, %laneid;"
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {r}, [p];"
        "stmatrix.sync.aligned.m8n8.x1.shared.b16 [p], {r};"
        "cvt.rn.f16x2.f32 r, 1.0, 2.0; movmatrix.sync.aligned.m8n8.trans.b16 r, r;"
    )
    machine["r"] = 5
    assert machine["r"].shape == (2, 0, 32)
