"""``Space``: loads and stores against one byte at a time, and what it refuses."""

import itertools

import numpy as np
import pytest

from emulator import OperandError, UndefinedError
from emulator.memory.space import AccessError, Fault, Space


def filled(shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


def byte_by_byte(data, addresses, size, start=0):
    """What `load` must give, from plain indexing of one byte at a time."""
    batch = np.broadcast_shapes(data.shape[:-1], addresses.shape[:-1])
    data = np.broadcast_to(data, (*batch, data.shape[-1]))
    addresses = np.broadcast_to(addresses, (*batch, addresses.shape[-1]))
    out = np.zeros((*addresses.shape, size), np.uint8)
    for at in np.ndindex(*addresses.shape):
        for i in range(size):
            out[(*at, i)] = data[(*at[:-1], int(addresses[at]) - start + i)]
    return out


def layouts(data):
    """The same bytes as arrays of other strides, none of which may be a copy that is lost."""
    wide = np.zeros((*data.shape[:-1], 2 * data.shape[-1]), np.uint8)
    wide[..., ::2] = data
    return data.copy(), wide[..., ::2], data.copy("F")


SIZES = ((1, 1), (2, 2), (4, 4), (8, 8), (16, 16), (16, 1), (4, 2), (12, 4), (32, 16), (3, 1))


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("size", "alignment"), SIZES)
@pytest.mark.parametrize("batch", [(), (1,), (3,), (2, 1), (0,)])
@pytest.mark.parametrize("count", [100, 96])
def test_load_and_store_are_bytes_one_by_one(size, alignment, batch, count):
    rng = np.random.default_rng(size)
    start = 32
    most = (count - size) // alignment
    for ours, theirs in itertools.product([(), batch, (1, *batch)], [(), batch]):
        addresses = start + alignment * rng.integers(0, most + 1, (*ours, 7))
        for data in layouts(filled((*theirs, count))):
            space = Space("memory", data, start)
            got = space.load(addresses, size, alignment)
            assert got.dtype == np.uint8
            assert np.array_equal(got, byte_by_byte(data, addresses, size, start))
    # a store changes the bytes that a load of the same addresses reads, and no others
    apart = start + alignment * rng.permutation(most // (size // alignment))[:7] * (
        size // alignment
    )
    for data in layouts(filled((*batch, count))):
        space, before = Space("memory", data, start), data.copy()
        values = filled((*batch, len(apart), size), 1)
        space.store(apart, values, alignment)
        assert np.array_equal(space.load(apart, size, alignment), values)
        touched = (apart[:, None] - start + np.arange(size)).reshape(-1)
        before[..., touched] = values.reshape(*batch, touched.size)
        assert np.array_equal(data, before)


def test_of_stores_that_overlap_the_last_stays():
    for alignment in (1, 4):
        space = Space("memory", np.zeros(16, np.uint8))
        space.store(np.array([4, 4, 4]), np.arange(12, dtype=np.uint8).reshape(3, 4), alignment)
        assert space.data.tolist() == [0] * 4 + [8, 9, 10, 11] + [0] * 8


@pytest.mark.parametrize(
    ("addresses", "fault"),
    [
        ([0, 8, 12], None),
        ([0, 8, 13], Fault((2,), 13, "misaligned")),
        ([0, 16, 13], Fault((1,), 16, "outside")),
        ([-4, 8], Fault((0,), -4, "outside")),
        ([[0, 4], [14, 99]], Fault((1, 0), 14, "misaligned")),
        (np.array([0, 1 << 63], np.uint64), Fault((1,), 1 << 63, "outside")),
        (np.array([4, 250], np.uint8), Fault((1,), 250, "misaligned")),
        ([], None),
    ],
)
def test_the_first_wrong_access_is_told(addresses, fault):
    data = filled(16)
    before = data.copy()
    space, addresses = (
        Space("memory", data),
        np.asarray(addresses, getattr(addresses, "dtype", int)),
    )
    assert space.fault(addresses, 4, 4) == fault
    if fault is None:
        space.load(addresses, 4, 4)
        return
    with pytest.raises(AccessError, match=f"address {fault.address} ") as error:
        space.load(addresses, 4, 4)
    assert error.value.fault == fault and isinstance(error.value, UndefinedError)
    with pytest.raises(AccessError) as error:
        space.store(addresses, np.zeros((*addresses.shape, 4), np.uint8), 4)
    assert error.value.fault == fault
    assert np.array_equal(data, before)


def test_what_cannot_be_stored_to_is_refused():
    data = filled((2, 16))
    data.flags.writeable = False
    space = Space("shared memory", data)
    one = np.zeros((1, 4), np.uint8)
    with pytest.raises(OperandError, match="shared memory is read-only"):
        space.store(np.array([0]), one)
    space = Space("shared memory", data.copy())
    with pytest.raises(OperandError, match=r"shared memory \(2, 16\) is stored to once each"):
        space.store(np.zeros((3, 1, 1), int), one)
    with pytest.raises(OperandError, match="do not broadcast: shared memory"):
        space.store(np.zeros((3, 1), int), one)
    with pytest.raises(OperandError, match="addresses are integers; got float64"):
        space.load(np.zeros(1), 4)
    assert np.array_equal(space.data, data)


@pytest.mark.parametrize(
    "given", [3, None, b"bytes", [1, 2], np.zeros(4), np.uint8(1), np.ma.zeros(4, np.uint8)]
)
def test_only_bytes_are_a_space(given):
    with pytest.raises(OperandError, match=r"a uint8 array \(…, bytes\), is needed; got"):
        Space("memory", given)
    with pytest.raises(OperandError, match=r"shared= is shared memory, a uint8 array \(…, bytes\)"):
        Space.of(given, "shared")
    with pytest.raises(OperandError, match="global_memory= is global memory, a uint8 array"):
        Space.of(given, "global_memory")


def test_stores_are_taken_back():
    for data in layouts(filled((2, 64))):
        before = data.copy()
        space = Space("memory", data)
        space.store(np.array([0]), np.full((1, 4), 9, np.uint8))
        kept = data.copy()
        space.replaced = []
        space.store(np.array([0, 2, 60]), filled((2, 3, 4), 1), 2)
        space.store(np.array([2]), filled((2, 1, 16), 2))
        assert not np.array_equal(data, kept)
        space.roll_back()
        assert np.array_equal(data, kept) and not np.array_equal(data, before)
        assert space.replaced == []
