"""A segment: statements that run as one native function once it pays to compile them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from time import thread_time
from typing import Any, NamedTuple

import numpy as np

from dtypes import Array
from emulator.arith.engines import may_use_kernels
from emulator.arith.kernels import machine_code
from emulator.machine.compiled import DONE
from emulator.machine.compiled.function import NAME
from emulator.machine.compiled.memory import CONTEXT
from emulator.machine.compiled.products import kernels_of
from emulator.machine.compiled.translation import Translated, translate
from emulator.machine.failure import Failure
from emulator.machine.vector.lanes import present, slots
from emulator.machine.vector.strand import WARP, Strand
from emulator.ptx.program import Function, Statement
from emulator.targets import Target

#: seconds that LLVM takes for a function, for each statement of it, and for a kernel that it calls
_COMPILING, _COMPILING_EACH, _COMPILING_KERNEL = 0.01, 0.003, 0.3

Step = Callable[[Strand], None]
#: of a native function: see `NativeFunction`
_SIGNATURE = (
    ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p,
)  # fmt: skip


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
        cost = _COMPILING + _COMPILING_EACH * len(self.statements)
        cost += _COMPILING_KERNEL * kernels_of(self.statements, target)
        #: seconds of steps until it pays to compile
        self._left = 0.0 if at_once else cost
        self._native: _Native | None = None

    def __call__(self, s: Strand) -> None:
        if self._native is None:
            if self._left > 0:
                start = thread_time()
                self._interpret(s)
                self._left -= thread_time() - start
                return
            self._native = _Native(
                translate(self.statements, self._function, self._live, self._target)
            )
        if not self._native.can_run(s):
            self._interpret(s)
            return
        if (wrong := self._native(s)) is not None:
            self._refuse(s, wrong)
        s.marks[DONE] = len(self.statements)

    def _interpret(self, s: Strand) -> None:
        s.marks[DONE] = 0
        for step in self._steps:
            step(s)
            s.marks[DONE] += 1

    def _refuse(self, s: Strand, number: int) -> None:
        """Raises what the vector engine raises: its steps run once more, on registers as they were.

        Memory may have changed since; where all goes well then, only the statement is known.
        """
        self._interpret(s)
        s.marks[DONE] = number
        raise Failure("out of bounds", "a lane accesses memory that it must not access")


class _Layout(NamedTuple):
    """How the lanes of a strand lie in vectors of warps."""

    warps: int
    #: where each lane stands among all lanes of its warps; None: all are there
    slots: Array | None
    #: which lanes are there; one warp of ones where all are
    present: Array
    #: the context of memory
    context: Array
    #: what the context points to
    held: tuple[Any, ...]


class _Native:
    """The function of a segment, and the arrays that it is called with."""

    def __init__(self, translated: Translated) -> None:
        self._inputs, self._outputs = translated.inputs, translated.outputs
        self._translated = translated
        (address,) = machine_code.function_addresses(translated.text, [NAME])
        self._call = machine_code.callable_at(address, *_SIGNATURE)

    def can_run(self, s: Strand) -> bool:
        """Whether a strand has all lanes that statements need, and copies are done at once."""
        needs = self._translated
        if needs.copies and not s.wave.pending.at_once:
            return False
        if needs.multiplies and not may_use_kernels(s.wave.grid.arithmetic):
            return False
        return not needs.together or _layout_of(s).slots is None

    def __call__(self, s: Strand) -> int | None:
        """Runs all statements in all lanes; the number of one that a lane must not execute."""
        layout = _layout_of(s)
        arguments = np.empty(2 * (len(self._inputs) + len(self._outputs)), np.int64)
        held = [layout.present]
        arguments[:2] = _pointer(layout.present), 0 if layout.slots is None else WARP
        for number, given in enumerate(self._inputs[1:], 1):
            words = _spread(given.read(s), given.dtype, layout)
            held.append(words)
            stride = 0 if len(words) == WARP and layout.warps > 1 else WARP * words.itemsize
            arguments[2 * number : 2 * number + 2] = _pointer(words), stride
        made = []
        for number, (_, dtype) in enumerate(self._outputs, len(self._inputs)):
            words = np.empty(layout.warps * WARP, dtype)
            made.append(words)
            arguments[2 * number : 2 * number + 2] = _pointer(words), WARP * words.itemsize
        context = _refreshed(s, layout)
        result = self._call(_pointer(arguments), 0, layout.warps, _pointer(context))
        if result < 0:
            return -1 - int(result)
        s.wave.grid.progress += int(result)
        for (index, _), words in zip(self._outputs, made, strict=True):
            s.write(index, words if layout.slots is None else words[layout.slots])
        return None


def _pointer(words: Array) -> int:
    return int(words.__array_interface__["data"][0])


def _spread(words: Array, dtype: np.dtype[Any], layout: _Layout) -> Array:
    """Words of all lanes of the strand's warps, or of one warp that stands for all."""
    words = words.astype(dtype, copy=False)
    if len(words) == 1:
        return np.full(WARP, words[0], dtype)
    if layout.slots is None:
        return np.ascontiguousarray(words)
    whole = np.zeros(layout.warps * WARP, dtype)
    whole[layout.slots] = words
    return whole


def _layout_of(s: Strand) -> _Layout:
    found: _Layout | None = s.marks.get("layout")
    if found is None:
        wave = s.wave
        numbers = wave.warps_of(s).numbers
        whole = len(numbers) * WARP == len(s)
        rows = numbers // wave.warps_per_cta
        tables = (
            rows * wave.shared_bytes,
            rows // wave.cluster_size * wave.cluster_size * wave.shared_bytes,
            numbers,
        )
        held = tuple(np.ascontiguousarray(x, np.int64) for x in tables)
        context = np.zeros(len(CONTEXT), np.int64)
        for name, table in zip(("rows", "cluster_rows", "warps"), held, strict=True):
            context[CONTEXT.index(name)] = _pointer(table)
        there = np.ones(WARP, np.bool_) if whole else np.ascontiguousarray(present(s)).reshape(-1)
        found = _Layout(len(numbers), None if whole else slots(s), there, context, held)
        s.marks["layout"] = found
    return found


def _refreshed(s: Strand, layout: _Layout) -> Array:
    """The context with the memory that is there now: it may have grown."""
    wave = s.wave
    starts, ends, shifts, usable = wave.grid.arena._by_address()
    now = {
        "arena": _pointer(wave.grid.arena.view(1)),
        "allocations": len(starts),
        "starts": _pointer(starts),
        "ends": _pointer(ends),
        "shifts": _pointer(shifts),
        "readable": _pointer(usable[0]),
        "writable": _pointer(usable[1]),
        "shared": _pointer(wave.shared),
        "shared_bytes": wave.shared_bytes,
        "shared_limit": wave.shared_limit,
        "cluster_size": wave.cluster_size,
        "local": _pointer(wave.local),
        "local_bytes": wave.local.shape[1],
        "local_limit": wave.local_bytes,
    }
    for name, value in now.items():
        layout.context[CONTEXT.index(name)] = value
    return layout.context
