"""A segment: statements that run as one native function once it pays to compile them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from emulator.arith.engines import Engine, by_kernels, may_use_kernels
from emulator.arith.fast.kernels import machine_code
from emulator.arith.fast.threads import cuts_of, in_native_parts
from emulator.arrays import address_of
from emulator.isa.matrix import MatrixInstruction
from emulator.machine.compiled import DONE, refused, warpgroups
from emulator.machine.compiled.budget import Budget
from emulator.machine.compiled.calls import layout_of, refreshed, spread
from emulator.machine.compiled.function import NAME
from emulator.machine.compiled.products import fits
from emulator.machine.compiled.translation import Translated, translate
from emulator.machine.shared.products import is_wgmma
from emulator.machine.vector.mbarriers import wake
from emulator.machine.vector.strand import WARP, Strand
from emulator.ptx.program import Function, Statement
from emulator.targets import Target

#: seconds that it takes to compile a function, for each part of it, each statement, each copy to
#: shared memory and each product of matrices beyond that, and a kernel that computes some of these
_COMPILING, _COMPILING_PART, _COMPILING_EACH = 0.004, 0.003, 0.0006
_COMPILING_COPY, _COMPILING_PRODUCT, _COMPILING_KERNEL = 0.009, 0.001, 0.1

#: statements of warps that are worth another thread; a product of matrices counts for so many
WORTH_A_THREAD, _PRODUCT = 1 << 14, 200

#: segments run seldom: what runs often is mostly in a loop
_SELDOM = True

Step = Callable[[Strand], None]
#: of a native function: see `NativeFunction`
SIGNATURE = (
    ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p,
)  # fmt: skip


def work_of(statements: Sequence[Statement], target: Target) -> int:
    """Work of a warp, in statements."""
    work = len(statements) + _PRODUCT * sum(fits(x, target) for x in statements)
    for ins in (x.instruction for x in statements if is_wgmma(x)):
        assert isinstance(ins, MatrixInstruction)
        work += _PRODUCT * ins.n // 8
    return work


def seconds_to_compile(statements: Sequence[Statement], target: Target, parts: int = 1) -> float:
    """The time to compile statements in so many parts, as measured."""
    products = [x.instruction for x in statements if fits(x, target) or is_wgmma(x)]
    each = _COMPILING_PART * parts + _COMPILING_EACH * len(statements)
    copies = _COMPILING_COPY * sum("copies" in x.effects for x in statements)
    kernels = _COMPILING_PRODUCT * len(products) + _COMPILING_KERNEL * len(set(products))
    return _COMPILING + each + copies + kernels


class Segment:
    """Statements without a branch: steps of the vector engine, until they have taken as long as
    compiling them takes; then a native function."""

    def __init__(
        self,
        statements: Sequence[Statement],
        steps: Sequence[Step],
        function: Function,
        live: int,
        target: Target,
        at_once: bool,
    ) -> None:
        self.statements, self._steps = tuple(statements), tuple(steps)
        self._function, self._live, self._target = function, live, target
        self._work = work_of(self.statements, target)
        self._engine: Engine = "compiled" if at_once else "auto"
        self._budget = Budget(0.0 if at_once else seconds_to_compile(statements, target))
        self._native: _Native | None = None

    def __call__(self, s: Strand) -> None:
        if self._native is None and self._budget.left > 0:
            start = perf_counter()
            self._interpret(s)
            self._budget.charge(perf_counter() - start)
            return
        native = self._native or self._compiled()
        if native is None or not native.can_run(s):
            self._interpret(s)
            return
        if (wrong := native(s)) is not None:
            self._refuse(s, wrong)
        s.marks[DONE] = len(self.statements)

    def _compiled(self) -> _Native | None:
        """The native function; None where LLVM fails, which is said once: steps do without it."""
        self._native = by_kernels(self._engine, self._make)
        if self._native is None:
            self._budget.never()
        return self._native

    def _make(self) -> _Native:
        with machine_code.written():
            translated = translate(self.statements, self._function, self._live, self._target)
        return _Native(translated, self._work)

    def _interpret(self, s: Strand, again: bool = False) -> None:
        s.marks[DONE] = 0
        for step, statement in zip(self._steps, self.statements, strict=True):
            # Who waits for other warps has waited before.
            if not again or not warpgroups.orders(statement):
                step(s)
            s.marks[DONE] += 1

    def _refuse(self, s: Strand, number: int) -> None:
        """Raises what the vector engine raises: its steps run once more, on registers as they were.

        Memory may have changed since; where all goes well then, only the statement is known.
        """
        self._interpret(s, again=True)
        s.marks[DONE] = number
        raise refused()


class _Native:
    """The function of a segment, and the arrays that it is called with."""

    def __init__(self, translated: Translated, work: int) -> None:
        #: of one warp, in statements
        self._work = work
        self._inputs, self._outputs = translated.inputs, translated.outputs
        self._translated = translated
        self._function = machine_code.Improved(translated.text, NAME, *SIGNATURE, seldom=_SELDOM)

    def can_run(self, s: Strand) -> bool:
        """True if a strand has all lanes that statements need, and copies are done at once."""
        needs = self._translated
        if needs.at_once and not s.wave.pending.at_once:
            return False
        if needs.multiplies and not may_use_kernels(s.wave.grid.arithmetic):
            return False
        return not needs.together or layout_of(s).slots is None

    def __call__(self, s: Strand) -> int | None:
        """Runs all statements in all lanes; the number of one that a lane must not execute."""
        layout, compute = layout_of(s), self._function.now()
        held: list[Any] = []
        words = [address_of(layout.present), 0 if layout.slots is None else WARP]
        for given in self._inputs[1:]:
            if given.fixed is not None:
                words += [address_of(given.fixed), 0]
            else:
                words += spread(s, given.read(s), given.dtype, layout, held, given.by_warp)
        made = [np.empty(layout.warps * WARP, dtype) for _, dtype in self._outputs]
        for array in made:
            words += [address_of(array), WARP * array.itemsize]
        arguments = np.array(words, np.int64)
        context = refreshed(s, layout)
        begun = perf_counter()
        work = self._work * layout.warps if self._translated.apart else 0
        threads = 1 + work // WORTH_A_THREAD
        cuts = layout.starts[cuts_of(len(layout.starts) - 1, threads)]
        shared = address_of(arguments), address_of(context)
        found = in_native_parts(compute, cuts, threads, *shared)
        self._function.ran(perf_counter() - begun)
        if min(found) < 0:
            return min(-1 - result for result in found if result < 0)
        s.wave.grid.progress += max(found)
        for (index, _), array in zip(self._outputs, made, strict=True):
            s.write(index, array if layout.slots is None else array[layout.slots])
        if self._translated.arrives:
            wake(s.wave)
        return None
