"""Arguments of a compiled Triton kernel, as its PTX takes them: addresses, numbers, tensor maps."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from emulator.errors import OperandError, UnsupportedError, shown
from emulator.machine.memory import Memory
from emulator.memory.tensor_map import TensorMap
from emulator.memory.tensor_map_bits import SWIZZLES, element_dtype

#: memories that a driver keeps for launches on the same tensors
_KEPT = 64


class _Span(NamedTuple):
    """A piece of memory that a kernel may reach."""

    address: int
    size: int
    name: str
    #: bytes of an element and the shape, for messages; 0 where a tensor is but a part of it
    element: int = 0
    shape: tuple[int, ...] = ()


class Memories:
    """A `Memory` for each set of tensors, kept from launch to launch: it owns none of its bytes."""

    def __init__(self) -> None:
        self._kept: dict[tuple[_Span, ...], Memory] = {}

    def of(self, spans: Mapping[int, _Span]) -> Memory:
        """The memory with these spans at their own addresses; overlapping ones become one."""
        key = tuple(spans.values())
        memory = self._kept.get(key)
        if memory is None:
            if len(self._kept) >= _KEPT:
                self._kept.clear()
            memory = self._kept[key] = Memory()
            for span in _disjoint(key):
                memory.map(span.address, _array_at(span), span.name)
        return memory


def _disjoint(spans: Sequence[_Span]) -> Iterator[_Span]:
    """The spans in ascending order, those that overlap merged."""
    before: _Span | None = None
    for span in sorted(spans):
        if before is not None and span.address < before.address + before.size:
            end = max(before.address + before.size, span.address + span.size)
            before = _Span(before.address, end - before.address, before.name)
            continue
        if before is not None:
            yield before
        before = span
    if before is not None:
        yield before


def bytes_at(address: int, size: int) -> Any:
    """The bytes of this process at an address, as an array."""
    return np.frombuffer(memoryview((ctypes.c_uint8 * size).from_address(address)), np.uint8)


def _array_at(span: _Span) -> Any:
    """The bytes at an address, in the shape of their tensor where it is all of its memory."""
    raw = bytes_at(span.address, span.size)
    return raw.view(f"u{span.element}").reshape(span.shape) if span.element else raw


class Signature:
    """The parameters of a kernel by Triton's names and types, read once for all launches."""

    def __init__(self, source: Any, metadata: Any, device: str) -> None:
        self._kinds: Mapping[Any, Any] = source.signature
        self._descriptors: Any = getattr(metadata, "tensordesc_meta", None) or ()
        self._device = device
        self._passed = [kind for kind in self._kinds.values() if kind != "constexpr"]

    def arguments(self, given: Sequence[Any]) -> tuple[list[Any], dict[int, _Span]]:
        """Converts values to arguments of the PTX kernel, with the memory behind them."""
        arguments, spans = list[Any](), dict[int, _Span]()
        descriptors = iter(self._descriptors)
        for name, kind, value in self._flat(given):
            if kind[0] == "*":
                arguments.append(self._pointer(value, spans, name))
            elif kind.startswith("tensordesc"):
                arguments += self._descriptor(value, next(descriptors, None), spans, name)
            elif kind in _HALVES:
                arguments.append(_HALVES[kind](float(value)))
            else:
                arguments.append(value)
        return arguments, spans

    def _flat(self, given: Sequence[Any]) -> Iterator[tuple[str, str, Any]]:
        """Name, type and value of each argument that the kernel takes."""
        names, kinds = [str(name) for name in self._kinds], list(self._kinds.values())
        if len(given) == len(self._passed) != len(kinds):
            # Callers of a compiled kernel may leave the constants out.
            passed = [(n, k) for n, k in zip(names, kinds, strict=True) if k != "constexpr"]
            names, kinds = [n for n, _ in passed], self._passed
        if len(given) != len(kinds):
            raise OperandError(f"the kernel takes {len(kinds)} arguments; {len(given)} are given")
        for name, kind, value in zip(names, kinds, given, strict=True):
            yield from _leaves(name, kind, value)

    def _pointer(self, value: Any, spans: dict[int, _Span], name: str) -> int:
        """The address of a tensor; all memory that it is a part of can be reached through it."""
        if value is None or isinstance(value, int):
            return value or 0
        # triton.reinterpret gives a tensor another type by a wrapper.
        tensor = getattr(value, "base", value) if not hasattr(value, "untyped_storage") else value
        if not hasattr(tensor, "untyped_storage"):
            if hasattr(value, "data_ptr"):
                return int(value.data_ptr())
            raise OperandError(f"argument {name} is a tensor or an array; got {shown(value)}")
        if tensor.device.type != self._device:
            if self._device == "cuda":  # as Triton says it
                raise ValueError(
                    f"Pointer argument {name} cannot be accessed from Triton (cpu tensor?)"
                )
            raise OperandError(
                f"argument {name} is on {tensor.device}; tensors here are on the CPU"
            )
        storage = tensor.untyped_storage()
        address, size = storage.data_ptr(), storage.nbytes()
        if size and address not in spans:
            spans[address] = _Span(address, size, name, *_whole(tensor, size))
        return int(tensor.data_ptr())

    def _descriptor(
        self, value: Any, metadata: Any, spans: dict[int, _Span], name: str
    ) -> Sequence[Any]:
        """A host's tensor descriptor as the kernel takes it: a tensor map, sizes and strides."""
        if metadata is None:
            from triton.backends.driver import decompose_descriptor

            base, *rest = decompose_descriptor(value)
            return [self._pointer(base, spans, name), *rest]
        if metadata.get("is_im2col") or metadata["fp4_padded"]:
            raise UnsupportedError(f"argument {name}: im2col and padded fp4 descriptors of Triton")
        # Triton's codes are those of the map; older versions have no descriptors that round.
        rounds = getattr(value, "round_f32_to_tf32", False)
        size = metadata["elem_size"]
        built = TensorMap.tiled(
            self._pointer(value.base, spans, name),
            dtype=element_dtype(metadata["elem_type"], rounds),
            dims=list(reversed(value.shape)),
            strides=[size * stride for stride in reversed(value.strides[:-1])],
            box=list(reversed(metadata["block_size"])),
            swizzle=SWIZZLES[metadata["swizzle"]],
            l2_promotion="128B",
            fill="nan" if getattr(value, "padding", "") == "nan" else "zeros",
        )
        return [built, *value.shape, *value.strides]


def _leaves(name: str, kind: Any, value: Any) -> Iterator[tuple[str, str, Any]]:
    """The members of a tuple, also of nested ones; anything else as it is; no constants."""
    if isinstance(kind, tuple):
        for i, (inner, member) in enumerate(zip(kind, value, strict=True)):
            yield from _leaves(f"{name}[{i}]", inner, member)
    elif kind != "constexpr":
        yield name, kind, value


def _whole(tensor: Any, size: int) -> tuple[int, tuple[int, ...]]:
    """Bytes of an element and shape of a tensor that is all of its memory."""
    if not hasattr(tensor, "is_contiguous"):  # a package's own view, such as flag-gems'
        return 0, ()
    element = tensor.element_size()
    if tensor.numel() * element == size and tensor.is_contiguous() and element <= 8:
        return element, tuple(tensor.shape)
    return 0, ()


def _half(value: float) -> bytes:
    with np.errstate(over="ignore"):
        return np.float16(value).tobytes()


def _bfloat(value: float) -> bytes:
    """Triton's launcher cuts the lower half of an f32 off, without rounding."""
    with np.errstate(over="ignore"):
        return np.float32(value).tobytes()[2:]


#: Triton's names of the 16-bit types of numbers -> their bytes
_HALVES = {"fp16": _half, "bf16": _bfloat}
