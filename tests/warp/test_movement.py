"""ldmatrix, stmatrix, movmatrix: slow loops after the manual's tables, and what is refused.

PTX ISA 9.7.14.5.15-17. The m8n8 forms were recorded on an H200 (test_recordings.py); the layouts
of the others are those of CUTLASS and of the manual's figures.
"""

import itertools
import random
import shutil
import subprocess

import numpy as np
import pytest
from bits import assert_same_codes

from emulator import (
    Instruction,
    OperandError,
    ParseError,
    UndefinedError,
    UnsupportedError,
    execute,
)
from emulator.isa.movement import expand as movements

SINCE_75 = (
    "75 80 86 87 88 89 90 90a 100 100a 100f 103 103a 103f 107 107a 107f 110 110a 110f 120 120a "
    "120f 121 121a 121f"
)
SINCE_90 = SINCE_75.partition("89 ")[2]
SPECIFIC = " ".join(t for t in SINCE_90.split() if t[-1] in "af" and t != "90a")
PACKED = ("b6x16_p32", "b4x16_p64")

#: what ptxas 13.5 takes: opcode -> (targets, registers, rows that lanes address)
LEGAL = {"movmatrix.sync.aligned.m8n8.trans.b16": (SINCE_75, 1, 0)}
for x in (1, 2, 4):
    for trans in ("", ".trans"):
        LEGAL[f"ldmatrix.sync.aligned.m8n8.x{x}{trans}.shared.b16"] = (SINCE_75, x, 8 * x)
        LEGAL[f"stmatrix.sync.aligned.m8n8.x{x}{trans}.shared.b16"] = (SINCE_90, x, 8 * x)
    LEGAL[f"stmatrix.sync.aligned.m16n8.x{x}.trans.shared.b8"] = (SPECIFIC, x, 8 * x)
    LEGAL[f"ldmatrix.sync.aligned.m8n16.x{x}.shared.s8.s4"] = (f"90a {SPECIFIC}", x, 8 * x)
    for source in PACKED:
        LEGAL[f"ldmatrix.sync.aligned.m8n16.x{x}.shared.b8x16.{source}"] = (SPECIFIC, x, 8 * x)
        if x < 4:
            LEGAL[f"ldmatrix.sync.aligned.m16n16.x{x}.trans.shared.b8x16.{source}"] = (
                SPECIFIC, 2 * x, 16 * x,
            )  # fmt: skip
    if x < 4:
        LEGAL[f"ldmatrix.sync.aligned.m16n16.x{x}.trans.shared.b8"] = (SPECIFIC, 2 * x, 16 * x)

LOADS = [opcode for opcode in LEGAL if opcode.startswith("ld")]
STORES = [opcode for opcode in LEGAL if opcode.startswith("st")]
MOVE = "movmatrix.sync.aligned.m8n8.trans.b16"
LOAD_X1 = "ldmatrix.sync.aligned.m8n8.x1.shared.b16"
STORE_X1 = "stmatrix.sync.aligned.m8n8.x1.shared.b16"


def run(opcode, *operands, **options):
    ins = Instruction.parse(opcode)
    return execute(ins, *operands, target=ins.targets[-1], **options)


# --- the tables, one byte at a time; g = lane / 4, t = lane % 4 ---


def element(memory, at, j, source):
    """Element j of the 16-byte row at `at`."""
    row = bytes(memory[at : at + 16])
    if source == "b4x16_p64":
        return row[j // 2] >> 4 * (j % 2) & 0xF
    if source == "s4":
        return ((row[j // 2] >> 4 * (j % 2) & 0xF) ^ 8) - 8 & 0xFF
    if source == "b6x16_p32":
        return int.from_bytes(row[:12], "little") >> 6 * j & 0x3F
    return row[j]


def loaded(opcode, memory, addresses):
    """What ldmatrix leaves in the registers of every lane."""
    words = opcode.split(".")
    shape, trans = words[3], "trans" in words
    source = words[-1] if words[-1] in (*PACKED, "s4") else ""
    out = np.zeros((32, LEGAL[opcode][1]), np.uint32)
    for lane, q in itertools.product(range(32), range(out.shape[1])):
        g, t = lane // 4, lane % 4
        if shape == "m8n8":
            places = [(2 * t + h, g) if trans else (g, 2 * t + h) for h in (0, 1)]
            held = []
            for row, column in places:
                at = addresses[8 * q + row]
                held += [memory[at + 2 * column], memory[at + 2 * column + 1]]
        elif shape == "m8n16":
            held = [element(memory, addresses[8 * q + g], 4 * t + b, source) for b in range(4)]
        else:
            rows = [addresses[16 * (q // 2) + 4 * t + b] for b in range(4)]
            held = [element(memory, at, g + 8 * (q % 2), source) for at in rows]
        out[lane, q] = int.from_bytes(bytes(int(x) for x in held), "little")
    return out


def stored(opcode, memory, addresses, registers):
    """Shared memory after stmatrix."""
    words, memory = opcode.split("."), memory.copy()
    for lane, q in itertools.product(range(32), range(registers.shape[1])):
        g, t = lane // 4, lane % 4
        for b in range(4):
            byte = int(registers[lane, q]) >> 8 * b & 0xFF
            if words[3] == "m16n8":
                row, column = 2 * t + b % 2, g + 8 * (b // 2)
            elif "trans" in words:
                row, column = 2 * t + b // 2, 2 * g + b % 2
            else:
                row, column = g, 4 * t + b
            memory[addresses[8 * q + row] + column] = byte
    return memory


def random_memory(rng, size=4096):
    return rng.integers(0, 256, size, np.uint8)


def random_rows(rng, rows, size=4096):
    """Addresses of rows that do not overlap; other lanes hold what nothing may read."""
    out = np.full(32, -7, np.int64)
    out[:rows] = 16 * rng.permutation(size // 16)[:rows]
    return out


# --- results ---


@pytest.mark.parametrize("opcode", LOADS)
def test_ldmatrix(opcode):
    rng, rows = np.random.default_rng(len(opcode)), LEGAL[opcode][2]
    for _ in range(3):
        memory, addresses = random_memory(rng), random_rows(rng, rows)
        before = memory.copy()
        got = run(opcode, addresses, shared=memory)
        assert_same_codes(got, loaded(opcode, memory, addresses))
        assert np.array_equal(memory, before)
        # Rows may be read twice.
        addresses[:rows] = addresses[0]
        assert_same_codes(run(opcode, addresses, shared=memory), loaded(opcode, memory, addresses))


@pytest.mark.parametrize("opcode", STORES)
def test_stmatrix(opcode):
    rng, (_, count, rows) = np.random.default_rng(len(opcode)), LEGAL[opcode]
    for _ in range(3):
        memory, addresses = random_memory(rng), random_rows(rng, rows)
        registers = rng.integers(0, 1 << 32, (32, count), np.uint32)
        want = stored(opcode, memory, addresses, registers)
        given = registers.copy()
        assert run(opcode, addresses, registers, shared=memory).shape == (32, 0)
        assert_same_codes(memory, want)
        assert np.array_equal(registers, given)


def test_movmatrix():
    registers = np.random.default_rng(3).integers(0, 1 << 32, (32, 1), np.uint32)
    halves = [[int(word) >> 16 * h & 0xFFFF for h in (0, 1)] for (word,) in registers]
    matrix = [
        [halves[4 * row + column // 2][column % 2] for column in range(8)] for row in range(8)
    ]
    got = run(MOVE, registers)
    for lane in range(32):
        g, t = lane // 4, lane % 4
        assert int(got[lane, 0]) == matrix[2 * t][g] | matrix[2 * t + 1][g] << 16
    assert_same_codes(run(MOVE, got), registers)


@pytest.mark.parametrize("opcode", [LOADS[0], LOADS[-1], STORES[1], STORES[-1]])
def test_a_planted_error_shows(opcode):
    rng, (_, count, rows) = np.random.default_rng(4), LEGAL[opcode]
    memory, addresses = random_memory(rng), random_rows(rng, rows)
    wrong = addresses.copy()
    wrong[[1, 2]] = wrong[[2, 1]]
    with pytest.raises(AssertionError, match="codes differ"):
        if opcode in LOADS:
            assert_same_codes(run(opcode, addresses, shared=memory), loaded(opcode, memory, wrong))
        else:
            registers = rng.integers(0, 1 << 32, (32, count), np.uint32)
            want = stored(opcode, memory, wrong, registers)
            run(opcode, addresses, registers, shared=memory)
            assert_same_codes(memory, want)


@pytest.mark.parametrize("trans", ["", ".trans"])
def test_stmatrix_undoes_ldmatrix(trans):
    rng = np.random.default_rng(5)
    memory, addresses = random_memory(rng, 512), 16 * rng.permutation(32)
    registers = run(f"ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16", addresses, shared=memory)
    other = np.zeros_like(memory)
    run(f"stmatrix.sync.aligned.m8n8.x4{trans}.shared.b16", addresses, registers, shared=other)
    assert np.array_equal(other, memory)


def test_batches():
    rng = np.random.default_rng(6)
    memory = rng.integers(0, 256, (3, 512), np.uint8)
    addresses = np.stack([16 * rng.permutation(32) for _ in range(3)])
    load, store = LOADS[0].replace("x1", "x4"), STORES[0].replace("x1", "x4")
    each = [run(load, addresses[i], shared=memory[i]) for i in range(3)]
    assert_same_codes(run(load, addresses, shared=memory), np.stack(each))
    assert_same_codes(
        run(load, addresses[0], shared=memory),
        np.stack([run(load, addresses[0], shared=memory[i]) for i in range(3)]),
    )
    assert run(load, addresses[:, None], shared=memory[0]).shape == (3, 1, 32, 4)
    registers = rng.integers(0, 1 << 32, (3, 32, 4), np.uint32)
    want = memory.copy()
    for i in range(3):
        run(store, addresses[0], registers[i], shared=want[i])
    run(store, addresses[0], registers, shared=memory)
    assert_same_codes(memory, want)
    assert run(MOVE, registers[..., :1]).shape == (3, 32, 1)


# --- what is refused ---


@pytest.mark.parametrize("opcode", [LOAD_X1, STORE_X1])
def test_bad_addresses(opcode):
    registers = () if opcode in LOADS else (np.full((32, 1), 0xFFFFFFFF, np.uint32),)
    memory, good = np.zeros(512, np.uint8), 16 * np.arange(32)

    def change(lane, address):
        out = good.copy()
        out[lane] = address
        return out

    for lane, address, words in (
        (3, 24, r"lane 3, 24, is no multiple of 16"),
        (7, 512, r"lane 7, 512, leaves shared memory, which has 512 bytes"),
        (0, -16, r"lane 0, -16, leaves"),
        (2, 500, r"lane 2, 500, is no multiple"),
    ):
        with pytest.raises(UndefinedError, match=words):
            run(opcode, change(lane, address), *registers, shared=memory)
    for addresses in (good[:31], good.astype(np.float32), good > 0, np.int64(0)):
        with pytest.raises(OperandError, match=r"one address per lane, integers \(…, 32\)"):
            run(opcode, addresses, *registers, shared=memory)
    for shared in (None, memory.tolist(), memory.view(np.int8), np.uint8(0)):
        with pytest.raises(OperandError, match="shared= is shared memory, a uint8 array"):
            run(opcode, good, *registers, shared=shared)
    assert not memory.any()
    run(opcode, change(8, 7), *registers, shared=memory)  # x1 uses lanes 0 … 7 only


def test_races():
    registers = np.zeros((32, 2), np.uint32)
    registers[:, 1] = 5
    memory, addresses = np.zeros(512, np.uint8), 16 * np.arange(32)
    addresses[8] = addresses[0]
    opcode = "stmatrix.sync.aligned.m8n8.x2.shared.b16"
    with pytest.raises(UndefinedError, match=r"different contents.*address 0"):
        run(opcode, addresses, registers, shared=memory)
    assert not memory.any()
    registers[:] = 7  # both rows the same: the outcome is defined
    run(opcode, addresses, registers, shared=memory)
    assert memory[:16].tolist() == [7, 0, 0, 0] * 4
    # Three rows, of which the outer two agree
    registers[0:4, 0], registers[4:8, 0] = 1, 2
    addresses[[0, 1, 2]], registers[8:12, 0] = 64, 1
    with pytest.raises(UndefinedError, match="address 64"):
        run(opcode, addresses, registers, shared=memory)


def test_bad_registers_and_options():
    memory, addresses = np.zeros(512, np.uint8), 16 * np.arange(32)
    for registers in (np.zeros((32, 2), np.uint32), np.zeros((32, 1), np.uint64), np.zeros(32)):
        with pytest.raises(OperandError, match="operand r: registers must be"):
            run(STORE_X1, addresses, registers, shared=memory)
        with pytest.raises(OperandError, match="operand a: registers must be"):
            run(MOVE, registers)
    with pytest.raises(OperandError, match=r"takes 1 operand \(p\); got 2"):
        run(LOAD_X1, addresses, addresses, shared=memory)
    with pytest.raises(OperandError, match=r"2 operands \(p, r\); got 1"):
        run(STORE_X1, addresses, shared=memory)
    with pytest.raises(OperandError, match="takes no shared=; its options are none"):
        run(MOVE, np.zeros((32, 1), np.uint32), shared=memory)
    with pytest.raises(OperandError, match="takes no scale_d=; its options are shared"):
        run(LOAD_X1, addresses, shared=memory, scale_d=True)
    with pytest.raises(OperandError, match="one shared memory for each warp"):
        run(STORE_X1, addresses, np.zeros((2, 32, 1), np.uint32), shared=memory)


def test_batch_axes_that_do_not_fit():
    memory, addresses = np.zeros((3, 512), np.uint8), np.tile(16 * np.arange(32), (2, 1))
    with pytest.raises(OperandError, match="broadcast"):
        run(LOAD_X1, addresses, shared=memory)


def test_memory_that_cannot_be_written():
    memory, addresses = np.zeros(512, np.uint8), 16 * np.arange(32)
    memory.flags.writeable = False
    with pytest.raises(OperandError, match="read-only"):
        run(STORE_X1, addresses, np.zeros((32, 1), np.uint32), shared=memory)


def test_empty_batches():
    memory, addresses = np.zeros((0, 512), np.uint8), np.zeros((0, 32), np.int64)
    assert run(LOAD_X1, addresses, shared=memory).shape == (0, 32, 1)
    run(STORE_X1, addresses, np.zeros((0, 32, 1), np.uint32), shared=memory)


# --- spelling and legality ---


def test_every_form_there_is():
    found = {str(ins): " ".join(t[3:] for t in ins.targets) for ins in movements()}
    assert found == {opcode: targets for opcode, (targets, _, _) in LEGAL.items()}


@pytest.mark.parametrize("opcode", LEGAL)
def test_parse_and_print(opcode):
    ins = Instruction.parse(opcode)
    assert str(ins) == opcode and Instruction.parse(str(ins)) == ins
    operand = {"ldm": "d", "stm": "r", "mov": "a"}[opcode[:3]]
    assert ins.fragment(operand).registers == LEGAL[opcode][1]
    mnemonic, *words = opcode.split(".")
    shuffle = random.Random(opcode).shuffle
    for _ in range(20):
        shuffle(words)
        # Modifiers may stand in any order, but a source format follows the type.
        words.sort(key=lambda word: (word in ("b8x16", "s8")) + 2 * (word in (*PACKED, "s4")))
        assert Instruction.parse(".".join([mnemonic, *words])) == ins
    if ".shared" in opcode:
        for space in ("", ".shared::cta"):
            other = opcode.replace(".shared", space)
            assert str(Instruction.parse(other)) == other
    assert Instruction.parse(opcode.replace("sync", "sync.sync")) == ins  # as ptxas does


def test_words_may_follow_a_source_format():
    """ptxas 13.0 asks only that it follows .b8x16: 2,520 of 5,040 orders, all of them."""
    plain = Instruction.parse("ldmatrix.sync.aligned.m8n16.x1.shared.b8x16.b4x16_p64")
    other = "ldmatrix.sync.b8x16.b4x16_p64.aligned.x1.shared.m8n16"
    assert Instruction.parse(other) == plain
    with pytest.raises((ParseError, UnsupportedError)):
        Instruction.parse("ldmatrix.sync.aligned.m8n16.x1.shared.b4x16_p64.b8x16")


@pytest.mark.parametrize(
    ("opcode", "error", "words"),
    [
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b17", ParseError, r"modifier '\.b17'.*'\.b16'"),
        ("ldmatrix.sync.m8n8.x1.shared.b16", ParseError, "aligned is missing"),
        ("ldmatrix.aligned.m8n8.x1.shared.b16", ParseError, "sync is missing"),
        ("ldmatrix.sync.aligned.m8n8.x1.x2.b16", ParseError, "two modifiers for its count"),
        ("ldmatrix.sync.aligned.m8n8.x1.b16.b8", ParseError, "two modifiers for its type"),
        ("ldmatrix.sync.aligned.m8n8.x1.shared.shared.b16", ParseError, "shared is written twice"),
        ("ldmatrix.sync.aligned.m8n8.x1.global.b16", ParseError, r"modifier '\.global'"),
        ("ldmatrix.sync.aligned.m8n8.b16", UnsupportedError, "nearest is ldmatrix"),
        ("ldmatrix.sync.aligned.m8n8.x3.b16", UnsupportedError, "nearest is ldmatrix"),
        ("ldmatrix.sync.aligned.m8n8.x1.b8", UnsupportedError, "type 'b8'.*legal here: b16"),
        ("ldmatrix.sync.aligned.m16n16.x1.b8", UnsupportedError, "m16n16.x1.trans.shared.b8"),
        ("ldmatrix.sync.aligned.m16n16.x4.trans.b8", UnsupportedError, "nearest"),
        ("ldmatrix.sync.aligned.m8n16.x1.b8x16", UnsupportedError, "nearest"),
        ("stmatrix.sync.aligned.m16n8.x1.b8", UnsupportedError, "nearest is stmatrix"),
        ("stmatrix.sync.aligned.m16n16.x1.trans.b8", UnsupportedError, "legal here: m8n8, m16n8"),
        ("movmatrix.sync.aligned.m8n8.b16", UnsupportedError, "nearest is movmatrix"),
        ("movmatrix.sync.aligned.m8n8.trans.shared.b16", ParseError, r"modifier '\.shared'"),
    ],
)  # fmt: skip
def test_what_is_no_form(opcode, error, words):
    with pytest.raises(error, match=words):
        Instruction.parse(opcode)


def test_targets_are_checked():
    ins = Instruction.parse(LOADS[-1])
    with pytest.raises(UnsupportedError, match="not available on sm_90a; its targets are sm_100a"):
        execute(ins, np.zeros(32, int), shared=np.zeros(64, np.uint8), target="sm_90a")
    with pytest.raises(UnsupportedError, match="not available on sm_90"):
        ins.fidelity("sm_90")


# --- ptxas, where there is one ---


def assembles(opcode, target):
    registers = LEGAL[opcode][1] if opcode in LEGAL else 1
    vector = "{" + ", ".join(f"%r{i}" for i in range(registers)) + "}"
    operands = {"ldm": f"{vector}, [%p]", "stm": f"[%p], {vector}", "mov": "%r0, %r1"}[opcode[:3]]
    source = f""".version 9.0\n.target {target}\n.address_size 64
        .visible .entry k() {{ .reg .b32 %r<9>; .reg .u32 %p; {opcode} {operands}; ret; }}"""
    command = ["ptxas", "-arch", target, "-o", "/dev/null", "/dev/stdin"]
    return subprocess.run(command, input=source, text=True, capture_output=True).returncode == 0


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="no ptxas")
@pytest.mark.parametrize("opcode", [LOAD_X1, STORES[0], LOADS[-1], STORES[-1], MOVE])
def test_ptxas_agrees(opcode):
    for target in ("sm_75", "sm_90", "sm_100", "sm_100a", "sm_120f"):
        assert assembles(opcode, target) == (target in Instruction.parse(opcode).targets)
    assert not assembles(opcode.replace(".aligned", ""), "sm_100a")
