"""``Kernel``: what a kernel passes to an instruction, step by step along k, and what comes out.

The fault finder starts from one, changes it as a mistake would, and looks at what it computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dtypes import Array, Place
from emulator.errors import EmulatorError
from emulator.isa.matrix import MatrixInstruction
from emulator.memory.descriptors import load_tile, store_tile
from emulator.targets import Target
from emulator.warp.execute import execute
from emulator.warp.scales import gather_scales
from emulator.warp.sparse import gather_metadata

#: words of an operand to other words of the same shape ``(…, lanes, registers)``
Change = Callable[[Array], Array]
#: operands that have one word in every lane
ONE_WORD = ("e", "scale_a", "scale_b")
#: multiply-adds of the variants that are computed at a time
_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class Kernel:
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

    @property
    def steps(self) -> int:
        return len(self.words["a" if "a" in self.words else "descriptor_a"])

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

    def using(self, **words: Array) -> Kernel:
        return replace(self, words={**self.words, **words})

    def setting(self, **options: Any) -> Kernel:
        return replace(self, options={**self.options, **options})

    def changing(self, operand: str, change: Change) -> Kernel:
        """With the words of `operand` changed, or with those of d read in a changed way."""
        if operand == "d":
            return replace(self, reads=(*self.reads, change))
        words = self.words[operand]
        if operand in ONE_WORD:
            return self.using(**{operand: change(words[..., None])[..., 0]})
        return self.using(**{operand: change(words)})

    # --- matrices ---

    def matrix(self, operand: str) -> Array:
        """The codes that the instruction takes from its operand: A ``(m, K)``, B ``(K, n)``,
        C ``(m, n)``, metadata nibbles ``(m, chunks)``, scales ``(m, v)`` and ``(v, n)``."""
        ins = self.ins
        if operand == "c":
            return ins.fragment("c").gather(self.words["c"])
        if operand == "e":
            chosen = self.options.get("selector", 0)
            return _joined(gather_metadata(ins, self.words["e"], chosen), -1)
        if operand in ("scale_a", "scale_b"):
            byte, thread = (
                self.options.get(f"{x}_id_{operand[-1]}", 0) for x in ("byte", "thread")
            )
            codes = gather_scales(ins, operand, self.words[operand], byte, thread)
            return _joined(codes, -1 if operand == "scale_a" else -2)
        axis = -1 if operand == "a" else -2
        if operand in self.words:
            return _joined(ins.fragment(operand).gather(self.words[operand]), axis)
        rows, k, where, major = self.tile(operand)
        codes = load_tile(
            self.words["shared"], self.words[f"descriptor_{operand}"], rows, k, where, major
        )
        codes = codes.reshape(self.steps, rows, k)  # one descriptor comes without its axis
        return _joined(codes if operand == "a" else np.swapaxes(codes, -1, -2), axis)

    def holding(self, operand: str, codes: Array) -> Kernel:
        """With other codes of the shape of `matrix`, where the instruction looks for them.

        Raises OperandError where the tile in memory cannot be written.
        """
        ins = self.ins
        if operand == "c":
            return self.using(c=ins.fragment("c").scatter(codes))
        parts = np.stack(np.split(codes, self.steps, -2 if operand in ("b", "scale_b") else -1))
        if operand in ONE_WORD:
            fragment = ins.fragment(operand)
            groups = fragment.gather(self.words[operand][..., None]).copy()
            if fragment.groups > 1:
                groups[..., self._group(operand), :, :] = parts
            else:
                groups[...] = parts
            return self.using(**{operand: fragment.scatter(groups)[..., 0]})
        if operand in self.words:
            return self.using(**{operand: ins.fragment(operand).scatter(parts)})
        _, _, where, major = self.tile(operand)
        shared = self.words["shared"].copy()
        for part, word in zip(parts, self.words[f"descriptor_{operand}"], strict=True):
            store_tile(shared, word, part if operand == "a" else part.T, where, major)
        return self.using(shared=shared)

    def _group(self, operand: str) -> int:
        """Which of the matrices that the lanes hold the instruction takes."""
        if operand == "e":
            return int(self.options.get("selector", 0))
        byte, thread = (
            int(self.options.get(f"{x}_id_{operand[-1]}", 0)) for x in ("byte", "thread")
        )
        return byte // self.ins.scale_chunks * len(self.ins.legal_ids(operand)[1]) + thread

    def narrowed(self, n: int) -> Kernel:
        """The first `n` columns of a wgmma: the same descriptors, fewer accumulators."""
        ins = replace(self.ins, n=n)
        c = self.words["c"][..., : ins.fragment("c").registers]
        return replace(self, ins=ins, words={**self.words, "c": c})

    def tile(self, operand: str) -> tuple[int, int, Place, str]:
        """Rows, k, place and major of an operand in shared memory."""
        ins = self.ins
        major = "mn" if self.options.get(f"imm_trans_{operand}", 0) else "k"
        if operand == "a":
            return ins.m, ins.stored_k, ins.a_place, major
        return ins.n, ins.k, ins.b_place, major

    def run(self) -> Array:
        """The words of d before they are read; raises what `execute` raises."""
        return _steps([self])[0]

    def result(self) -> Array | None:
        """The codes of D ``(m, n)``; None where the instruction refuses the operands."""
        return results([self])[0]


def _joined(parts: Array, axis: int) -> Array:
    """Steps ``(steps, …, rows, cols)`` side by side."""
    return np.concatenate(list(parts), axis)


# --- many at once ---------------------------------------------------------------------------------


def results(kernels: Sequence[Kernel]) -> list[Array | None]:
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
        for part in _parts(unique, kernels[unique[0][0]]):
            found = _run([kernels[indices[0]] for indices in part])
            for indices, words in zip(part, found, strict=True):
                for i in indices:
                    out[i] = None if words is None else _read(kernels[i], words)
    return out


def _kind(kernel: Kernel) -> tuple[object, ...]:
    shapes = tuple((name, kernel.words[name].shape) for name in sorted(kernel.words))
    options = tuple(sorted(kernel.options.items()))
    return str(kernel.ins), kernel.target.name, options, kernel.carries, shapes


def _parts(items: list[list[int]], kernel: Kernel) -> Iterator[list[list[int]]]:
    ins = kernel.ins
    size = max(1, _AT_ONCE // (ins.m * ins.n * ins.k))
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _read(kernel: Kernel, words: Array) -> Array:
    for change in kernel.reads:
        words = change(words)
    return kernel.ins.fragment("d").gather(words)


def _run(kernels: list[Kernel]) -> list[Array | None]:
    """Words of d of kernels that differ in words alone; None for one that cannot run."""
    try:
        return list(_steps(kernels))
    except EmulatorError:
        # One of them may be the reason: halves, until it stands alone.
        if len(kernels) == 1:
            return [None]
        half = len(kernels) // 2
        return _run(kernels[:half]) + _run(kernels[half:])


def _steps(kernels: list[Kernel]) -> Array:
    first = kernels[0]
    words = {}
    for name, mine in first.words.items():
        if all(kernel.words[name] is mine for kernel in kernels):
            words[name] = mine[None]
        else:
            words[name] = np.stack([kernel.words[name] for kernel in kernels])
    start = d = words.pop("c")
    shared = words.pop("shared", None)
    for step in range(first.steps):
        now = {name: array[:, step] for name, array in words.items()}
        options = dict(first.options)
        if first.ins.is_wgmma:
            options["shared"] = shared
            options["scale_d"] = options.get("scale_d", True) or (step > 0 and first.carries)
        options |= {name: now[name] for name in ("scale_a", "scale_b") if name in now}
        operands = [
            now["a"] if "a" in now else now["descriptor_a"],
            now["b"] if "b" in now else now["descriptor_b"],
            d if first.carries else start,
            *([now["e"]] if "e" in now else []),
        ]
        d = execute(first.ins, *operands, target=first.target, undefined="hardware", **options)
    return np.broadcast_to(d, (len(kernels), *d.shape[1:]))
