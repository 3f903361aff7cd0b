"""Vector engine: checks of registers before a statement runs, of those that nothing has written and
those that a wgmma still uses.

It is the register as a whole that something has written or not, whichever of its lanes. The rules
of wgmma are those of `machine.ordering`; registers of one name in different braces are different
ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from emulator.errors import UndefinedError
from emulator.isa.matrix import MatrixInstruction
from emulator.machine.shared.operands import word_of
from emulator.machine.shared.ordering import WgmmaOrder
from emulator.machine.shared.state import unwritten
from emulator.machine.vector.compute import Step
from emulator.machine.vector.control import End
from emulator.machine.vector.lanes import together_in_groups
from emulator.machine.vector.operands import active, reader
from emulator.machine.vector.strand import WARPGROUP, Strand
from emulator.ptx.program import Address, Bound, Constant, Function, Statement, Vector, registers_of

if TYPE_CHECKING:
    from emulator.machine.shared.state import WarpState
    from emulator.ptx.statements import Text

_EFFECTS: dict[str, Callable[[WgmmaOrder, int], None]] = {
    "wgmma.fence": lambda order, _: order.fence(),
    "wgmma.commit_group": lambda order, _: order.commit(),
    "wgmma.wait_group": lambda order, count: order.wait(count),
}
_Check = Callable[[Strand], None]


class Defined:
    """Puts the checks of a machine before the steps of a text; `names` are its registers'."""

    def __init__(self, state: WarpState, text: Text, names: dict[int, str]) -> None:
        self._state, self._text, self._names = state, text, names

    def step(self, statement: Statement, function: Function, run: Step) -> Step:
        """`run` behind the checks of a statement."""
        effect = _EFFECTS.get(".".join(str(statement.instruction).split(".")[:2]))
        if effect is not None:
            return self._with_effect(statement, effect, run)
        check, find, state = self._check(statement, function), active(statement.guard), self._state
        guard = self._guard(statement)

        def plain(s: Strand) -> None:
            if state.undefined == "raise":
                check(s)
            run(s)

        def guarded(s: Strand) -> None:
            if state.undefined == "raise":
                guard(s)
                if find(s) is not False:
                    check(s)
            run(s)

        return plain if statement.guard is None else guarded

    def end(self, statement: Statement, run: End) -> End:
        """The same for a statement that says where lanes go on."""
        reads = [*_indexes(statement.bound("read")), *self._guards(statement)]
        check, state = self._ordinary(reads, []), self._state

        def watched(s: Strand) -> int | None:
            if state.undefined == "raise":
                check(s)
            return run(s)

        return watched if reads else run

    # --- what is checked ---

    def _check(self, statement: Statement, function: Function) -> _Check:
        ins = statement.instruction
        if isinstance(ins, MatrixInstruction) and ins.is_wgmma:
            return self._wgmma(statement, function, ins)
        reads: list[int] = []
        writes: list[int] = []
        for operand in statement.signature.operands:
            bound = statement.operands.get(operand.name)
            if operand.use != "written" or isinstance(bound, Address):
                reads += registers_of(bound)
            if operand.use != "read" and not isinstance(bound, Address):
                writes += registers_of(bound)
        return self._ordinary(reads, writes)

    def _ordinary(self, reads: list[int], writes: list[int]) -> _Check:
        read, order = tuple(dict.fromkeys(reads)), self._state.order
        if self._state.lanes < WARPGROUP:
            return lambda s: _check_written(s, read)
        names = [self._name(index) for index in read]
        results = [self._name(index) for index in writes]

        def check(s: Strand) -> None:
            _check_written(s, read)
            order.check_read(names)
            order.check_write(results)
            order.touch(names)
            order.touch(results)

        return check

    def _wgmma(self, statement: Statement, function: Function, ins: MatrixInstruction) -> _Check:
        """A wgmma reads its accumulator where scale-d is true, and its own registers later."""
        operands, order = statement.operands, self._state.order
        accumulator = tuple(_indexes([operands["d"]]))
        a = operands["a"]
        inputs = tuple(_indexes([a])) if isinstance(a, Vector) else ()
        others = tuple(
            index
            for name, bound in operands.items()
            if name != "d" and not (name == "a" and inputs)
            for index in registers_of(bound)
        )
        keeps = operands.get("scale_d", Constant(1))
        keep = None if isinstance(keeps, Constant) else reader(keeps, "pred", function)
        always = isinstance(keeps, Constant) and bool(keeps.word)
        names = [tuple(map(self._name, part)) for part in (accumulator, inputs, others)]
        where, pc = str(self._text.source.position(statement.at)), statement.pc

        def check(s: Strand) -> None:
            together_in_groups(s, pc)  # once it is issued, it is not issued again
            _check_written(s, others)
            if always or (keep is not None and keep(s).any()):
                _check_written(s, accumulator)
            _check_written(s, inputs)
            order.issue(ins.shape, names[0], names[1], where)
            order.check_read(names[2])

        return check

    def _with_effect(
        self, statement: Statement, effect: Callable[[WgmmaOrder, int], None], run: Step
    ) -> Step:
        """wgmma.fence, commit_group and wait_group."""
        bound = next(iter(statement.operands.values()), Constant(0))
        find, state, count = active(statement.guard), self._state, word_of(bound)
        guard = self._guard(statement)

        def watched(s: Strand) -> None:
            if state.undefined == "raise":
                guard(s)
            takes_effect = find(s) is not False
            run(s)
            if takes_effect:
                effect(state.order, count)

        return watched

    def _guards(self, statement: Statement) -> list[int]:
        return [] if statement.guard is None else [statement.guard.index]

    def _guard(self, statement: Statement) -> _Check:
        return self._ordinary(self._guards(statement), [])

    def _name(self, index: int) -> str:
        """The name of a register, for `WgmmaOrder`: one of braces has its number, too."""
        name = self._names.get(index)
        if name is None:
            name = f"{self._text.function.registers[index].name} (in braces, {index})"
        return name


def _indexes(bounds: Iterable[Bound | None]) -> Iterable[int]:
    for bound in bounds:
        yield from registers_of(bound)


def _check_written(s: Strand, indexes: Iterable[int]) -> None:
    """Raises UndefinedError for a register that nothing has written."""
    frame = s.frames[-1]
    for index in indexes:
        if not frame.was_written(index):
            raise UndefinedError(unwritten(frame.function.registers[index].name))
