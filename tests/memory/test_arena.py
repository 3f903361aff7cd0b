"""Allocations, their rooms, and the undo journal."""

import pickle
import threading
from itertools import pairwise

import numpy as np
import pytest

from emulator.memory.arena import AccessError, Arena
from emulator.memory.journal import Journal

FAR = 0x20_0000_0000


def addresses(*given):
    return np.array(given, np.uint64)


def rows(*given):
    return np.array(given, np.int64)


def test_small_allocations_lie_together_and_are_told_apart():
    """A launch of many threads with memory of malloc each looks into one array."""
    arena = Arena()
    made = [arena.allocate(f"malloc {i}", 40) for i in range(2000)]
    given = addresses(*(x.address + 8 for x in made))
    parts = arena.words(given, 8, True)
    assert len(parts) < 4
    for part in parts:
        which = slice(None) if part.which is None else part.which
        part.view[part.places] = np.arange(2000, dtype=np.uint64)[which]
    for i, x in enumerate(made):
        assert x.held.view("<u8").tolist() == [0, i, 0, 0, 0]
    for i, x in enumerate(made[:9]):
        with pytest.raises(AccessError, match=f"after the end of malloc {i} "):
            arena.words(addresses(x.address + 40), 8, False)


@pytest.mark.parametrize("address", [FAR, FAR + 4, FAR + 13])
@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_words_start_at_multiples_of_their_size(address, size):
    arena, held = Arena(), np.arange(61, dtype=np.uint8)
    arena.allocate("A", 61, address=address, held=held)
    arena.allocate("B", 8, address=FAR + 4096)
    first = -address % size
    for at in range(first, 61 - size + 1, size):
        (part,) = arena.words(addresses(address + at), size, False)
        assert part.view[part.places].tobytes() == held[at : at + size].tobytes()
        assert not part.view.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            part.view[part.places] = 0
    assert (arena.read_rows(rows(address, address + 1), 60) == [held[:60], held[1:]]).all()
    both = arena.read_rows(rows(address, FAR + 4096), 8)
    assert (both == [held[:8], np.zeros(8)]).all()


@pytest.mark.parametrize("size", [10, 70_000, 1_000_000])
def test_the_journal_gives_everything_back(size):
    rng = np.random.default_rng(size)
    arena, held = Arena(), rng.integers(0, 256, size, np.uint8)
    before = held.copy()
    made = arena.allocate("A", size, address=FAR, held=held)
    for _ in range(50):
        first = int(rng.integers(size))
        last = int(rng.integers(first, size)) + 1
        arena.keep(made, first, last)
        held[first:last] = rng.integers(0, 256, last - first, np.uint8)
    arena.free(made)
    arena.roll_back()
    assert (held == before).all() and not made.freed


def test_what_is_not_kept_would_be_seen():
    arena, held = Arena(), np.zeros(1 << 20, np.uint8)
    made = arena.allocate("A", len(held), address=FAR, held=held)
    arena.keep(made, 0, 1)
    held[-1] = 1
    arena.roll_back()
    assert held[-1] == 1


def test_a_journal_keeps_a_part_of_what_is_large():
    arena, held = Arena(), np.zeros(1 << 28, np.uint8)
    made = arena.allocate("A", len(held), address=FAR, held=held)
    for at in (1 << 20, (1 << 20) + (1 << 17), 0):
        arena.keep(made, at, at + 4)
    assert sum(len(old) for _, old in arena.journal._entries) < 1 << 22


@pytest.mark.parametrize("size", [1 << 20, 5 << 20], ids=["one thread", "several threads"])
def test_the_journal_keeps_at_once_what_is_expected(size):
    rng = np.random.default_rng(size)
    arena, held = Arena(), rng.integers(0, 256, size, np.uint8)
    before = held.copy()
    made = arena.allocate("A", size, address=FAR, held=held)
    other = arena.allocate("B", 64, address=FAR + 2 * size, held=np.zeros(64, np.uint8))
    with arena.journal.expecting(FAR + 100, FAR + 4 * size):
        arena.keep(made, size // 2, size // 2 + 4)
    assert arena.journal._kept[made] == (100, size) and other not in arena.journal._kept
    held[100:] = 7
    arena.roll_back()
    assert (held == before).all()
    arena.keep(other, 0, 4)
    assert arena.journal._kept[other] == (0, 64)


def test_native_code_of_other_threads_sees_what_is_kept_at_any_time():
    """It asks once, then looks into the table; and sees one bound change before the other."""
    arena, seen = Arena(), []
    made = arena.allocate("large", 1 << 20, held=np.zeros(1 << 20, np.uint8))

    def in_table():
        table = arena.table()
        return int(table.kept[1]) - made.address, int(table.kept_ends[1]) - made.address

    class Kept(dict):
        def __setitem__(self, key, interval):
            seen.append(interval)
            assert in_table() == interval
            super().__setitem__(key, interval)

    arena.journal._kept = Kept()
    nothing = in_table()
    arena.keep(made, 1 << 17, (1 << 17) + 4)
    arena.begin_trial()
    assert nothing == in_table() == (made.size, 0)
    arena.end_trial(stays=False)
    arena.keep(made, 0, 4)
    steps = [nothing, *seen]
    assert len(steps) == 3
    assert all(a[0] >= b[0] and a[1] <= b[1] for a, b in pairwise(steps))


def test_a_launch_while_another_keeps_bytes_does_not_wait(monkeypatch):
    """As one in the handler of a signal, or in a child that was forked meanwhile."""
    arenas = [Arena(), Arena()]
    made = [x.allocate("A", 64, address=FAR, held=np.zeros(64, np.uint8)) for x in arenas]

    def interrupted(self, held, note=Journal.note):
        if self is arenas[0].journal:
            arenas[1].keep(made[1], 0, 4)
        note(self, held)

    monkeypatch.setattr(Journal, "note", interrupted)
    work = threading.Thread(target=arenas[0].keep, args=(made[0], 0, 4), daemon=True)
    work.start()
    work.join(20)
    assert not work.is_alive()


def test_the_journal_keeps_no_more_than_it_needs_where_too_much_is_expected():
    arena, held = Arena(), np.zeros(1 << 28, np.uint8)
    made = arena.allocate("A", len(held), address=FAR, held=held)
    with arena.journal.expecting(FAR, FAR + len(held)):
        arena.keep(made, 0, 4)
    assert sum(len(old) for _, old in arena.journal._entries) < 1 << 22


def test_a_copy_has_bytes_of_its_own_at_the_same_places():
    arena, held = Arena(), np.arange(64, dtype=np.uint8)
    arena.allocate("A", 64, address=FAR + 4, held=held)
    small = [arena.allocate("B", 24, contents=np.full(24, i, np.uint8)) for i in range(3)]
    for other in (arena.copy(), pickle.loads(pickle.dumps(arena)).copy()):
        assert (other.contents() == arena.contents()).all()
        assert [x.start for x in other] == [x.start for x in arena]
        other.write_rows(rows(FAR + 4), np.zeros((1, 64), np.uint8))
        assert held[5] == 5 and not other.read_rows(rows(FAR + 4), 64).any()
        assert (other.read_rows(rows(small[2].address), 24) == 2).all()
