"""Tensor maps, as the driver encodes them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

from emulator.adapters.cuda.calls import Code, CudaError, driver, get, refuse_if
from emulator.adapters.cuda.driver.modules import complain
from emulator.errors import OperandError, UnsupportedError
from emulator.memory.tensor_map import TensorMap
from emulator.memory.tensor_map_bits import (
    ELEMENT_TYPES,
    FILLS,
    INTERLEAVES,
    L2_PROMOTIONS,
    SWIZZLES,
)

#: names in the order of CUtensorMapDataType
_DTYPES = (
    "uint8", "uint16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64",
    "bfloat16", "float32_ftz", "tfloat32", "tfloat32_ftz",
)  # fmt: skip
assert set(_DTYPES) == set(ELEMENT_TYPES)
_BYTES = 128


def _name(names: Sequence[str], code: int, what: str) -> str:
    if code >= len(names):
        raise UnsupportedError(f"{what} {code} of sm_100 and later")
    return names[code]


def _write(out: int, make: Callable[[], TensorMap]) -> None:
    """Writes a map where a caller wants it; what the driver refuses is an error code."""
    try:
        encoded = make().encode()
    except (OperandError, UnsupportedError) as error:
        complain("a tensor map cannot be made", error)
        refused = isinstance(error, OperandError)
        raise CudaError(Code.INVALID_VALUE if refused else Code.NOT_SUPPORTED) from None
    refuse_if(not out)
    ctypes.memmove(out, encoded, _BYTES)


def _choices(interleave: int, swizzle: int, promotion: int, fill: int) -> dict[str, str]:
    return {
        "interleave": _name(INTERLEAVES, interleave, "interleave"),
        "swizzle": _name(SWIZZLES, swizzle, "swizzle"),
        "l2_promotion": _name(L2_PROMOTIONS, promotion, "L2 promotion"),
        "fill": _name(FILLS, fill, "fill"),
    }


@driver("cuTensorMapEncodeTiled")
def encode_tiled(
    out: int,
    dtype: int,
    rank: int,
    address: int,
    dims: int,
    strides: int,
    box: int,
    element_strides: int,
    *choices: int,
) -> None:
    _write(
        out,
        lambda: TensorMap.tiled(
            address,
            dtype=_name(_DTYPES, dtype, "type"),
            dims=get(dims, f"{rank}Q"),
            strides=get(strides, f"{rank - 1}Q") if rank > 1 else (),
            box=get(box, f"{rank}I"),
            element_strides=get(element_strides, f"{rank}I"),
            **_choices(*choices),
        ),
    )


@driver("cuTensorMapEncodeIm2col")
def encode_im2col(
    out: int,
    dtype: int,
    rank: int,
    address: int,
    dims: int,
    strides: int,
    lower: int,
    upper: int,
    channels: int,
    pixels: int,
    element_strides: int,
    *choices: int,
) -> None:
    refuse_if(rank < 3)
    _write(
        out,
        lambda: TensorMap.im2col(
            address,
            dtype=_name(_DTYPES, dtype, "type"),
            dims=get(dims, f"{rank}Q"),
            strides=get(strides, f"{rank - 1}Q"),
            lower=get(lower, f"{rank - 2}i"),
            upper=get(upper, f"{rank - 2}i"),
            channels=channels,
            pixels=pixels,
            element_strides=get(element_strides, f"{rank}I"),
            **_choices(*choices),
        ),
    )


@driver("cuTensorMapReplaceAddress")
def replace_address(tensor_map: int, address: int) -> None:
    refuse_if(not tensor_map)
    given = ctypes.string_at(tensor_map, _BYTES)
    _write(tensor_map, lambda: TensorMap.decode(given).with_address(address))
