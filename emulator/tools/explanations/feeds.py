"""Inputs of one element of D: the codes that meet, their places, and the reference's record.

`from_matrices` and `from_registers` first compute D as ``mma`` and ``execute`` do, which checks all
operands; the trace must then end in the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from dtypes import FORMATS, Array, Format, code_type, codes_from_array
from emulator.arith import matmul, reference
from emulator.arith.recipes import Arithmetic
from emulator.arith.trace import Record
from emulator.arrays import as_array
from emulator.errors import OperandError, shown, whole
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.recipe import Recipe
from emulator.isa.tensor_matrix import TensorMatrixInstruction
from emulator.isa.wmma import WmmaMultiply
from emulator.layout.descriptor import Descriptor, as_words
from emulator.layout.fragment import Fragment
from emulator.layout.tensor_memory import Places
from emulator.layout.tile import TileShape
from emulator.matrices.mma import mma
from emulator.matrices.operands import operand_codes
from emulator.targets import Target, find_target
from emulator.tools.descriptors.tiles import read_tile
from emulator.tools.explanations.numbers import ShownCode
from emulator.tools.operands import Multiplication, as_codes, gather, group_of, load_matrix, traits
from emulator.warp.execute import execute
from emulator.warp.sparse import metadata, picked_rows, select, stored_columns


class Held(NamedTuple):
    """Place of an element, in words and as numbers."""

    text: str
    data: dict[str, int | str]


#: A, B and C as callers give them
Given = tuple[object, object, object]
#: (row, col) of an element to where it is held
Where = Callable[[int, int], Held]


class FedElement(NamedTuple):
    """One element; `held` is None where nothing says it (B of wgmma given as a matrix)."""

    code: ShownCode
    held: Held | None

    @property
    def place(self) -> str:
        return self.held.text if self.held else "-"

    @property
    def data(self) -> dict[str, object]:
        return self.code.data | {"place": self.held.data if self.held else None}


class Asked(NamedTuple):
    """The element of D that is asked for, and the way in which it is computed."""

    row: int
    col: int
    target: str | Target | Recipe
    #: of m8n8k4.f16
    computation: int = 0
    batch: int | tuple[int, ...] = ()


@dataclass(frozen=True)
class Feed:
    """One element of D with all that went into it."""

    ins: Multiplication
    target: Target | Recipe
    arithmetic: Arithmetic
    row: int
    col: int
    #: column of A and row of B of each product; two half words for a tf32 nibble that mixes them
    k: tuple[int | str, ...]
    a: tuple[FedElement, ...]
    b: tuple[FedElement, ...]
    c: FedElement
    d: FedElement
    scale_a: tuple[FedElement, ...]
    scale_b: tuple[FedElement, ...]
    #: nibbles of the row, chunk by chunk
    metadata: tuple[FedElement, ...]
    #: what else acts on the operands
    notes: tuple[str, ...]
    records: tuple[Record, ...]


@dataclass(frozen=True)
class _Matrices:
    """The operands of one multiplication as matrices of codes, and where their elements are."""

    codes: Mapping[str, Array]
    where: Mapping[str, Where]
    #: sign bits to flip in what A and B meet as
    flip: tuple[int, int] = (0, 0)
    notes: list[str] = field(default_factory=list)


def from_matrices(
    ins: Multiplication, operands: Given, asked: Asked, codes: bool = False, **more: object
) -> Feed:
    """The feed of one element of ``mma(ins, a, b, c, …)``; raises what ``mma`` raises.

    `more` are scale_a, scale_b and nibbles, as codes or None.
    """
    d, matrices = computed(ins, operands, asked.target, codes, more)
    _check_computation(ins, asked.computation)
    if isinstance(ins, MatrixInstruction) and ins.is_sparse and "e" not in matrices:
        matrices["a"], matrices["e"] = metadata(ins, matrices["a"])
    if isinstance(ins, TensorMatrixInstruction):
        return _feed(ins, _in_tensor_memory(ins, matrices | {"d": d}), asked)
    names = (*ins.fragments, "c") if traits(ins).wgmma else tuple(ins.fragments)
    # Matrices say nothing of a selector or of scale ids: the first choice is shown.
    where = {
        name: _in_registers(ins.fragment(name), asked.computation if name in "abcd" else 0)
        for name in names
    }
    return _feed(ins, _Matrices(matrices | {"d": d}, where), asked)


def computed(
    ins: Multiplication,
    operands: Given,
    target: str | Target | Recipe,
    codes: bool,
    more: Mapping[str, object],
) -> tuple[Array, dict[str, Array]]:
    """D and the operands as codes; `mma` says what is wrong with them."""
    given = {name: as_array(x, name) for name, x in more.items() if x is not None}
    arithmetic = ins.arithmetic(target)
    formats = {"a": arithmetic.a, "b": arithmetic.b, "c": arithmetic.c}

    def read(name: str, values: object) -> Array:
        if values is None:
            return np.zeros((ins.m, ins.n), code_type(formats["c"].bits))
        if codes:
            return as_array(values, name.upper())
        return as_codes(name.upper(), formats[name], values)

    if isinstance(ins, WmmaMultiply):
        if given:
            raise OperandError(f"{ins} takes no {'=, '.join(given)}=")
        matrices = {name: read(name, x) for name, x in zip("abc", operands, strict=True)}
        a, b, c = (
            operand_codes(name.upper(), x, formats[name], ins.fragment(name).shape, True)
            for name, x in matrices.items()
        )
        return matmul(arithmetic, a, np.swapaxes(b, -1, -2), c), matrices
    d = mma(ins, *operands, target=target, codes=codes, **more)
    d = d if codes else codes_from_array(FORMATS[ins.d_type], d)
    matrices = {name: read(name, x) for name, x in zip("abc", operands, strict=True)}
    names = {"nibbles": "e"}
    return d, matrices | {names.get(name, name): x for name, x in given.items()}


def from_registers(
    ins: Multiplication, operands: tuple[object, ...], asked: Asked, options: dict[str, Any]
) -> Feed:
    """The feed of one element of ``execute(ins, *operands, …)``; raises what that raises."""
    _check_computation(ins, asked.computation)
    if isinstance(asked.target, Recipe):
        raise OperandError("registers are explained on a target; `explain` takes a recipe")
    d = execute(ins, *operands, target=asked.target, **options)
    words = dict(zip(("a", "b", "c", "e"), operands, strict=False))
    words |= {name: options[name] for name in ("scale_a", "scale_b") if name in options}
    codes, where, group = {}, {}, asked.computation
    for name, held in (words | {"d": d}).items():
        if not (traits(ins).wgmma and name in "abc"):
            codes[name] = gather(ins, name, np.asarray(held), options)
            own = group_of(ins, name, options) if name not in "abcd" else group
            where[name] = _in_registers(ins.fragment(name), own)
    if ins.fragment("a").groups > 1:
        codes = {name: x[..., group, :, :] for name, x in codes.items()}
    given = _Matrices(codes, where)
    if isinstance(ins, MatrixInstruction) and ins.is_wgmma:
        given = _with_memory(ins, given, words, options, asked.batch)
    return _feed(ins, given, asked)


def _with_memory(
    ins: MatrixInstruction,
    given: _Matrices,
    operands: Mapping[str, object],
    options: dict[str, Any],
    batch: int | tuple[int, ...],
) -> _Matrices:
    """With A, B and C of a wgmma that `execute` has taken."""
    memory, fmt = options["shared"], ins.fragment("a").fmt
    codes, where, notes = dict(given.codes), dict(given.where), list(given.notes)
    shape = codes["d"].shape[:-2]
    index = _batch_index(batch, shape)
    keep = np.asarray(options.get("scale_d", True)).astype(bool)
    c = ins.fragment("d").gather(np.asarray(operands["c"]))
    codes["c"], where["c"] = np.where(keep[..., None, None], c, c.dtype.type(0)), where["d"]
    if not np.broadcast_to(keep, shape)[index]:
        notes.append("scale-d is 0: the accumulator is not read, C counts as +0")
    flip = []
    for name in "ab":
        words = np.asarray(as_words(operands[name]))
        if words.dtype == np.uint64:
            codes[name] = load_matrix(ins, name, memory, words, options)
            word = int(np.broadcast_to(words, shape)[index])
            tile = read_tile(ins, name, "mn" if options.get(f"imm_trans_{name}", 0) else "k")
            bits = FORMATS[tile.type].bits
            where[name] = _in_memory(Descriptor.decode(word), tile.shape, bits, name == "b")
            notes.append(f"{name.upper()} is in shared memory, descriptor {word:#018x}")
        else:
            codes[name] = ins.fragment(name).gather(words)
            where[name] = _in_registers(ins.fragment(name))
    for name in "ab":
        negated = options.get(f"imm_scale_{name}", 1) == -1
        flip.append(fmt.sign_mask if negated else 0)
        if negated:
            notes.append(f"imm-scale-{name} is -1: {name.upper()} is negated; shown after that")
    return replace(given, codes=codes, where=where, flip=(flip[0], flip[1]), notes=notes)


# --- where elements are held ----------------------------------------------------------------------


def _in_registers(fragment: Fragment, group: int = 0) -> Where:
    """Places of elements in registers; an operand of one matrix has one group."""
    group = group if fragment.groups > 1 else 0
    numbered = fragment.registers > 1 or fragment.operand in "abcd"

    def where(row: int, col: int) -> Held:
        lane, register, low, bits = fragment.lane(row, col, group)
        text = f"lane {lane} {fragment.operand}{register if numbered else ''}"
        if bits != fragment.word_bits:
            text += f"[{low + bits - 1}:{low}]" if bits > 1 else f"[{low}]"
        numbers = {"lane": lane, "register": register, "low_bit": low, "bits": bits}
        return Held(text, {"operand": fragment.operand, **numbers})

    return where


def _in_tensor_memory(ins: TensorMatrixInstruction, codes: dict[str, Array]) -> _Matrices:
    """Places of the operands of a tcgen05.mma in tensor memory, from the first column on; A and B
    are said to be in shared memory, where a descriptor that nobody gave has them."""
    layout, notes = ins.layout, []
    where = {"c": _at(layout.d), "d": _at(layout.d)}
    if ins.is_sparse:
        where["e"] = _at(layout.metadata, (0,))
    if ins.is_block_scaled:
        where["scale_a"] = _at(layout.scale_a, (0,))
        where["scale_b"] = _at(layout.scale_b, (0, 0), transposed=True)
    masks = [FORMATS[x].sign_mask for x in (ins.a_type, ins.b_type)]
    flip = [mask if on else 0 for mask, on in zip(masks, ins.negated, strict=True)]
    for name, on in zip("AB", ins.negated, strict=True):
        if on:
            notes.append(f"the descriptor negates {name}: shown after that")
    notes.append("lanes and columns are those of tensor memory, from the address of each operand")
    return _Matrices(codes, where, (flip[0], flip[1]), notes)


def _at(places: Places, copy: tuple[int, ...] = (), transposed: bool = False) -> Where:
    """`copy` is the index of the copy of what lies there several times."""

    def where(row: int, col: int) -> Held:
        index = (*copy, *((col, row) if transposed else (row, col)))
        cta, lane, column, bit = (int(x[index]) for x in places)
        if lane < 0:  # of columns that other quarters hold
            index = (copy[0], 3, *index[2:])
            cta, lane, column, bit = (int(x[index]) for x in places)
        text = f"lane {lane} column {column}" + (f" bit {bit}" if bit else "")
        text += f" of CTA {cta}" if cta else ""
        return Held(text, {"cta": cta, "lane": lane, "column": column, "low_bit": bit})

    return where


def _in_memory(descriptor: Descriptor, tile: TileShape, bits: int, transposed: bool) -> Where:
    """`transposed`: asked for as (k, column) of B."""
    places, per_byte = descriptor.addresses(tile), 8 // bits if bits < 8 else 1
    count = tile.element_bytes

    def where(row: int, col: int) -> Held:
        line, k = (col, row) if transposed else (row, col)
        first, low = int(places[line, k // per_byte]), k % per_byte * bits
        last = f"-{first + count - 1}" if count > 1 else f" bit {low}" if per_byte > 1 else ""
        data: dict[str, int | str] = {"byte": first, "bytes": count, "low_bit": low}
        return Held(f"byte{'s' if count > 1 else ''} {first}{last}", data)

    return where


# --- one element ----------------------------------------------------------------------------------


def _feed(ins: Multiplication, given: _Matrices, asked: Asked) -> Feed:
    target, shape = asked.target, given.codes["d"].shape[:-2]
    target = target if isinstance(target, Recipe) else find_target(target)
    row, col = whole("row", asked.row, 0, ins.m - 1), whole("col", asked.col, 0, ins.n - 1)
    arithmetic = ins.arithmetic(target)
    index = _batch_index(asked.batch, shape)
    own = {
        name: np.broadcast_to(x, (*shape, *x.shape[-2:]))[index] for name, x in given.codes.items()
    }

    def element(name: str, fmt: Format, code: int, i: int, j: int) -> FedElement:
        where = given.where.get(name)
        return FedElement(ShownCode(fmt, int(code)), where(i, j) if where else None)

    met, ks = own["b"][:, col], list(range(ins.k))
    labels: tuple[int | str, ...] = tuple(ks)
    nibbles: tuple[FedElement, ...] = ()
    if "e" in own:
        assert isinstance(ins, MatrixInstruction)
        met = select(ins, own["e"], np.ascontiguousarray(own["b"][:, col : col + 1]))[row, 0]
        ks, labels = _selected(ins, own["e"], row)
        nibbles = tuple(element("e", FORMATS["u4"], x, row, i) for i, x in enumerate(own["e"][row]))
    a, met = (
        x ^ x.dtype.type(bit) for x, bit in zip((own["a"][row], met), given.flip, strict=True)
    )
    scales: list[tuple[FedElement, ...]] = [(), ()]
    if (fmt := arithmetic.scale) is not None:
        of_a, of_b = own["scale_a"][row], own["scale_b"][:, col]
        scales[0] = tuple(element("scale_a", fmt, x, row, i) for i, x in enumerate(of_a))
        scales[1] = tuple(element("scale_b", fmt, x, i, col) for i, x in enumerate(of_b))
    c, d = (int(own[name][row, col]) for name in "cd")
    records: list[Record] = []
    scale_a, scale_b = ([x.code.code for x in side] for side in scales)
    code = reference.dot_one(
        arithmetic, a.tolist(), met.tolist(), scale_a, scale_b, c, records.append
    )
    assert code == d, f"the trace of {ins} on {target.name} ends in {code:#x}, D holds {d:#x}"
    fed = (
        tuple(element("a", arithmetic.a, x, row, i) for i, x in enumerate(a)),
        tuple(element("b", arithmetic.b, x, k, col) for k, x in zip(ks, met, strict=True)),
        element("c", arithmetic.c, c, row, col),
        element("d", arithmetic.d, d, row, col),
    )
    (one, other), notes, steps = scales, tuple(given.notes), tuple(records)
    return Feed(ins, target, arithmetic, row, col, labels, *fed, one, other, nibbles, notes, steps)


def _selected(
    ins: MatrixInstruction, nibbles: Array, row: int
) -> tuple[list[int], tuple[int | str, ...]]:
    """The row of B that each stored element of A meets, and what to call it."""
    if ins.chunk != 2:
        found = stored_columns(ins, nibbles)[row].tolist()
        return found, tuple(found)
    # Of tf32 both halves of a word: they tell whether a nibble picked a whole one.
    halves = picked_rows(ins, nibbles)[row].reshape(-1, 2).tolist()
    labels = tuple(
        low // 2 if low % 2 == 0 and high == low + 1 else f"halves {low}, {high}"
        for low, high in halves
    )
    return [low // 2 for low, _ in halves], labels


def _check_computation(ins: Multiplication, computation: object) -> None:
    """Only m8n8k4.f16 has several."""
    groups = 1 if isinstance(ins, TensorMatrixInstruction) else ins.fragment("d").groups
    if groups == 1 and not (isinstance(computation, int) and computation == 0):
        raise OperandError(
            f"computation is that of m8n8k4.f16, whose warp has 4; {ins} has one: leave it out; "
            f"got {shown(computation)}"
        )
    whole("computation", computation, 0, groups - 1)


def _batch_index(batch: int | tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    index = batch if isinstance(batch, tuple) else (batch,)
    if not shape and index:
        raise OperandError(f"the operands have no batch axes; got batch={shown(batch)}")
    if len(index) != len(shape):
        raise OperandError(
            f"the operands have batch axes {shape}: choose one, such as "
            f"batch={tuple(0 for _ in shape)} (in a shell --batch {','.join('0' * len(shape))}); "
            f"got {shown(batch)}"
        )
    return tuple(
        whole("an index of batch=", i, 0, size - 1) for i, size in zip(index, shape, strict=True)
    )
