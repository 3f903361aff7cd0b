"""``Space``: bytes with addresses, the one place that reads and writes memory.

A space knows neither threads nor instructions: it takes addresses, and moves as many bytes at each
as it is told. What an access that it refuses means, its caller says in words of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dtypes import Array
from emulator.errors import OperandError, UndefinedError, shown

#: bytes that NumPy moves as one element -> the type of such an element
_UNITS = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "V16"}

Reason = Literal["misaligned", "outside"]


@dataclass(frozen=True)
class Fault:
    """The first of several accesses that a space refuses."""

    #: its place in the array of addresses
    index: tuple[int, ...]
    address: int
    #: misaligned: no multiple of what was asked for; outside: not all of its bytes are in the space
    reason: Reason


class AccessError(UndefinedError):
    """An access outside of a space, or a misaligned one; `fault` says which."""

    def __init__(self, message: str, fault: Fault) -> None:
        super().__init__(message)
        self.fault = fault


class Space:
    """Bytes ``uint8 (*batch, bytes)`` at the addresses from `start` on: a memory each of a batch.

    Addresses are integers ``(*batch, n)``, and n accesses of one size are moved together; batch
    axes broadcast. `data` is the caller's array: a store changes it in place. A store that raises
    has changed nothing.

    Raises OperandError for `data` that is no array of bytes.
    """

    def __init__(self, name: str, data: Any, start: int = 0) -> None:
        is_bytes = isinstance(data, np.ndarray) and data.dtype == np.uint8 and data.ndim > 0
        if not is_bytes or isinstance(data, np.ma.MaskedArray):
            raise OperandError(f"{name}, a uint8 array (…, bytes), is needed; got {_shown(data)}")
        #: as messages call it: "shared memory"
        self.name = name
        self.data: NDArray[np.uint8] = data
        self.start = start
        #: undo journal of `roll_back`; None: no rollback
        self.replaced: list[tuple[int, Array, Array]] | None = None

    @classmethod
    def of(cls, given: object, keyword: str) -> Space:
        """Converts the argument ``shared=`` or ``global_memory=``: a space or an array of bytes."""
        if isinstance(given, Space):
            return given
        name = f"{keyword.partition('_')[0]} memory"
        try:
            return cls(name, given)
        except OperandError:
            raise OperandError(
                f"{keyword}= is {name}, a uint8 array (…, bytes); got {_shown(given)}"
            ) from None

    @property
    def batch(self) -> tuple[int, ...]:
        return self.data.shape[:-1]

    @property
    def bytes(self) -> int:
        """Bytes of one of the batch."""
        return self.data.shape[-1]

    # --- access by address ---

    def load(self, addresses: Array, size: int, alignment: int = 1) -> Array:
        """The `size` bytes at each address: ``(*batch, n)`` to ``(*batch, n, size)``.

        Raises AccessError where an address is no multiple of `alignment` or leaves the space,
        OperandError for addresses that are no integers and batch axes that do not broadcast.
        """
        offsets = self._offsets(addresses, size, alignment)
        batch = self._broadcast(offsets.shape[:-1])
        if prod(self.batch) == 1 or prod(offsets.shape[:-1]) != 1:
            return self._gather(self._of_batch(offsets, batch), size, alignment)
        # The same addresses everywhere: whole columns of the memories.
        unit = self._unit(size, alignment)
        columns = self._units(unit).reshape(prod(self.batch), self.bytes // unit)
        held = columns.take(_parts(offsets.reshape(-1), size, unit).reshape(-1), axis=1)
        return held.view(np.uint8).reshape(*batch, offsets.shape[-1], size)

    def store(self, addresses: Array, values: Array, alignment: int = 1) -> None:
        """Writes bytes ``(*batch, n, size)`` at addresses ``(*batch, n)``.

        Where accesses overlap, the last one stays. Raises as `load`, and OperandError for memory
        that is read-only and for batch axes that the space has not.
        """
        self.check_writable()
        size = values.shape[-1]
        offsets = self._offsets(addresses, size, alignment)
        batch = self._broadcast(offsets.shape[:-1], values.shape[:-2])
        if batch != self.batch:
            raise OperandError(
                f"{self.name} {self.data.shape} is stored to once each: addresses "
                f"{offsets.shape} and values {values.shape} have other batch axes"
            )
        index = _shaped(self._of_batch(offsets, batch), (*batch, offsets.shape[-1]))
        self._scatter(index, _shaped(values, (*index.shape, size)), alignment)

    def fault(self, addresses: Array, size: int, alignment: int = 1) -> Fault | None:
        """The first access that `load` and `store` refuse, None where they refuse none."""
        given = np.asarray(addresses)
        wrong = self._wrong(given, size, alignment)
        if wrong is None:
            return None
        index = tuple(int(i) for i in np.argwhere(wrong)[0])
        address = int(given[index])
        return Fault(index, address, "misaligned" if address % alignment else "outside")

    def check_writable(self) -> None:
        """OperandError where the bytes are read-only."""
        if not self.data.flags.writeable:
            raise OperandError(f"{self.name} is read-only; give an array that can be written")

    # --- taking stores back ---

    def keep(self, places: NDArray[np.int64], size: int) -> None:
        """Somebody is about to write `size` bytes at places among all bytes: `roll_back` gives back
        what is there now. Raises OperandError where the bytes are read-only."""
        self.check_writable()
        if self.replaced is not None:
            low = int(np.bitwise_or.reduce(places.reshape(-1), initial=size | 16))
            unit = low & -low
            parts = _parts(places, size, unit)
            self.replaced.append((unit, parts, self._units(unit).take(parts)))

    def roll_back(self) -> None:
        """Gives every byte back that stores have replaced since `replaced` became a list."""
        while self.replaced:
            unit, index, before = self.replaced[-1]
            self._put(unit, index, before)
            self.replaced.pop()

    # --- from addresses to elements of an array ---

    def _wrong(self, addresses: Array, size: int, alignment: int) -> NDArray[np.bool_] | None:
        """Mask of the refused accesses; None where none is refused."""
        if not addresses.size:
            return None
        if addresses.dtype.itemsize < 8:
            addresses = addresses.astype(np.int64)
        last = self.start + self.bytes - size
        wrong: NDArray[np.bool_] | None = None
        if int(addresses.min()) < self.start or int(addresses.max()) > last:
            wrong = (addresses < self.start) | (addresses > last)
        if alignment > 1:
            misaligned = addresses % addresses.dtype.type(alignment) != 0
            if misaligned.any():
                wrong = misaligned if wrong is None else wrong | misaligned
        return wrong

    def _offsets(self, addresses: Array, size: int, alignment: int) -> NDArray[np.int64]:
        """Distances from the first byte of the space; all of them checked."""
        given = np.asarray(addresses)
        if given.dtype.kind not in "ui":
            raise OperandError(f"addresses are integers; got {given.dtype} {given.shape}")
        if fault := self.fault(given, size, alignment):
            what = (
                f"is no multiple of {alignment}"
                if fault.reason == "misaligned"
                else f"with {size} bytes leaves {self.name}, which has {self.bytes}"
            )
            raise AccessError(f"address {fault.address} {what}", fault)
        return given.astype(np.int64) - self.start

    def _broadcast(self, *batches: tuple[int, ...]) -> tuple[int, ...]:
        if all(batch == self.batch for batch in batches):
            return self.batch
        try:
            return np.broadcast_shapes(self.batch, *batches)
        except ValueError:
            shapes = ", ".join(map(str, batches))
            raise OperandError(
                f"the batch axes do not broadcast: {self.name} {self.batch}, accesses {shapes}"
            ) from None

    def _of_batch(self, offsets: NDArray[np.int64], batch: tuple[int, ...]) -> NDArray[np.int64]:
        """Places among all bytes of offsets ``(*batch, n)`` in the memory of each of the batch."""
        if prod(self.batch) == 1:
            return _shaped(offsets, (*batch, offsets.shape[-1]))
        starts = np.arange(prod(self.batch), dtype=np.int64) * self.bytes
        return _shaped(starts.reshape(self.batch), batch)[..., None] + offsets

    def _unit(self, size: int, alignment: int) -> int:
        """The most bytes that can be moved as one element: every access consists of such ones."""
        rows = 0 if prod(self.batch) == 1 else self.bytes
        return gcd(size, alignment, 16, self.start, rows)

    def _units(self, unit: int) -> Array:
        """All bytes as elements of `unit` bytes; not a copy where the data has C order."""
        flat = np.ascontiguousarray(self.data).reshape(-1)
        return flat[: len(flat) // unit * unit].view(_UNITS[unit])

    def _gather(self, index: NDArray[np.int64], size: int, alignment: int) -> Array:
        unit = self._unit(size, alignment)
        held = self._units(unit).take(_parts(index, size, unit))
        return np.ascontiguousarray(held).view(np.uint8).reshape(*index.shape, size)

    def _scatter(self, index: NDArray[np.int64], values: Array, alignment: int) -> None:
        size = values.shape[-1]
        unit = self._unit(size, alignment)
        elements = np.ascontiguousarray(values, np.uint8).view(_UNITS[unit])
        parts = _parts(index, size, unit)
        if self.replaced is not None:
            self.replaced.append((unit, parts, self._units(unit).take(parts)))
        self._put(unit, parts, elements.reshape(parts.shape))

    def _put(self, unit: int, parts: Array, elements: Array) -> None:
        if self.data.flags.c_contiguous:
            self._units(unit)[parts] = elements
            return
        whole = Space(self.name, np.ascontiguousarray(self.data), self.start)
        whole._put(unit, parts, elements)
        self.data[...] = whole.data


def _shown(given: object) -> str:
    """Description of a value given in place of an array of bytes, for a message."""
    if not isinstance(given, np.ndarray):
        return shown(given)
    return f"{type(given).__name__} {given.dtype} {given.shape}".removeprefix("ndarray ")


def _shaped(array: Array, shape: tuple[int, ...]) -> Array:
    return array if array.shape == shape else np.broadcast_to(array, shape)


def _parts(index: NDArray[np.int64], size: int, unit: int) -> NDArray[np.int64]:
    """The elements of `unit` bytes that accesses of `size` bytes consist of: ``(…, size / unit)``,
    ``(…)`` for one each."""
    if size == unit:
        return index // unit
    return (index // unit)[..., None] + np.arange(size // unit)
