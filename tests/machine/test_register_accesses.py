"""Accesses at a register and an offset, which the vector engine looks up once for each register:
they end as the reference's do, and are refused alike. Barriers that whole blocks reach at once."""

import random

import numpy as np
import pytest

from emulator import KernelError, Module
from emulator.machine.vector import access, bases, executor
from emulator.machine.vector.bases import Base

HEAD = """
.version 9.0
.target sm_90a
.address_size 64
.visible .entry go(.param .u64 out)
{
 .reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<16>; .reg .b64 %d<16>;
 .shared .align 32 .b8 both[4096]; .local .align 32 .b8 own[2048];
 ld.param.u64 %d0, [out]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r9, 1;
 mad.wide.u32 %d0, %r1, 4096, %d0; mov.u64 %d9, 1;
 mov.u32 %r2, both; cvt.u64.u32 %d2, %r2; cvta.shared.u64 %d2, %d2;
 mov.u64 %d3, own; cvta.local.u64 %d4, %d3;
"""
BLOCKS, THREADS = 3, 64
#: registers of addresses: the state space, and the width
BASES = {"%r3": "shared", "%d5": "global", "%d6": "", "%d7": "local", "%d8": ""}
#: where the lanes of a warp look, at multiples of 32 bytes in a part of its own: one after the
#: other, backward, several at one place, all at one
PATTERNS = [
    "and.b32 %r4, %r0, 31;",
    "and.b32 %r4, %r0, 31; sub.u32 %r4, 31, %r4;",
    "and.b32 %r4, %r0, 3;",
    "mov.u32 %r4, 5;",
]


def start(pattern):
    """Sets the registers of addresses."""
    return f""" {pattern} shl.b32 %r5, %r4, 5; cvt.u64.u32 %d1, %r5;
 add.u64 %d7, %d3, %d1; add.u64 %d8, %d4, %d1;
 and.b32 %r6, %r0, 32; shl.b32 %r6, %r6, 5; add.u32 %r5, %r5, %r6; cvt.u64.u32 %d1, %r5;
 add.u32 %r3, %r2, %r5; add.u64 %d5, %d0, %d1; add.u64 %d6, %d2, %d1;
"""


def body(rng, count):
    """So many loads and stores of every sort, with changes of the registers between them."""
    lines = []
    for _ in range(count):
        base = rng.choice(list(BASES))
        space = f".{BASES[base]}" * bool(BASES[base])
        items, bits = rng.choice([(1, 8), (1, 16), (1, 32), (1, 64), (2, 32), (4, 32), (2, 64)])
        letter, wide = ("r", 32) if bits < 64 else ("d", 64)
        total = f"%{letter}9"
        names = [f"%{letter}{10 + i}" for i in range(items)]
        vector, held = f".v{items}" * (items > 1), ", ".join(names)
        held = f"{{{held}}}" if items > 1 else held
        size = bits * items // 8
        offset = rng.randrange(0, 32 // size) * size
        place = f"[{base}+{offset}]"
        if rng.random() < 0.5:
            lines.append(f"ld{space}{vector}.u{bits} {held}, {place};")
            lines += [f"mad.lo.u{wide} {total}, {total}, 31, {x};" for x in names]
        else:
            lines += [f"add.u{wide} {x}, {total}, {i};" for i, x in enumerate(names)]
            lines.append(f"st{space}{vector}.u{bits} {place}, {held};")
        lines.append(rng.choice(["bar.sync 0;"] + 4 * ["bar.warp.sync -1;"]))
    return "\n".join(lines)


END = """
 bar.sync 0; shl.b32 %r5, %r0, 4; cvt.u64.u32 %d1, %r5; add.u64 %d1, %d0, %d1;
 st.global.u32 [%d1+2048], %r9; st.global.u64 [%d1+2056], %d9; ret;
}
"""


def ended(engine, text, seed=0):
    out = np.random.default_rng(seed).integers(0, 256, BLOCKS * 4096, np.uint8)
    try:
        Module(HEAD + text + END)["go"].launch(BLOCKS, THREADS, [out], engine=engine)
    except KernelError as error:
        return error.kind, error.line, error.block, error.threads
    return out.tobytes()


def text_of(seed):
    rng = random.Random(seed)
    parts = [start(rng.choice(PATTERNS)) + body(rng, 12) for _ in range(3)]
    return "\n".join(parts)


def same(seed):
    text = text_of(seed)
    return ended("vector", text) == ended("reference", text)


@pytest.mark.parametrize("seed", range(6))
def test_accesses_end_as_the_references_do(seed):
    assert same(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6, 80))
def test_more_accesses_end_as_the_references_do(seed):
    assert same(seed)


def test_a_register_that_changed_is_noticed(monkeypatch):
    """What is known of a register holds for what it held."""

    def stale(s, register):
        return s.bases.setdefault(register, Base(s.read(register)))

    monkeypatch.setattr(bases, "_base", stale)
    assert not all(same(seed) for seed in range(6))


def test_another_winner_is_noticed(monkeypatch):
    find = bases._find

    def rising(*given):
        found = find(*given)
        if found:
            found[2].rises = True
        return found

    monkeypatch.setattr(bases, "_find", rising)
    assert not all(same(seed) for seed in range(6))


@pytest.mark.parametrize(
    "statement",
    [
        "ld.shared.u32 %r5, [%r3+2];",
        "ld.shared.v2.u32 {%r5, %r6}, [%r3+4];",
        "st.shared.u32 [%r3+4096], %r5;",
        "ld.shared.u32 %r5, [%r3+-4096];",
        "ld.global.u64 %d1, [%d5+12284];",
        "ld.global.u64 %d1, [%d5+12288];",
        "st.global.u8 [%d5+-1], %r5;",
        "ld.local.u32 %r5, [%d7+2048];",
        "ld.u32 %r5, [%d6+4096];",
        "ld.const.u32 %r5, [%d7];",
        "@%p1 ld.shared.u32 %r5, [%r3+4096];",
    ],
)
def test_what_is_wrong_is_refused_alike(statement):
    first = start(PATTERNS[0]) + "setp.eq.u32 %p1, %r0, 40; ld.shared.u32 %r5, [%r3+4];"
    found = [ended(engine, first + statement) for engine in ("vector", "reference")]
    assert found[0] == found[1] and isinstance(found[0], tuple)


#: each block reads one word of its own, and neighbours of it
ALIKE = """
 shl.b32 %r5, %r0, 2; add.u32 %r3, %r2, %r5; mad.lo.u32 %r6, %r1, 1000, %r0;
 st.shared.u32 [%r3], %r6;
 bar.sync 0; add.u32 %r4, %r2, 64; ld.shared.v2.u32 {%r7, %r8}, [%r4+8]; ld.shared.u16 %r6, [%r4+2];
 mad.lo.u32 %r9, %r7, 31, %r8; add.u32 %r9, %r9, %r6; bar.sync 0; st.shared.u32 [%r4+32], %r0;
 bar.sync 0; ld.shared.u32 %r6, [%r4+32]; mad.lo.u32 %r9, %r9, 31, %r6;
"""


def test_words_that_a_block_reads_alike(monkeypatch):
    assert ended("vector", ALIKE) == ended("reference", ALIKE)
    load = bases.load

    def wrong(s, access):
        found = load(s, access)
        return found and [x[::-1] for x in found]

    monkeypatch.setattr(bases, "load", wrong)
    assert ended("vector", ALIKE) != ended("reference", ALIKE)


#: words whose numbers lanes have in a register: 16 lanes share one, or have one after the other
IN_ROWS = {
    "alike": "shr.u32 %r4, %r0, 4; mad.lo.u32 %r4, %r4, 20, 3;",
    "one after the other": "add.u32 %r4, %r0, 3;",
    "again and again": "and.b32 %r4, %r0, 15; add.u32 %r4, %r4, 19;",
    "in rows apart": "shr.u32 %r4, %r0, 4; mad.lo.u32 %r4, %r4, 16, %r0; add.u32 %r4, %r4, 5;",
    "in rows of other places": "shr.u32 %r4, %r0, 4; mad.lo.u32 %r4, %r4, 9, %r0;",
    "not in rows": "shl.b32 %r4, %r0, 1;",
}


def in_rows(numbers):
    """Loads of more words at one register than the engine looks at, and a store between them."""
    text = f""" {numbers} shl.b32 %r4, %r4, 2; cvt.u64.u32 %d1, %r4; add.u64 %d5, %d0, %d1;
 add.u32 %r3, %r2, %r4; mad.lo.u32 %r6, %r0, 7, %r1;
 shl.b32 %r5, %r0, 2; add.u32 %r5, %r2, %r5; st.shared.u32 [%r5], %r6; st.shared.u32 [%r5+256], %r0;
 bar.sync 0;"""
    for turn in range(24):
        offset = 4 * (turn % 5) - 4 * (turn % 7 == 5 and turn > 9)
        text += f"""
 ld.shared.u32 %r7, [%r3+{offset}]; ld.global.u32 %r8, [%d5+{offset + 4}];
 mad.lo.u32 %r9, %r9, 31, %r7; mad.lo.u32 %r9, %r9, 31, %r8;"""
        if turn % 8 == 7:
            text += "\n bar.sync 0; st.shared.u32 [%r3+4], %r9; bar.sync 0;"
    return text


@pytest.mark.parametrize("numbers", IN_ROWS.values(), ids=IN_ROWS)
def test_loads_in_rows(numbers):
    text = in_rows(numbers)
    assert ended("vector", text) == ended("reference", text)


def test_a_wrong_row_is_noticed(monkeypatch):
    text = in_rows(IN_ROWS["one after the other"])
    monkeypatch.setattr(bases, "_ROWS", (2,))
    assert ended("vector", text) == ended("reference", text)
    find = Base.find_rows

    def wrong(base):
        find(base)
        if base.rows is not None:
            count, shift, rows = base.rows
            base.rows = count, shift, rows[::-1]

    monkeypatch.setattr(Base, "find_rows", wrong)
    assert ended("vector", text) != ended("reference", text)


#: the first warp waits for what the second one stores later
LATE = """
 setp.ge.u32 %p1, %r0, 32; shl.b32 %r5, %r0, 2; xor.b32 %r6, %r5, 128;
 add.u32 %r3, %r2, %r5; add.u32 %r4, %r2, %r6; st.shared.u32 [%r3], %r0; bar.sync 0;
 @%p1 bra SECOND;
 bar.sync 0; ld.shared.u32 %r9, [%r4];
 bra MEET;
SECOND:
 add.u32 %r7, %r0, 7; st.shared.u32 [%r3], %r7; bar.sync 0; ld.shared.u32 %r9, [%r4];
MEET:
"""


def test_a_barrier_waits_for_the_whole_block(monkeypatch):
    assert ended("vector", LATE) == ended("reference", LATE)
    monkeypatch.setattr(executor, "_passes", lambda s, arrival: True)
    assert ended("vector", LATE) != ended("reference", LATE)


#: nobody reads what the first one finds; the second result is stored
ATOMS = """
 and.b32 %r5, %r0, 28; add.u32 %r3, %r2, %r5; mov.u32 %r4, 3; st.shared.u32 [%r3], %r4; bar.sync 0;
 atom.shared.add.u32 %r6, [%r3], %r0; bar.sync 0; atom.shared.max.u32 %r9, [%r3], 900; bar.sync 0;
"""


def test_results_that_nobody_reads(monkeypatch):
    wanted = []
    update = access.update

    def watched(s, space, addresses, words, operation, positions):
        wanted.append(operation.wanted)
        return update(s, space, addresses, words, operation, positions)

    monkeypatch.setattr(access, "update", watched)
    found = ended("vector", ATOMS)
    assert wanted == [False, True]
    assert found == ended("reference", ATOMS)
    monkeypatch.setattr(access, "_is_read", lambda *given: False)
    assert ended("vector", ATOMS) != found
