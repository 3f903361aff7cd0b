"""``Warp`` and ``Warpgroup``: typed registers, shared memory, and statements that run on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from dtypes import Array
from emulator.arith import Engine
from emulator.arith.engines import check_engine
from emulator.arrays import as_array
from emulator.errors import OperandError, UnsupportedError, as_integer, needed, shown, whole
from emulator.machine.engines import problem
from emulator.machine.shared.registers import RegisterFile, words_of
from emulator.machine.shared.state import WarpState
from emulator.memory.space import Space
from emulator.ptx.shared import SharedVariables
from emulator.ptx.statements import Declared, Mark, Text, at_place, bind
from emulator.targets import Target, find_target
from emulator.warp.call import Undefined, check_undefined

if TYPE_CHECKING:
    from emulator.machine.debugger.debugger import Debugger
    from emulator.machine.vector.texts import TextGrid

#: texts that a machine keeps bound, their longest, and the lanes of the largest machine that does:
#: a text that is run keeps arrays of all lanes
_KEPT, _KEPT_LENGTH, _KEPT_LANES = 64, 4096, 4096
#: bytes of shared memory that all of a batch may have together
_MOST_SHARED = 1 << 32


@dataclass(frozen=True, eq=False)
class Program:
    """Statements that were checked against the declarations of a machine: ``machine.run`` runs
    them, as often as it is asked to."""

    machine: Warp
    text: Text

    def __repr__(self) -> str:
        return f"<Program of {self.text.count} statements>"

    @cached_property
    def _grid(self) -> TextGrid:
        from emulator.machine.vector.texts import TextGrid

        return TextGrid(self.text, self.machine._state)


class Words(Mapping[str, Array]):
    """The raw words of registers by name, ``(*batch, lanes)``: read, and set from words or from
    integers that fit."""

    def __init__(self, machine: Warp) -> None:
        self._machine = machine

    def __getitem__(self, name: str) -> Array:
        return self._machine[name]

    def __setitem__(self, name: str, given: object) -> None:
        self._machine.registers[name].words = given

    def __iter__(self) -> Iterator[str]:
        return iter(self._machine.registers)

    def __len__(self) -> int:
        return len(self._machine.registers)


class Warp:
    """A warp of 32 lanes that execute PTX statements together.

    ``warp["%r0"] = …`` sets a register to values of its type, one for all lanes or one for each:
    ``warp["%r0"] = np.arange(32)``, ``warp["%f0"] = 1.5``. Reading ``warp["%r0"]`` gives its raw
    words, ``(*batch, lanes)``; ``warp.words["%r0"] = …`` sets them, and
    ``warp.registers["%r0"].values`` reads them as their declared type. ``warp.shared`` is shared
    memory, ``uint8 (*batch, bytes)``.

    A register that is read and that nothing has written raises UndefinedError, unless
    ``undefined="hardware"``: then it holds zeros.

    Raises UnsupportedError for an unknown target, OperandError for any other argument of a wrong
    kind.
    """

    lanes = 32

    def __init__(
        self,
        target: str | Target,
        *,
        shared_bytes: int = 48 * 1024,
        batch: tuple[int, ...] = (),
        engine: Engine = "auto",
        undefined: Undefined = "raise",
    ) -> None:
        chosen = find_target(target)
        check_engine(engine)
        check_undefined(undefined)
        sizes = _sizes(batch, shared_bytes)
        memory = Space("shared memory", np.zeros(sizes, np.uint8))
        declared = Declared(memory.bytes)
        registers = RegisterFile(declared, self.lanes, sizes[:-1])
        self._state = WarpState(self.lanes, chosen, engine, undefined, declared, registers, memory)
        self._state.registers.check_set = self._state.set_from_outside
        #: texts that `run` has bound, by the text and the declarations at that time
        self._kept: dict[tuple[str, Mark, int | None], Program] = {}

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} of {self.lanes} lanes, {self.target}, "
            f"{len(self.registers)} registers, {self.shared.shape[-1]} bytes shared>"
        )

    @property
    def target(self) -> Target:
        return self._state.target

    @property
    def engine(self) -> Engine:
        """The engine that computes; it may be changed between runs."""
        return self._state.engine

    @engine.setter
    def engine(self, engine: Engine) -> None:
        check_engine(engine)
        self._state.engine = engine

    @property
    def undefined(self) -> Undefined:
        """The behaviour where PTX calls the outcome undefined: "raise" or "hardware"; it may be
        changed between runs."""
        return self._state.undefined

    @undefined.setter
    def undefined(self, undefined: Undefined) -> None:
        check_undefined(undefined)
        self._state.undefined = undefined

    @property
    def registers(self) -> RegisterFile:
        """The declared registers by name: type, words, values."""
        self._state.settle()
        return self._state.registers

    @property
    def variables(self) -> SharedVariables:
        """Variables of .shared declarations."""
        return self._state.declared.variables

    @property
    def shared(self) -> Array:
        """Shared memory, ``uint8 (*batch, bytes)``."""
        self._state.settle()
        return self._state.shared.data

    @shared.setter
    def shared(self, memory: Array) -> None:
        self._state.settle()
        space, batch = Space.of(memory, "shared"), self._state.batch
        if space.batch != batch:
            sizes = ", ".join([*map(str, batch), "bytes"])
            raise OperandError(f"shared memory is uint8 ({sizes}) here; got {space.data.shape}")
        self._state.shared = Space("shared memory", space.data)
        self._state.declared.limit = space.bytes

    # --- registers ---

    def declare(self, type_: str, *names: str) -> None:
        """Declares registers as ``.reg`` does: ``warp.declare("b32", "%r0", "%r1")``."""
        if not all(isinstance(x, str) for x in (type_, *names)):
            raise OperandError("declare takes a type and names, all of them strings")
        self._state.settle()
        self._state.declared.declare(type_.removeprefix("."), names)

    @property
    def words(self) -> Words:
        """The raw words of registers, to be read and set by name."""
        return Words(self)

    def __getitem__(self, name: str) -> Array:
        self._state.settle()
        return self._state.words_of(name).copy()

    def __setitem__(self, name: str, values: object) -> None:
        self.registers[name].values = values

    def read(self, prefix: str, count: int) -> Array:
        """Words of registers ``prefix0 … prefix{count-1}``: ``(*batch, lanes, count)``."""
        count, prefix = whole("a number of registers", count, 1), needed(str, prefix)
        return np.stack([self[f"{prefix}{i}"] for i in range(count)], axis=-1)

    def write(self, prefix: str, words: Array) -> None:
        """Sets the words of registers ``prefix0 …`` from ``(…, lanes, count)``: of all, or none."""
        words = as_array(words, "words")
        if words.ndim < 2:
            raise OperandError(f"words are (…, lanes, registers); got {words.shape}")
        names = [f"{prefix}{i}" for i in range(words.shape[-1])]
        registers = self.registers
        registers.set({x: words_of(registers[x], words[..., i]) for i, x in enumerate(names)})

    # --- statements ---

    def bind(self, text: str) -> Program:
        """Declares what `text` declares outside of braces and checks its statements; nothing runs
        yet.

        ``run`` then runs the program as often as it is asked to, without reading the text again.
        Where it raises, nothing is declared. A text whose ``.target`` this machine's cannot run is
        refused. Raises ParseError, UnsupportedError or OperandError, with line and column.
        """
        state = self._state
        state.settle()
        mark = state.declared.mark
        try:
            bound = bind(text, state.declared, state.target, state.lanes)
            for statement in bound.program.statements:
                if reason := problem(statement.instruction):
                    raise at_place(UnsupportedError(reason), bound.source, statement.at)
        except BaseException:
            state.declared.forget(mark)
            raise
        return Program(self, bound)

    def _bound(self, text: str) -> Program:
        """`bind` for a text that may be run again and again, as in a loop; those that declare
        something outside of braces can be run once."""
        declared = self._state.declared
        mark = declared.mark
        key = text, mark, declared.limit
        if (kept := self._kept.get(key) if isinstance(text, str) else None) is not None:
            return kept
        made = self.bind(text)
        lanes = prod(self._state.registers.shape)
        if declared.mark == mark and len(text) <= _KEPT_LENGTH and lanes <= _KEPT_LANES:
            if len(self._kept) == _KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = made
        return made

    def run(self, program: str | Program, *, step_limit: int | None = None) -> None:
        """Runs PTX statements as they stand in a kernel: declarations, blocks in braces, branches,
        and every instruction that needs no memory but registers and shared memory.

        Statements are executed as they are written, one by one: the multiplications and additions
        that ptxas fuses in a kernel stay two. All of the text or program takes effect or, when it
        raises, none of it, on registers and on shared memory. Raises ParseError, UnsupportedError,
        OperandError or UndefinedError, with line and column; KernelError where the statements never
        end, or are more than `step_limit`.
        """
        state = self._state
        state.settle()
        mark = None if isinstance(program, Program) else state.declared.mark
        bound = program if isinstance(program, Program) else self._bound(program)
        if bound.machine is not self:
            raise OperandError("the program was bound on another machine: bind it here, too")
        if step_limit is not None:
            whole("step_limit", step_limit)
        try:
            state.begin(mark)
            if prod(state.registers.shape):
                bound._grid.run_text(step_limit)
            state.end()
        except BaseException:
            state.settle()
            raise

    def debug(self, program: str | Program, *, step_limit: int | None = None) -> Debugger:
        """Statements under the debugger, stopped before the first one.

        Registers and shared memory of the machine get what they have written when they end; a
        register that nothing has written holds zeros. Raises what `bind` raises.
        """
        from emulator.machine.debugger.debugger import Debugger
        from emulator.machine.debugger.texts import TextLaunch, initial_of

        bound = program if isinstance(program, Program) else self.bind(program)
        if bound.machine is not self:
            raise OperandError("the program was bound on another machine: bind it here, too")
        self._state.settle()
        initial = initial_of(bound.text, self._state)
        return Debugger(lambda: TextLaunch(bound.text, self._state, initial, step_limit))


class Warpgroup(Warp):
    """Four consecutive warps, 128 lanes, that execute wgmma together.

    Instructions of a warp, such as mma and ldmatrix, run on each of the four. A wgmma computes at
    its place in the program. Its ordering rules are checked all the same: touching its registers
    before the covering wait raises UndefinedError, unless ``undefined="hardware"``.
    """

    lanes = 128


def _sizes(batch: object, shared_bytes: object) -> tuple[int, ...]:
    """The shape of shared memory, or OperandError."""
    given = (*batch, shared_bytes) if isinstance(batch, (tuple, list)) else (None,)
    sizes = tuple(x for x in map(as_integer, given) if x is not None and x >= 0)
    if len(sizes) != len(given):
        raise OperandError(
            "batch is a tuple of sizes, such as (4,), and shared_bytes a number, none of them "
            f"negative; got {shown(batch)} and {shown(shared_bytes)}"
        )
    if max(prod(sizes), prod(sizes[:-1]) * Warpgroup.lanes) > _MOST_SHARED:
        raise OperandError(
            f"{shown(shared_bytes)} bytes of shared memory for a batch {shown(given[:-1])} are "
            "more than 4 GiB"
        )
    return sizes
