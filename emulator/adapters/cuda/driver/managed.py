"""Advice on managed memory: kept and told, without an effect here."""

from __future__ import annotations

from dataclasses import dataclass, field

from emulator.adapters.cuda.calls import (
    DRIVER,
    Code,
    CudaError,
    driver,
    get,
    present,
    put,
    refuse_if,
)
from emulator.adapters.cuda.driver.devices import space
from emulator.adapters.cuda.driver.streams import stream_of

#: CUmemLocationType, and the number that older functions give to the host and to no place
_NOWHERE, _DEVICE, _HOST, _HOST_NUMA = range(4)
_HOST_NUMBER, _NO_NUMBER = -1, -2
#: CUmem_advise: pairs of what is set and taken back
_READ_MOSTLY, _PREFERRED, _ACCESSED = (1, 2), (3, 4), (5, 6)

Location = tuple[int, int]


@dataclass
class _Advice:
    """What a program said of one buffer; places as kind and number."""

    read_mostly: bool = False
    preferred: Location = (_NOWHERE, 0)
    accessed_by: dict[Location, None] = field(default_factory=dict)
    prefetched: Location = (_NOWHERE, 0)


def _of(address: int, size: int) -> _Advice:
    """The advice on the buffer of an address; CudaError where it is not managed memory."""
    found = present(space().find(address))
    beyond = size and address + size > found.address + found.size
    refuse_if(found.kind != "managed" or beyond)
    advice = space().notes.setdefault(found.address, _Advice())
    assert isinstance(advice, _Advice)
    return advice


def _prefetch(address: int, size: int, place: Location, stream: int = 0) -> None:
    stream_of(stream)
    found = _of(address, size)
    refuse_if(not size)
    refuse_if(place[0] == _DEVICE and place[1] != 0, Code.INVALID_DEVICE)
    found.prefetched = place


def _old(number: int) -> Location:
    """A place as older functions name it: a device's number, or the host's."""
    return (_HOST, 0) if number == _HOST_NUMBER else (_DEVICE, number)


def _place(packed: int) -> Location:
    """A CUmemLocation that was passed by value."""
    return packed & 0xFFFFFFFF, packed >> 32


def _number(place: Location) -> int:
    return {_DEVICE: place[1], _HOST: _HOST_NUMBER}.get(place[0], _NO_NUMBER)


def _advise(address: int, size: int, advice: int, place: Location) -> None:
    found = _of(address, size)
    refuse_if(place[0] == _DEVICE and place[1] != 0)
    if advice in _READ_MOSTLY:
        found.read_mostly = advice == _READ_MOSTLY[0]
    elif advice in _PREFERRED:
        found.preferred = place if advice == _PREFERRED[0] else (_NOWHERE, 0)
    elif advice == _ACCESSED[0]:
        found.accessed_by[place] = None
    elif advice == _ACCESSED[1]:
        found.accessed_by.pop(place, None)
    else:
        raise CudaError(Code.INVALID_VALUE)


@driver("cuMemPrefetchBatchAsync", "cuMemDiscardAndPrefetchBatchAsync")
def prefetch_all(addresses: int, sizes: int, count: int, *rest: int) -> None:
    places, starts, place_count, _, stream = rest
    stream_of(stream)
    # A place is for the buffers from its start to the start of the next place.
    given = [get(places + 8 * i, "II") for i in range(place_count)]
    begins = get(starts, f"{place_count}Q")
    rows = zip(get(addresses, f"{count}Q"), get(sizes, f"{count}Q"), strict=True)
    for i, (address, size) in enumerate(rows):
        kind, number = given[max(k for k, begin in enumerate(begins) if begin <= i)]
        _prefetch(address, size, (kind, number))


@driver("cuMemDiscardBatchAsync")
def discard_all(addresses: int, sizes: int, count: int, flags: int, stream: int) -> None:
    stream_of(stream)
    for address, size in zip(get(addresses, f"{count}Q"), get(sizes, f"{count}Q"), strict=True):
        _of(address, size)


@driver("cuMemRangeGetAttribute")
def attribute(out: int, room: int, which: int, address: int, size: int) -> None:
    found = _of(address, size)
    if which == 3:
        known = [_number(place) for place in found.accessed_by]
        count = room // 4
        put(out, f"{count}i", *(known + [_NO_NUMBER] * count)[:count])
        return
    values = {
        1: int(found.read_mostly), 2: _number(found.preferred), 4: _number(found.prefetched),
        5: found.preferred[0], 6: found.preferred[1], 7: found.prefetched[0],
        8: found.prefetched[1],
    }  # fmt: skip
    refuse_if(which not in values)
    put(out, "i", values[which])


@driver("cuMemRangeGetAttributes")
def all_attributes(outs: int, rooms: int, which: int, count: int, address: int, size: int) -> None:
    rows = (get(outs, f"{count}Q"), get(rooms, f"{count}Q"), get(which, f"{count}I"))
    for out, room, one in zip(*rows, strict=True):
        attribute(out, room, one, address, size)


DRIVER |= {
    "cuMemAdvise": lambda address, size, advice, number: _advise(
        address, size, advice, _old(number)
    ),
    "cuMemAdvise_v2": lambda address, size, advice, place: _advise(
        address, size, advice, _place(place)
    ),
    "cuMemPrefetchAsync": lambda address, size, number, stream: _prefetch(
        address, size, _old(number), stream
    ),
    "cuMemPrefetchAsync_v2": lambda address, size, place, flags, stream: _prefetch(
        address, size, _place(place), stream
    ),
}
