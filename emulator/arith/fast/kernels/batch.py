"""Runs kernels on batches: compiles each once, and shares the batch among threads."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emulator.arith.fast.kernels import machine_code, modules
from emulator.arith.fast.kernels.product import OPERANDS, Product
from emulator.arith.fast.kernels.transfer import Runs
from emulator.arith.fast.threads import in_parts
from emulator.arrays import address_of

Int64 = NDArray[np.int64]
#: a function of machine code, of addresses and numbers, which returns flags
Native = Callable[..., int]

#: multiply-adds below which a second thread costs more than it brings, and as how many one of f64
#: counts, whose operands are longer
_WORTH_A_THREAD, _SLOWER_F64 = 1 << 20, 2


class OperandMemory(NamedTuple):
    """Memory with the places of an operand's elements; see `modules.batch_module`."""

    address: int
    #: bytes from there on, one for each of the batch
    bases: Int64
    #: places, one table after the other
    tables: Int64
    #: where the table of each of the batch starts
    starts: Int64
    #: units that lie one after the other from each place on: see `in_runs`
    run: int = 1
    #: int64 places of a block of registers, see `transfer.known_words`; tables say where blocks
    #: start
    known: bytes = b""


def in_runs(tables: Int64, size: int) -> tuple[Int64, int]:
    """Tables ``(…, units)`` of units of `size` bytes without the places that follow from those
    before them, and how many units each place stands for."""
    for run in (16, 8, 4, 2):
        if tables.shape[-1] % run == 0:
            each = tables.reshape(*tables.shape[:-1], -1, run)
            if (each - each[..., :1] == np.arange(run) * size).all():
                return np.ascontiguousarray(each[..., 0]), run
    return tables, 1


@lru_cache(maxsize=512)
def _compiled(product: Product, runs: Runs, known: tuple[tuple[str, bytes], ...]) -> Native:
    places = {name: np.frombuffer(x, np.int64).tolist() for name, x in known}
    arguments = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
    text = modules.batch_module(product, runs, places)
    return machine_code.function(text, "batch", ctypes.c_int32, *arguments)


@lru_cache(maxsize=512)
def of_warp(product: Product, tables: tuple[tuple[str, tuple[int, ...]], ...]) -> Native:
    """The function that `modules.warp_module` writes."""
    text = modules.warp_module(product, dict(tables))
    return machine_code.function(text, "warp", ctypes.c_int32, *[ctypes.c_void_p] * 2)


@lru_cache(maxsize=64)
def _ones(count: int) -> Int64:
    out = np.ones(count, np.int64)
    out.flags.writeable = False
    return out


class Prepared(NamedTuple):
    """A function of machine code with the words that it finds its operands by."""

    compute: Native
    #: four of each of OPERANDS, the first of which is an address, the flips, and the address of
    #: the marks of accumulators that are read
    words: Int64
    #: arrays that the words point to
    operands: Mapping[str, OperandMemory]

    def words_at(self, arrays: Mapping[str, NDArray[Any]]) -> Int64:
        """The words for operands that lie where these arrays do."""
        words = self.words.copy()
        for name, x in arrays.items():
            words[4 * OPERANDS.index(name)] = address_of(x)
        return words


def prepared(
    product: Product, operands: Mapping[str, OperandMemory], flips: tuple[int, int] = (0, 0)
) -> Prepared:
    """`flips` are bits to flip in units of A and of B."""
    runs = (operands[name].run if name in operands else 1 for name in OPERANDS)
    known = ((name, x.known) for name, x in operands.items() if x.known)
    compute = _compiled(product, tuple(runs), tuple(known))
    words: list[int] = []
    for name in OPERANDS:
        x = operands.get(name)
        words += [0] * 4 if x is None else [x.address, *map(address_of, x[1:4])]
    return Prepared(compute, np.array([*words, *flips, 0], np.int64), operands)


def run(
    product: Product, compute: Native, words: Int64, count: int, keep: Int64 | None = None
) -> int:
    """Computes `count` products into where operand d lies; the flags that any of them has.

    `compute` and `words` are those of `Prepared`; `keep` is 0 for each of the batch whose C counts
    as zero. What lies at the addresses must stay alive and hold still meanwhile.
    """
    kept = _ones(count) if keep is None else keep
    words[-1] = address_of(kept)
    work = count * product.groups * product.m * product.n * product.k
    work *= _SLOWER_F64 if product.arithmetic.d.bits == 64 else 1
    address = address_of(words)
    return in_parts(
        lambda first, last: compute(address, first, last), count, 1 + work // _WORTH_A_THREAD
    )
