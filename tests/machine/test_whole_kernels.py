"""Whole kernels as native functions: patterns of addresses, phases, the order of atomics."""

import numpy as np
import pytest
from test_compiled_engine import U32, assert_same, kernel, words

from emulator import Module
from emulator.arith.fast import threads
from emulator.machine.compiled import claims, loop, loop_function, loops, memory, patterns, trials
from emulator.machine.compiled.engine import Blocks
from emulator.machine.compiled.loop import Loop

#: the byte in shared memory that each thread of 64 accesses, in units of its word; of %r3
PLACES = {
    "in a row": "mov.u32 %r4, %r3;",
    "all at one place": "mov.u32 %r4, 5;",
    "halves at one place": "shr.u32 %r4, %r3, 4;",
    "halves in one row": "and.b32 %r4, %r3, 15;",
    "backward": "sub.u32 %r4, 63, %r3;",
    "every second": "and.b32 %r4, %r3, 7; shl.b32 %r4, %r4, 1;",
    "one lane astray": "setp.eq.u32 %p1, %r3, 9; selp.u32 %r4, 3, %r3, %p1;",
}
#: the type of a word, how many of them an access has, and its bytes
KINDS = [("b8", 1, 1), ("b16", 1, 2), ("b32", 1, 4), ("b64", 1, 8), ("b32", 2, 8), ("b32", 4, 16)]
#: which lanes take part
GUARDS = {
    "all": "setp.ne.u32 %p2, %r3, 1000;",
    "some": "and.b32 %r5, %r3, 5; setp.ne.u32 %p2, %r5, 1;",
    "none of a half": "and.b32 %r5, %r3, 16; setp.ne.u32 %p2, %r5, 0;",
}


def access(places, kind, guard):
    """A kernel that stores to shared memory and loads from there by a pattern."""
    type_, count, size = kind
    names = [
        f"%{'rd' if type_ == 'b64' else 'h' if size < 4 else 'r'}{5 + i}" for i in range(count)
    ]
    set_up = "".join(
        f"cvt.u{64 if type_ == 'b64' else 16 if size < 4 else 32}.u32 {name}, %r20;"
        f"add.u32 %r20, %r20, 37;" for name in names
    )  # fmt: skip
    vector = "" if count == 1 else f".v{count}"
    listed = names[0] if count == 1 else "{" + ", ".join(names) + "}"
    return kernel(f"""mov.u32 %r20, %r3; {PLACES[places]} {GUARDS[guard]}
        rem.u32 %r4, %r4, {512 // size}; mov.u32 %r12, room; mad.lo.u32 %r13, %r4, {size}, %r12;
        {set_up} @%p2 st.shared{vector}.{type_} [%r13], {listed}; bar.sync 0;
        @%p2 ld.shared{vector}.{type_} {listed}, [%r13]; bar.sync 0;
        cvt.u32.u{64 if type_ == "b64" else 16 if size < 4 else 32} %r21, {names[-1]};
        mad.lo.u32 %r13, %r3, 8, %r12; ld.shared.v2.u32 {{%r22, %r23}}, [%r13];
        mad.lo.u32 %r21, %r22, 3, %r21; mad.lo.u32 %r21, %r23, 5, %r21;
        st.global.u32 [%rd2], %r21;""")


def check_access(places, kind, guard):
    assert_same(access(places, kind, guard), 1, 64, [words(64), np.zeros(64, U32)])


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("places", PLACES)
@pytest.mark.sampled(20)
def test_patterns_of_addresses(places, kind):
    for guard in GUARDS:
        check_access(places, kind, guard)


def test_a_pattern_that_is_none_is_noticed(monkeypatch):
    """All lanes are taken to follow each other."""
    monkeypatch.setattr(patterns, "_are_at", lambda e, half, places: e.builder.icmp_unsigned(
        "==", half.lanes, half.lanes))  # fmt: skip
    with pytest.raises(AssertionError):
        check_access("backward", ("b32", 1, 4), "all")


#: loads by one register: what is added to it, and the last offset
MANY = {
    "within": ("", 96),
    "a row and one place": (
        "and.b32 %r14, %r3, 16; setp.ne.u32 %p3, %r14, 0; @%p3 add.u32 %r13, %r12, 64;",
        128,
    ),
    "past the end": ("mad.lo.u32 %r13, %r3, 8, %r12;", 16384),
    "before the start": ("sub.u32 %r13, %r13, 300;", 4),
    "misaligned": ("", 6),
    "no pattern": (
        "mul.lo.u32 %r14, %r3, 29; and.b32 %r14, %r14, 60; add.u32 %r13, %r12, %r14;",
        8,
    ),
}


def many(name):
    change, last = MANY[name]
    loads = "".join(
        f"ld.shared.u32 %r{20 + i}, [%r13+{x}]; xor.b32 %r5, %r5, %r{20 + i};"
        for i, x in enumerate((0, 64, 4, 32, last))
    )
    return kernel(f"""mov.u32 %r12, room; and.b32 %r4, %r3, 31; mad.lo.u32 %r13, %r4, 4, %r12;
        ld.global.u32 %r5, [%rd1]; st.shared.u32 [%r13], %r5; st.shared.u32 [%r13+128], %r3;
        st.shared.u32 [%r13+256], %r5; bar.sync 0; {change} {loads} st.global.u32 [%rd2], %r5;""")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", MANY)
def test_many_loads_by_one_register(name):
    assert_same(many(name), 2, 64, [words(128), np.zeros(128, U32)])


def test_a_wrong_row_is_noticed(monkeypatch):
    rows = patterns._rows
    monkeypatch.setattr(patterns, "_rows", lambda bits, e, *x: rows(bits, e, *x[3:], *x[:3]))
    with pytest.raises(AssertionError):
        assert_same(many("a row and one place"), 1, 64, [words(64), np.zeros(64, U32)])


# --- phases ---------------------------------------------------------------------------------------

_WORK = "mad.lo.u32 %r5, %r5, 1664525, 1013904223;" * loops._APART
STORES = {
    "work, store, work, store": f"""ld.global.u32 %r5, [%rd1]; {_WORK} st.global.u32 [%rd2], %r5;
        {_WORK} ld.global.u32 %r6, [%rd2]; xor.b32 %r5, %r5, %r6; st.global.u32 [%rd1], %r5;""",
    "stores in a loop": f"""mov.u32 %r4, 0; ld.global.u32 %r5, [%rd1]; AGAIN: {_WORK}
        st.global.u32 [%rd2], %r5; add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, 40;
        @%p1 bra AGAIN; st.global.u32 [%rd1], %r4;""",
    "threads that fail behind": f"""ld.global.u32 %r5, [%rd1]; {_WORK} st.global.u32 [%rd2], %r5;
        {_WORK} setp.gt.u32 %p1, %r0, 300; @%p1 mov.u64 %rd1, 4; st.global.u32 [%rd1], %r5;""",
    "warps that fail in a later phase, but first": f"""ld.global.u32 %r5, [%rd1];
        shr.u32 %r9, %r0, 5; and.b32 %r9, %r9, 1; setp.eq.u32 %p1, %r9, 1; @%p1 bra BEHIND;
        st.global.u32 [%rd2], %r5; {_WORK} mov.u64 %rd1, 4; ld.global.u32 %r6, [%rd1];
        st.global.u32 [%rd2], %r6; bra END; BEHIND: mov.u64 %rd1, 8; ld.global.u32 %r6, [%rd1];
        END: st.global.u32 [%rd2], %r6;""",
}


@pytest.fixture
def no_trials(monkeypatch):
    monkeypatch.setattr(trials, "_MOST_VAIN", 0)


@pytest.mark.parametrize("name", STORES)
def test_phases(name, four_threads, no_trials, monkeypatch):
    begun = []
    begin = loop._Call.begin
    monkeypatch.setattr(
        loop._Call,
        "begin",
        lambda self, phase, **given: begun.append(phase) or begin(self, phase, **given),
    )
    assert_same(kernel(STORES[name]), 12, 64, [words(768), np.zeros(768, U32)])
    assert begun[:2] == [loop_function.APART, loop_function.SERIAL]


@pytest.mark.parametrize("work", [1, 1 << 30])
def test_a_run_of_statements_is_a_whole_kernel_of_many_threads(work, four_threads, monkeypatch):
    """Few threads call it as a segment."""
    monkeypatch.setattr(loop, "WORTH_A_THREAD", work)
    seen = []
    call = Loop.__call__
    monkeypatch.setattr(
        Loop, "__call__", lambda self, *given, **more: seen.append(1) or call(self, *given, **more)
    )
    body = "ld.global.u32 %r4, [%rd1]; mad.lo.u32 %r4, %r4, %r4, 7; st.global.u32 [%rd2], %r4;"
    held, _ = assert_same(kernel(body), 12, 64, [words(768), np.zeros(768, U32)])
    assert bool(seen) == (work == 1)
    assert held[1] == (words(768) * words(768) + U32(7)).tobytes()


def test_a_block_alone_stores_first_and_last(four_threads):
    assert_same(kernel(STORES["work, store, work, store"]), 1, 64, [words(64), np.zeros(64, U32)])


#: warps of 12 blocks go round 1 to 5 times
ROUNDS = kernel(f"""ld.global.u32 %r5, [%rd1]; shr.u32 %r6, %r0, 5; rem.u32 %r6, %r6, 5;
    mov.u32 %r4, 0; AGAIN: {_WORK} add.u32 %r4, %r4, 1; setp.le.u32 %p1, %r4, %r6;
    @%p1 bra AGAIN; st.global.u32 [%rd2], %r5;""")


def test_groups_that_execute_the_same_parts_are_counted_once(four_threads):
    """The statements of all are those of the warps that go round most often."""
    _, counters = assert_same(ROUNDS, 12, 64, [words(768), np.zeros(768, U32)])
    assert counters["statements"] > 5 * len(_WORK.split(";"))


#: threads read shared memory before they write it
UNWRITTEN = kernel("""mad.lo.u32 %r4, %r3, 4, 1024; ld.shared.u32 %r5, [%r4];
    mov.u32 %r6, 0; AGAIN: add.u32 %r6, %r6, 1; setp.lt.u32 %p1, %r6, 3; @%p1 bra AGAIN;
    st.shared.u32 [%r4], %r6; st.global.u32 [%rd2], %r5;""")


def check_unwritten():
    for _ in range(2):  # the memory of the first serves the second
        out = words(768)
        Module(UNWRITTEN)["go"].launch(
            12, 64, [words(768), out], dynamic_shared=1024, engine="compiled"
        )
        assert not out.any()


def test_shared_memory_starts_with_zeros(four_threads):
    check_unwritten()


def test_shared_memory_of_another_block_starts_with_zeros(four_threads):
    """A thread may come to a block before the one that has its peer in the cluster."""
    text = UNWRITTEN.replace("st.shared.u32 [%r4], %r6;", "").replace(
        "ld.shared.u32 %r5, [%r4];",
        """mov.u32 %r6, %cluster_ctarank; xor.b32 %r6, %r6, 1;
    mapa.shared::cluster.u32 %r7, %r4, %r6; ld.shared::cluster.u32 %r5, [%r7];""",
    )
    for _ in range(4):
        out = words(768)
        Module(UNWRITTEN)["go"].launch(
            12, 64, [words(768), out], dynamic_shared=1024, engine="compiled"
        )
        Module(text)["go"].launch(
            12, 64, [words(768), out], dynamic_shared=1024, engine="compiled", cluster=2
        )
        assert not out.any()


def test_shared_memory_of_a_wave_before_is_noticed(four_threads, monkeypatch):
    monkeypatch.setattr(memory.Memory, "clear_shared", lambda self, first, end: None)
    with pytest.raises(AssertionError):
        check_unwritten()


def test_a_hash_that_tells_no_groups_apart_is_noticed(four_threads, monkeypatch):
    monkeypatch.setattr(loop_function, "_MIX", 0)
    with pytest.raises(AssertionError):
        assert_same(ROUNDS, 12, 64, [words(768), np.zeros(768, U32)])


@pytest.mark.parametrize("block", [(5, 3, 2), (32, 2), 40, (8, 8, 2)], ids=str)
def test_words_of_a_blocks_threads(block):
    """Special registers that are the same in all blocks, in warps that are whole or not."""
    names = ["%tid.x", "%tid.y", "%tid.z", "%laneid", "%warpid", "%lanemask_lt", "%ctaid.x"]
    mixed = "".join(f"mov.u32 %r6, {x}; mad.lo.u32 %r5, %r5, 31, %r6;" for x in names)
    text = kernel(f"""mov.u32 %r5, 0; mov.u32 %r4, 0; AGAIN: {mixed} add.u32 %r4, %r4, 1;
        setp.lt.u32 %p1, %r4, 9; @%p1 bra AGAIN; mov.u32 %r6, %ntid.x; mov.u32 %r7, %ntid.y;
        mov.u32 %r8, %tid.y; mov.u32 %r9, %tid.z; mad.lo.u32 %r9, %r9, %r7, %r8;
        mov.u32 %r8, %tid.x; mad.lo.u32 %r9, %r9, %r6, %r8; mov.u32 %r8, %ctaid.x;
        mad.lo.u32 %r9, %r8, 128, %r9; ld.param.u64 %rd2, [b];
        mad.wide.u32 %rd2, %r9, 4, %rd2; st.global.u32 [%rd2], %r5;""")
    assert_same(text, 6, block, [words(768), np.zeros(768, U32)])


def test_stores_of_blocks_to_one_place_do_not_depend_on_threads(monkeypatch):
    """Blocks store to the same words, after work of different length."""
    text = kernel(f"""ld.global.u32 %r5, [%rd1]; and.b32 %r6, %r1, 3; mov.u32 %r4, 0;
        AGAIN: {_WORK} add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, %r6; @%p1 bra AGAIN;
        ld.param.u64 %rd2, [b]; mad.wide.u32 %rd2, %r3, 4, %rd2; st.global.u32 [%rd2], %r1;""")
    found = set()
    for count in (1, 2, 4):
        monkeypatch.setattr(threads, "processors", lambda count=count: count)
        monkeypatch.setattr(loop, "WORTH_A_THREAD", 1)
        out = np.zeros(64, U32)
        Module(text)["go"].launch(16, 64, [words(1024), out], engine="compiled")
        found.add(out.tobytes())
    assert len(found) == 1


#: stores of a block of 64 threads, and whether blocks may store at the same time: each to its own
#: place, all to one line, some to a line of their neighbour, where a word says that was loaded
#: before, where the block's own memory is read as well, and where the memory of others is
CLAIMS = {
    "own": ("st.global.u32 [%rd2], %r5;", True),
    "one place": ("ld.param.u64 %rd2, [b]; st.global.u32 [%rd2], %r5;", False),
    "shifted": ("@%p1 st.global.u32 [%rd2+12], %r5;", False),
    "guarded": ("setp.lt.u32 %p2, %r3, 48; @%p2 st.global.u32 [%rd2], %r5;", True),
    "vectors": ("mad.wide.u32 %rd2, %r0, 12, %rd2; st.global.v4.u32 [%rd2], "
                "{%r5, %r5, %r3, %r5};", True),
    "two": ("st.global.u32 [%rd2], %r5; st.global.u32 [%rd1], %r5;", True),
    "loaded": ("mov.u32 %r6, room; ld.shared.u32 %r6, [%r6]; mad.wide.u32 %rd2, %r6, 4, %rd2; "
               "st.global.u32 [%rd2], %r5;", True),
    "own memory": ("mov.u32 %r6, room; ld.shared.u32 %r6, [%r6]; st.global.u32 [%rd2], %r6;", True),
    "other memory": ("st.global.u32 [%rd2], %r5; ld.global.u32 %r6, [%rd2]; "
                     "st.global.u32 [%rd1], %r6;", False),
    "atomics": ("atom.global.add.u32 %r6, [%rd2], %r5;", False),
}  # fmt: skip


def claimed(name, monkeypatch):
    """Whether blocks stored at the same time; both engines store the same."""
    found = []
    ask = loop._Native._may_store_together
    monkeypatch.setattr(
        loop._Native, "_may_store_together", lambda *given: found.append(ask(*given)) or found[-1]
    )
    text = kernel(f"""ld.global.u32 %r5, [%rd1]; setp.lt.u32 %p1, %r3, 64;
        mov.u32 %r4, 0; AGAIN: {_WORK} add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, 2;
        @%p2 bra AGAIN; {CLAIMS[name][0]}""")
    outcome = assert_same(text, 16, 64, [words(1024), np.zeros(8192, U32)])
    return found[0], outcome


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [x for x in CLAIMS if x != "atomics"])
def test_blocks_store_at_the_same_time_where_they_claim_lines_of_their_own(
    name, four_threads, no_trials, monkeypatch
):
    together, outcome = claimed(name, monkeypatch)
    assert together == CLAIMS[name][1]
    assert not isinstance(outcome[0], str)


@pytest.mark.parametrize("name", ["atomics", "loaded", "other memory"])
def test_parts_that_claim_nothing(name):
    """As one part: it does more than store, or where it stores is loaded in it."""
    program = Module(kernel(CLAIMS[name][0]))["go"].rewritten[0]
    assert claims.claims_of(program.statements[:-1]) is None
    own = Module(kernel(CLAIMS["own"][0]))["go"].rewritten[0]
    assert claims.claims_of(own.statements[:-1])


def test_a_claim_that_is_lost_is_noticed(four_threads, no_trials, monkeypatch):
    monkeypatch.setattr(claims, "_claim", lambda e, *given: claims.BIT(0))
    assert claimed("one place", monkeypatch)[0]


def test_where_parts_are_cut():
    """Many statements between two stores are a part of their own, few are not."""
    for count, lengths in ((loops._APART, [-1, loops._APART, 1]), (loops._APART - 1, [-1])):
        work = "add.u32 %r5, %r5, 1;" * count
        text = kernel(f"st.global.u32 [%rd1], %r0; {work} st.global.u32 [%rd2], %r0;")
        program = Module(text)["go"].rewritten[0]
        found = [len(x.statements) for x in loops._parts(program, program.functions["go"])]
        assert len(found) == len(lengths)
        assert found[1:] == lengths[1:]


# --- atomics --------------------------------------------------------------------------------------

_SHARED = """mov.u32 %r12, room; setp.eq.u32 %p1, %r3, 0; mov.u32 %r4, 0;
    @%p1 st.shared.u32 [%r12], %r4; bar.sync 0;"""


def loop_of(text):
    module = Module(text)
    module["go"].launch(1, 64, [words(64), words(64)], engine="compiled")
    (found,) = set(module["go"]._blocks[Blocks, False].loops.values())
    assert isinstance(found, Loop)
    return found


def test_order_of_shared_atomics_is_that_of_a_block(four_threads):
    text = kernel(f"""{_SHARED} atom.shared.add.u32 %r5, [%r12], %r0; mov.u32 %r4, 0;
        AGAIN: atom.shared.exch.b32 %r6, [%r12], %r5; xor.b32 %r5, %r5, %r6; add.u32 %r4, %r4, 1;
        setp.lt.u32 %p2, %r4, 5; @%p2 bra AGAIN; st.global.u32 [%rd2], %r5;""")
    assert_same(text, 6, 64, [words(384), np.zeros(384, U32)])
    assert not loop_of(text)._in_step
    assert loop_of(
        text.replace("atom.shared.exch.b32 %r6, [%r12]", "atom.exch.b32 %r6, [%rd2]")
    )._in_step


def test_sums_of_both_memories_are_in_any_order():
    """A sum in shared memory cannot meet one in global memory."""
    found = loop_of(
        kernel(f"""{_SHARED} red.shared.add.u32 [%r12], %r3; bar.sync 0;
        ld.shared.u32 %r5, [%r12]; red.global.add.u32 [%rd2], %r5;""")
    )
    assert found._apart
    assert not found._in_step
