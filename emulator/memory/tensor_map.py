"""``TensorMap``: what a kernel's tensor copies know of a tensor in global memory.

It is built as ``cuTensorMapEncodeTiled`` and ``cuTensorMapEncodeIm2col`` are called, refused where
driver 580 refuses the call, and written and read as the driver's 128 bytes. CUDA driver API,
"Tensor Map Object Management"; PTX ISA 5.5.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import prod
from typing import Any, Literal

from emulator.arrays import accepts_tensors
from emulator.errors import OperandError, UnsupportedError, shown
from emulator.memory.tensor_map_arguments import (
    CHOICES,
    Backing,
    Ints,
    check_choice,
    check_dtype,
    integer,
    integers,
    tensor_of,
)
from emulator.memory.tensor_map_bits import (
    BYTES,
    CORNER_BITS,
    ELEMENT_TYPES,
    FILLS,
    INTERLEAVES,
    L2_PROMOTIONS,
    NEWER_ELEMTYPES,
    SWIZZLE_ATOMS,
    SWIZZLES,
    ElementType,
    as_word,
    element_dtype,
    get,
    get_corners,
    get_stride,
    put,
    put_corners,
    put_stride,
)

MAX_RANK = 5
#: fields that `repr` shows, in the order of the arguments
_SHOWN = {
    "tiled": ("dtype", "dims", "strides", "box", "element_strides", *CHOICES),
    "im2col": (
        "dtype", "dims", "strides", "lower", "upper", "channels", "pixels", "element_strides",
        *CHOICES,
    ),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, repr=False)
class TensorMap:
    """One tensor map. Sizes are elements, strides bytes, and dimension 0 is the innermost.

    `tiled`, `im2col` and `decode` make them. Two maps are equal where they describe the same tensor
    in the same way, at the same address or over the same array.
    """

    mode: Literal["tiled", "im2col"]
    dtype: str
    #: of the tensor in global memory; None until a launch has placed the array
    address: int | None
    dims: Ints
    #: of the dimensions from 1 on
    strides: Ints
    #: the extent of a tiled copy, before element strides thin it out
    box: Ints = ()
    #: corners of the box of an im2col map in the spatial dimensions, width first: the lower ones
    #: counted from the first element, the upper ones from the last
    lower: Ints = ()
    upper: Ints = ()
    #: of an im2col copy
    channels: int = 0
    pixels: int = 0
    element_strides: Ints
    interleave: str = "none"
    swizzle: str = "none"
    l2_promotion: str = "none"
    fill: str = "zeros"
    backing: Backing | None = None

    def __post_init__(self) -> None:
        check_dtype(self.dtype)
        for option in CHOICES:
            check_choice(option, getattr(self, option))
        if reasons := [*_refusals(self)]:
            raise OperandError(f"the driver refuses this tensor map: {'; '.join(reasons)}")

    # --- making one ---

    @classmethod
    @accepts_tensors()
    def tiled(
        cls,
        array_or_address: object,
        *,
        dtype: str | None = None,
        dims: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        box: Sequence[int],
        element_strides: Sequence[int] | None = None,
        interleave: str = "none",
        swizzle: str = "none",
        l2_promotion: str = "none",
        fill: str = "zeros",
    ) -> TensorMap:
        """The map that ``cuTensorMapEncodeTiled`` makes of these arguments.

        All sequences begin with the innermost dimension, the last axis of an array; `strides` are
        bytes and leave out the first. What is not given is taken from the array (NumPy, ml_dtypes
        or a CPU tensor); with an address, `dtype` and `dims` must be given. Raises OperandError for
        what the driver refuses, UnsupportedError for types and swizzles of sm_100 and later.

        >>> import numpy as np
        >>> TensorMap.tiled(np.zeros((128, 64), "f2"), box=(64, 32), swizzle="128B")
        TensorMap.tiled(<array (128, 64)>, dtype='float16', dims=(64, 128), strides=(128,), \
box=(64, 32), swizzle='128B')
        """
        tensor = tensor_of(array_or_address, dtype, dims, strides)
        rank = len(tensor.dims)
        return cls(
            mode="tiled",
            **tensor._asdict(),
            box=integers("box", box, rank),
            element_strides=integers("element_strides", element_strides, rank, default=1),
            interleave=interleave,
            swizzle=swizzle,
            l2_promotion=l2_promotion,
            fill=fill,
        )

    @classmethod
    @accepts_tensors()
    def im2col(
        cls,
        array_or_address: object,
        *,
        dtype: str | None = None,
        dims: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        lower: Sequence[int],
        upper: Sequence[int],
        channels: int,
        pixels: int,
        element_strides: Sequence[int] | None = None,
        interleave: str = "none",
        swizzle: str = "none",
        l2_promotion: str = "none",
        fill: str = "zeros",
    ) -> TensorMap:
        """The map that ``cuTensorMapEncodeIm2col`` makes of these arguments.

        The tensor is channels, width[, height[, depth]], images, innermost first. `lower` and
        `upper` are corners of the box in the spatial dimensions, width first; `channels` and
        `pixels` are how many of each one copy moves. The rest, and the errors, are as in `tiled`.
        """
        tensor = tensor_of(array_or_address, dtype, dims, strides)
        rank = len(tensor.dims)
        return cls(
            mode="im2col",
            **tensor._asdict(),
            lower=integers("lower", lower, max(rank - 2, 0)),
            upper=integers("upper", upper, max(rank - 2, 0)),
            channels=integer("channels", channels),
            pixels=integer("pixels", pixels),
            element_strides=integers("element_strides", element_strides, rank, default=1),
            interleave=interleave,
            swizzle=swizzle,
            l2_promotion=l2_promotion,
            fill=fill,
        )

    def with_address(self, address: int) -> TensorMap:
        """The same map of a tensor at another address; the array, where there is one, stays.

        Raises OperandError for an address that is not aligned as the map needs it.
        """
        return replace(self, address=integer("address", address))

    # --- what follows from the fields ---

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.dims)

    @property
    def element_type(self) -> ElementType:
        """The element type that the dtype stands for."""
        return ELEMENT_TYPES[self.dtype]

    @property
    def array(self) -> Any:
        """The array that the map was made of, None where it was made of an address."""
        return self.backing and self.backing.array

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of a copy: what lies side by side in both memories."""
        row = self.box[0] if self.mode == "tiled" else self.channels
        return row * self.element_type.bytes

    @property
    def slice_bytes(self) -> int:
        """Bytes of a slice of channels where the map is interleaved, 0 where it is not."""
        return 0 if self.interleave == "none" else int(self.interleave[:-1])

    @cached_property
    def placeless(self) -> TensorMap:
        """The map without address and array: what the shape of its copies depends on."""
        return replace(self, address=None, backing=None)

    def __repr__(self) -> str:
        parts = []
        for name in _SHOWN[self.mode]:
            value = getattr(self, name)
            default = (1,) * self.rank if name == "element_strides" else _DEFAULTS.get(name)
            if value != default:
                parts.append(f"{name}={value!r}")
        if self.address is not None:
            place = f"{self.address:#x}"
        else:
            place = "<no address>" if self.array is None else f"<array {self.array.shape}>"
        return f"TensorMap.{self.mode}({place}, {', '.join(parts)})"

    # --- the driver's bytes ---

    def encode(self) -> bytes:
        """The 128 bytes that the driver writes; raises OperandError for a map without address."""
        if self.address is None:
            raise OperandError(
                "a tensor map of an array has no address before a launch places the array; "
                "with_address() gives it one"
            )
        word = put(self.address, "rank", self.rank - 1)
        word = put(word, "elemtype", self.element_type.code)
        word = put(word, "round_to_tf32", self.element_type.round_to_tf32)
        word = put(word, "interleave_layout", INTERLEAVES.index(self.interleave))
        word = put(word, "swizzle_mode", SWIZZLES.index(self.swizzle))
        word = put(word, "fill_mode", FILLS.index(self.fill))
        word = put(word, "l2_promotion", L2_PROMOTIONS.index(self.l2_promotion))
        for i, stride in enumerate(self.strides):
            word = put_stride(word, i, stride)
        for i, (size, step) in enumerate(zip(self.dims, self.element_strides, strict=True)):
            word = put(word, "global_dim", size - 1, i)
            word = put(word, "element_stride", step - 1, i)
        if self.mode == "tiled":
            for i, size in enumerate(self.box):
                word = put(word, "box_dim", size - 1, i)
            # Rounded down, though a copy rounds up: no copy reads what the driver notes here.
            spans = zip(self.box, self.element_strides, strict=True)
            elements = prod(size // step for size, step in spans)
        else:
            word = put(word, "im2col", 1)
            word = put(word, "channels", self.channels - 1)
            word = put(word, "pixels", self.pixels - 1)
            word = put_corners(word, "lower_corner", self.lower)
            word = put_corners(word, "upper_corner", self.upper)
            elements = self.channels * self.pixels
        word = put(word, "box_bytes", elements * self.element_type.bytes)
        if self.swizzle == "none":
            word = put(word, "not_swizzled", 1)
        else:
            word = put(word, "swizzled", 1, SWIZZLES.index(self.swizzle) - 1)
        return word.to_bytes(BYTES, "little")

    @staticmethod
    def decode(data: bytes) -> TensorMap:
        """The map that 128 bytes hold, made by the driver or by ``tensormap.replace``.

        What the driver notes for itself is not read. Raises OperandError for bytes that describe
        nothing that a copy could use, UnsupportedError for features of sm_100 and later.
        """
        try:
            held = memoryview(data)
        except (TypeError, ValueError):  # ValueError: dates, which have no memoryview
            raise OperandError(f"a tensor map is {BYTES} bytes; got {shown(data)}") from None
        return _decode(held.tobytes())


_DEFAULTS = {field.name: field.default for field in TensorMap.__dataclass_fields__.values()}


# --- what the driver refuses ---


def _refusals(m: TensorMap) -> Iterator[str]:
    """The reasons why ``cuTensorMapEncode…`` returns an error; nothing where it does not.

    The rules of the API's documentation as driver 580 keeps them: it does not keep those that a
    32B interleave needs a 32B swizzle and that only without interleave a row is whole 16 bytes.
    """
    if not 1 <= m.rank <= MAX_RANK:
        yield f"rank {m.rank}; it is 1 to {MAX_RANK}"
        return
    if m.rank < 3 and (m.mode == "im2col" or m.interleave != "none"):
        yield f"rank {m.rank}; im2col maps and interleaved ones have rank 3 to {MAX_RANK}"
        return
    align = 32 if m.interleave == "32B" else 16
    if m.address is not None and (m.address % align or not 0 <= m.address < 1 << 64):
        yield f"address {m.address:#x}; it is a multiple of {align} below 2**64"
    yield from _out_of_range("dims", m.dims, 1, 1 << 32)
    for i, stride in enumerate(m.strides, 1):
        if stride % align or not 0 <= stride < 1 << 40:
            yield f"stride {stride} of dimension {i}; it is a multiple of {align} below 2**40"
    yield from _out_of_range("element_strides", m.element_strides, 1, 8)
    if m.mode == "tiled":
        yield from _out_of_range("box", m.box, 1, 256)
    else:
        yield from _im2col_refusals(m)
    row, size = m.row_bytes, m.element_type.bytes
    count = f"a row of {row // size} elements of {size} bytes"
    if row % 16:
        yield f"{count}; its bytes are a multiple of 16"
    if m.interleave == "none" and m.swizzle != "none" and row > int(m.swizzle[:-1]):
        yield f"{count}; swizzle {m.swizzle} permutes rows of at most so many bytes"
    if m.fill == "nan" and not m.element_type.is_float:
        yield f"fill nan for {m.dtype}, which has no NaN"


def _im2col_refusals(m: TensorMap) -> Iterator[str]:
    yield from _out_of_range("channels", (m.channels,), 1, 256)
    yield from _out_of_range("pixels", (m.pixels,), 1, 1024)
    limit = 1 << CORNER_BITS[m.rank] - 1
    yield from _out_of_range("lower", m.lower, -limit, limit - 1)
    yield from _out_of_range("upper", m.upper, -limit, limit - 1)
    for i, (size, low, high) in enumerate(zip(m.dims[1:-1], m.lower, m.upper, strict=True), 1):
        if m.interleave == "none" and size + high <= low:
            yield f"corners {low} and {high} of dimension {i} ({size} elements): an empty box"


def _out_of_range(what: str, values: Ints, low: int, high: int) -> Iterator[str]:
    if wrong := [value for value in values if not low <= value <= high]:
        yield f"{what} with {wrong[0]}; legal is {low} to {high}"


# --- reading the bytes ---


@lru_cache(maxsize=1024)
def _decode(data: bytes) -> TensorMap:
    word = as_word(data)
    rank = get(word, "rank") + 1
    kind = get(word, "elemtype"), bool(get(word, "round_to_tf32"))
    dtype = element_dtype(*kind)
    interleave = get(word, "interleave_layout")
    if kind[0] in NEWER_ELEMTYPES:
        name = NEWER_ELEMTYPES[kind[0]]
        raise UnsupportedError(f"tensor maps of {name} (sm_100 and later) are not modelled here")
    if not dtype or interleave >= len(INTERLEAVES) or rank > MAX_RANK:
        raise OperandError(
            f"these {BYTES} bytes are no tensor map: element type {kind[0]}"
            f"{' with tf32' * kind[1]}, interleave {interleave}, rank {rank}"
        )
    if get(word, "swizzle_96B") or get(word, "swizzle_atomicity"):
        atom = SWIZZLE_ATOMS[get(word, "swizzle_atomicity")]
        wide = " over 96 bytes" * get(word, "swizzle_96B")
        raise UnsupportedError(f"swizzle{wide} of {atom} (sm_100 and later) is not modelled here")
    shape: dict[str, Any]
    if get(word, "im2col"):
        shape = {
            "mode": "im2col",
            "lower": get_corners(word, "lower_corner", rank) if rank in CORNER_BITS else (),
            "upper": get_corners(word, "upper_corner", rank) if rank in CORNER_BITS else (),
            "channels": get(word, "channels") + 1,
            "pixels": get(word, "pixels") + 1,
        }
    else:
        shape = {"mode": "tiled", "box": tuple(get(word, "box_dim", i) + 1 for i in range(rank))}
    return TensorMap(
        dtype=dtype,
        address=get(word, "global_address"),
        dims=tuple(get(word, "global_dim", i) + 1 for i in range(rank)),
        strides=tuple(get_stride(word, i) for i in range(rank - 1)),
        element_strides=tuple(get(word, "element_stride", i) + 1 for i in range(rank)),
        interleave=INTERLEAVES[interleave],
        swizzle=SWIZZLES[get(word, "swizzle_mode")],
        l2_promotion=L2_PROMOTIONS[get(word, "l2_promotion")],
        fill=FILLS[get(word, "fill_mode")],
        **shape,
    )
