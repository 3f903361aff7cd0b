"""``Inputs``: the operands of one multiplication as matrices, and as what `execute` takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dtypes import FORMATS, Array, Format, code_type, codes_from_array, decode_values
from emulator.arith import Engine
from emulator.errors import OperandError, listing, quoted
from emulator.isa.instruction import Instruction, as_instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.wmma import WmmaMultiply
from emulator.layout.descriptor import Descriptor
from emulator.memory.descriptors import store_tile
from emulator.targets import Target
from emulator.warp.execute import execute
from emulator.warp.sparse import check_selector, metadata

Multiplication = MatrixInstruction | WmmaMultiply
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
        a: Any,
        b: Any,
        c: Any = None,
        *,
        selector: int = 0,
        **more: Any,
    ) -> Inputs:
        """From arrays of the operands' own types, or of codes (unsigned); `c` None: zeros.

        A sparse A may be whole, ``(…, m, k)``; a compressed one comes with `nibbles`. `more` are
        nibbles, scale_a and scale_b, as codes. Raises OperandError for arrays of another type.
        """
        ins = check_multiplies(ins)
        if c is None:
            c = np.zeros(operand_shapes(ins)["c"], code_type(format_of(ins, "c").bits))
        given = {"a": a, "b": b, "c": c} | more
        held = {name: _codes(format_of(ins, name), name, array) for name, array in given.items()}
        if kind_of(ins)[1] and "nibbles" not in held:
            assert isinstance(ins, MatrixInstruction)
            held["a"], held["nibbles"] = metadata(ins, held["a"])
        for name, shape in operand_shapes(ins).items():
            if name not in held or held[name].shape[-len(shape) :] != shape:
                got = held[name].shape if name in held else "nothing"
                want = ", ".join(map(str, shape))
                raise OperandError(f"{name} of {ins} is (…, {want}); got {got}")
        return cls(ins, held, selector)

    @cached_property
    def registers(self) -> tuple[Any, ...]:
        """The operands of `execute` in order: a, b, c, or a, descriptor of b, d; then e."""
        return tuple(self.words[name] for name in self.words if not name.startswith("scale"))

    @cached_property
    def words(self) -> dict[str, Any]:
        """Registers by operand: a, b, c or d, e ``(…, lanes)``, scale_a and scale_b."""
        ins, matrices = self.ins, self.matrices
        wgmma, sparse, scaled = kind_of(ins)
        held = {"a": ins.fragment("a").scatter(matrices["a"])}
        held["b"] = self._tile[0] if wgmma else ins.fragment("b").scatter(matrices["b"])
        held["d" if wgmma else "c"] = ins.fragment("c").scatter(matrices["c"])
        if sparse:
            assert isinstance(ins, MatrixInstruction)
            chosen = check_selector(ins, self.selector)
            held["e"] = self._one_word("e", matrices["nibbles"], chosen)
        for name in ("scale_a", "scale_b") if scaled else ():
            held[name] = self._one_word(name, matrices[name], 0)
        return held

    @cached_property
    def options(self) -> dict[str, Any]:
        """What `execute` takes by name: selector, scale_a, scale_b, shared."""
        wgmma, sparse, _ = kind_of(self.ins)
        out = {name: words for name, words in self.words.items() if name.startswith("scale")}
        if sparse:
            out["selector"] = self.selector
        if wgmma:
            out["shared"] = self._tile[1]
        return out

    def run(self, target: str | Target, engine: Engine = "auto") -> Array:
        """The registers of D on `target`."""
        return execute(self.ins, *self.registers, target=target, engine=engine, **self.options)

    @cached_property
    def _tile(self) -> tuple[Any, Array]:
        """Descriptor and shared memory of a wgmma's B."""
        ins, b = self.ins, self.matrices["b"]
        fmt = format_of(ins, "b")
        if b.shape[-2:] != (ins.k, ins.n):
            raise OperandError(f"b must be (…, {ins.k}, {ins.n}); got {b.shape}")
        descriptor, size = Descriptor.for_tile(ins.n, ins.k, fmt, swizzle_bytes=0)
        shared = np.zeros((*b.shape[:-2], size), np.uint8)
        store_tile(shared, descriptor, np.swapaxes(b, -1, -2), fmt)
        return descriptor.encode(), shared

    def _one_word(self, operand: str, codes: Array, group: int) -> Array:
        """Metadata or scales: those of the group that is read, zeros in the others."""
        fragment = self.ins.fragment(operand)
        if fragment.groups > 1:
            whole = np.zeros((*codes.shape[:-2], *fragment.lane_map.shape), codes.dtype)
            whole[..., group, :, :] = codes
            codes = whole
        words: Array = fragment.scatter(codes)[..., 0]
        return words

    def __repr__(self) -> str:
        lines = [f"Inputs of {self.ins}"]
        lines += [f"  {name} {_described(self, name)}" for name in self.matrices]
        return "\n".join(lines)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """For Hypothesis and IPython, which would write out all arrays."""
        printer.text(repr(self))


def check_multiplies(ins: object) -> Multiplication:
    """`ins`, or what an opcode names; OperandError where it does not multiply."""
    ins = as_instruction(ins, "an Instruction that multiplies")
    if not isinstance(ins, MatrixInstruction | WmmaMultiply):
        raise OperandError(
            f"an Instruction that multiplies is needed: mma, mma.sp, wgmma or wmma.mma; "
            f"got {quoted(str(ins))}"
        )
    return ins


def kind_of(ins: Multiplication) -> tuple[bool, bool, bool]:
    """Whether it is a wgmma, sparse, block-scaled."""
    if isinstance(ins, WmmaMultiply):
        return False, False, False
    return ins.is_wgmma, ins.is_sparse, ins.is_block_scaled


def operand_shapes(ins: Multiplication) -> dict[str, tuple[int, ...]]:
    """Shapes of the matrices of `Inputs`, by operand."""
    wgmma, sparse, scaled = kind_of(ins)
    out: dict[str, tuple[int, ...]] = {}
    for name in "abc":
        if wgmma and name == "b":
            out[name] = (ins.k, ins.n)
        else:
            fragment = ins.fragment(name)
            out[name] = fragment.lane_map.shape if fragment.groups > 1 else fragment.shape
    if sparse:
        assert isinstance(ins, MatrixInstruction)
        out["nibbles"] = (ins.m, ins.k // ins.chunk)
    for name in ("scale_a", "scale_b") if scaled else ():
        out[name] = ins.fragment(name).shape
    return out


def format_of(ins: Multiplication, operand: str) -> Format:
    """The format of an operand's elements; raises OperandError for one that `ins` lacks."""
    if operand not in (known := operand_shapes(ins)):
        raise OperandError(f"{ins} has no operand {operand!r:.80}; it has {listing(known)}")
    if operand == "nibbles":
        return FORMATS["u4"]
    return FORMATS[ins.b_type] if operand == "b" else ins.fragment(operand).fmt


def _codes(fmt: Format, name: str, values: Any) -> Array:
    array = np.asarray(values)
    try:
        codes = array if array.dtype.kind == "u" else codes_from_array(fmt, array)
    except TypeError as error:
        raise OperandError(f"{name}: {error}; or give codes, unsigned integers") from None
    if codes.size and int(codes.max()) > fmt.code_mask:
        raise OperandError(f"{name}: {int(codes.max()):#x} is no code of {fmt.name}")
    return codes.astype(code_type(fmt.bits), copy=False)


def _described(x: Inputs, name: str) -> str:
    """Format, shape, and the elements that are not as most are."""
    codes, fmt = x.matrices[name], format_of(x.ins, name)
    values, counts = np.unique(codes, return_counts=True)
    usual = values[np.argmax(counts)]
    others = [tuple(int(i) for i in index) for index in np.argwhere(codes != usual)]
    text = f"{fmt.name} {codes.shape}: {_number(fmt, usual)}"
    if others:
        text += " but " + ", ".join(f"{list(i)} {_number(fmt, codes[i])}" for i in others[:_SHOWN])
    return text + (f", … {len(others)} in all" if len(others) > _SHOWN else "")


def _number(fmt: Format, code: Any) -> str:
    bits = f"{int(code):#0{2 + -(-fmt.bits // 4)}x}"
    return bits if fmt.kind == "bits" else f"{bits} = {decode_values(fmt, np.array([code]))[0]}"
