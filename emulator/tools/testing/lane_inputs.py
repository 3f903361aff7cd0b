"""``Inputs``: the operands of one multiplication as matrices, and as what `execute` takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dtypes import Array, code_type, decode_values
from emulator.arith import Engine
from emulator.errors import OperandError
from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.layout.descriptor import Descriptor
from emulator.memory.descriptors import store_tile
from emulator.targets import Target
from emulator.tools.operands import (
    Multiplication,
    as_codes,
    as_multiplication,
    format_of,
    operand_shapes,
    scatter,
    traits,
)
from emulator.warp.execute import execute
from emulator.warp.sparse import check_selector, metadata

#: elements that `repr` shows of one operand
_SHOWN = 8


@dataclass(frozen=True, repr=False)
class Inputs:
    """Operands of mma, mma.sp, wgmma or wmma.mma, with a batch in front if there is one.

    ``execute(x.ins, *x.registers, target=…, **x.options)`` runs them, as does ``x.run(target)``.
    A of wgmma is in registers, its B in shared memory, K-major without a swizzle. Raises
    OperandError, when registers or options are first asked for, if a matrix does not fit.
    """

    ins: Multiplication
    #: element codes by operand: a ``(…, m, k)`` (of a sparse instruction the stored half), b
    #: ``(…, k, n)``, c ``(…, m, n)``; nibbles ``(…, m, chunks)``; scale_a ``(…, m, v)``, scale_b
    #: ``(…, v, n)``. Operands of m8n8k4.f16 are ``(…, 4, rows, cols)``.
    matrices: Mapping[str, Array]
    selector: int = 0

    @classmethod
    def of(
        cls,
        ins: Instruction | str,
        a: object,
        b: object,
        c: object = None,
        *,
        selector: int = 0,
        **more: object,
    ) -> Inputs:
        """From arrays of codes (unsigned), of the operands' own types, or of numbers that are exact
        in them; `c` None: zeros.

        A sparse A may be whole, ``(…, m, k)``; a compressed one comes with `nibbles`. `more` are
        nibbles, scale_a and scale_b, as codes. Raises OperandError for other arrays.
        """
        ins = as_multiplication(ins)
        if c is None:
            c = np.zeros(operand_shapes(ins)["c"], code_type(format_of(ins, "c").bits))
        given = {"a": a, "b": b, "c": c} | more
        held = {name: as_codes(name, format_of(ins, name), array) for name, array in given.items()}
        shapes = operand_shapes(ins)
        if whole_a := traits(ins).sparse and "nibbles" not in held:
            shapes |= {"a": (ins.m, ins.k)}
            del shapes["nibbles"]
        for name, shape in shapes.items():
            if name not in held or held[name].shape[-len(shape) :] != shape:
                got = held[name].shape if name in held else "nothing"
                want = ", ".join(map(str, shape))
                raise OperandError(f"{name} of {ins} is (…, {want}); got {got}")
        if whole_a:
            assert isinstance(ins, MatrixInstruction)
            held["a"], held["nibbles"] = metadata(ins, held["a"])
        return cls(ins, held, selector)

    @cached_property
    def registers(self) -> tuple[Array, ...]:
        """The operands of `execute` in order: a, b, c, or a, descriptor of b, d; then e."""
        return tuple(self.words[name] for name in self.words if not name.startswith("scale"))

    @cached_property
    def words(self) -> dict[str, Array]:
        """Registers by operand: a, b, c or d, e ``(…, lanes)``, scale_a and scale_b."""
        ins, codes = self.ins, self.matrices
        wgmma, sparse, scaled = traits(ins)
        held = {"a": ins.fragment("a").scatter(codes["a"])}
        held["b"] = self._tile[0] if wgmma else ins.fragment("b").scatter(codes["b"])
        held["d" if wgmma else "c"] = ins.fragment("c").scatter(codes["c"])
        if sparse and isinstance(ins, MatrixInstruction):
            check_selector(ins, self.selector)
            held["e"] = scatter(ins, "e", codes["nibbles"], {"selector": self.selector})
        for name in ("scale_a", "scale_b") if scaled else ():
            held[name] = scatter(ins, name, codes[name], {})
        return held

    @cached_property
    def options(self) -> dict[str, Any]:
        """The arguments that `execute` takes by name: selector, scale_a, scale_b, shared."""
        wgmma, sparse, _ = traits(self.ins)
        out: dict[str, Any] = {x: y for x, y in self.words.items() if x.startswith("scale")}
        out |= {"selector": self.selector} if sparse else {}
        return out | ({"shared": self._tile[1]} if wgmma else {})

    def run(self, target: str | Target, engine: Engine = "auto") -> Array:
        """The registers of D on `target`."""
        return execute(self.ins, *self.registers, target=target, engine=engine, **self.options)

    @cached_property
    def _tile(self) -> tuple[Array, Array]:
        """Descriptor and shared memory of a wgmma's B."""
        ins, b, fmt = self.ins, self.matrices["b"], format_of(self.ins, "b")
        if b.shape[-2:] != (ins.k, ins.n):
            raise OperandError(f"b must be (…, {ins.k}, {ins.n}); got {b.shape}")
        descriptor, size = Descriptor.for_tile(ins.n, ins.k, fmt, swizzle_bytes=0)
        shared = np.zeros((*b.shape[:-2], size), np.uint8)
        store_tile(shared, descriptor, np.swapaxes(b, -1, -2), fmt)
        return np.asarray(descriptor.encode()), shared

    def __repr__(self) -> str:
        lines = [f"Inputs of {self.ins}"]
        lines += [f"  {name} {_described(self, name)}" for name in self.matrices]
        return "\n".join(lines)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """For Hypothesis and IPython, which would write out all arrays."""
        printer.text(repr(self))


def _described(x: Inputs, name: str) -> str:
    """Format, shape, and the elements that are not as most are."""
    codes, fmt = x.matrices[name], format_of(x.ins, name)
    values, counts = np.unique(codes, return_counts=True)
    usual = values[np.argmax(counts)]
    others = [tuple(int(i) for i in index) for index in np.argwhere(codes != usual)]

    def number(code: Any) -> str:
        bits = f"{int(code):#0{2 + -(-fmt.bits // 4)}x}"
        return bits if fmt.kind == "bits" else f"{bits} = {decode_values(fmt, np.array([code]))[0]}"

    text = f"{fmt.name} {codes.shape}: {number(usual)}"
    if others:
        text += " but " + ", ".join(f"{list(i)} {number(codes[i])}" for i in others[:_SHOWN])
    return text + (f", … {len(others)} in all" if len(others) > _SHOWN else "")
