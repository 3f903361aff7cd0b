"""The GPU's memory as parts of one file in memory, which other processes can map, too."""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref

import numpy as np

from dtypes import Array
from emulator.adapters.cuda.calls import Code, CudaError, refuse_if

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
#: FALLOC_FL_KEEP_SIZE and FALLOC_FL_PUNCH_HOLE: the file keeps its length and loses the bytes
_FORGET = 1 | 2
_WRITABLE = mmap.PROT_READ | mmap.PROT_WRITE


def map_at(address: int, size: int, protection: int, flags: int, file: int, offset: int) -> int:
    """Maps a part of a file; its address. Raises CudaError where that cannot be."""
    at = _libc.mmap(address or None, size, protection, flags, file, offset)
    refuse_if(at in (None, ctypes.c_void_p(-1).value), Code.OUT_OF_MEMORY)
    return int(at)


def view(address: int, size: int) -> Array:
    """Bytes of this process as an array."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


class SharedFile:
    """A file in memory whose parts are handed out one behind the other."""

    def __init__(self) -> None:
        self.file, self._end, self._process = os.memfd_create("emulator"), 0, os.getpid()

    def new(self, size: int) -> tuple[Array, int]:
        """New bytes, which are zero, and their offset in the file."""
        offset = self._end
        end = offset + -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        try:
            os.ftruncate(self.file, end)
        except OSError:
            raise CudaError(Code.OUT_OF_MEMORY) from None
        self._end = end
        array = mapped(self.file, offset, size)
        weakref.finalize(array, self._forget, offset, end - offset).atexit = False
        return array, offset

    def _forget(self, offset: int, size: int) -> None:
        if os.getpid() == self._process:  # a fork of it has the same file
            _libc.fallocate(self.file, _FORGET, offset, size)


def mapped(file: int, offset: int, size: int) -> Array:
    """A part of a file as an array, which is unmapped with it."""
    at = map_at(0, size, _WRITABLE, mmap.MAP_SHARED, file, offset)
    array = view(at, size)
    weakref.finalize(array, _libc.munmap, at, size).atexit = False
    return array


def opened(process: int, file: int) -> int:
    """A file in memory of another process, opened. Raises CudaError where there is none."""
    try:
        return os.open(f"/proc/{process}/fd/{file}", os.O_RDWR)
    except OSError:
        raise CudaError(Code.INVALID_VALUE) from None
