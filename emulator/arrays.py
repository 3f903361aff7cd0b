"""Arrays as callers give them: lists, and the CPU tensors of PyTorch that all functions take, too.

torch is never imported here: a tensor can only exist where its owner has imported it already. A
tensor shares its memory with the array made of it, so stmatrix writes into a tensor given as
``shared=``. Why int32 counts as a word: torch has uint32 and uint64 but hardly any operation on
them, so people keep registers, codes and descriptors in the signed types.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np

from dtypes import Array
from emulator.errors import OperandError

_P = ParamSpec("_P")
_R = TypeVar("_R")

#: torch's name of a type that NumPy lacks -> the ml_dtypes type with the same bits
_ML_TYPES = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu")


def as_array(given: object, name: str) -> Array:
    """`given` as an array; `name` stands for it in messages.

    Raises OperandError for what is none: lists whose rows are not of one length or that are nested
    too deep, and masked arrays, whose mask no register has.
    """
    if isinstance(given, np.ma.MaskedArray):
        raise OperandError(f"{name} is a masked array; give one without a mask, such as x.filled()")
    try:
        return np.asarray(given)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        why = "the rows of the list are not of one length"
        if "inhomogeneous" not in str(error):
            why = f"it makes no array: {error!s:.100}"
        raise OperandError(f"{name}: {why}") from None


_IS_CPYTHON = sys.implementation.name == "cpython"
#: bytes of an array's object before the address of its first element: NumPy's struct of an array
#: starts with that address, after the head that all objects of CPython have
_HEAD = object.__basicsize__
_pointer_at = ctypes.c_void_p.from_address


def address_of(x: Array) -> int:
    """Address of an array's first element; as ``x.ctypes.data``, in a tenth of the time."""
    if _IS_CPYTHON:
        return _pointer_at(id(x) + _HEAD).value or 0
    return int(x.ctypes.data)


def several(given: object) -> list[Any]:
    """What callers give one of, or several; what each is, they must check."""
    if (
        isinstance(given, Iterable)
        and not isinstance(given, str)
        and getattr(given, "ndim", 1) != 0
    ):
        return list(given)
    return [given]


def accepts_tensors(words: bool = False) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Lets a function of arrays take CPU tensors, and give a tensor where it was given one.

    A result that is no array stays what it is. With `words`, or where the caller passes
    ``codes=True``, signed integers are words and codes: their bits are taken as unsigned, and the
    result is signed as they were. Raises OperandError for a tensor that is on a device, not
    strided, or of a type that NumPy and ml_dtypes lack.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        named = function.__code__.co_varnames[: function.__code__.co_argcount]

        @wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            torch = sys.modules.get("torch")
            tensor = getattr(torch, "Tensor", None)
            if tensor is None or not any(isinstance(x, tensor) for x in (*args, *kwargs.values())):
                return function(*args, **kwargs)
            signed = False

            def convert(name: str, value: Any) -> Any:
                nonlocal signed
                if not isinstance(value, tensor):
                    return value
                array = _array_of(torch, name, value)
                if array.dtype.kind == "i" and (words or kwargs.get("codes") is True):
                    signed = True
                    array = array.view(f"u{array.dtype.itemsize}")
                return array

            names = [*(f"{n}=" for n in named), *(f"operand {i + 1}" for i in range(len(args)))]
            positional = [convert(*pair) for pair in zip(names, args, strict=False)]
            result = function(*positional, **{n: convert(f"{n}=", x) for n, x in kwargs.items()})
            if not isinstance(result, np.ndarray):
                return result
            return cast("_R", _tensor_of(torch, result, signed))

        return call

    return decorate


def _array_of(torch: Any, name: str, tensor: Any) -> Array:
    """A CPU tensor's memory as an array of the type with the same bits."""
    if tensor.device.type != "cpu":
        raise OperandError(
            f"{name} is a tensor on {str(tensor.device)!r}; this package computes on the CPU: "
            "pass tensor.cpu()"
        )
    kind = str(tensor.dtype).removeprefix("torch.")
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise OperandError(f"{name} is a tensor without plain storage ({tensor.layout}, {kind})")
    tensor = tensor.detach().resolve_conj().resolve_neg()
    try:
        if kind not in _ML_TYPES:
            return np.asarray(tensor.numpy())
    except TypeError:
        raise OperandError(
            f"{name} is a tensor of {kind}, which NumPy and ml_dtypes have no type for; "
            "pass element codes as uint8 with codes=True"
        ) from None
    import ml_dtypes

    raw = tensor.view(torch.uint8 if tensor.element_size() == 1 else torch.int16).numpy()
    return np.asarray(raw).view(getattr(ml_dtypes, kind))


def _tensor_of(torch: Any, array: Array, signed: bool) -> Any:
    """A tensor of the same bits; unsigned words as signed ones if `signed`."""
    kind = array.dtype.name
    if signed and array.dtype.kind == "u":
        kind = kind.removeprefix("u")
    plain = np.require(array, requirements=["C", "W"]).view(f"i{array.dtype.itemsize}")
    return torch.from_numpy(plain).view(getattr(torch, kind))


def array_of_tensor(value: Any, name: str) -> Any:
    """The memory of a CPU tensor as an array; anything else as it is."""
    torch = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)
    return _array_of(torch, name, value) if tensor and isinstance(value, tensor) else value
