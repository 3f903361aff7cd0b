"""wmma: what PTX takes, fragments, memory to memory, and arithmetic by the lowering of ptxas."""

import re
import shutil
import subprocess
from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
from assembler import joined
from hardware import wmma_check
from lanes import check_fragment

from emulator import (
    EmulatorError,
    Instruction,
    OperandError,
    ParseError,
    UndefinedError,
    UnsupportedError,
    execute,
)
from emulator.isa.catalogue import instructions

pytestmark = pytest.mark.sampled(2)

LOADS, MULTIPLIES, STORES = (list(instructions(f"wmma.{x}")) for x in ("load", "mma", "store"))
TARGETS = (
    "70", "72", "75", "80", "86", "87", "88", "89", "90", "90a", "100", "100a", "100f", "103",
    "103a", "103f", "107", "107a", "107f", "110", "110a", "110f", "120", "120a", "120f", "121",
    "121a", "121f",
)  # fmt: skip
parse = Instruction.parse

# --- what ptxas takes ---

#: type of A and B -> (first target, {shape: registers of A, B}), from the manual's fragment tables
WIDE = ("m16n16k16", "m8n32k16", "m32n8k16")
BF16, INT8 = ((4, 4), (2, 8), (8, 2)), ((2, 2), (1, 4), (4, 1))
MANUAL = {
    "f16": (70, dict.fromkeys(WIDE, (8, 8))),
    "bf16": (80, dict(zip(WIDE, BF16, strict=True))),
    "tf32": (80, {"m16n16k8": (4, 4)}),
    "f64": (80, {"m8n8k4": (1, 1)}),
    "s8": (72, dict(zip(WIDE, INT8, strict=True))),
    "u8": (72, dict(zip(WIDE, INT8, strict=True))),
    "s4": (75, {"m8n8k32": (1, 1)}),
    "u4": (75, {"m8n8k32": (1, 1)}),
    "b1": (75, {"m8n8k128": (1, 1)}),
}
ROW_COL_ONLY = ("s4", "u4", "b1")
#: default strides of A, B and C: row-major, column-major; from the manual's table
STRIDES = {
    "m16n16k16": ((16, 16), (16, 16), (16, 16)), "m8n32k16": ((16, 8), (32, 16), (32, 8)),
    "m32n8k16": ((16, 32), (8, 16), (8, 32)), "m16n16k8": ((8, 16), (16, 8), (16, 16)),
    "m8n8k4": ((4, 8), (8, 4), (8, 8)), "m8n8k32": ((32, None), (None, 32), (8, 8)),
    "m8n8k128": ((128, None), (None, 128), (8, 8)),
}  # fmt: skip


def since(number):
    return tuple(f"sm_{t}" for t in TARGETS if int(t.rstrip("af")) >= number)


def test_all_of_the_manual_and_no_more():
    """ptxas 13.0 takes 134 wmma.mma, 92 loads and 30 stores of 13,202 that were tried."""
    assert (len(MULTIPLIES), len(LOADS), len(STORES)) == (134, 92, 30)
    seen = set()
    for ins in MULTIPLIES:
        first, shapes = MANUAL[ins.a_type]
        a, b = shapes[ins.shape]
        assert ins.targets == since(80 if ".and." in str(ins) else first)
        assert (ins.fragment("a").registers, ins.fragment("b").registers) == (a, b)
        accumulator = {"f16": 4, "f32": 8, "s32": 8 if "k16" in ins.shape else 2, "f64": 2}
        for x, type_ in (("c", ins.c_type), ("d", ins.d_type)):
            assert ins.fragment(x).registers == accumulator[type_]
        if ins.a_type in ROW_COL_ONLY:
            assert ins.layouts == ("row", "col")
        seen.add((ins.a_type, ins.shape))
    assert seen == {(type_, shape) for type_, (_, x) in MANUAL.items() for shape in x}


def test_loads_and_stores_of_the_manual():
    for ins in LOADS + STORES:
        x = "abc".index(ins.matrix.replace("d", "c"))
        assert ins.default_stride == STRIDES[ins.shape][x][ins.layout == "col"]
        if ins.matrix in "ab":
            first, shapes = MANUAL[ins.type]
            assert ins.fragment("r").registers == shapes[ins.shape][x]
            assert ins.targets == since(first)
    first = {("m16n16k16", "s32"): 72, ("m16n16k8", "f32"): 80, ("m8n8k4", "f64"): 80,
             ("m8n8k128", "s32"): 75, ("m8n8k32", "f32"): 75, ("m8n32k16", "f16"): 70}  # fmt: skip
    for (shape, type_), number in first.items():
        for name in ("load.c", "store.d"):
            opcode = f"wmma.{name}.sync.aligned.col.{shape}.shared.{type_}"
            assert parse(opcode).targets == since(number), opcode


def test_str_and_parse_are_inverse():
    for ins in LOADS + MULTIPLIES + STORES:
        assert parse(str(ins)) == ins and hash(parse(str(ins))) == hash(ins)


@pytest.mark.parametrize(
    ("opcode", "canonical"),
    [
        ("mma.m16n16k16.f32.row.f16.col.aligned.sync",
         "mma.sync.aligned.row.col.m16n16k16.f32.f16"),
        ("mma.satfinite.sync.aligned.row.col.m8n8k32.s32.u4.u4.s32.satfinite",
         "mma.sync.aligned.row.col.m8n8k32.s32.u4.u4.s32.satfinite"),
        ("mma.sync.xor.aligned.row.col.m8n8k128.popc.s32.b1.b1.s32",
         "mma.xor.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32"),
        ("mma.sync.aligned.col.row.m8n8k4.rn.f64.f64.f64.f64",
         "mma.sync.aligned.col.row.m8n8k4.f64.f64.f64.f64"),
        ("mma.sync.aligned.col.row.m8n8k4.f64.f64.f64.f64.rp",
         "mma.sync.aligned.col.row.m8n8k4.rp.f64.f64.f64.f64"),
        ("store.d.f32.global.m16n16k8.row.aligned.sync.sync",
         "store.d.sync.aligned.row.m16n16k8.global.f32"),
        ("load.b.sync.aligned.col.m8n8k128.b1", "load.b.sync.aligned.col.m8n8k128.b1"),
        ("load.c.sync.aligned.col.m8n8k4.shared::cta.f64",
         "load.c.sync.aligned.col.m8n8k4.shared::cta.f64"),
    ],
)  # fmt: skip
def test_modifiers_in_other_orders(opcode, canonical):
    assert str(parse(f"wmma.{opcode}")) == f"wmma.{canonical}"


def test_a_load_takes_its_modifiers_in_any_order():
    words = ("sync", "aligned", "row", "m16n16k16", "shared", "f16")
    plain = parse(f"wmma.load.a.{'.'.join(words)}")
    assert all(parse(f"wmma.load.a.{'.'.join(p)}") == plain for p in permutations(words))


@pytest.mark.parametrize(
    ("opcode", "error", "message"),
    [
        ("mma.sync.row.col.m16n16k16.f32.f32", ParseError, r"\.aligned is missing"),
        ("mma.aligned.row.col.m16n16k16.f32.f32", ParseError, r"\.sync is missing"),
        ("mma.sync.aligned.row.col.f32.f32", ParseError, "a shape such as .m16n16k16 is missing"),
        ("mma.sync.aligned.aligned.row.col.m16n16k16.f32.f32", ParseError, "aligned is written"),
        ("mma.sync.aligned.row.col.m16n16k16.f32.f23", ParseError, r"nearest is '\.f32'"),
        ("mma.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32.popc.xor", ParseError, r"\.popc must f"),
        ("mma.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32.xor", ParseError, r"\.xor needs \.popc"),
        ("mma.sync.aligned.row.col.m8n8k4.rn.rp.f64.f64.f64.f64", ParseError, "two modifiers"),
        ("mma.sync.aligned.row.col.m16n16k16.rn.f32.f32", UnsupportedError, "rounding 'rn'"),
        ("mma.sync.aligned.row.col.m16n16k16.satfinite.f32.f32", UnsupportedError, "'satfinite'"),
        ("mma.sync.aligned.row.col.m16n16k16.f32.f16.f16.f32", UnsupportedError,
         r"nearest is wmma\.mma\.sync\.aligned\.row\.col\.m16n16k16\.f32\.f16$"),
        ("mma.sync.aligned.row.m16n16k16.f32.f32", UnsupportedError, "layout 'row'.*row.row"),
        ("mma.sync.aligned.row.col.m16n16k16.s32.s8.u8.s32", UnsupportedError, "s32.u8.u8.s32"),
        ("mma.sync.aligned.row.col.m16n16k16.shared.f32.f32", ParseError, "unknown modifier"),
        ("mma.sync.aligned.row.row.m8n8k32.s32.s4.s4.s32", UnsupportedError, "here: row.col;"),
        ("mma.sync.aligned.row.col.m16n16k16.f64.f64.f64.f64", UnsupportedError, "m8n8k4"),
        ("mma.sync.aligned.row.col.m16n8k16.f32.f32", UnsupportedError, "here: m16n16k16, "),
        ("load.a.sync.aligned.col.m8n8k32.shared.s4", UnsupportedError, "legal here: row;"),
        ("load.b.sync.aligned.row.m8n8k128.shared.b1", UnsupportedError, "legal here: col;"),
        ("load.a.sync.aligned.row.m8n8k4.rn.shared.f64", ParseError, "unknown modifier"),
        ("load.a.sync.aligned.row.m16n16k16.local.f16", ParseError, "unknown modifier"),
        ("load.a.sync.aligned.row.m16n16k16.shared::cluster.f16", ParseError, "nearest is '.shar"),
        ("load.a.sync.aligned.row.m16n16k16.shared.shared.f16", ParseError, "shared is written"),
        ("load.a.sync.aligned.m16n16k16.shared.f16", UnsupportedError, "layout 'none'.*row, col"),
        ("load.d.sync.aligned.row.m16n16k16.f32", ParseError, r"names are wmma\.mma, wmma\.load"),
        ("store.c.sync.aligned.row.m16n16k16.f32", ParseError, r"nearest is 'wmma\.store\.d'"),
        ("sync.load.a", ParseError, "no instruction is"),
    ],
)  # fmt: skip
def test_refused(opcode, error, message):
    with pytest.raises(error, match=message):
        parse(f"wmma.{opcode}")


@pytest.mark.parametrize(
    ("opcode", "operand", "types"),
    [
        ("load.a.sync.aligned.row.m16n16k16.f16", "r", "b32 f16x2"),
        ("load.b.sync.aligned.col.m8n8k32.s4", "r", "b32 f16x2 f32 s32 u32"),
        ("load.c.sync.aligned.col.m8n8k4.f64", "r", "b64 f64"),
        ("load.c.sync.aligned.col.m8n8k4.f64", "p", "b32 s32 u32 b64 s64 u64"),
        ("store.d.sync.aligned.col.m8n8k32.s32", "stride", "b32 s32 u32"),
        ("mma.sync.aligned.row.col.m8n8k32.s32.s4.s4.s32", "b", "b32 s32 u32"),
        ("mma.sync.aligned.row.col.m8n8k4.f64.f64.f64.f64", "a", "b64 f64"),
        ("mma.sync.aligned.row.col.m8n8k4.f64.f64.f64.f64", "c", "b64 f64 s64 u64"),
        ("mma.sync.aligned.row.col.m16n16k16.f16.f32", "c", "b32 f32"),
        ("mma.sync.aligned.row.col.m16n16k8.f32.tf32.tf32.f32", "a", "b32"),
    ],
)
def test_register_types(opcode, operand, types):
    assert parse(f"wmma.{opcode}").signature()[operand].types == tuple(types.split())


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("ptxas"), reason="ptxas is not installed")
def test_ptxas_takes_every_instruction(tmp_path):
    """Every wmma.mma between loads and a store; those with a newer target it must refuse."""
    for target in ("sm_75", "sm_80", "sm_121f"):
        source = tmp_path / f"{target}.ptx"
        modules = [wmma_check.module(wmma_check.plans(x)[1], target, "9.0") for x in MULTIPLIES]
        taken = [x for x, ins in zip(modules, MULTIPLIES, strict=True) if target in ins.targets]
        command = ["ptxas", "-arch", target, "-o", str(tmp_path / "k"), str(source)]
        for group in (modules, taken):
            source.write_text(joined(group))
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            # The kernels begin in the fourth line.
            refused = {int(n) - 4 for n in re.findall(r"line (\d+); error", run.stderr)}
            assert refused == {i for i, x in enumerate(group) if x not in taken}, run.stderr
            assert (run.returncode == 0) == (not refused)


# --- fragments ---


def test_fragments_are_as_declared():
    """Element i of lane L is element (i * 32 + L) mod (rows * cols), in row-major order."""
    for ins in LOADS + STORES:
        fragment, (rows, cols) = ins.fragment("r"), ins.matrix_shape(ins.matrix)
        places = [
            [list(divmod((i * 32 + lane) % (rows * cols), cols)) for i in range(fragment.elements)]
            for lane in range(32)
        ]
        assert fragment.coords.tolist() == places
        assert fragment.shape == (rows, cols)
        if fragment.elements * 32 == rows * cols:
            check_fragment(
                fragment, lambda lane, i, n=cols: divmod(i * 32 + lane, n),
                registers=fragment.registers, elements=fragment.elements, shape=(rows, cols),
                word=64 if ins.type == "f64" else 32,
            )  # fmt: skip


def test_replicated_fragments():
    fragment = parse("wmma.load.a.sync.aligned.row.m8n32k16.shared.f16").fragment("r")
    assert (fragment.elements, fragment.registers, fragment.shape) == (16, 8, (8, 16))
    codes = np.arange(128, dtype=np.uint16).reshape(8, 16)
    registers = fragment.scatter(codes)
    assert registers.shape == (32, 8)
    for copy in range(4):
        assert np.array_equal(registers[:, 2 * copy : 2 * copy + 2], registers[:, :2])
    assert np.array_equal(fragment.gather(registers), codes)
    registers[:, 2:] = 7  # copies that differ: the first one counts
    assert np.array_equal(fragment.gather(registers), codes)
    assert fragment.lane(2, 3) == (3, 0, 16, 16)
    assert fragment.element(3, 0) == fragment.element(3, 2) == [(0, 3), (2, 3)]
    assert fragment.group.shape == (32, 16) and fragment.zeros(5).shape == (5, 32, 8)
    with pytest.raises(OperandError, match=r"32 lanes, 8 registers"):
        fragment.gather(registers[:, :2])


# --- memory ---


def bits_at(memory, first, count):
    """The number in bits [first, first + count) of little-endian bytes."""
    return int.from_bytes(memory.tobytes(), "little") >> first & (1 << count) - 1


def by_hand(ins, memory, address, stride, bits):
    """The matrix in memory, one element at a time."""
    rows, cols = ins.matrix_shape(ins.matrix)
    first = 8 * address
    return [
        [
            bits_at(memory, first + bits * (r * stride + c if ins.layout == "row" else
                                            c * stride + r), bits)
            for c in range(cols)
        ]
        for r in range(rows)
    ]  # fmt: skip


def one_of_each(transfers):
    """A sample with every matrix, type, layout and shape."""
    return transfers[::3]


@pytest.mark.parametrize("ins", one_of_each(LOADS), ids=str)
def test_load_reads_what_memory_holds(ins):
    rng = np.random.default_rng(1)
    fragment = ins.fragment("r")
    bits = fragment.fmt.bits
    unit = 8 * ins.alignment // bits
    for stride in (None, ins.default_stride, ins.default_stride + 3 * unit):
        memory = rng.integers(0, 256, 8192, np.uint8)
        address = 2 * ins.alignment
        got = execute(ins, address, shared=memory, stride=stride, target=ins.targets[-1])
        expected = by_hand(ins, memory, address, stride or ins.default_stride, bits)
        assert fragment.gather(got).tolist() == expected


@pytest.mark.parametrize("ins", STORES, ids=str)
def test_store_writes_the_matrix_and_nothing_else(ins):
    rng = np.random.default_rng(2)
    bits = ins.fragment("r").fmt.bits
    word = np.uint64 if bits == 64 else np.uint32
    registers = rng.integers(0, 1 << 32, (32, ins.fragment("r").registers)).astype(word)
    for extra in (0, 8 * ins.alignment // bits):
        stride, address = ins.default_stride + extra, ins.alignment
        memory = rng.integers(0, 256, 2 * stride * ins.lines * bits // 8).astype(np.uint8)
        before = memory.copy()
        target = ins.targets[0]
        out = execute(ins, address, registers, shared=memory, stride=stride, target=target)
        assert out.shape == (32, 0)
        expected = ins.fragment("r").gather(registers)
        assert by_hand(ins, memory, address, stride, bits) == expected.tolist()
        lines = np.zeros(len(memory), np.bool_)
        for i in range(ins.lines):
            start = address + i * stride * bits // 8
            lines[start : start + ins.default_stride * bits // 8] = True
        assert np.array_equal(memory[~lines], before[~lines])


LOAD = parse("wmma.load.a.sync.aligned.row.m16n16k16.shared.f16")
STORE = parse("wmma.store.d.sync.aligned.row.m16n16k16.shared.f32")
NARROW = parse("wmma.load.a.sync.aligned.col.m8n32k16.shared.f16")


@pytest.mark.parametrize(
    ("ins", "address", "options", "error", "message"),
    [
        (LOAD, 8, {}, UndefinedError, "address 8 is no multiple of 16"),
        (LOAD, 0, {"stride": 20}, UndefinedError, "must be a multiple of 8"),
        (LOAD, 0, {"stride": 8}, UndefinedError, "a stride of 8 elements is less than a row"),
        (LOAD, 0, {"stride": 0}, UndefinedError, "which has 16"),
        (LOAD, 544, {}, UndefinedError, r"row 15, bytes 1024 … 1055, leaves shared memory"),
        (LOAD, -32, {}, UndefinedError, "row 0, bytes -32 … -1"),
        (LOAD, 1 << 50, {}, UndefinedError, "leaves shared memory"),
        (NARROW, 8, {}, UndefinedError, "no multiple of 16"),
        (NARROW, 0, {"stride": 12}, UndefinedError, "column at multiples of 16 bytes"),
        (LOAD, 0.0, {}, OperandError, "an integer below"),
        (LOAD, [True], {}, OperandError, "an integer below"),
        (LOAD, 1 << 70, {}, OperandError, "an integer below"),
        (LOAD, 0, {"stride": 1 << 33}, OperandError, "takes a stride"),
        (LOAD, 0, {"stride": "16"}, OperandError, "takes a stride"),
        (LOAD, [0, 0], {"stride": [16, 16, 16]}, OperandError, "do not broadcast"),
        (LOAD, 0, {"stridee": 16}, OperandError, "takes no stridee=; its options are shared"),
        (LOAD, 0, {"shared": None}, OperandError, "uint8 array"),
        (STORE, 40, {}, UndefinedError, "address 40 is no multiple of 16"),
        (STORE, 32, {}, UndefinedError, "leaves shared memory"),
        (STORE, [0, 0], {}, OperandError, "one shared memory for each warp"),
    ],
)  # fmt: skip
def test_memory_errors(ins, address, options, error, message):
    memory = np.zeros(1024, np.uint8)
    operands = (address,) if ins.verb == "load" else (address, np.ones((32, 8), np.uint32))
    with pytest.raises(error, match=message):
        execute(ins, *operands, **{"shared": memory, "target": "sm_90a"} | options)
    assert not memory.any()


def test_batches_of_addresses_strides_and_memories():
    rng = np.random.default_rng(3)
    memory = rng.integers(0, 256, (3, 4096)).astype(np.uint8)
    addresses, strides = np.array([[0], [64]]), np.array([16, 32, 48])
    got = execute(LOAD, addresses, shared=memory, stride=strides, target="sm_80")
    assert got.shape == (2, 3, 32, 8)
    for i, j in product(range(2), range(3)):
        one = execute(
            LOAD, int(addresses[i, 0]), shared=memory[j], stride=int(strides[j]), target="sm_80"
        )  # fmt: skip
        assert np.array_equal(got[i, j], one)
    tiles = rng.integers(0, 1 << 32, (3, 32, 8), np.uint32)
    execute(STORE, np.array([0, 1024, 64]), tiles, shared=memory, stride=24, target="sm_80")
    back = parse("wmma.load.c.sync.aligned.row.m16n16k16.global.f32")
    where = np.array([0, 1024, 64])
    read = execute(back, where, global_memory=memory, stride=24, target="sm_80")
    assert np.array_equal(read, tiles)


@pytest.mark.parametrize("space", ["global", "shared", "shared::cta", ""])
def test_global_memory_is_not_shared_memory(space):
    memory = np.random.default_rng(0).integers(0, 256, 1024).astype(np.uint8)
    ins = replace(LOAD, space=space)
    right, wrong = ("global_memory", "shared")[:: 1 if space == "global" else -1]
    want = execute(LOAD, 0, shared=memory, target="sm_80")
    assert np.array_equal(execute(ins, 0, target="sm_80", **{right: memory}), want)
    with pytest.raises(OperandError, match=f"takes no {wrong}=; its options are {right}, stride"):
        execute(ins, 0, target="sm_80", **{wrong: memory})
    with pytest.raises(OperandError, match=f"{right}= is {right[:6]} memory, a uint8 array"):
        execute(ins, 0, target="sm_80")


def test_elementwise_work_on_a_fragment():
    """A program may scale what it loaded, without knowing which lane holds what."""
    values = np.arange(256, dtype=np.float32).reshape(16, 16)
    memory = np.concatenate([values.reshape(-1).view(np.uint8), np.zeros(1024, np.uint8)])
    c = parse("wmma.load.c.sync.aligned.row.m16n16k16.f32")
    registers = execute(c, 0, shared=memory, target="sm_75")
    doubled = (registers.view(np.float32) * np.float32(2)).view(np.uint32)
    to_columns = replace(STORE, layout="col")
    execute(to_columns, 1024, doubled, shared=memory, target="sm_75")
    assert np.array_equal(memory[1024:].view(np.float32).reshape(16, 16).T, 2 * values)


@pytest.mark.parametrize("verb", ["load.a", "load.b", "load.c", "store.d", "mma"])
def test_fidelity(verb):
    for ins in LOADS + STORES + MULTIPLIES:
        if not str(ins).startswith(f"wmma.{verb}."):
            continue
        for target in ins.targets:
            level = ins.fidelity(target).level
            exact = verb != "mma" or ins.d_type == "s32"
            assert level == "exact" if exact else level in ("modelled", "validated")
    with pytest.raises(EmulatorError, match="not available on sm_70"):
        parse("wmma.load.a.sync.aligned.row.m8n8k4.f64").fidelity("sm_70")
