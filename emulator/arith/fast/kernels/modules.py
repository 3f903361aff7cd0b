"""LLVM modules of kernels: a loop over a batch of products, and a single product."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from llvmlite import ir

from emulator.arith.fast.emitter import Emitter
from emulator.arith.fast.kernels.product import OPERANDS, Product
from emulator.arith.fast.kernels.tile import Tile
from emulator.arith.fast.kernels.transfer import Known, Runs, table_sizes
from emulator.arith.fast.words import LONG, POINTER, WORD, Value, Word

#: prefetch distance in products: of one warp, and of a warpgroup
_AHEAD = {False: 4, True: 1}
#: words of an operand among the arguments of a batch: see `batch_module`
OPERAND_WORDS = 4


def batch_module(product: Product, runs: Runs, known: Known) -> str:
    """LLVM IR with ``int32 batch(const int64 *arguments, int64 first, int64 last)``.

    It computes the products `first` … `last` of a batch and returns what flags any of them has.
    The arguments are, for each operand of `OPERANDS`: its address; where it lies for each of the
    batch, in bytes from there; its tables, one after the other; and for each of the batch, where
    its table starts: the last three are addresses of int64. Then come the bits to flip in units of
    A and of B, and the address of one int64 for each of the batch, 0 where C is not read. `known`:
    places of operands in registers, see `known_words`, and of metadata.
    """
    out = ir.Module("kernel")
    tile = Tile(out, product, runs, known).write()
    function = ir.Function(out, ir.FunctionType(WORD, [POINTER, LONG, LONG]), "batch")
    b = ir.IRBuilder(function.append_basic_block("entry"))
    e = Emitter(out, b)
    arguments, *limits = function.args
    first, last = (Word(e, x, np.int64) for x in limits)
    words = [e.load(arguments, i, np.int64) for i in range(OPERAND_WORDS * len(OPERANDS) + 3)]
    flags = e.room(np.uint32, 1)
    e.store(e.constant(0, np.uint32, 0), flags, 0)
    pointers = [b.inttoptr(word.value, POINTER) for word in words]
    operands = {
        name: tuple(pointers[OPERAND_WORDS * i :][:OPERAND_WORDS])
        for i, name in enumerate(OPERANDS)
    }
    counts = _entries(product, runs)
    flips = [word.astype(np.uint32).value for word in words[-3:-1]]

    def base_of(name: str, t: Word) -> Value:
        base, bases, _, _ = operands[name]
        return e.at(base, e.load(bases, t, np.int64), np.uint8)

    def table_of(name: str, t: Word, group: int = 0) -> Value:
        _, _, tables, starts = operands[name]
        return e.at(tables, e.load(starts, t, np.int64) + group * counts[name], np.int64)

    with e.rounding(product.arithmetic.rounding), e.loop(last, first) as t:
        later = (t + _AHEAD[product.is_wide]).minimum(last - 1)
        for name in OPERANDS:
            if product.is_wide and name not in ("a", "b"):
                continue  # C and D of a warpgroup are too much at once
            if name in known and name != "e":
                size = len(known[name]) * product.unit_bits(name) // 8
                e.prefetch(base_of(name, later), size, name == "d")
            elif product.is_wide:
                base, table = base_of(name, later), table_of(name, later)
                for i in e.unrolled(counts[name]):
                    e.prefetch(e.at(base, e.load(table, i, np.int64), np.uint8), 1, False)
        for group in range(product.groups):
            given: list[Value] = []
            for name, (base, _, tables, _) in operands.items():
                if name in counts:
                    given += [base_of(name, t), table_of(name, t, group)]
                else:
                    is_metadata = name == "e" and product.sparsity
                    given += [base_of(name, t) if is_metadata else base, tables]
            keep = e.load(pointers[-1], t, np.int64)
            found = Word(e, b.call(tile, [*given, *flips, keep.value]))
            e.store(e.load(flags, 0, np.uint32) | found, flags, 0)
    b.ret(e.load(flags, 0, np.uint32).value)
    return str(out)


def warp_module(product: Product, tables: Known) -> str:
    """LLVM IR with ``int32 warp(const void *registers, void *d)``: one product, with tables of its
    own, whose places are bytes (of metadata, bits) from `registers` on, or from `d`."""
    out, runs = ir.Module("kernel"), (1,) * len(OPERANDS)
    known = {name: x for name, x in tables.items() if product.groups == 1 and len(name) == 1}
    kernel = Tile(out, product, runs, known)
    tile = kernel.write()
    function = ir.Function(out, ir.FunctionType(WORD, [POINTER, POINTER]), "warp")
    b = ir.IRBuilder(function.append_basic_block("entry"))
    e = Emitter(out, b)
    registers, d = function.args
    flags: Value = WORD(0)
    counts = _entries(product, runs)
    for group in range(product.groups):
        given: list[Value] = []
        for name in OPERANDS:
            places = list(tables.get(name, ()))[group * counts.get(name, 0) :][: counts.get(name)]
            if name in kernel.words:
                places = [0]  # where the only block starts
            held = _constants(out, f"{name}{group}", places)
            given += [d if name == "d" else registers, held]
        with e.rounding(product.arithmetic.rounding):
            found = b.call(tile, [*given, WORD(0), WORD(0), LONG(1)])
        flags = b.or_(flags, found)
    b.ret(flags)
    return str(out)


def _constants(module: ir.Module, name: str, numbers: Sequence[int]) -> Value:
    """The address of numbers of int64."""
    type_ = ir.ArrayType(LONG, len(numbers))
    held = ir.GlobalVariable(module, type_, name)
    held.initializer, held.global_constant = ir.Constant(type_, list(numbers)), True
    held.linkage, held.type = "internal", POINTER
    return held


def _entries(product: Product, runs: Runs) -> dict[str, int]:
    """Places in the table of each operand that a product has."""
    by_name = dict(zip(OPERANDS, runs, strict=True))
    return {name: size // by_name[name] for name, size in table_sizes(product).items()}
