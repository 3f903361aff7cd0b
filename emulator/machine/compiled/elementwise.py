"""Kernels that compute each element of an array by itself, as a native function over arrays.

Such a kernel is a loop of loads, arithmetic and one store. Its arithmetic alone becomes the
function, without threads, addresses and memory: the lanes of a warp are elements that follow each
other. Both sides of a branch are computed, and each register takes the word of the side where its
lane went.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.arith.fast.kernels import machine_code
from emulator.arith.fast.threads import in_parts
from emulator.arith.fast.words import Value
from emulator.arrays import address_of
from emulator.machine.compiled.function import NAME, Input, SegmentFunction
from emulator.machine.compiled.segment import SIGNATURE, WORTH_A_THREAD
from emulator.machine.compiled.translation import can_translate, emit
from emulator.machine.shared.operands import destinations, space_of
from emulator.machine.vector import access
from emulator.machine.vector.statements import maker_of
from emulator.machine.vector.strand import WARP
from emulator.memory.windows import WINDOW_BITS
from emulator.ptx.program import (
    Address,
    Bound,
    Constant,
    Function,
    Program,
    Register,
    SpecialRegister,
    Statement,
    reads_and_kills,
    registers_of,
)
from emulator.targets import Target

_WORD = np.dtype(np.uint32)
#: bytes from warp to warp
_STEP = WARP * _WORD.itemsize


class Elementwise(NamedTuple):
    """The native function of a kernel."""

    call: Any
    #: inputs: the number of a parameter, and True if it is an array; or constant words
    inputs: tuple[tuple[int, bool] | Array, ...]
    #: statements of a warp
    work: int

    def run(self, arguments: Sequence[Array | None], out: Array) -> None:
        """Computes all elements of `out`. `arguments`: of each parameter the words of 32 bits of an
        array, or one word of a number; None for those that nothing is computed from."""
        whole = len(out) // WARP * WARP
        self._run(arguments, out[:whole])
        if whole < len(out):
            rest = {
                number: _padded(_given(arguments, number)[whole:])
                for number, is_array in self._places()
                if is_array
            }
            last = np.empty(WARP, _WORD)
            self._run([rest.get(i, x) for i, x in enumerate(arguments)], last)
            out[whole:] = last[: len(out) - whole]

    def _places(self) -> Iterator[tuple[int, bool]]:
        return (given for given in self.inputs if isinstance(given, tuple))

    def _run(self, arguments: Sequence[Array | None], out: Array) -> None:
        words: list[int] = []
        held = [
            given
            if not isinstance(given, tuple)
            else _given(arguments, given[0])
            if given[1]
            else np.full(WARP, _given(arguments, given[0]), _WORD)
            for given in self.inputs
        ]
        for given, array in zip(self.inputs, held, strict=True):
            words += [address_of(array), _STEP if isinstance(given, tuple) and given[1] else 0]
        table = np.array([*words, address_of(out), _STEP], np.int64)

        def piece(first: int, last: int) -> int:
            return int(self.call(first, last, address_of(table), 0))

        warps = len(out) // WARP
        if warps:
            in_parts(piece, warps, 1 + warps * self.work // WORTH_A_THREAD)


def _given(arguments: Sequence[Array | None], number: int) -> Array:
    found = arguments[number]
    assert found is not None
    return found


def _padded(words: Array) -> Array:
    out = np.zeros(WARP, _WORD)
    out[: len(words)] = words
    return out


def elementwise(program: Program, function: Function, target: Target) -> Elementwise | None:
    """The native function of a kernel; None for a kernel of another form."""
    body = _body(program, function)
    stores = [x for x in body if "writes" in x.effects]
    if not body or len(stores) != 1 or not isinstance(stores[0].operands["b"], Register):
        return None
    needed = _needed(body, stores[0])
    if not all(_fits(x, function, target) for x in needed):
        return None
    made = _Function(function, target, body)
    for made.number, statement in enumerate(needed):
        made.follow(statement)
    out = stores[0].operands["b"].index
    text, _, _ = made.finish(1 << out)
    call = machine_code.function(text, NAME, *SIGNATURE)
    return Elementwise(call, made.sources(), len(needed))


def _body(program: Program, function: Function) -> list[Statement]:
    """From the start of a kernel to the end of its only loop; none where it has another form."""
    statements = program.statements[function.first : function.end]
    back = [x for x in statements if x.targets and x.targets[0] <= x.pc]
    if len(back) != 1:
        return []
    end = back[0].pc
    # Lanes without elements leave before the loop, and there are none here.
    return [x for x in statements if x.pc < end and not (x.targets and x.targets[0] > end)]


def _needed(body: Sequence[Statement], store: Statement) -> list[Statement]:
    """The statements that what is stored depends on, and all branches."""
    registers = set(registers_of(store.operands["b"]))
    out = []
    for statement in reversed(body):
        written = {
            i
            for x in statement.expansion or (statement,)
            for bound, _ in destinations(x)
            for i in registers_of(bound)
        }
        if not statement.targets and not registers & written:
            continue
        out.append(statement)
        if "reads" not in statement.effects:
            read, _ = reads_and_kills(statement)
            registers |= {i for i in range(read.bit_length()) if read >> i & 1}
    return out[::-1]


def _fits(statement: Statement, function: Function, target: Target) -> bool:
    if statement.targets:
        return len(statement.targets) == 1
    if "reads" in statement.effects:
        is_load = maker_of(str(statement.instruction)) is access.load
        space = space_of(statement, statement.operands["a"])
        fits = is_load and space in ("global", "param")
        return fits and isinstance(statement.operands["d"], Register)
    if any(isinstance(x, SpecialRegister) for x in statement.operands.values()):
        return False
    return "pure" in statement.effects and can_translate(statement, function, target)


class _Function(SegmentFunction):
    """The arithmetic of a kernel, for one warp of elements after the other."""

    def __init__(self, function: Function, target: Target, body: Sequence[Statement]) -> None:
        super().__init__(function, target)
        self._makers = {
            i: x for x in body for bound, _ in destinations(x) for i in registers_of(bound)
        }
        #: the lanes at this statement, and those that wait at later ones; None: all
        self._here: Value | None = None
        self._waiting: dict[int, Value] = {}

    def follow(self, statement: Statement) -> None:
        for pc in [pc for pc in self._waiting if pc <= statement.pc]:
            assert self._here is not None
            self._here = self.b.or_(self._here, self._waiting.pop(pc))
        if not self._waiting:
            self._here = None
        if statement.targets:
            self._branch(statement)
        elif "reads" in statement.effects:
            (bound,) = registers_of(statement.operands["d"])
            self.put(bound, self._loaded(statement), None)
        else:
            emit(self, statement)

    def _branch(self, statement: Statement) -> None:
        here = self.present if self._here is None else self._here
        guard = super().guard(statement)
        taken = here if guard is None else self.b.and_(here, guard)
        target = statement.targets[0]
        before = self._waiting.get(target)
        self._waiting[target] = taken if before is None else self.b.or_(before, taken)
        self._here = self.b.and_(here, self.b.not_(taken))

    def guard(self, statement: Statement) -> Value | None:
        guard = super().guard(statement)
        if self._here is None or guard is None:
            return guard if self._here is None else self._here
        return self.b.and_(guard, self._here)

    def register(self, index: int) -> Value:
        if index not in self._values:
            # Lanes that read it before it is written do not use what they read.
            held = self._held(index)
            self._values[index] = self.e.word(
                1 if held.dtype == np.bool_ else 8 * held.dtype.itemsize, 0
            )
        return self._values[index]

    def _loaded(self, statement: Statement) -> Value:
        """A word of an array, or a parameter."""
        place = statement.operands["a"]
        is_array = isinstance(place, Address) and isinstance(place.base, Register)
        key = self._parameter(place), is_array
        return self.input(key, Input(lambda s: np.empty(0, _WORD), _WORD))

    def _parameter(self, place: Bound) -> int:
        """The number of the parameter that an address comes from: what computes addresses has what
        they come from as its first operand."""
        while True:
            base = place.base if isinstance(place, Address) else place
            if isinstance(base, Constant):
                assert isinstance(place, Address)
                offset = base.word + place.offset & (1 << WINDOW_BITS) - 1
                return [x.offset for x in self.function.parameters].index(offset)
            (index,) = registers_of(base)
            place = next(iter(self._makers[index].bound("read")))

    def sources(self) -> tuple[tuple[int, bool] | Array, ...]:
        """What the function takes, see `Elementwise.inputs`."""
        out: list[tuple[int, bool] | Array] = []
        for key, (_, given) in self._inputs.items():
            fixed: NDArray[Any] | None = given.fixed
            if fixed is None and key == "present":
                fixed = np.ones(WARP, np.bool_)
            out.append(key if fixed is None else fixed)
        return tuple(out)
