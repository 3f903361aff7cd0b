"""The engines by name: which one "auto" means, and how much of a batch one takes at a time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, Literal, TypeVar

import numpy as np

from dtypes import Array
from emulator.arith.recipes import Arithmetic
from emulator.errors import EmulatorError, OperandError, hint, shown

Engine = Literal["auto", "reference", "vector", "compiled"]
ENGINES: tuple[Engine, ...] = ("auto", "reference", "vector", "compiled")

_R = TypeVar("_R")

#: ``dot`` of `reference` or `vector`
Compute = Callable[..., Array]

#: products that the vector engine holds at a time: 32 MiB in an int64 array
_PRODUCTS_AT_ONCE = 1 << 22
#: multiply-adds that the vector engine does in the time that llvmlite takes to start, and that LLVM
#: takes for the code of a recipe
_WORTH_STARTING, _WORTH_CODE = 1 << 27, 1 << 25
_COMPILED = "emulator.arith.fast.compiled"
#: multiply-adds that are worth making a kernel, a tenth of a second, and how much slower those of
#: f64 are without one
_WORTH_A_KERNEL, _SLOWER_F64 = 1 << 23, 8
_KERNELS = "emulator.arith.fast.kernels.batch"


def check_engine(engine: object) -> None:
    """Raises OperandError for anything but the name of an engine."""
    if not isinstance(engine, str) or engine not in ENGINES:
        raise OperandError(
            f"no engine {shown(engine)}; engines are {', '.join(ENGINES)}"
            f"{hint(engine, ENGINES) if isinstance(engine, str) else ''}"
        )


def choose(engine: Engine, work: int, what: Hashable = None) -> Engine:
    """The engine that `engine` stands for; "auto" goes by the work, in multiply-adds of the speed
    of fused dot-adds, and takes code of `what` once the work so far would have paid for making it.

    Raises OperandError for an engine that does not exist, or needs what is not installed.
    """
    check_engine(engine)
    if engine == "compiled" and (reason := _missing()):
        raise OperandError(
            f"engine 'compiled' needs llvmlite ({reason}): pip install llvmlite, or this package "
            "with its extra `fast`; 'vector' gives the same bits"
        )
    if engine == "auto":
        if _COMPILED not in sys.modules:
            worth_it = work >= _WORTH_STARTING
        else:
            worth_it = what is None or _asked_for(what, work) >= _WORTH_CODE
        if not worth_it or _missing():
            if worth_it and not _broken:
                say_slow()
            return "vector"
        return "compiled"
    return engine


@lru_cache(maxsize=1)
def _missing() -> str:
    """The reason why llvmlite cannot be used; empty if it can. Imports it, so ask only when it is
    wanted."""
    try:
        import_module(_COMPILED)
    except ModuleNotFoundError as error:
        return str(error)  # it is not installed, and need not be
    except Exception as error:
        # A library that does not load, a processor that LLVM does not know … : many kinds of
        # errors, and never a reason not to compute.
        give_up(error)
        return _broken[-1]
    return _broken[-1] if _broken else ""


#: why the compiled engine was given up in this process
_broken: list[str] = []


def give_up(error: Exception) -> None:
    """Does without the compiled engine from now on, and says so on standard error, once."""
    reason = f"{type(error).__name__}: {error}"
    if not _broken:
        _broken.append(reason)
        _missing.cache_clear()
        say(
            f"llvmlite does not work here ({reason:.300}): "
            "engine 'vector' computes the same, slower"
        )


@lru_cache(maxsize=1)
def say_slow() -> None:
    """Says once, on standard error, that heavy work would be faster with llvmlite."""
    say(
        "llvmlite is not installed: matrix products take 20 times as long (f64 200 times), with "
        "the same bits; pip install llvmlite, or this package with its extra `fast`"
    )


# --- kernels of machine code ----------------------------------------------------------------------


def may_use_kernels(engine: Engine) -> bool:
    """True if `emulator.arith.fast.kernels` may run for an engine; imports nothing."""
    return engine in ("auto", "compiled") and not _no_kernels


def kernels_wanted(engine: Engine, what: Hashable, work: int, d_type: str = "") -> bool:
    """True if a kernel is worth it for so many multiply-adds more; imports LLVM where it is.

    "auto" makes a kernel of `what` when the work that asked for it would have paid for that.
    """
    work *= _SLOWER_F64 if d_type == "f64" else 1
    if engine == "auto" and _asked_for(what, work) < _WORTH_A_KERNEL:
        return False
    if sys.modules.get(_KERNELS):
        return True
    try:
        import_module(_KERNELS)
    except Exception as error:
        # It is not installed, or broken in a way of its own, and never a reason to fail.
        _no_kernels.append(f"{type(error).__name__}: {error}")
        return False
    return True


def by_kernels(engine: Engine, compute: Callable[[], _R]) -> _R | None:
    """Computes with kernels; where LLVM fails, returns None and gives kernels up."""
    try:
        return compute()
    except EmulatorError:
        raise
    except Exception as error:
        if engine == "compiled":
            raise
        _no_kernels.append(f"{type(error).__name__}: {error}")
        say(f"kernels do not work here ({_no_kernels[-1]:.300}): others compute the same, slower")
        return None


def _asked_for(what: Hashable, work: int) -> int:
    """The multiply-adds that were asked of code for `what`, `work` more now."""
    _asked[what] = _asked.get(what, 0) + work
    return _asked[what]


#: why kernels are not used in this process
_no_kernels: list[str] = []
#: multiply-adds that were asked of a kernel so far
_asked: dict[Hashable, int] = {}


def say(text: str) -> None:
    """A line on standard error, unless the program has set up `logging` otherwise: what a user
    should know, but must not fail from as from a warning that is turned into an error."""
    from logging import getLogger

    getLogger("emulator").warning(text)


def in_pieces(
    compute: Compute,
    arithmetic: Arithmetic,
    a: Array,
    b: Array,
    c: Array,
    scale_a: Array | None = None,
    scale_b: Array | None = None,
) -> Array:
    """`compute`, the ``dot`` of an engine, on pieces of a long batch, so that memory stays bounded.

    `a` and `b` are ``(…, k)``, `c` ``(…)``, scales ``(…, v)``; all broadcast.
    """
    shape = np.broadcast_shapes(
        c.shape, *(x.shape[:-1] for x in (a, b, scale_a, scale_b) if x is not None)
    )
    c = np.broadcast_to(c, shape)
    size = int(np.prod(shape)) * a.shape[-1]
    if size <= _PRODUCTS_AT_ONCE or size == a.shape[-1]:
        return compute(arithmetic, a, b, c, scale_a, scale_b)

    # Too much for one piece.
    operands = a, b, c[..., None], scale_a, scale_b
    axis, pieces = cut_batch(shape, _PRODUCTS_AT_ONCE / size, operands, 1)
    out = [in_pieces(compute, arithmetic, p, q, x[..., 0], *by) for p, q, x, *by in pieces]
    return np.concatenate(out, axis)


def cut_batch(
    batch: tuple[int, ...], share: float, operands: Sequence[Array | None], trailing: int
) -> tuple[int, Iterator[list[Any]]]:
    """The first axis of a batch that can be cut, and the operands in pieces along it, of at most
    that share of the batch. They broadcast to it, each with so many axes of its own behind."""
    axis = next(i for i, n in enumerate(batch) if n > 1)
    rows = max(1, int(batch[axis] * share))

    def part(x: Array | None, start: int) -> Array | None:
        own = -1 if x is None else axis - (len(batch) - (x.ndim - trailing))
        if x is None or own < 0 or x.shape[own] == 1:
            return x
        return x[(slice(None),) * own + (slice(start, start + rows),)]

    starts = range(0, batch[axis], rows)
    return axis, ([part(x, start) for x in operands] for start in starts)
