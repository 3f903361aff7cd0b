"""mbarriers as words: recordings, the specification by hand, arrays and lanes equal to it."""

import json

import numpy as np
import pytest
from bits import assert_same_codes
from paths import GOLDEN

from emulator.memory import mbarrier
from emulator.memory.mbarrier import (
    MAX_COUNT,
    Barrier,
    Change,
    Undefined,
    advance,
    advance_lanes,
    init_words,
    parity_over,
    pending_count,
    phase_over,
)

RECORDED = dict(np.load(GOLDEN / "memory" / "mbarrier.npz"))
FORMS = json.loads(RECORDED["forms"].tobytes())
#: tokens of which hardware defines the upper half alone
HALF = 0xFFFFFFFF << 32


def arrive(count=1):
    return Change(arrivals=count)


def arrive_drop(count):
    return Change(arrivals=count, drops=count)


def transactions(count):
    return Change(transactions=count)


class Steps:
    """One recorded thread: a barrier, and the results in the order of the kernel."""

    def __init__(self, count):
        self.barrier, self.results = Barrier.init(count), []

    def do(self, operation):
        self.barrier = self.barrier.after(operation)

    def token(self, operation, mask=2**64 - 1):
        """The result of an arrival; False bits of `mask` are not defined."""
        self.results.append((self.barrier.encode(), mask))
        self.do(operation)
        return self.results[-1][0]

    def look(self):
        self.results.append((self.barrier.encode(), 2**64 - 1))

    def say(self, value):
        self.results.append((int(value), 2**64 - 1))

    def parity(self, parity):
        self.say(parity_over(self.barrier.encode(), parity))


def run(name, operands):
    """What the kernel recorded under a name does, through `Barrier`."""
    count, *rest = operands
    s = Steps(count)
    kind = name.split(".shared")[0].removesuffix(".relaxed.cta")
    if kind == "mbarrier.init" or kind == "mbarrier.inval":
        s.look()
    elif name.endswith("(three times)"):
        tokens = []
        for _ in range(3):
            tokens.append(s.token(arrive(), HALF))
            s.look()
        s.say(phase_over(s.barrier.encode(), tokens[0]))
        s.say(phase_over(s.barrier.encode(), tokens[2]))
    elif kind == "mbarrier.arrive":
        s.token(arrive(*rest), HALF)
        s.look()
        s.do(transactions(16))
        s.do(transactions(-16))
        s.look()
        s.say(0)
    elif kind == "mbarrier.arrive_drop":
        s.token(arrive_drop(*rest), HALF)
        s.look()
    elif kind == "mbarrier.arrive.noComplete":
        s.token(arrive(*rest)._replace(may_complete=False), HALF)
        s.look()
    elif kind in ("mbarrier.expect_tx", "mbarrier.complete_tx"):
        sign = 1 if "expect" in kind else -1
        s.do(transactions(sign * rest[0]))
        s.look()
        s.do(transactions(-sign * rest[1]))
        s.look()
    elif kind == "mbarrier.arrive.expect_tx":
        token = s.token(Change(arrivals=1, transactions=rest[0]))
        s.look()
        before = phase_over(s.barrier.encode(), token)
        s.do(transactions(-rest[1]))
        s.look()
        s.say(before)
        s.parity(0)
        s.parity(1)
        s.say(pending_count(token))
    elif kind == "cp.async.mbarrier.arrive":
        s.do(arrive(-1))
        s.do(arrive())
        s.look()
    elif kind == "cp.async.mbarrier.arrive.noinc":
        s.do(arrive())
        s.look()
    else:
        assert kind == "mbarrier.try_wait.parity"
        s.parity(0)
        s.parity(1)
        s.token(arrive(), HALF)
        s.look()
        s.parity(0)
        s.parity(1)
    return s.results


def differing(form):
    """How many results of a recorded form `Barrier` gives otherwise, and how many there are."""
    i = [f["name"] for f in FORMS].index(form)
    operands = [v for k, v in sorted(RECORDED.items()) if k.startswith(f"{i}.in")]
    recorded = [v for k, v in sorted(RECORDED.items()) if k.startswith(f"{i}.out")]
    wrong = total = 0
    for case in range(len(operands[0])):
        results = run(form, [int(x[case]) for x in operands])
        for (value, mask), words in zip(results, recorded, strict=True):
            wrong += (value ^ int(words[case])) & mask != 0
            total += 1
    return wrong, total


@pytest.mark.parametrize("form", [f["name"] for f in FORMS])
def test_words_and_tokens_are_those_of_the_h200(form):
    wrong, total = differing(form)
    assert wrong == 0
    assert total >= 54


@pytest.mark.parametrize("constant", ["PARITY", "PENDING", "TRANSACTIONS", "EXPECTED", "COUNT_MASK",
                                      "TRANSACTIONS_MASK"])  # fmt: skip
def test_recordings_notice_another_layout(constant, monkeypatch):
    value = getattr(mbarrier, constant)
    monkeypatch.setattr(mbarrier, constant, value >> 1 if "MASK" in constant else value - 1)
    assert any(differing(form["name"])[0] for form in FORMS)


# --- by hand ---


def test_words_by_hand():
    assert Barrier.init(1).encode() == 0x7FFFF800001FFFFE
    assert Barrier(1, 0, 0, 0).encode() == 0x8000000000000000
    assert Barrier.init(1).after(arrive()) == Barrier(1, 1, 0, 1)
    assert Barrier.init(2).after(arrive_drop(1)) == Barrier(0, 1, 0, 1)
    assert Barrier.init(1).after(arrive_drop(1)).encode() == 0x8000000000000000


def test_a_phase_needs_arrivals_and_bytes():
    one = Barrier.init(1).after(Change(arrivals=1, transactions=512))
    assert one == Barrier(0, 0, 512, 1)
    assert one.after(transactions(-511)) == Barrier(0, 0, 1, 1)
    assert one.after(transactions(-512)) == Barrier(1, 1, 0, 1)
    early = Barrier.init(1).after(transactions(-512))
    assert early == Barrier(0, 1, -512, 1)
    assert early.after(Change(arrivals=1, transactions=512)) == Barrier(1, 1, 0, 1)


def test_producers_start_by_waiting_for_parity_1():
    fresh = Barrier.init(1).encode()
    assert parity_over(fresh, 1) and not parity_over(fresh, 0)
    done = Barrier.init(1).after(arrive()).encode()
    assert parity_over(done, 0) and not parity_over(done, 1)
    assert phase_over(done, fresh) and not phase_over(fresh, fresh)


def test_words_are_decoded_and_encoded():
    rng = np.random.default_rng(2)
    barriers = [Barrier(0, 0, 0, 0), Barrier(1, MAX_COUNT, -MAX_COUNT, MAX_COUNT),
                Barrier(0, MAX_COUNT, MAX_COUNT, 1)]  # fmt: skip
    for _ in range(500):
        pending, expected = (int(x) for x in rng.integers(0, MAX_COUNT + 1, 2))
        tx = int(rng.integers(-MAX_COUNT, MAX_COUNT + 1))
        barriers.append(Barrier(int(rng.integers(2)), pending, tx, expected))
    for barrier in barriers:
        assert Barrier.decode(barrier.encode()) == barrier


@pytest.mark.parametrize(
    ("barrier", "operation", "flags"),
    [
        (Barrier.init(2), arrive(), Undefined(0)),
        (Barrier.init(2), arrive(3), Undefined.TOO_MANY),
        (Barrier.init(2), arrive(-1), Undefined(0)),
        (Barrier.init(MAX_COUNT), arrive(-1), Undefined.TOO_MANY),
        (Barrier.init(2), arrive(-2), Undefined.COUNT),
        (Barrier.init(2), arrive(1 << 20), Undefined.COUNT | Undefined.TOO_MANY),
        (Barrier(0, 2, 0, 1), arrive_drop(2), Undefined.TOO_MANY),
        (Barrier.init(2), transactions(MAX_COUNT), Undefined(0)),
        (Barrier.init(2), transactions(MAX_COUNT + 1), Undefined.TRANSACTIONS),
        (Barrier(0, 2, 1, 2), transactions(MAX_COUNT), Undefined.TRANSACTIONS),
        (Barrier(0, 2, -1, 2), transactions(-MAX_COUNT), Undefined.TRANSACTIONS),
        (Barrier.init(1), Change(1, may_complete=False), Undefined.COMPLETED),
        (Barrier.init(2), Change(1, may_complete=False), Undefined(0)),
    ],
)
def test_what_is_undefined_is_told(barrier, operation, flags):
    assert barrier.undefined(operation) == flags
    words = np.array([barrier.encode()], np.uint64)
    assert advance(words, operation)[1].tolist() == [flags]


# --- arrays ---


def random_barriers(rng, count):
    """Words of barriers of which many are about to complete."""
    small = rng.random(count) < 0.7
    pending = np.where(small, rng.integers(0, 4, count), rng.integers(0, 1 << 20, count))
    tx = np.where(rng.random(count) < 0.6, 0, rng.integers(-40, 40, count))
    expected = np.where(small, rng.integers(0, 5, count), rng.integers(0, 1 << 20, count))
    parity = rng.integers(0, 2, count)
    rows = zip(parity, pending, tx, expected, strict=True)
    return np.array([Barrier(*(int(x) for x in row)).encode() for row in rows], np.uint64)


def random_operation(rng, count, may_complete):
    arrivals = rng.choice([0, 1, 1, 2, 3, -1, 1 << 20], count)
    drops = np.where(rng.random(count) < 0.3, arrivals, 0)
    added = rng.choice([0, 0, 0, 16, -16, 1 << 20, -1, 37], count)
    return Change(arrivals, drops, added, may_complete)


def in_turn(words, barriers, operation):
    """What `advance_lanes` returns, through `Barrier`."""
    words, tokens, flags = [int(word) for word in words], [], []
    for lane, at in enumerate(barriers):
        parts = (int(np.broadcast_to(part, len(barriers))[lane]) for part in operation[:3])
        one = Change(*parts, operation.may_complete)
        before = Barrier.decode(words[at])
        tokens.append(words[at])
        flags.append(before.undefined(one))
        words[at] = before.after(one).encode()
    return np.array(words, "u8"), np.array(tokens, "u8"), np.array(flags, "u1")


@pytest.mark.parametrize("may_complete", [True, False])
def test_arrays_equal_the_specification(may_complete):
    rng = np.random.default_rng(3)
    words = random_barriers(rng, 3000)
    operation = random_operation(rng, 3000, may_complete)
    after, flags = advance(words, operation)
    wanted, _, wanted_flags = in_turn(words, range(3000), operation)
    assert_same_codes(after, wanted)
    assert_same_codes(flags, wanted_flags)
    assert len(np.unique(flags)) > 4
    counts = np.array([1, 2, 77, MAX_COUNT])
    fresh = [Barrier.init(int(n)).encode() for n in counts]
    assert_same_codes(init_words(counts), np.array(fresh, np.uint64))
    tokens = random_barriers(rng, 3000)
    over = [phase_over(int(w), int(t)) for w, t in zip(words, tokens, strict=True)]
    assert phase_over(words, tokens).tolist() == over
    assert parity_over(words, 1).tolist() == [parity_over(int(w), 1) for w in words]
    assert pending_count(words).tolist() == [pending_count(int(w)) for w in words]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("few", [0, 64])
@pytest.mark.parametrize("seed", range(30))
def test_lanes_on_one_barrier_act_in_ascending_order(monkeypatch, seed, few):
    monkeypatch.setattr(mbarrier, "_FEW", few)
    rng = np.random.default_rng(seed)
    words = random_barriers(rng, int(rng.integers(1, 8)))
    lanes = int(rng.integers(0, 64))
    barriers = rng.integers(0, len(words), lanes)
    operation = random_operation(rng, lanes, True)
    if seed % 2:
        operation = arrive()
    kept = words.copy()
    found = advance_lanes(words, barriers, operation)
    assert_same_codes(words, kept)
    for got, wanted in zip(found, in_turn(words, barriers, operation), strict=True):
        assert_same_codes(got, wanted)


@pytest.mark.parametrize("few", [0, 64])
def test_a_warp_that_completes_many_phases(monkeypatch, few):
    monkeypatch.setattr(mbarrier, "_FEW", few)
    words = np.array([Barrier.init(3).encode()], np.uint64)
    after, tokens, _ = advance_lanes(words, np.zeros(32, np.intp), arrive())
    assert Barrier.decode(int(after[0])) == Barrier(0, 1, 0, 3)
    assert (tokens >> np.uint64(63)).tolist() == [i // 3 % 2 for i in range(32)]
