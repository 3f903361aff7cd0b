"""Asynchronous copies of every kind, launch by launch, against what an H200 wrote."""

import gzip
import json
import re
from operator import itemgetter

import numpy as np
import pytest
from copy_kernels import ENTRY, THREADS, Case, buffers, digest, results, tensor_map, text
from hardware.copy_record import draw
from paths import GOLDEN
from sweeps import swept

from emulator import KernelError, Module
from emulator.machine.vector import issuer, tensors
from emulator.memory import tensor_copy, tensor_transfer
from emulator.memory.tensor_map_bits import ELEMENT_TYPES, SWIZZLES

pytestmark = pytest.mark.sampled(6)

RECORDED = json.loads(gzip.decompress((GOLDEN / "h200_copies.json.gz").read_bytes()))
LAUNCHES = {row["case"]["name"]: row for row in RECORDED["launches"]}
ORDERS = ("early", "late")


def launched(case, order="early", engine="vector"):
    """What a launch writes, as in a recording; or the kind of its error."""
    memory = buffers(case)
    arguments = [*memory, tensor_map(case, memory[2])] if case.map else memory
    kernel = Module(text(case), target="sm_90a")[ENTRY]
    try:
        kernel.launch(case.grid, THREADS, arguments, async_order=order, engine=engine)
    except KernelError as error:
        return error.kind
    return results(case, memory)


def differing(name, order="early", engine="vector"):
    """Which parts of what a launch has written are not as recorded; an error where there is one."""
    row = LAUNCHES[name]
    found = launched(Case.of(row["case"]), order, engine)
    if "error" in row or isinstance(found, str):
        return [] if "error" in row and found == "tensor copy" else [found]
    wanted = row["digests"]
    return [i for i, (a, b) in enumerate(zip(found, wanted, strict=True)) if digest(a) != b]


@pytest.mark.sampled(48, covered_by="test_copies_write_what_the_h200_wrote_in_both_orders")
@pytest.mark.parametrize("name", LAUNCHES)
def test_copies_write_what_the_h200_wrote(name):
    assert differing(name, "late") == []


@pytest.mark.slow
@swept(LAUNCHES)
def test_copies_write_what_the_h200_wrote_in_both_orders(name):
    assert [order for order in ORDERS if differing(name, order)] == []


@pytest.mark.sampled(30)
@swept(list(enumerate(LAUNCHES))[::4], 8, ids=itemgetter(1))
def test_the_reference_engine_writes_what_the_h200_wrote(case):
    i, name = case
    assert differing(name, ORDERS[i // 4 % 2], "reference") == []


# --- what is recorded ---


def test_the_cases_are_drawn_as_recorded():
    """A seed stands for all launches: the tool draws the same ones again."""
    drawn = json.loads(
        json.dumps([case.json() for case in draw(int(RECORDED["provenance"]["seed"]))])
    )
    assert drawn == [row["case"] for row in RECORDED["launches"]]


def recorded(start):
    return [row["case"] for name, row in LAUNCHES.items() if name.startswith(start)]


def test_every_kind_of_copy_is_recorded():
    assert len(LAUNCHES) == 800
    errors = [row["error"] for row in LAUNCHES.values() if "error" in row]
    assert len(errors) == 152
    assert all("error 715" in error for error in errors), "an illegal instruction"
    for way in ("tile load", "tile store"):
        maps = [case["map"] for case in recorded(way)]
        assert {m["dtype"] for m in maps} == set(ELEMENT_TYPES)
        assert {(len(m["dims"]), m["swizzle"]) for m in maps} >= {
            (rank, swizzle) for rank in range(1, 6) for swizzle in SWIZZLES
        }
        assert any(max(m["element_strides"]) > 1 for m in maps)
    for way in ("im2col load", "im2col store", "interleave 16B", "interleave 32B"):
        assert {len(case["map"]["dims"]) for case in recorded(way)} == {3, 4, 5}
    edited = {re.search(r"replace\.tile\.(\w+)", " ".join(c["before"]))[1] for c in recorded("rep")}
    assert len(edited) == 10
    assert {case["cluster"] for case in recorded("multicast")} == {2, 4}


# --- recordings notice mistakes ---


def test_a_changed_byte_is_noticed():
    case = Case.of(LAUNCHES["bulk to cta 0"]["case"])
    parts = launched(case)
    changed = bytearray(parts[0])
    changed[-17] ^= 1
    assert digest(parts[0]) == LAUNCHES["bulk to cta 0"]["digests"][0] != digest(bytes(changed))


def noticed(start):
    """Whether a launch whose name begins so differs from its recording."""
    return any(differing(name) for name in LAUNCHES if name.startswith(start))


@pytest.mark.parametrize(
    ("constant", "value", "start"),
    [
        ("OUTSIDE_NAN", 0x7FFF, "tile load of float16"),
        ("TF32_NAN", 0x7FFFFFFF, "tile load 2d 128B 0"),
    ],
)
def test_recordings_notice_another_nan(constant, value, start, monkeypatch):
    assert not noticed(start)
    monkeypatch.setattr(tensor_transfer, constant, value)
    assert noticed(start)


@pytest.mark.parametrize("start", ["refused load 1d", "refused store 3d", "refused 16B 3d"])
def test_recordings_notice_a_copy_that_must_not_begin(start, monkeypatch):
    assert not noticed(start)
    monkeypatch.setattr(tensors, "place_problem", lambda *_: "")
    assert noticed(start)


@pytest.mark.parametrize(
    ("owner", "name", "other", "start"),
    [
        (
            tensor_copy.PlacedCopy,
            "behind",
            lambda self: self._replace(first=self.last),
            "tile store 1d",
        ),
        (tensor_copy.BoxPlan, "row_pitch", lambda self: self.row_bytes, "tile load 2d 128B"),
    ],
)
def test_recordings_notice_another_rule(owner, name, other, start, monkeypatch):
    assert not noticed(start)
    tensor_copy._swizzled_runs.cache_clear()
    monkeypatch.setattr(owner, name, property(other))
    found = noticed(start)
    tensor_copy._swizzled_runs.cache_clear()
    assert found


@pytest.mark.parametrize(
    ("name", "operation", "dtype", "type_"),
    [("tile add of int64", "add", "int64", "u64"), ("tile min of uint16", "min", "uint16", "u16")],
)
def test_recordings_notice_another_reduction(name, operation, dtype, type_, monkeypatch):
    """What the H200 refuses is refused here; a table that allowed it would be noticed."""
    assert differing(name) == []
    types = tensor_transfer.REDUCED[operation] | {dtype: type_}
    monkeypatch.setitem(tensor_transfer.REDUCED, operation, types)
    monkeypatch.setattr(tensors, "bind_vector", lambda *_, **__: np.add)
    found = differing(name)
    assert found


def test_recordings_notice_a_signal_to_another_block(monkeypatch):
    """The mbarrier of a copy within a cluster is that of the block that it goes to."""
    assert not noticed("st.async.b32")
    inner = issuer.barriers_at
    monkeypatch.setattr(
        issuer, "barriers_at", lambda find, space: inner(
            find, "shared" if space == "cluster" else space
        )
    )  # fmt: skip
    assert noticed("st.async.b32")
