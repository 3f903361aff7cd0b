"""Trials: thread blocks that run whole at the same time, and what is taken back."""

import threading
from contextlib import nullcontext

import numpy as np
import pytest
from test_compiled_engine import U32, assert_same, ended, kernel, words

from emulator import Memory, Module
from emulator.machine import launch as launches
from emulator.machine import turns
from emulator.machine.compiled import loop, loops, trials
from emulator.machine.compiled.engine import CompiledWave
from emulator.memory.arena import Arena
from emulator.memory.journal import Journal

_LOOP = """mov.u32 %r4, 0; AGAIN: mad.lo.u32 %r5, %r5, 1664525, 1013904223;
    add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, 5; @%p1 bra AGAIN;"""
#: enough for a phase
_WORK = "mad.lo.u32 %r5, %r5, 1664525, 1013904223;" * loops._APART
_LOAD = "ld.global.u32 %r5, [%rd1];"
#: the address in b of the thread `%r6`
_TO = "ld.param.u64 %rd2, [b]; mad.wide.u32 %rd2, %r6, 4, %rd2;"
#: statements of threads, of which b has one word each, and whether a trial of them stays
TRIALS = {
    "own": (f"{_LOAD} {_LOOP} st.global.u32 [%rd2], %r5;", True),
    "in place": (f"{_LOAD} {_LOOP} st.global.u32 [%rd1], %r5;", True),
    "two arrays": (f"{_LOAD} {_LOOP} st.global.u32 [%rd1], %r4; st.global.u32 [%rd2], %r5;", True),
    "stored, then loaded": (f"{_LOAD} {_LOOP} st.global.u32 [%rd2], %r5; "
                            "ld.global.u32 %r6, [%rd2]; st.global.u32 [%rd2], %r6;", True),
    "half of the lanes": (f"{_LOAD} {_LOOP} and.b32 %r6, %r3, 1; setp.eq.u32 %p2, %r6, 0; "
                          "@%p2 st.global.u32 [%rd2], %r5;", True),
    "some warps": (f"{_LOAD} {_LOOP} setp.gt.u32 %p2, %r0, 300; @%p2 st.global.u32 [%rd2], %r5;",
                   True),
    "shared memory": (f"{_LOAD} mad.lo.u32 %r7, %r3, 4, 1024; ld.shared.u32 %r8, [%r7]; "
                      f"st.shared.u32 [%r7], %r5; bar.sync 0; {_LOOP} "
                      "add.u32 %r5, %r5, %r8; st.global.u32 [%rd2], %r5;", True),
    "one place": (f"{_LOAD} {_LOOP} ld.param.u64 %rd2, [b]; st.global.u32 [%rd2], %r5;", False),
    "backward": (f"{_LOAD} {_LOOP} sub.u32 %r6, 767, %r0; {_TO} st.global.u32 [%rd2], %r5;", False),
    "a word of the next": (f"{_LOAD} {_LOOP} min.u32 %r6, %r0, 766; {_TO} "
                           "st.global.u32 [%rd2], %r5; st.global.u32 [%rd2+4], %r4;", False),
    "two ways to one array": (f"{_LOAD} {_LOOP} st.global.u32 [%rd2], %r5; xor.b32 %r6, %r0, 64; "
                              "ld.param.u64 %rd3, [b]; mad.wide.u32 %rd3, %r6, 4, %rd3; "
                              "st.global.u32 [%rd3], %r4;", False),
    "of a neighbour": (f"xor.b32 %r6, %r0, 64; {_TO} {_LOAD} ld.global.u32 %r7, [%rd2]; "
                       f"xor.b32 %r5, %r5, %r7; {_LOOP} ld.param.u64 %rd3, [b]; "
                       "mad.wide.u32 %rd3, %r0, 4, %rd3; st.global.u32 [%rd3], %r5;", False),
    "failing": (f"{_LOAD} {_LOOP} st.global.u32 [%rd2], %r5; setp.gt.u32 %p2, %r0, 500; "
                "@%p2 mov.u64 %rd1, 4; ld.global.u32 %r6, [%rd1]; st.global.u32 [%rd2], %r6;",
                False),
    "shared memory, one place": (
        f"{_LOAD} mad.lo.u32 %r7, %r3, 4, 1024; ld.shared.u32 %r8, [%r7]; add.u32 %r8, %r8, 1; "
        f"st.shared.u32 [%r7], %r8; bar.sync 0; {_LOOP} ld.param.u64 %rd2, [b]; "
        "mad.wide.u32 %rd2, %r3, 4, %rd2; st.global.u32 [%rd2], %r8;", False),
    "local memory, one place": (
        f"{_LOAD} ld.local.u32 %r8, [mine]; add.u32 %r8, %r8, 1; st.local.u32 [mine], %r8; {_LOOP} "
        "ld.param.u64 %rd2, [b]; mad.wide.u32 %rd2, %r3, 4, %rd2; st.global.u32 [%rd2], %r8;",
        False),
}  # fmt: skip
#: statements of which there is no trial
NONE = {
    "atomics": f"{_LOAD} {_LOOP} atom.global.add.u32 %r6, [%rd2], %r5;",
    "no stores": f"{_LOAD} {_LOOP}",
    "warps that look at each other's shared memory without a barrier": (
        f"{_LOAD} {_LOOP} mad.lo.u32 %r7, %r3, 4, 1024; st.shared.u32 [%r7], %r5; {_WORK} "
        f"st.global.u32 [%rd1], %r5; {_WORK} xor.b32 %r7, %r7, 128; ld.shared.u32 %r8, [%r7]; "
        "st.global.u32 [%rd2], %r8;"
    ),
}


#: warps store to one place at different statements: the order of warps says what stays there
RACES = {"a word of the next", "two ways to one array"}


def outcome(name, monkeypatch):
    """Whether each trial stayed, of three launches, two of them of one Module; each ends as without
    trials, and as by the vector engine."""
    found, end = [], trials.Trials.end
    monkeypatch.setattr(
        trials.Trials, "end", lambda *a, **k: found.append(end(*a, **k)) or found[-1]
    )
    body = TRIALS[name][0] if name in TRIALS else NONE[name]
    text, data = kernel(body), [words(768), np.zeros(768, U32)]

    def launched(engine, module=None):
        kernel = (module or Module(text))["go"]
        return ended(engine, kernel, 12, 64, data, dynamic_shared=1024)

    module = Module(text)
    ways = [launched("compiled"), launched("compiled", module), launched("compiled", module)]
    if name not in RACES:
        ways.append(launched("vector"))
    monkeypatch.setattr(trials, "_MOST_VAIN", 0)
    assert ways == [launched("compiled")] * len(ways)
    return found


@pytest.mark.parametrize("name", TRIALS)
def test_trials(name, four_threads, monkeypatch):
    assert outcome(name, monkeypatch) == [TRIALS[name][1]] * 3


@pytest.mark.parametrize("name", NONE)
def test_no_trial(name, four_threads, monkeypatch):
    assert outcome(name, monkeypatch) == []


def launched_meanwhile(monkeypatch):
    """An array of which one launch stores the first half, in vain at first, and another one of
    another Python thread the second, while the trial of the first ends."""
    module, data, others = Module(kernel(TRIALS["backward"][0])), np.zeros(1536, U32), []

    def launch(part):
        module["go"].launch(12, 64, [words(768), data[part:]], engine="compiled")

    end = trials.Trials.end

    def end_late(self, *given, **more):
        if not others:
            others.append(threading.Thread(target=launch, args=(768,)))
            others[0].start()
            others[0].join(1)
        return end(self, *given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(trials.Trials, "end", end_late)
        module["go"].launch(12, 64, [words(768), data], engine="compiled")
        others[0].join()
    alone = np.zeros(768, U32)
    module["go"].launch(12, 64, [words(768), alone], engine="compiled")
    return data.tobytes(), alone.tobytes() * 2


def test_what_another_launch_stores_is_not_taken_back(four_threads, monkeypatch):
    found, expected = launched_meanwhile(monkeypatch)
    assert found == expected


def elsewhere(ask):
    """What another Python thread gets; None: it has to wait."""
    found = []
    thread = threading.Thread(target=lambda: found.append(ask()), daemon=True)
    thread.start()
    thread.join(1)
    return found[0] if found else None


def is_alone():
    with turns.alone() as found:
        return found


def launches_at_once():
    with turns.launching():
        return True


def test_who_is_not_alone_holds_nobody_off():
    with turns.launching(), turns.alone() as first:
        assert first
        assert elsewhere(is_alone) is False
        # As a signal's handler may.
        assert launches_at_once()
        with turns.launching():
            assert not is_alone()
        assert elsewhere(launches_at_once) is None
    with turns.launching(), turns.launching(), turns.alone() as third:
        assert not third
        assert elsewhere(launches_at_once)


def test_a_forked_child_has_no_launches_of_other_threads():
    under_way = turns._UnderWay()
    under_way.threads = [0, threading.get_ident(), 0]
    before = under_way.lock
    under_way.forget_others()
    assert under_way.threads == [threading.get_ident()]
    assert under_way.lock is not before


def test_another_launch_is_noticed(four_threads, monkeypatch):
    """It need not wait until a trial is over."""
    monkeypatch.setattr(launches, "launching", nullcontext)
    found, expected = launched_meanwhile(monkeypatch)
    assert found != expected


def test_no_trial_of_an_array_at_two_addresses(four_threads, monkeypatch):
    """What is stored at one is read at the other, where no hull is."""
    body = f"""sub.u32 %r6, 767, %r0; {_TO} ld.global.u32 %r5, [%rd2]; {_LOOP} {_WORK}
        st.global.u32 [%rd1], %r5;"""
    module, found = Module(kernel(body)), []
    monkeypatch.setattr(Arena, "begin_trial", _counting(Arena.begin_trial, found))
    out = []
    for most in (2, 0):
        monkeypatch.setattr(trials, "_MOST_VAIN", most)
        data, memory, addresses = words(768), Memory(), [1 << 28, 1 << 29]
        for address in addresses:
            memory.map(address, data)
        module["go"].launch(12, 64, addresses, memory=memory, engine="compiled")
        out.append(data.tobytes())
    assert not found
    assert out[0] == out[1]


def test_after_trials_in_vain_there_are_no_more(four_threads, monkeypatch):
    module, found = Module(kernel(TRIALS["one place"][0])), []
    monkeypatch.setattr(Arena, "begin_trial", _counting(Arena.begin_trial, found))
    for _ in range(4):
        module["go"].launch(12, 64, [words(768), np.zeros(768, U32)], engine="compiled")
    assert len(found) == trials._MOST_VAIN


def test_no_trial_of_little_work(monkeypatch):
    """It costs more than the phases that it saves."""
    found = []
    monkeypatch.setattr(Arena, "begin_trial", _counting(Arena.begin_trial, found))
    for work in (1 << 40, 1):
        assert not found
        monkeypatch.setattr(loop, "WORTH_A_THREAD", work)
        assert_same(kernel(TRIALS["own"][0]), 12, 64, [words(768), np.zeros(768, U32)])
    assert found


def _counting(method, found):
    return lambda self, *given: found.append(given) or method(self, *given)


def test_the_journal_keeps_at_once_what_the_launch_before_stored(four_threads, monkeypatch):
    module, expected, kept = Module(kernel(TRIALS["own"][0])), [], []
    monkeypatch.setattr(Arena, "expect", _counting(Arena.expect, expected))
    monkeypatch.setattr(Journal, "keep", _counting(Journal.keep, kept))
    data = [words(768), np.zeros(768, U32)]
    module["go"].launch(12, 64, data, engine="compiled")
    assert kept
    assert not expected
    kept.clear()
    module["go"].launch(12, 64, data, engine="compiled")
    assert len(kept) == len(expected) == 1


#: what a trial needs -> a wrong one, and a kernel that tells
WRONG = {
    "hulls that cross": (trials.Hulls, "end", lambda self: trials.BIT(0), "one place"),
    "reads without a hull": (Arena, "was_read", lambda self, low, high: False, "of a neighbour"),
    "bytes taken back": (Journal, "undo", lambda self, length=0: None, "of a neighbour"),
    "shared memory": (CompiledWave, "begin_again", lambda self: self.local.fill(0),
                      "shared memory, one place"),
    "local memory": (CompiledWave, "begin_again", lambda self: setattr(self, "_is_clear", False),
                     "local memory, one place"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_trial_is_noticed(name, four_threads, monkeypatch):
    owner, attribute, wrong, kernel = WRONG[name]
    monkeypatch.setattr(owner, attribute, wrong)
    with pytest.raises(AssertionError):
        assert outcome(kernel, monkeypatch) == [TRIALS[kernel][1]] * 3


def test_hulls_that_follow_each_other():
    def of(*rows):
        return trials.touched(np.array(rows, np.uint64).reshape(-1, 1, 2))

    none = (2**64 - 1, 0)
    assert of((4, 8), none, (8, 9), (12, 16)) == [(4, 16)]
    assert of((4, 9), (8, 12)) is None
    assert of((8, 12), (4, 8)) is None
    assert of(none) == []
    both = np.array([[(4, 8), (16, 20)], [(8, 12), (20, 24)]], np.uint64)
    assert trials.touched(both) == [(4, 12), (16, 24)]
    both[:, 1] -= np.uint64(5)
    assert trials.touched(both) is None
