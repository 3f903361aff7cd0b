"""``RecordedKernel``: the operands that a kernel passes to an instruction in each step along k.

The fault finder starts from one, changes it as a mistake would, and looks at what it computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from dtypes import Array
from emulator.arith import matmul
from emulator.errors import EmulatorError
from emulator.isa.matrix import MatrixInstruction
from emulator.memory.descriptors import store_tile
from emulator.memory.tensor_map import TensorMap
from emulator.targets import Target
from emulator.tools.operands import ONE_WORD, gather, load_matrix, scatter, tile_in_memory
from emulator.warp.execute import execute

#: words of an operand to other words of the same shape ``(…, lanes, registers)``
Change = Callable[[Array], Array]
#: multiply-adds of the variants that are computed at a time
_AT_ONCE = 1 << 22


class Rows(NamedTuple):
    """The rows that ldmatrix loads the words of an operand from."""

    #: uint8 ``(bytes,)``
    shared: Array
    #: ``(steps, lanes)``; lane 8 t + i gives row i of tile t
    addresses: Array
    trans: bool


class Box(NamedTuple):
    """One tensor copy from global to shared memory."""

    tensor_map: TensorMap
    #: of the tensor, innermost dimension first
    coordinates: tuple[int, ...]
    #: of shared memory
    address: int


class Copies(NamedTuple):
    """The tensor copies that fill shared memory."""

    #: uint8 ``(bytes,)``
    before: Array
    boxes: tuple[Box, ...]


def split_k(operand: str, codes: Array, steps: int) -> Array:
    """The matrix of an operand as one for each step along k, ``(steps, …, rows, cols)``."""
    return np.stack(np.split(codes, steps, -2 if operand in ("b", "scale_b") else -1))


@dataclass(frozen=True)
class RecordedKernel:
    """One instruction, its operands in `steps` steps along k, and how the result is read."""

    ins: MatrixInstruction
    target: Target
    #: a, b ``(steps, lanes, registers)``; c ``(lanes, registers)``; e, scales ``(steps, lanes)``;
    #: descriptor_a, descriptor_b ``(steps,)``; shared ``(bytes,)``
    words: Mapping[str, Array]
    #: what `execute` takes besides: selector, ids, immediates; scale_d of the first step
    options: Mapping[str, Any] = field(default_factory=dict)
    #: False: every step starts from c again
    carries: bool = True
    #: how the words of d are read, or written, after the last step
    reads: tuple[Change, ...] = ()
    #: which elements of an operand's matrix or of d are wrong, where that is known
    suspects: Mapping[str, Array] | None = None
    #: the codes that an operand should have, or that d has, where the search goes for them
    aims: Mapping[str, Array] = field(default_factory=dict)
    #: where ldmatrix takes the words of operands from, where that is known
    rows: Mapping[str, Rows] = field(default_factory=dict)
    #: how shared memory came to hold what it does, where that is known
    copies: Copies | None = None

    @property
    def steps(self) -> int:
        return len(self.words["a" if "a" in self.words else "descriptor_a"])

    @property
    def work(self) -> int:
        """Multiply-adds of a run."""
        return self.ins.m * self.ins.n * self.ins.k * self.steps

    @property
    def registers(self) -> dict[str, int]:
        """Matrix operands in registers, and how many each lane has of them; the result is d."""
        names = [name for name in "abc" if name in self.words]
        return {name: self.ins.fragment(name).registers for name in (*names, "d")}

    @property
    def words_per_lane(self) -> dict[str, int]:
        """`registers`, and the operands of one word."""
        return self.registers | {name: 1 for name in ONE_WORD if name in self.words}

    # --- other kernels ---

    def using(self, **words: Array) -> RecordedKernel:
        return replace(self, words={**self.words, **words})

    def loading(self, operand: str, rows: Rows, words: Array) -> RecordedKernel:
        """With the words of `operand` loaded from other rows."""
        return replace(self.using(**{operand: words}), rows={**self.rows, operand: rows})

    def setting(self, **options: Any) -> RecordedKernel:
        return replace(self, options={**self.options, **options})

    def changing(self, operand: str, change: Change) -> RecordedKernel:
        """With the words of `operand` changed, or with those of d read in a changed way."""
        if operand == "d":
            return replace(self, reads=(*self.reads, change))
        words = self.words[operand]
        if operand in ONE_WORD:
            return self.using(**{operand: change(words[..., None])[..., 0]})
        return self.using(**{operand: change(words)})

    def narrowed(self, n: int) -> RecordedKernel:
        """The first `n` columns of a wgmma: the same descriptors, fewer accumulators."""
        ins = replace(self.ins, n=n)
        c = self.words["c"][..., : ins.fragment("c").registers]
        return replace(self, ins=ins, words={**self.words, "c": c})

    # --- matrices ---

    def matrix(self, operand: str) -> Array:
        """The codes that the instruction takes from its operand: A ``(m, K)``, B ``(K, n)``,
        C ``(m, n)``, metadata nibbles ``(m, chunks)``, scales ``(m, v)`` and ``(v, n)``."""
        ins, words = self.ins, self.words
        if operand == "c":
            return ins.fragment("c").gather(words["c"])
        if operand in words:
            parts = gather(ins, operand, words[operand], self.options)
        else:
            where = words[f"descriptor_{operand}"]
            parts = load_matrix(ins, operand, words["shared"], where, self.options)
        return np.concatenate(list(parts), -2 if operand in ("b", "scale_b") else -1)

    def matrix_inside(self, operand: str) -> Array | None:
        """`matrix`; None where its descriptor leaves shared memory."""
        with suppress(EmulatorError):
            return self.matrix(operand)
        return None

    def holding(self, operand: str, codes: Array) -> RecordedKernel:
        """With other codes of the shape of `matrix`, where the instruction looks for them.

        Raises OperandError where the tile in memory cannot be written.
        """
        ins = self.ins
        if operand == "c":
            return self.using(c=ins.fragment("c").scatter(codes))
        parts = split_k(operand, codes, self.steps)
        if operand in self.words:
            now = self.words[operand]
            return self.using(**{operand: scatter(ins, operand, parts, self.options, now)})
        tile, shared = tile_in_memory(ins, operand, self.options), self.words["shared"].copy()
        for part, word in zip(parts, self.words[f"descriptor_{operand}"], strict=True):
            store_tile(shared, word, part if operand == "a" else part.T, tile.place, tile.major)
        return self.using(shared=shared)

    # --- results ---

    def run(self) -> Array:
        """The words of d before they are read; raises what `execute` raises."""
        return _steps([self])[0]

    def result(self) -> Array | None:
        """The codes of D ``(m, n)``; None where the instruction refuses the operands."""
        return results([self])[0]


class Variant(NamedTuple):
    """A kernel with one mistake in it."""

    #: the operand that it is about: a, b, c, d, e, scale_a, scale_b; "" for none
    operand: str
    detail: str
    kernel: RecordedKernel


class Mistake(NamedTuple):
    """One row of `finder.MISTAKES`."""

    name: str
    #: how one comes to it, and what to look at
    explanation: str
    variants: Callable[[RecordedKernel], Iterator[Variant]]
    #: what to look at instead, of some operands
    advice: Mapping[str, str] = {}

    def explain(self, operand: str) -> str:
        """`explanation`, for one operand."""
        return self.advice.get(operand, self.explanation).replace("OPERAND", operand or "a")


# --- many at once ---------------------------------------------------------------------------------


def results(kernels: Sequence[RecordedKernel]) -> list[Array | None]:
    """`Kernel.result` of each; those that differ in words alone are computed as one batch."""
    groups: dict[tuple[object, ...], dict[tuple[int, ...], list[int]]] = {}
    contents: dict[int, int] = {}
    for i, kernel in enumerate(kernels):
        arrays = [kernel.words[name] for name in sorted(kernel.words)]
        for array in arrays:
            if id(array) not in contents:
                contents[id(array)] = hash(array.tobytes())
        same = tuple(contents[id(array)] for array in arrays)
        groups.setdefault(_kind(kernel), {}).setdefault(same, []).append(i)
    out: list[Array | None] = [None] * len(kernels)
    for group in groups.values():
        unique = list(group.values())
        first = kernels[unique[0][0]]
        at_once = first.work if _is_plain_loop(first) else first.work // first.steps
        size = max(1, _AT_ONCE // at_once)
        for start in range(0, len(unique), size):
            part = unique[start : start + size]
            found = _run([kernels[indices[0]] for indices in part])
            for indices, words in zip(part, found, strict=True):
                for i in indices:
                    out[i] = None if words is None else _read(kernels[i], words)
    return out


def _kind(kernel: RecordedKernel) -> tuple[object, ...]:
    shapes = tuple((name, kernel.words[name].shape) for name in sorted(kernel.words))
    options = tuple(sorted(kernel.options.items()))
    return str(kernel.ins), kernel.target.name, options, kernel.carries, shapes


def _read(kernel: RecordedKernel, words: Array) -> Array:
    for change in kernel.reads:
        words = change(words)
    return kernel.ins.fragment("d").gather(words)


def _run(kernels: list[RecordedKernel]) -> list[Array | None]:
    """Words of d of kernels that differ in words alone; None for one that cannot run."""
    try:
        return list(_steps(kernels))
    except EmulatorError:
        # One of them may be the reason: halves, until it stands alone.
        if len(kernels) == 1:
            return [None]
        half = len(kernels) // 2
        return _run(kernels[:half]) + _run(kernels[half:])


def _steps(kernels: list[RecordedKernel]) -> Array:
    first = kernels[0]
    words = {}
    for name, mine in first.words.items():
        if all(kernel.words[name] is mine for kernel in kernels):
            words[name] = mine[None]
        else:
            words[name] = np.stack([kernel.words[name] for kernel in kernels])
    d = _chained(first, words) if _is_plain_loop(first) else _executed(first, words)
    return np.broadcast_to(d, (len(kernels), *d.shape[1:]))


def _is_plain_loop(kernel: RecordedKernel) -> bool:
    """Whether all steps are one long dot product, of operands that no check refuses."""
    plain = kernel.words.keys() == {"a", "b", "c"} and not kernel.ins.fragment("a").place.padding
    return plain and kernel.steps > 1 and kernel.carries and not kernel.ins.b_place.padding


def _chained(first: RecordedKernel, words: Mapping[str, Array]) -> Array:
    """As `_executed`, without going through registers after every step."""
    ins = first.ins
    a, b = (np.moveaxis(ins.fragment(name).gather(words[name]), 1, 0) for name in "ab")
    columns = np.swapaxes(np.concatenate(list(b), -2), -1, -2)
    c, arithmetic = ins.fragment("c").gather(words["c"]), ins.arithmetic(first.target)
    d = matmul(arithmetic, np.concatenate(list(a), -1), columns, c, k=ins.k)
    return ins.fragment("d").scatter(d)


def _executed(first: RecordedKernel, words: Mapping[str, Array]) -> Array:
    start = d = words["c"]
    for step in range(first.steps):
        now = {name: x[:, step] for name, x in words.items() if name not in ("c", "shared")}
        options = dict(first.options)
        if first.ins.is_wgmma:
            options["shared"] = words["shared"]
            options["scale_d"] = options.get("scale_d", True) or (step > 0 and first.carries)
        options |= {name: now[name] for name in ("scale_a", "scale_b") if name in now}
        operands = [
            now["a"] if "a" in now else now["descriptor_a"],
            now["b"] if "b" in now else now["descriptor_b"],
            d if first.carries else start,
            *([now["e"]] if "e" in now else []),
        ]
        d = execute(first.ins, *operands, target=first.target, undefined="hardware", **options)
    return d
