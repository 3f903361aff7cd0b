"""Memory of the simulated device: tensors that PyTorch takes for CUDA's, over bytes of the CPU."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

#: how many bytes the addresses of allocations are multiples of, as on a GPU
ALIGNMENT = 512
#: storages of the CPU that are kept for tensors of the device
_KEPT = 4096
_CPU = torch._C.DispatchKey.CPU
_DLPACK_CPU, _DLPACK_CUDA = 1, 2
_aten = torch.ops.aten


class _Header(ctypes.Structure):
    """DLManagedTensor of DLPack, for a row of bytes, and its length."""

    _fields_ = [
        ("data", ctypes.c_void_p), ("device", ctypes.c_int), ("number", ctypes.c_int),
        ("axes", ctypes.c_int), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
        ("offset", ctypes.c_uint64), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
        ("length", ctypes.c_int64),
    ]  # fmt: skip


_libc = ctypes.CDLL(None)
_libc.aligned_alloc.restype = ctypes.c_void_p
_libc.aligned_alloc.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
#: C's own `free`: memory may be given back when Python has ended
_FREE = ctypes.cast(_libc.free, ctypes.c_void_p).value
_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype = ctypes.py_object
_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


def _row(header: int, data: int, length: int, device: int) -> Tensor:
    """The bytes at an address as a tensor on a device; the header is freed with it."""
    held = _Header.from_address(header)
    held.data, held.device, held.number = data, device, 0
    held.axes, held.code, held.bits, held.lanes = 1, 1, 8, 1
    held.length, held.shape, held.strides = length, header + _Header.length.offset, None
    held.offset, held.context, held.deleter = 0, None, _FREE
    return torch._C._from_dlpack(_capsule(header, b"dltensor", None))


class Heap:
    """Allocations on the device, and their bytes as tensors of the CPU."""

    def __init__(self, total: int) -> None:
        self.total = total
        #: bytes allocated now and at most, and calls
        self.used = self.peak = self.count = 0
        #: address -> bytes of what lives
        self.live: dict[int, int] = {}
        self._seen: dict[tuple[int, int], Any] = {}

    def allocate(self, size: int) -> Tensor:
        """A row of bytes on the device. Raises torch.OutOfMemoryError as a GPU does."""
        room = -(-max(size, 1) // ALIGNMENT) * ALIGNMENT
        if self.used + room > self.total:
            raise torch.OutOfMemoryError(
                f"CUDA out of memory. Tried to allocate {size / 2**20:.2f} MiB. GPU 0 has a total "
                f"capacity of {self.total / 2**30:.2f} GiB of which "
                f"{(self.total - self.used) / 2**30:.2f} GiB is free."
            )
        header = _libc.aligned_alloc(ALIGNMENT, ALIGNMENT + room)
        if not header:
            raise torch.OutOfMemoryError(f"the machine has no {size:,} bytes for the GPU's memory")
        row = _row(header, header + ALIGNMENT, size, _DLPACK_CUDA)
        address = header + ALIGNMENT
        self.live[address] = room
        self.used, self.count = self.used + room, self.count + 1
        self.peak = max(self.peak, self.used)
        weakref.finalize(row.untyped_storage(), self._freed, address, room).atexit = False
        return row

    def _freed(self, address: int, room: int) -> None:
        if self.live.pop(address, None) is not None:
            self.used -= room

    def on_cpu(self, tensor: Tensor) -> Tensor:
        """The bytes of a tensor of the device as a tensor of the CPU, which must not outlive it."""
        storage = tensor.untyped_storage()
        key = storage.data_ptr(), storage.nbytes()
        held = self._seen.get(key)
        if held is None:
            if len(self._seen) >= _KEPT:
                self._seen.clear()
            address = key[0] or ALIGNMENT
            header = _libc.aligned_alloc(ALIGNMENT, ALIGNMENT)
            held = _row(header, address, key[1], _DLPACK_CPU).untyped_storage()
            self._seen[key] = held
        seen = torch.empty(0, dtype=tensor.dtype).set_(
            held, tensor.storage_offset(), tensor.size(), tensor.stride()
        )
        if tensor.is_conj():
            seen = torch._conj(seen)
        return torch._neg_view(seen) if tensor.is_neg() else seen

    def on_device(self, tensor: Tensor) -> Tensor:
        """A copy of a tensor of the CPU on the device, with its strides."""
        storage = tensor.untyped_storage()
        size = storage.nbytes()
        row = self.allocate(size)
        if size:
            ctypes.memmove(row.data_ptr(), storage.data_ptr(), size)
        return view(row.view(tensor.dtype), tensor.size(), tensor.stride(), tensor.storage_offset())


def view(tensor: Tensor, size: Sequence[int], stride: Sequence[int], offset: int) -> Tensor:
    """Another view of the same memory: the CPU's function looks at no bytes."""
    return _aten.as_strided.default._op_dk(_CPU, tensor, size, stride, offset)


def replace(tensor: Tensor, by: Tensor) -> None:
    """Gives a tensor the memory and the shape of another one of the device."""
    _aten.set_.source_Storage_storage_offset._op_dk(
        _CPU, tensor, by.untyped_storage(), by.storage_offset(), by.size(), by.stride()
    )
