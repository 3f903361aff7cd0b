"""Instructions over the lanes of a warp: PTX ISA 9.7.9.6 and 9.7.13.

Operands are those of 32 lanes: sequences of 32 integers, or arrays ``(…, 32)``. `active` tells
which lanes execute the instruction, 32 bools; left out, those that the membermask names. Lanes
that do not execute it have results of 0, which mean nothing. The membermask has the same value in
all lanes that execute it; what happens otherwise is the machine's matter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dtypes import Array
from emulator.arith.scalar import comparison
from emulator.arith.scalar.arrays import ballot
from emulator.arith.scalar.comparison import Extreme
from emulator.arith.scalar.rule import packed_rule
from emulator.arith.scalar.types import ScalarType
from emulator.arith.scalar.words import Word, Words

Lanes = Sequence[int]
LANES = 32


def _executing(mask: Lanes, active: Sequence[bool] | None) -> list[int]:
    """The lanes that take part."""
    return [i for i in range(LANES) if (mask[i] >> i & 1 if active is None else active[i])]


def _who(w: Words, mask: Word, active: Word | None) -> Word:
    """Mask of the lanes that take part."""
    return (mask >> w.lanes() & 1) != 0 if active is None else active


def _everywhere(value: int, lanes: list[int]) -> list[int]:
    return [value if i in lanes else 0 for i in range(LANES)]


# --- shfl -----------------------------------------------------------------------------------------


@packed_rule
def shfl(
    t: ScalarType,
    a: Lanes,
    b: Lanes,
    c: Lanes,
    membermask: Lanes,
    *,
    mode: str = "idx",
    active: Sequence[bool] | None = None,
) -> tuple[list[int], list[int]]:
    """shfl.sync: the a of the lane that b gives, and whether it lies in the segment that c gives.

    Out of the segment a lane keeps its own. Measured: a lane that does not execute is read as 0.
    """
    lanes = _executing(membermask, active)
    values, found = [0] * LANES, [0] * LANES
    for lane in lanes:
        step, clamp, segment = b[lane] & 31, c[lane] & 31, c[lane] >> 8 & 31
        first, last = lane & segment, (lane & segment) | (clamp & ~segment)
        source = {
            "up": lane - step,
            "down": lane + step,
            "bfly": lane ^ step,
            "idx": first | (step & ~segment),
        }[mode]
        inside = source >= last if mode == "up" else source <= last
        source = source if inside else lane
        values[lane] = a[source] if source in lanes else 0
        found[lane] = int(inside)
    return values, found


@shfl.words
def _(
    w: Words,
    t: ScalarType,
    a: Word,
    b: Word,
    c: Word,
    membermask: Word,
    *,
    mode: str = "idx",
    active: Word | None = None,
) -> tuple[Word, Word]:
    who, lane = _who(w, membermask, active), w.lanes().view(np.int32)
    step, clamp = (b & 31).view(np.int32), (c & 31).view(np.int32)
    segment = (c >> 8 & 31).view(np.int32)
    first = lane & segment
    last = first | (clamp & ~segment)
    if mode == "idx":
        source = first | (step & ~segment)
    else:
        source = {"up": lane - step, "down": lane + step, "bfly": lane ^ step}[mode]
    inside = source >= last if mode == "up" else source <= last
    read = w.of_lane(w.put(~who, 0, a), w.select(inside, source, lane))
    return w.put(~who, 0, read), inside & who


# --- vote, activemask, elect ----------------------------------------------------------------------


@packed_rule
def vote(
    t: ScalarType,
    a: Lanes,
    membermask: Lanes,
    *,
    mode: str = "",
    active: Sequence[bool] | None = None,
) -> list[int]:
    """vote.sync: whether the predicate holds in all lanes, in any, or is the same in all (.uni);
    or the mask of the lanes where it holds (.ballot)."""
    lanes = _executing(membermask, active)
    given = [bool(a[lane]) for lane in lanes]
    result = {
        "all": int(all(given)),
        "any": int(any(given)),
        "uni": int(all(given) or not any(given)),
        "ballot": sum(1 << lane for lane in lanes if a[lane]),
    }[mode]
    return _everywhere(result, lanes)


@vote.words
def _(
    w: Words,
    t: ScalarType,
    a: Word,
    membermask: Word,
    *,
    mode: str = "",
    active: Word | None = None,
) -> Word:
    who = _who(w, membermask, active)
    given = w.ballot(a & who)
    if mode == "ballot":
        return w.select(who, given, 0)
    every, none = given == w.ballot(who), given == 0
    return {"all": every, "any": ~none, "uni": every | none}[mode] & who


@packed_rule
def activemask(t: ScalarType, *, active: Sequence[bool] = (True,) * LANES) -> list[int]:
    """The mask of the lanes that execute it together."""
    lanes = [i for i in range(LANES) if active[i]]
    return _everywhere(sum(1 << lane for lane in lanes), lanes)


@activemask.arrays
def _(t: ScalarType, *, active: Sequence[bool] | Array = (True,) * LANES) -> Array:
    who = np.asarray(active)
    return np.where(who, ballot(who), np.uint32(0))


@packed_rule
def elect(
    membermask: Lanes, *, active: Sequence[bool] | None = None
) -> tuple[list[int], list[int]]:
    """elect.sync: one lane, and whether it is this one. Measured: the lowest."""
    lanes = _executing(membermask, active)
    lowest = lanes[0] if lanes else 0
    return _everywhere(lowest, lanes), [int(i in lanes and i == lowest) for i in range(LANES)]


@elect.words
def _(w: Words, membermask: Word, *, active: Word | None = None) -> tuple[Word, Word]:
    who = _who(w, membermask, active)
    lowest = _lowest(w, who)
    return w.select(who, lowest, 0), who & (lowest == w.lanes())


def _lowest(w: Words, who: Word) -> Word:
    """The lowest lane that takes part, or any lane where none does."""
    members = w.ballot(who)
    return w.count_ones((members & -members) - 1) & 31


# --- match ----------------------------------------------------------------------------------------


@packed_rule
def match_any(
    t: ScalarType, a: Lanes, membermask: Lanes, *, active: Sequence[bool] | None = None
) -> list[int]:
    """match.any.sync: the mask of the lanes with the same value."""
    lanes = _executing(membermask, active)
    return [sum(1 << j for j in lanes if a[j] == a[i]) if i in lanes else 0 for i in range(LANES)]


@match_any.words
def _(w: Words, t: ScalarType, a: Word, membermask: Word, *, active: Word | None = None) -> Word:
    who = _who(w, membermask, active)
    return w.select(who, _alike(w, t, a, who), 0)


def _alike(w: Words, t: ScalarType, a: Word, who: Word) -> Word:
    """The mask of the lanes that take part and have a lane's own value in each bit."""
    alike = w.ballot(who)
    for bit in range(t.size):
        holds = (a >> bit & 1) != 0
        others = w.ballot(holds & who)
        alike = alike & w.select(holds, others, ~others)
    return alike


@packed_rule
def match_all(
    t: ScalarType, a: Lanes, membermask: Lanes, *, active: Sequence[bool] | None = None
) -> tuple[list[int], list[int]]:
    """match.all.sync: the mask of the lanes, or 0 where their values differ; whether they agree."""
    lanes = _executing(membermask, active)
    same = len({a[lane] for lane in lanes}) == 1
    mask = sum(1 << lane for lane in lanes) if same else 0
    return _everywhere(mask, lanes), _everywhere(int(same), lanes)


@match_all.words
def _(
    w: Words, t: ScalarType, a: Word, membermask: Word, *, active: Word | None = None
) -> tuple[Word, Word]:
    who = _who(w, membermask, active)
    members = w.ballot(who)
    differ = w.ballot((_alike(w, t, a, who) != members) & who)
    same = (differ == 0) & who
    return w.select(same, members, 0), same


# --- redux ----------------------------------------------------------------------------------------

_ON_INTEGERS: dict[str, Callable[[int, int], int]] = {
    "add": lambda x, y: x + y, "min": min, "max": max,
    "and": lambda x, y: x & y, "or": lambda x, y: x | y, "xor": lambda x, y: x ^ y,
}  # fmt: skip
#: the contribution of lanes that take no part
_NEUTRAL: dict[str, Callable[[ScalarType], int]] = {
    "add": lambda t: 0, "or": lambda t: 0, "xor": lambda t: 0, "and": lambda t: t.mask,
    "min": lambda t: t.largest, "max": lambda t: t.smallest,
}  # fmt: skip


@packed_rule
def redux(
    t: ScalarType,
    a: Lanes,
    membermask: Lanes,
    *,
    operation: str = "",
    active: Sequence[bool] | None = None,
) -> list[int]:
    """redux.sync: the sum, which wraps, the smallest, the largest or a logic combination of all."""
    lanes = _executing(membermask, active)
    total = t.number(a[lanes[0]]) if lanes else 0
    for lane in lanes[1:]:
        total = _ON_INTEGERS[operation](total, t.number(a[lane]))
    return _everywhere(t.word(total), lanes)


@redux.words
def _(
    w: Words,
    t: ScalarType,
    a: Word,
    membermask: Word,
    *,
    operation: str = "",
    active: Word | None = None,
) -> Word:
    who = _who(w, membermask, active)
    given = w.put(~who, _NEUTRAL[operation](t), a.view(t.values))
    return w.select(who, w.reduced(operation, given).view(t.dtype), 0)


@packed_rule
def redux_float(
    t: ScalarType,
    a: Lanes,
    membermask: Lanes,
    *,
    operation: str = "",
    nan: bool = False,
    abs: bool = False,
    active: Sequence[bool] | None = None,
) -> list[int]:
    """redux.sync.min and .max of f32, as min and max have it; .abs of magnitudes."""
    lanes = _executing(membermask, active)
    pick = comparison.minimum if operation == "min" else comparison.maximum
    total = a[lanes[0]] if lanes else 0
    for lane in lanes:
        total = pick(t, total, a[lane], nan=nan, abs=abs)
    return _everywhere(total, lanes)


@redux_float.words
def _(
    w: Words,
    t: ScalarType,
    a: Word,
    membermask: Word,
    *,
    operation: str = "",
    nan: bool = False,
    abs: bool = False,
    active: Word | None = None,
) -> Word:
    who = _who(w, membermask, active)
    pick = comparison.minimum if operation == "min" else comparison.maximum
    # Lanes that take no part have the word of the lowest one that does.
    total = w.select(who, a, w.of_lane(a, _lowest(w, who)))
    for distance in (16, 8, 4, 2, 1):
        other = w.of_lane(total, w.lanes() ^ distance)
        total = pick.text(w, t, total, other, how=Extreme(nan=nan, abs=abs))
    return w.put(~who, 0, total)
