"""What feeds one element of D: the codes that meet, where each is held, and what `reference` did.

`from_matrices` and `from_registers` first compute D as ``mma`` and ``execute`` do, which checks all
operands; the trace must then end in the same code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dtypes import FORMATS, Array, Format, code_type, codes_from_array
from emulator.arith import reference
from emulator.arith.recipes import Arithmetic
from emulator.arith.trace import Record
from emulator.errors import OperandError, quoted
from emulator.isa.instruction import Instruction, as_instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.wmma import WmmaMultiply
from emulator.layout.descriptor import Descriptor, as_words
from emulator.layout.tile import TileShape
from emulator.matrices.mma import mma
from emulator.memory.descriptors import load_tile
from emulator.targets import Target, find_target
from emulator.tools.explanations.places import Place, Where, in_memory, in_registers
from emulator.warp.call import Undefined
from emulator.warp.execute import execute
from emulator.warp.scales import gather_scales
from emulator.warp.sparse import gather_metadata, metadata, select

Multiply = MatrixInstruction | WmmaMultiply


class Element(NamedTuple):
    """One element; `place` is None where nothing says it (B of wgmma given as a matrix)."""

    fmt: Format
    code: int
    place: Place | None


@dataclass(frozen=True)
class Feed:
    """One element of D with all that went into it."""

    ins: Multiply
    target: Target
    arithmetic: Arithmetic
    row: int
    col: int
    #: column of A and row of B of each product; two half words for a tf32 nibble that mixes them
    k: tuple[int | str, ...]
    a: tuple[Element, ...]
    b: tuple[Element, ...]
    c: Element
    d: Element
    scale_a: tuple[Element, ...]
    scale_b: tuple[Element, ...]
    #: nibbles of the row, chunk by chunk
    metadata: tuple[Element, ...]
    #: what else acts on the operands
    notes: tuple[str, ...]
    records: tuple[Record, ...]


class _Matrices(NamedTuple):
    """The operands of one multiplication as matrices of codes, and where their elements are."""

    a: Array
    b: Array
    c: Array
    d: Array
    where: dict[str, Where]
    nibbles: Array | None = None
    scales: tuple[Array, Array] | None = None
    #: sign bits to flip in what A and B meet as
    flip: tuple[int, int] = (0, 0)
    notes: tuple[str, ...] = ()


def multiplying(ins: object) -> Multiply:
    """`ins`, or what an opcode names; OperandError where it does not multiply matrices."""
    ins = as_instruction(ins, "an instruction that multiplies")
    if isinstance(ins, (MatrixInstruction, WmmaMultiply)):
        return ins
    kind = "an instruction that multiplies, mma, mma.sp, wgmma or wmma.mma,"
    raise OperandError(f"{kind} is needed; got {quoted(str(ins))}")


def from_matrices(
    ins: Instruction | str,
    a: Any,
    b: Any,
    c: Any = None,
    *,
    row: int,
    col: int,
    target: str | Target,
    codes: bool = False,
    scale_a: Any = None,
    scale_b: Any = None,
    nibbles: Any = None,
    computation: int = 0,
    batch: int | tuple[int, ...] = (),
) -> Feed:
    """The feed of D[row][col] of ``mma(ins, a, b, c, …)``; raises what ``mma`` raises."""
    ins = multiplying(ins)
    arithmetic = ins.arithmetic(target)
    d, (a, b, c) = computed(ins, (a, b, c), target, codes, scale_a, scale_b, nibbles)
    scales = None
    if isinstance(ins, MatrixInstruction) and ins.is_sparse and nibbles is None:
        a, nibbles = metadata(ins, a)
    if scale_a is not None:
        v = arithmetic.scale
        assert v is not None
        scales = (np.asarray(scale_a), np.asarray(scale_b))
    fragments = {name: ins.fragment(name) for name in _register_operands(ins)}
    _check_computation(ins, computation)
    # Matrices say nothing of a selector or of scale ids: the first choice is shown.
    where = {
        name: in_registers(x, computation if name in "abcd" else 0) for name, x in fragments.items()
    }
    given = _Matrices(a, b, c, d, where, None if nibbles is None else np.asarray(nibbles), scales)
    return _feed(ins, find_target(target), given, row, col, batch)


def computed(
    ins: Multiply,
    operands: tuple[Any, Any, Any],
    target: str | Target,
    codes: bool,
    scale_a: Any,
    scale_b: Any,
    nibbles: Any,
) -> tuple[Array, tuple[Array, Array, Array]]:
    """D and the operands as codes; `mma` says what is wrong with them."""
    arithmetic = ins.arithmetic(target)
    formats = (arithmetic.a, arithmetic.b, arithmetic.c)
    if isinstance(ins, WmmaMultiply):
        if not (scale_a is scale_b is nibbles is None):
            raise OperandError(f"{ins} takes no scale_a=, scale_b=, nibbles=")
        read = [
            _codes(ins, name, fmt, x, codes)
            for name, fmt, x in zip("abc", formats, operands, strict=True)
        ]
        registers = [ins.fragment(x).scatter(y) for x, y in zip("abc", read, strict=True)]
        d = ins.fragment("d").gather(execute(ins, *registers, target=target))
        return d, (read[0], read[1], read[2])
    more = {"scale_a": scale_a, "scale_b": scale_b, "nibbles": nibbles}
    d = mma(ins, *operands, target=target, codes=codes, **more)
    d = d if codes else codes_from_array(arithmetic.d, d)
    a, b, c = (
        _codes(ins, name, fmt, x, codes)
        for name, fmt, x in zip("abc", formats, operands, strict=True)
    )
    return d, (a, b, c)


def _codes(ins: Multiply, name: str, fmt: Format, values: Any, codes: bool) -> Array:
    if values is None:
        return np.zeros(ins.fragment("d").shape, code_type(fmt.bits))
    if codes:
        return np.asarray(values)
    try:
        return codes_from_array(fmt, np.asarray(values))
    except TypeError as error:
        raise OperandError(f"{name.upper()}: {error}") from None


def from_registers(
    ins: Instruction | str,
    *operands: Any,
    row: int,
    col: int,
    target: str | Target,
    undefined: Undefined = "raise",
    computation: int = 0,
    batch: int | tuple[int, ...] = (),
    **options: Any,
) -> Feed:
    """The feed of D[row][col] of ``execute(ins, *operands, …)``; raises what ``execute`` raises."""
    ins = multiplying(ins)
    _check_computation(ins, computation)
    chosen = find_target(target)
    d = execute(ins, *operands, target=chosen, undefined=undefined, **options)
    d = ins.fragment("d").gather(d)
    if isinstance(ins, MatrixInstruction) and ins.is_wgmma:
        given = _wgmma(ins, operands, options, d, batch)
    else:
        fragments = [ins.fragment(x) for x in "abc"]
        matrices = [f.gather(x) for f, x in zip(fragments, operands, strict=False)]
        if fragments[0].groups > 1:
            *matrices, d = (x[..., computation, :, :] for x in (*matrices, d))
        where = {name: in_registers(ins.fragment(name), computation) for name in "abcd"}
        a, b, c = matrices
        given = _Matrices(a, b, c, d, where)
    if isinstance(ins, MatrixInstruction) and ins.is_sparse:
        selector = options.get("selector", 0)
        nibbles = gather_metadata(ins, np.asarray(operands[3]), selector)
        where = given.where | {"e": in_registers(ins.fragment("e"), selector)}
        given = given._replace(nibbles=nibbles, where=where)
    if isinstance(ins, MatrixInstruction) and ins.is_block_scaled:
        given = _with_scales(ins, given, options)
    return _feed(ins, chosen, given, row, col, batch)


def _with_scales(ins: MatrixInstruction, given: _Matrices, options: dict[str, Any]) -> _Matrices:
    scales, where = [], dict(given.where)
    for name in ("scale_a", "scale_b"):
        ids = [int(options.get(f"{x}_id_{name[-1]}", 0)) for x in ("byte", "thread")]
        scales.append(gather_scales(ins, name, options[name], *ids))
        choices = [list(x).index(i) for x, i in zip(ins.legal_ids(name), ids, strict=True)]
        group = choices[0] * len(ins.legal_ids(name)[1]) + choices[1]
        where[name] = in_registers(ins.fragment(name), group)
    return given._replace(scales=(scales[0], scales[1]), where=where)


def _wgmma(
    ins: MatrixInstruction,
    operands: tuple[Any, ...],
    options: dict[str, Any],
    d: Array,
    batch: int | tuple[int, ...],
) -> _Matrices:
    """The operands of a wgmma that `execute` has taken."""
    memory, fmt = options["shared"], ins.fragment("a").fmt
    shape = d.shape[:-2]
    index = _batch_index(batch, shape)
    c = ins.fragment("d").gather(np.asarray(operands[2]))
    keep = np.asarray(options.get("scale_d", True)).astype(bool)
    notes, held = [], in_registers(ins.fragment("d"))
    where = {"c": held, "d": held}
    if not np.broadcast_to(keep, shape)[index]:
        notes.append("scale-d is 0: the accumulator is not read, C counts as +0")
    c = np.where(keep[..., None, None], c, c.dtype.type(0))
    tiles = {}
    for name, rows, k, spot in (
        ("a", ins.m, ins.stored_k, ins.a_place),
        ("b", ins.n, ins.k, ins.b_place),
    ):
        words = np.asarray(as_words(operands["ab".index(name)]))
        if words.dtype == np.uint64:
            major = "mn" if options.get(f"imm_trans_{name}", 0) else "k"
            tiles[name] = load_tile(memory, words, rows, k, spot, major, name)
            tile = TileShape.of(rows, k, fmt if name == "a" else FORMATS[ins.b_type], major)
            word = int(np.broadcast_to(words, shape)[index])
            where[name] = in_memory(Descriptor.decode(word), tile, spot.width, name == "b")
            notes.append(f"{name.upper()} is in shared memory, descriptor {word:#018x}")
        else:
            tiles[name] = ins.fragment(name).gather(words)
            where[name] = in_registers(ins.fragment(name))
    flip = []
    for name in "ab":
        negated = options.get(f"imm_scale_{name}", 1) == -1
        flip.append(fmt.sign_mask if negated else 0)
        if negated:
            notes.append(f"imm-scale-{name} is -1: {name.upper()} is negated; shown after that")
    b = np.swapaxes(tiles["b"], -1, -2)
    return _Matrices(tiles["a"], b, c, d, where, flip=(flip[0], flip[1]), notes=tuple(notes))


# --- places ---------------------------------------------------------------------------------------


def _register_operands(ins: Multiply) -> Sequence[str]:
    names = tuple(ins.fragments)
    return (*names, "c") if isinstance(ins, MatrixInstruction) and ins.is_wgmma else names


# --- one element ----------------------------------------------------------------------------------


def _feed(
    ins: Multiply,
    target: Target,
    given: _Matrices,
    row: int,
    col: int,
    batch: int | tuple[int, ...],
) -> Feed:
    arithmetic, shape = ins.arithmetic(target), given.d.shape[:-2]
    _check("row", row, ins.m)
    _check("col", col, ins.n)
    index = _batch_index(batch, shape)

    def one(matrix: Array) -> Array:
        return np.broadcast_to(matrix, (*shape, *matrix.shape[-2:]))[index]

    def element(name: str, fmt: Format, code: Any, i: int, j: int) -> Element:
        where = given.where.get(name)
        return Element(fmt, int(code), where(i, j) if where else None)

    a, b = one(given.a)[row], one(given.b)
    met, ks = b[:, col], list(range(ins.k))
    labels: tuple[int | str, ...] = tuple(ks)
    nibbles: tuple[Element, ...] = ()
    if given.nibbles is not None:
        assert isinstance(ins, MatrixInstruction)
        own = one(given.nibbles)
        met = select(ins, own, np.ascontiguousarray(b[:, col : col + 1]))[row, 0]
        ks, labels = _selected(ins, own, row)
        nibbles = tuple(element("e", FORMATS["u4"], x, row, i) for i, x in enumerate(own[row]))
    a, met = (x ^ x.dtype.type(bit) for x, bit in zip((a, met), given.flip, strict=True))
    scales: list[tuple[Element, ...]] = [(), ()]
    if given.scales is not None and arithmetic.scale is not None:
        of_a, of_b = (one(x) for x in given.scales)
        fmt = arithmetic.scale
        scales[0] = tuple(element("scale_a", fmt, x, row, i) for i, x in enumerate(of_a[row]))
        scales[1] = tuple(element("scale_b", fmt, x, i, col) for i, x in enumerate(of_b[:, col]))
    c, d = (int(one(x)[row, col]) for x in (given.c, given.d))
    records: list[Record] = []
    scale_a, scale_b = ([x.code for x in elements] for elements in scales)
    code = reference.dot_one(
        arithmetic, a.tolist(), met.tolist(), scale_a, scale_b, c, records.append
    )
    assert code == d, f"the trace of {ins} on {target} ends in {code:#x}, D holds {d:#x}"
    return Feed(
        ins, target, arithmetic, int(row), int(col), labels,
        tuple(element("a", arithmetic.a, x, row, i) for i, x in enumerate(a)),
        tuple(element("b", arithmetic.b, x, k, col) for k, x in zip(ks, met, strict=True)),
        element("c", arithmetic.c, c, row, col),
        element("d", arithmetic.d, d, row, col),
        scales[0], scales[1], nibbles, given.notes, tuple(records),
    )  # fmt: skip


def _selected(
    ins: MatrixInstruction, nibbles: Array, row: int
) -> tuple[list[int], tuple[int | str, ...]]:
    """The row of B that each stored element of A meets, found by selecting from row numbers."""
    rows = np.arange(ins.k, dtype=np.uint16)[:, None]
    if ins.chunk != 2:
        found = [int(k) for k in select(ins, nibbles, rows)[row, 0]]
        return found, tuple(found)
    # The halves of every tf32 word are numbered: they tell whether a nibble picked a whole one.
    words = (rows.astype(np.uint32) * 2 | rows.astype(np.uint32) * 2 + 1 << 16).astype(np.uint32)
    halves = [(int(x) & 0xFFFF, int(x) >> 16) for x in select(ins, nibbles, words)[row, 0]]
    whole = [low % 2 == 0 and high == low + 1 for low, high in halves]
    labels = tuple(
        low // 2 if is_whole else f"halves {low}, {high}"
        for (low, high), is_whole in zip(halves, whole, strict=True)
    )
    return [low // 2 for low, _ in halves], labels


def _check_computation(ins: Multiply, computation: object) -> None:
    """Only m8n8k4.f16 has several."""
    groups = ins.fragment("d").groups
    if groups == 1 and computation != 0:
        raise OperandError(
            f"computation is that of m8n8k4.f16, whose warp has 4; {ins} has one: leave it out; "
            f"got {computation!r:.80}"
        )
    _check("computation", computation, groups)


def _check(what: str, index: object, size: int) -> None:
    if not isinstance(index, (int, np.integer)) or not 0 <= index < size:
        raise OperandError(f"{what} is 0 … {size - 1}; got {index!r:.80}")


def _batch_index(batch: int | tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    index = batch if isinstance(batch, tuple) else (batch,)
    if not shape and index:
        raise OperandError(f"the operands have no batch axes; got batch={batch!r:.80}")
    if len(index) != len(shape):
        raise OperandError(
            f"the operands have batch axes {shape}: choose one, such as "
            f"batch={tuple(0 for _ in shape)} (in a shell --batch {','.join('0' * len(shape))}); "
            f"got {batch!r:.80}"
        )
    for i, size in zip(index, shape, strict=True):
        _check("an index of batch=", i, size)
    return index
