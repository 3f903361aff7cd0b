"""Bad input, seeded: only an answer or an EmulatorError of at most 4 kB, and nothing changed."""

import random
import time
import tracemalloc

import numpy as np
import pytest

from emulator import EmulatorError, Instruction, Warp, Warpgroup, compress, decompress, execute, mma
from emulator.isa.catalogue import instructions

pytestmark = pytest.mark.sampled(6)

OPCODES = sorted({str(ins) for ins in instructions()})
#: seconds of processor time that one call may take, Numba's compilation included, which threads
#: share, and bytes that it may hold
SLOW, LARGE = 60.0, 1 << 28


def only_our_errors(call):
    """The answer of `call`, None where it raises an EmulatorError, which must be short."""
    start = time.process_time()
    try:
        return call()
    except EmulatorError as error:
        assert len(str(error)) <= 4096, str(error)[:300]
        return None
    finally:
        assert time.process_time() - start < SLOW


def test_what_is_not_ours_shows():
    def fail(error):
        raise error

    with pytest.raises(ZeroDivisionError):
        only_our_errors(lambda: 1 / 0)
    with pytest.raises(AssertionError):
        only_our_errors(lambda: fail(EmulatorError("x" * 5000)))
    assert only_our_errors(lambda: fail(EmulatorError("short"))) is None
    assert only_our_errors(lambda: 5) == 5


# --- opcodes ---

JUNK = (
    "", " ", "\0", "é", "１", "٣", "m16n8k", "m0n0k0", "f32", "x" * 10_000, "sp", "::", "kind::",
    "-1", "sync", "SM80_", "m16n8k16.", "cvt", "mma", "wgmma", "add",
)  # fmt: skip


def damaged(rng, text):
    """`text` with a word more, less, changed or exchanged."""
    words = text.split(".")
    for _ in range(rng.randint(1, 3)):
        place, how = rng.randrange(len(words) + 1), rng.randrange(4)
        if how == 0:
            words.insert(place, rng.choice([*JUNK, *rng.choice(OPCODES).split(".")]))
        elif how == 1 and len(words) > 1:
            del words[place % len(words)]
        elif how == 2:
            word = words[place % len(words)]
            words[place % len(words)] = word[::-1] if rng.random() < 0.5 else word + word
        else:
            rng.shuffle(words)
    return rng.choice([".", ".", ".", ""]).join(words)


@pytest.mark.parametrize("count", [200, pytest.param(2000, marks=pytest.mark.slow)])
def test_opcodes(count):
    rng = random.Random(1)
    for _ in range(count):
        text = damaged(rng, rng.choice(OPCODES))
        ins = only_our_errors(lambda text=text: Instruction.parse(text))
        if ins is not None:
            assert Instruction.parse(str(ins)) == ins


# --- operands ---


def odd_value(rng, array):
    """Something in the place of an array of registers."""
    choices = [
        lambda: array.astype(rng.choice(["i4", "u8", "f4", "f8", "c8", "O", "S4", "?", ">u4"])),
        lambda: array[..., :-1] if array.ndim else array,
        lambda: array[None] if rng.random() < 0.5 or not array.ndim else array[0],
        lambda: np.zeros((0, *array.shape), array.dtype),
        lambda: np.zeros((3, *array.shape), array.dtype),
        lambda: array.tolist(),
        lambda: [[1, 2], [3]],
        lambda: np.ma.array(array, mask=True),
        lambda: rng.choice([None, 0, -1, 1 << 70, 1.5, float("nan"), "words", b"x", {}, object()]),
        lambda: array.T,
        lambda: np.asfortranarray(array),
        lambda: np.broadcast_to(array, (2, *array.shape)),
    ]
    return rng.choice(choices)()


def call_of(rng, ins, target):
    """The arguments of a right call of `ins`, by name."""
    shared = np.zeros(1 << 12, np.uint8)
    operands, options = {}, {"target": target}
    for operand in ins.signature().operands:
        if operand.memory:
            options[operand.memory] = shared
        for part in operand.named:
            if operand.use == "written":
                continue
            if part.name in ins.fragments:
                operands[part.name] = ins.fragment(part.name).zeros()
            elif part.kind == "descriptor":
                operands[part.argument] = np.full((), 8 << 16 | 16 << 32, np.uint64)
            elif part.kind == "address":
                lanes = () if part.uniform else (32,)
                operands[part.name] = np.zeros(lanes, np.int64)
            elif part.kind == "register" and not part.optional:
                operands[part.name] = np.zeros(32, np.uint32)
            elif part.values and rng.random() < 0.5:
                operands[part.name] = np.asarray(rng.choice(part.values))
    return operands, options


@pytest.mark.parametrize("seed", range(4))
def test_operands(seed):
    rng = random.Random(seed)
    tracemalloc.start()
    try:
        for _ in range(120):
            ins = Instruction.parse(rng.choice(OPCODES))
            operands, options = call_of(rng, ins, rng.choice(ins.targets))
            for name in rng.sample(sorted(operands), min(len(operands), rng.randint(0, 2))):
                operands[name] = odd_value(rng, operands[name])
            if rng.random() < 0.2:
                name = rng.choice([*options, "engine", "undefined", "nothing"])
                options[name] = odd_value(rng, np.zeros((2, 2), np.uint8))
            given = {**operands, **options}
            arrays = {x: y.copy() for x, y in given.items() if isinstance(y, np.ndarray)}
            target = options.pop("target")
            result = only_our_errors(
                lambda ins=ins, x={**operands, **options}, t=target: execute(ins, target=t, **x)
            )
            for name, before in arrays.items():
                if result is None or name not in ("shared", "global_memory"):
                    held = np.asarray(given[name])
                    np.testing.assert_array_equal(held, np.asarray(before), strict=True)
        assert tracemalloc.get_traced_memory()[1] < LARGE
    finally:
        tracemalloc.stop()


def test_matrices():
    rng = random.Random(9)
    dense = Instruction.parse("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    sparse = Instruction.parse("mma.sp.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32")
    for _ in range(250):
        ins = rng.choice([dense, sparse])
        a, b = np.zeros((ins.m, ins.k), np.uint16), np.zeros((ins.k, ins.n), np.uint16)
        nibbles = np.full((ins.m, ins.k // 4), 4, np.uint8)
        given = {"a": a, "b": b, "c": np.zeros((ins.m, ins.n), np.uint32), "nibbles": nibbles,
                 "codes": rng.choice([True, False]), "undefined": "hardware"}  # fmt: skip
        if rng.random() < 0.5:
            del given["nibbles"]
        name = rng.choice(["a", "b", "c", "nibbles"])
        given[name] = odd_value(rng, given.get(name, nibbles))
        only_our_errors(lambda ins=ins, given=given: mma(ins, target="sm_90", **given))
        codes = odd_value(rng, np.zeros((16, 32), np.uint8))
        words = odd_value(rng, np.full(32, 0x44444444, np.uint32))
        only_our_errors(lambda codes=codes: compress(sparse, codes))
        only_our_errors(
            lambda codes=codes, words=words: decompress(sparse, codes, words, rng.randint(-1, 2))
        )


# --- statements ---

PIECES = (
    ".reg .b32 %r<4>;", ".reg .f32 %f<4>;", ".reg .b64 q;", ".reg .pred p;", ".shared .b8 t[64];",
    "mov.b32 %r0, 5;", "mov.f32 %f0, 1.5;", "mov.u32 %r1, t;", "mov.b64 {%r0, %r1}, q;",
    "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%r1+16];", "bar.sync 0;", "// comment\n",
    "stmatrix.sync.aligned.m8n8.x1.shared.b16 [t], {%r0};", "wgmma.fence.sync.aligned;",
    "cvt.rn.f16x2.f32 %r0, %f0, 0f3f800000;", "wgmma.wait_group.sync.aligned 3;",
    "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%r0,%r1}, {%r2}, {%r3}, {%r0,%r1};",
    "{", "}", "[", "]", "<", ">", ";", ",", "_", "%laneid", "-1", "0x7fffffffffffffff", "1e400",
    "٣",
    "0", "1.5", "<1000000000>", "/*", "\0", "%r0", "'", '"',
)  # fmt: skip


def everything(machine):
    words = {x.name: (x.words.tolist(), x.written) for x in machine.registers.values()}
    return words, dict(machine.variables), machine.shared.tobytes()


@pytest.mark.parametrize("kind", [Warp, Warpgroup])
def test_statements(kind):
    rng = random.Random(3)
    for _ in range(40):
        machine = kind("sm_90a", shared_bytes=512)
        for _ in range(8):
            text = " ".join(rng.choice(PIECES) for _ in range(rng.randint(1, 8)))
            if rng.random() < 0.3:
                place = rng.randrange(len(text) + 1)
                text = text[:place] + rng.choice(["", "x", "9", "\n", "é"]) + text[place + 1 :]
            before = everything(machine)
            if only_our_errors(lambda machine=machine, text=text: machine.run(text) or 1) is None:
                assert everything(machine) == before
            name = rng.choice(["%r0", "%f0", "q", "p", "none"])
            value = odd_value(rng, np.arange(kind.lanes, dtype=np.uint32))
            only_our_errors(
                lambda machine=machine, name=name, value=value: machine.__setitem__(name, value)
            )


def test_long_texts_are_refused_in_time():
    for text in (
        "mma." * 100_000, "x" * 3_000_000, "{" * 100_000, "mov.b32 " + "(" * 100_000,
        ".reg .b32 " + ",".join(f"a{i}" for i in range(140_000)) + ";", "9" * 100_000,
        "mov.b32 %r, {" + "1," * 50_000 + "1};", "/*" * 100_000,
    ):  # fmt: skip
        assert only_our_errors(lambda text=text: Warp("sm_90a").run(text) or 1) is None
        assert only_our_errors(lambda text=text: Instruction.parse(text)) is None


def test_long_texts_without_statements_are_read_in_time():
    for piece in (";", "; \n", " ", "/**/", "//\n", "/* */ // ;\n;"):
        text = piece * (2_000_000 // len(piece))
        start = time.process_time()
        Warp("sm_90a").run(text)
        assert time.process_time() - start < 3
