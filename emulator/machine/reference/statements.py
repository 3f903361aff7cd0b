"""Table of the functions that execute statements."""

from __future__ import annotations

from collections.abc import Callable

from emulator.errors import UnsupportedError
from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.machine.reference import (
    access,
    asynchronous,
    cancel,
    compute,
    control,
    issuer,
    lanes,
    matrix,
    mbarriers,
    surfaces,
    synchronisation,
    tcgen05,
    tensors,
    textures,
    wgmma,
)
from emulator.machine.reference.compute import Run
from emulator.machine.reference.control import StatementContext
from emulator.machine.reference.schedule import MOST_TURNS
from emulator.machine.reference.thread import Each, Flow, Step, Thread, Together
from emulator.machine.shared import bulk, tensor_maps
from emulator.machine.shared import cancel as shared_cancel
from emulator.ptx.program import Function, Program, Statement

#: backward branches after which it is time to look at others, where a thread looks at memory that
#: they may change
_POLLS = 16


#: first words of an opcode -> what each thread does; the longest that fits counts
EACH: dict[str, Callable[[Statement, Function], Run]] = {
    "ld": access.load,
    "ldu": access.load,
    "st": access.store,
    "atom": access.atomic,
    "red": access.atomic,
    "multimem.ld_reduce": access.load_reduced,
    "multimem.st": access.store_multicast,
    "multimem.red": access.reduce_multicast,
    "cvta": access.convert_address,
    "isspacep": access.is_in_space,
    "mapa": access.map_to_rank,
    "getctarank": access.rank_of,
    "alloca": access.allocate_on_stack,
    "stacksave": access.save_stack,
    "stackrestore": access.restore_stack,
    **mbarriers.EACH,
    **asynchronous.EACH,
    **issuer.each(bulk.EACH),
    **issuer.each(shared_cancel.EACH),
    **issuer.each(tensors.EACH),
    **issuer.each(tensor_maps.EACH),
    **cancel.EACH,
    **tcgen05.EACH,
    "tex": textures.fetch,
    "tld4": textures.fetch,
    "txq": textures.fetch,
    **surfaces.EACH,
}
#: makers of stores -> the order in which threads store
ORDERS: dict[
    Callable[[Statement, Function], Run], Callable[[Statement], Callable[[Thread], int]]
] = {
    access.store: access.storing_order,
    access.store_multicast: access.storing_order,
    surfaces.store: surfaces.storing_order,
}
#: the same of those that say where a thread goes on, and of those that threads execute together
FLOWS = {**control.FLOWS, **synchronisation.FLOWS, **mbarriers.FLOWS}
TOGETHER: dict[str, Callable[[Statement, Function], Together]] = {
    **lanes.TOGETHER,
    **issuer.together(tensor_maps.BY_WARP),
    **wgmma.TOGETHER,
    **tcgen05.TOGETHER,
}


class Code:
    """Makes the steps of a program's statements."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def steps(self) -> list[Step]:
        """The steps by their pc. Raises UnsupportedError for what is not modelled."""
        functions = sorted(self._program.functions.values(), key=lambda f: f.first)
        return [self._step(pc, f) for f in functions for pc in range(f.first, f.end)]

    def _step(self, pc: int, function: Function) -> Step:
        return self._step_of(self._program.statements[pc], function)

    def _step_of(self, statement: Statement, function: Function) -> Step:
        if statement.expansion:
            return Each(_in_turn([self._step_of(x, function) for x in statement.expansion]))
        if find := matrix.TOGETHER.get(type(statement.instruction)):
            return find(statement, function)
        ins = statement.instruction
        if "hint" in ins.effects:
            return Each(lambda thread: None)
        if isinstance(ins, OrdinaryInstruction):
            words = _longest({*EACH, *FLOWS, *TOGETHER}, str(ins))
            if words in FLOWS:
                place = StatementContext(statement, function, self._program)
                run = control.under_guard(statement, FLOWS[words](place))
                return Flow(run, self._patience(statement.pc))
            if words in TOGETHER:
                return TOGETHER[words](statement, function)
            if words in EACH:
                make = EACH[words]
                order = ORDERS.get(make)
                return Each(make(statement, function), order and order(statement))
        if getattr(ins, "rule", "") and ins.scope == "thread":
            return Each(compute.compute(statement, function))
        if getattr(ins, "rule", ""):
            return lanes.over_warp(statement, function)
        raise UnsupportedError(f"{ins} is legal PTX, not modelled here")

    def _patience(self, pc: int) -> int:
        """Backward branches until a thread gives way: what stands before them decides."""
        statements, leaders = self._program.statements, self._program.leaders
        first = pc
        while first not in leaders and first > 0 and statements[first - 1].name not in FLOWS:
            first -= 1
        polls = any("polls" in statements[i].effects for i in range(first, pc))
        return _POLLS if polls else MOST_TURNS


def _in_turn(steps: list[Step]) -> Run:
    """Runs several statements in place of one, where each thread acts by itself."""
    runs = [step.run for step in steps if isinstance(step, Each)]
    assert len(runs) == len(steps)

    def run(thread: Thread) -> None:
        for each in runs:
            each(thread)

    return run


def _longest(known: set[str], opcode: str) -> str:
    """The longest beginning of an opcode, in whole words, that is known; "" for none."""
    words = opcode.split(".")
    beginnings = (".".join(words[:count]) for count in range(len(words), 0, -1))
    return next((found for found in beginnings if found in known), "")
