"""Vector engine: a strand is lanes at one place of the program, with what their registers hold.

All lanes of many thread blocks start as one strand. Where a branch divides them the strand splits
into children, one for each target; a child takes a register from its parent when it first reads
it. When all children meet again, what they wrote goes back into the parent, which goes on. So a
short branch costs what it touches, and warps that part for good, each with a role of its own, keep
their registers by themselves.

A register of a strand is an array ``(lanes,)`` of words, or ``(1,)`` where all lanes hold the same;
of .pred it is bool, of .b128 ``(lanes, 2)`` uint64, of a variable in .param bytes ``(lanes, n)``.
Arrays are never changed in place: whoever writes a register puts a new one there.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.errors import UnsupportedError
from emulator.layout.lanemap import WARP as WARP
from emulator.layout.lanemap import WARPGROUP as WARPGROUP
from emulator.machine.shared.control import CallFrame
from emulator.machine.shared.operands import Words
from emulator.machine.shared.waiting import State

if TYPE_CHECKING:
    from emulator.ptx.program import Call, Function

Lanes = NDArray[np.int64]


class Parked(Exception):
    """Raised by a step whose strand cannot go on: it was parked, or its lanes given to others."""


def _spread(words: Array, count: int) -> Array:
    """Words of so many lanes, also where one word stands for all."""
    return words if len(words) == count else np.broadcast_to(words, (count, *words.shape[1:]))


#: one of so many lanes may be gone before a strand is made smaller
_GONE = 8
#: places of all lanes
EVERY = slice(None)


def _at(words: Words, places: Lanes) -> Words:
    """Numbers of the lanes at some places, where one may stand for all."""
    return words if isinstance(words, int) else words[places]


def _together(parts: Sequence[tuple[Words, Lanes | slice]], count: int) -> Words:
    """The numbers of all lanes from those at some places, the last ones of a place."""
    first = parts[0][0]
    if isinstance(first, int) and all(isinstance(x, int) and x == first for x, _ in parts):
        return first
    out = np.zeros(count, np.int64)
    for words, places in parts:
        out[places] = words
    return out


@lru_cache(maxsize=1024)
def indexes_of(live: int) -> frozenset[int]:
    """The registers in the bits `live`."""
    return frozenset(i for i, bit in enumerate(reversed(f"{live:b}")) if bit == "1")


class Frame(CallFrame):
    """One call of a function: its registers, as far as this strand has read or written them."""

    __slots__ = ("base", "callers_forgot", "fetched", "lanes", "places", "registers")

    def __init__(
        self,
        function: Function,
        lanes: Lanes,
        base: Frame | None = None,
        local: int = 0,
        places: Lanes | None = None,
        return_pc: int = -1,
    ) -> None:
        super().__init__(function, local, return_pc)
        if base:
            self.local, self.return_pc = base.local, base.return_pc
            if places is not None:
                self.stack = _at(base.stack, places)
        self.lanes = lanes
        #: what the registers are taken from that are not here, and where the lanes stand in it
        self.base, self.places = base, places
        #: by index: kernels have thousands, of which few are alive
        self.registers: dict[int, Array] = {}
        #: what was taken from the base: all else was written
        self.fetched: dict[int, Array] = {}
        #: the frames below hold no more than what is read once this one returns
        self.callers_forgot = False

    def read(self, index: int) -> Array:
        """The words of a register; zeros where nothing ever wrote it."""
        words = self.registers.get(index)
        return self._fetch(index) if words is None else words

    def take(self, index: int, other: Frame, given: int) -> None:
        self.registers[index] = other.read(given)

    def was_written(self, index: int) -> bool:
        """True if any lane's path wrote a register."""
        frame: Frame | None = self
        zero = self.function.registers[index].zero
        while frame is not None:
            words = frame.registers.get(index)
            if words is not None:
                return words is not zero
            frame = frame.base
        return False

    def _fetch(self, index: int) -> Array:
        base = self.base
        while base is not None and index not in base.registers:
            base = base.base
        if base is None:
            words: Array = self.function.registers[index].zero
        else:
            held = base.registers[index]
            words = held if len(held) == 1 else held.take(self._places(base), 0)
        self.registers[index] = self.fetched[index] = words
        return words

    def _places(self, other: Frame) -> Lanes:
        """Positions of this frame's lanes among those of another that contains them."""
        if self.places is None or other is not self.base:
            return np.searchsorted(other.lanes, self.lanes)
        return self.places

    def written(self) -> list[int]:
        """The registers that hold something else than what was fetched."""
        fetched = self.fetched
        return [i for i, words in self.registers.items() if words is not fetched.get(i)]

    def beside(self, chosen: Lanes, live: int) -> Frame:
        """The frame of some of the lanes, at positions here, on the same base: of what this one
        has read or written it has the registers in the bits `live`."""
        assert self.places is not None
        made = Frame(self.function, self.lanes[chosen], self.base, places=self.places[chosen])
        made.stack = _at(self.stack, chosen)
        fetched, registers, alive = self.fetched, made.registers, indexes_of(live)
        for index, words in self.registers.items():
            if index in alive:
                held = registers[index] = words if len(words) == 1 else words.take(chosen, 0)
                if words is fetched.get(index):
                    made.fetched[index] = held
        return made

    def keep(self, live: int) -> None:
        """Keeps the words of the registers in the bits `live` alone."""
        alive = indexes_of(live)
        self.registers = registers = {i: x for i, x in self.registers.items() if i in alive}
        self.fetched = {i: x for i, x in self.fetched.items() if registers.get(i) is x}

    def absorb(self, children: Sequence[Frame]) -> None:
        """Takes what `children`, frames of the same call on parts of the lanes, have written."""
        changed: dict[int, Array] = {}
        count = len(self.lanes)
        for child in children:
            places: Lanes | None = None
            for index in child.written():
                words = child.registers[index]
                if len(child.lanes) == count:
                    changed[index] = words
                    continue
                if index not in changed:
                    changed[index] = np.array(_spread(self.read(index), count), order="C")
                if places is None:
                    places = child._places(self)
                changed[index][places] = words
        for index, words in changed.items():
            self.registers[index] = words


class Strand:
    """Lanes at one place; `frames` are the calls that they are in, the innermost last."""

    __slots__ = (
        "arrivals", "bases", "children", "epoch", "frames", "gone", "lanes", "loops", "marks",
        "parent", "pc", "polls", "read", "state", "wait", "wave",
    )  # fmt: skip

    def __init__(self, wave: Any, lanes: Lanes, frames: list[Frame], pc: int) -> None:
        self.wave = wave
        #: numbers of the lanes in their wave, ascending
        self.lanes = lanes
        self.frames = frames
        self.pc = pc
        self.state = State.READY
        #: strands of an earlier epoch go first
        self.epoch = 0
        #: backward branches taken since another strand ran, and those of blocks that poll
        self.loops = self.polls = 0
        self.parent: Strand | None = None
        self.children: list[Strand] = []
        #: lanes that others have sent after it, by their places in the parent; None: it has run
        self.arrivals: list[Lanes] | None = None
        #: a mask of lanes that were sent to others and are still in its arrays; None: no lane
        self.gone: Array | None = None
        #: the condition that it waits for, for the engine and for messages
        self.wait: object = None
        #: facts about its lanes, by name: rows of shared memory, masks of warps, …
        self.marks: dict[str, Any] = {}
        #: what is known of the addresses in registers, by their numbers: see `bases`
        self.bases: dict[int, Any] = {}
        self.read = frames[-1].read

    def __len__(self) -> int:
        return len(self.lanes)

    @property
    def staying(self) -> Lanes:
        """The lanes that are not gone."""
        return self.lanes if self.gone is None else self.lanes[~self.gone]

    @property
    def count(self) -> int:
        """The number of lanes that are not gone."""
        return len(self.lanes) - (0 if self.gone is None else int(np.count_nonzero(self.gone)))

    # --- registers ---

    def write(self, index: int, words: Array) -> None:
        self.frames[-1].registers[index] = words

    def spread(self, words: Array) -> Array:
        """Words of all lanes, also where one word stands for all; not to be written to."""
        return _spread(words, len(self.lanes))

    # --- calls: a `Caller` of `machine.shared.control` ---

    def begin(self, callee: Function, local: int, return_pc: int) -> Frame:
        return Frame(callee, self.lanes, local=local, return_pc=return_pc)

    def enter(self, frame: Frame, call: Call) -> None:
        if self.wave.watch is not None:
            self.wave.watch.entered(self, frame, call.arguments)
        self.frames = [*self.frames, frame]
        self.read = frame.read

    def leave(self, call: Call) -> Frame:
        wave = self.wave
        if not wave.pending.at_once:
            wave.products.forget(wave.warpgroups_in_grid(self.lanes), len(self.frames))
        *self.frames, left = self.frames
        self.read = self.frames[-1].read
        if wave.watch is not None:
            wave.watch.returned(self, left, call.results)
        return left

    def need_local(self, size: int) -> None:
        """Makes room for so many bytes of local memory in each thread."""
        self.wave.grid.need_local(self.wave, size)

    @property
    def place(self) -> tuple[int, ...]:
        """The strand's statement and return addresses: strands of one place may merge."""
        return (self.pc, *(frame.return_pc for frame in self.frames))

    @property
    def stacks(self) -> list[int]:
        """Where the local memory of each call starts: only strands with the same ones may merge."""
        return [frame.local for frame in self.frames]

    # --- splitting and merging ---

    def part(self, mask: Array, pc: int) -> Strand:
        """A strand of the lanes of a mask, which takes registers from this one."""
        places = mask.nonzero()[0]
        lanes = self.lanes[places]
        frames = [Frame(frame.function, lanes, frame, places=places) for frame in self.frames]
        made = Strand(self.wave, lanes, frames, pc)
        made.epoch, made.parent, made.arrivals = self.epoch, self, []
        self.children.append(made)
        self.state = State.SPLIT
        return made

    def sibling_at(self, pc: int) -> Strand | None:
        """Another part of the same strand that is about to start at `pc`, in the same calls."""
        bases = [frame.base for frame in self.frames]
        if self.parent is None or None in bases:
            return None
        for child in self.parent.children:
            if child.pc != pc or child.arrivals is None or child.state is not State.READY:
                continue
            if child.epoch == self.epoch and [frame.base for frame in child.frames] == bases:
                return child
        return None

    def send(
        self, mask: Array, other: Strand, live_there: Sequence[int], live_here: Sequence[int]
    ) -> None:
        """The lanes of a mask go over to a sibling, with the registers that live there.

        So a loop that lanes leave at different times is two strands, not two more for each time.
        Their places here are only `gone`, until there are many.
        """
        assert other.arrivals is not None
        going = mask.nonzero()[0]
        for frame, live in zip(self.frames, live_there, strict=True):
            assert frame.base is not None
            frame.base.absorb([frame.beside(going, live)])
            assert frame.places is not None
            gone = _at(frame.stack, going), frame.places[going]
            frame.base.stack = _together([(frame.base.stack, EVERY), gone], len(frame.base.lanes))
        assert self.frames[0].places is not None
        other.arrivals.append(self.frames[0].places[going])
        self.gone = mask if self.gone is None else self.gone | mask
        self.loops = self.polls = 0
        if np.count_nonzero(self.gone) * _GONE > len(self):
            self.settle(live_here)

    def settle(self, live: Sequence[int]) -> None:
        """Lets the places go of lanes that are gone, and the registers that are not in `live`."""
        if self.gone is not None:
            staying, self.gone = (~self.gone).nonzero()[0], None
            frames = zip(self.frames, live, strict=True)
            self._become([frame.beside(staying, live) for frame, live in frames])

    def start(self) -> None:
        """It runs from now on: who was sent after it is with it."""
        if self.arrivals:
            assert self.parent is not None and self.frames[0].places is not None
            here = np.zeros(len(self.parent.lanes), np.bool_)  # faster than a sort
            for some in (self.frames[0].places, *self.arrivals):
                here[some] = True
            places = here.nonzero()[0]
            lanes = self.parent.lanes[places]
            self._become([Frame(f.function, lanes, f.base, places=places) for f in self.frames])
        self.arrivals = None

    def _become(self, frames: list[Frame]) -> None:
        """Other lanes than before, with their frames."""
        self.frames, self.lanes, self.read = frames, frames[0].lanes, frames[-1].read
        self.marks, self.bases, self.loops, self.polls = {}, {}, 0, 0

    def finish(self) -> None:
        """Ends, and leaves the tree with ancestors that have no other child: their registers are
        freed at once."""
        self.state = State.ENDED
        if self.parent is not None:
            self.parent.children.remove(self)
            if not self.parent.children:
                self.parent.finish()

    def rejoin(self) -> bool:
        """True if all remaining children are ready at one place, and this strand goes on there.

        Only a strand all of whose lanes are left can take over again.
        """
        first, *others = self.children
        if any(child.state is not State.READY for child in self.children):
            return False
        if any(child.place != first.place for child in others):
            return False
        if sum(len(child.lanes) for child in self.children) < len(self.lanes):
            return False
        frames = self.frames[: len(first.frames)]
        if len(frames) < len(first.frames) or any(
            child.frames[depth].base is not frame
            for depth, frame in enumerate(frames)
            for child in self.children
        ):
            # They met in a function that they have called by themselves.
            return False
        self.frames = frames
        for depth, frame in enumerate(self.frames):
            parts = [child.frames[depth] for child in self.children]
            frame.absorb(parts)
            places = [(part.stack, part._places(frame)) for part in parts]
            frame.stack = _together(places, len(frame.lanes))
        self.read = self.frames[-1].read
        self.pc, self.epoch = first.pc, max(child.epoch for child in self.children)
        for child in self.children:
            child.state = State.ENDED
        self.children = []
        self.state = State.READY
        return True


def merged(strands: Sequence[Strand], live: Sequence[int]) -> Strand:
    """One strand of the lanes of several at the same place, with registers of its own.

    `live` has for each frame a set of bits: the registers that may still be read.
    """
    first = strands[0]
    lanes = np.concatenate([strand.lanes for strand in strands])
    order = np.argsort(lanes, kind="stable")
    lanes = lanes[order]
    frames = []
    for depth, frame in enumerate(first.frames):
        parts = [strand.frames[depth] for strand in strands]
        made = joined(parts, lanes, order, live[depth])
        made.return_pc = frame.return_pc
        frames.append(made)
    out = Strand(first.wave, lanes, frames, first.pc)
    out.epoch = max(strand.epoch for strand in strands)
    for strand in strands:
        strand.finish()
    return out


def joined(parts: Sequence[Frame], lanes: Lanes, order: Lanes, live: int) -> Frame:
    """One frame of `lanes` from frames of one call on parts of them, which `order` sorts; `live`
    are the registers that it takes."""
    if any(part.local != parts[0].local for part in parts):
        raise UnsupportedError(
            "lanes that took different room by alloca wait for each other in a function that they "
            "have called since: leave out seed=, or take engine='reference'"
        )
    made = Frame(parts[0].function, lanes, local=parts[0].local)
    ends = np.split(np.argsort(order), np.cumsum([len(part.lanes) for part in parts])[:-1])
    made.stack = _together([(x.stack, at) for x, at in zip(parts, ends, strict=True)], len(lanes))
    for index in indexes_of(live):
        if any(part.was_written(index) for part in parts):
            made.registers[index] = _joined(parts, index, order)
    return made


def _joined(parts: Sequence[Frame], index: int, order: Lanes) -> Array:
    words = [part.read(index) for part in parts]
    if all(len(x) == 1 for x in words) and all((x == words[0]).all() for x in words):
        return words[0]
    whole = [_spread(x, len(part.lanes)) for x, part in zip(words, parts, strict=True)]
    return np.concatenate(whole).take(order, 0)
