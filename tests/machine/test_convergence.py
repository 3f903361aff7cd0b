"""Lanes that part in a recursion: whom activemask sees then is what the H200 recorded."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from paths import GOLDEN

from emulator import Module
from emulator.errors import UnsupportedError
from emulator.machine.shared.convergence import Convergence
from emulator.ptx.regions import regions_of

pytestmark = pytest.mark.sampled(4)

ENGINES = ["vector", "reference"]
RECURSIONS = ["lin", "fib", "lop"]
#: warps of regions.npz and flips.npz that an H200 runs otherwise: something else, too, moves the
#: lane from which it searches those who wait, what is open
OTHERWISE = {"two": [4], "ind": [1], "flips": [19]}


def held_in(name):
    with np.load(GOLDEN / "convergence" / f"{name}.npz") as held:
        return dict(held)


def recursion(name, engine):
    """Masks and results of each lane, from the emulator and from the H200."""
    held = held_in("recursion")
    kernel = Module(bytes(held["ptx"]).decode(), target="sm_90a")[f"u_{name}"]
    depths = np.ascontiguousarray(held[f"{name}/depths"][::3], np.int32)
    out = np.zeros((*depths.shape, 2), np.uint32)
    kernel.launch(len(depths), 32, [depths, out], engine=engine)
    return out[..., 0], out[..., 1], held[f"{name}/masks"][::3], held[f"{name}/results"][::3]


@pytest.mark.parametrize("name", RECURSIONS)
@pytest.mark.parametrize("engine", ENGINES)
def test_activemask_after_a_recursion(name, engine):
    masks, results, recorded, values = recursion(name, engine)
    assert (results == values).all()
    parted = (recorded != 0xFFFFFFFF).any(-1)
    assert parted[:8].all()
    assert not parted[8:].any()
    assert (masks == recorded).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["two", "ind"])
@pytest.mark.parametrize("engine", ENGINES)
def test_activemask_in_regions_of_the_caller(name, engine):
    """A branch around a recursive call; a call through a pointer behind one."""
    held = held_in("regions")
    kernel = Module(bytes(held["ptx"]).decode(), target="sm_90a")[f"k_{name}"]
    depths, recorded = held[f"{name}/depths"].astype(np.int32), held[f"{name}/masks"]
    out, results = np.zeros((*depths.shape, 128, 2), np.uint32), np.zeros(depths.shape, np.int32)
    kernel.launch(len(depths), 32, [depths, out, results], engine=engine)
    same = (out[:, :, : recorded.shape[2], 0] == recorded).all((1, 2))
    assert np.flatnonzero(~same).tolist() == OTHERWISE[name]
    fibonacci = np.array([0, 1, 1, 2, 3, 5, 8, 13, 21])[depths]
    if name == "two":
        assert (results == np.where(depths, 7 * fibonacci, 9)).all()


@pytest.mark.parametrize("engine", ENGINES)
def test_control_flow(engine):
    held = held_in("control")
    meta = json.loads(bytes(held["meta"]))
    buffers = [held[f"in{i}"].copy() for i in range(3)]
    kernel = Module(bytes(held["ptx"]).decode(), target="sm_90a")[meta["entry"]]
    kernel.launch(meta["grid"], meta["block"], [*buffers, np.int32(250)], engine=engine)
    assert (buffers[0] == held["out0"]).all()
    assert (buffers[2] == held["out2"]).all()
    words, recorded = (b.view(np.uint32).reshape(-1, 8) for b in (buffers[1], held["out1"]))
    # Words 4 to 7 are votes of those whom activemask saw.
    assert (words == recorded).all()


def flips(depths, trips, engine):
    """The groups that activemask showed, one after the other, and at which of two events."""
    shape = len(depths), len(trips), 16
    count, room = shape[0] * shape[1], shape[2]
    out, hashes = np.zeros((*shape, 2), np.uint32), np.zeros((count, 2), np.uint32)
    sums = np.zeros((count, 32), np.int32)
    depths, trips = depths.astype(np.int32), trips.astype(np.int32)
    kernel = Module(bytes(held_in("flips")["ptx"]).decode(), target="sm_90a")["ku"]
    buffers = [depths, trips, len(trips), out, room - 1, sums, hashes]
    kernel.launch(count, 32, buffers, engine=engine)
    return out[..., 0], out[..., 1] & 15


@pytest.mark.parametrize(
    ("engine", "warps"),
    [
        ("vector", [5]),
        pytest.param("vector", range(0, 20, 2), marks=pytest.mark.slow),
        pytest.param("reference", range(1, 20, 2), marks=pytest.mark.slow),
    ],
)
def test_who_leaves_a_loop_first_decides_who_goes_on_together(engine, warps):
    held = held_in("flips")
    recorded, places = held["masks"][warps], held["events"][warps]
    assert all(len(np.unique(tables, axis=0)) > 1 for tables in recorded)
    masks, events = flips(held["depths"][warps], held["trips"], engine)
    same = masks[..., : recorded.shape[-1]] == recorded
    same &= events[..., : recorded.shape[-1]] == places
    differ = [warp for warp, whole in zip(warps, same.all((1, 2)), strict=True) if not whole]
    assert differ == [warp for warp in warps if warp in OTHERWISE["flips"]]


@pytest.mark.parametrize("engine", ENGINES)
def test_two_warps_of_one_launch_go_on_as_each_alone(engine):
    held = held_in("flips")
    masks, _ = flips(held["pair/depths"], np.ones((1, 64)), engine)
    assert (masks[:, 0, :9] == held["pair/masks"]).all()


def test_who_needs_the_model():
    """Recursion that activemask shows: the compiled engine declines it, a seed orders it."""
    module = Module(bytes(held_in("recursion")["ptx"]).decode(), target="sm_90a")
    kernel = module["u_fib"]
    buffers = [np.arange(32, dtype=np.int32) % 9, np.zeros(64, np.uint32)]
    with pytest.raises(UnsupportedError, match="recursion that activemask shows"):
        kernel.launch(1, 32, buffers, engine="compiled")
    kernel.launch(1, 32, buffers, engine="vector", seed=3)
    assert (buffers[1][1::2] == np.array([0, 1, 1, 2, 3, 5, 8, 13, 21])[buffers[0]]).all()
    program = kernel.rewritten[0]
    found = regions_of(program, program.functions["u_fib"])
    assert found is not None
    assert list(found.saves) == [program.functions["_Z3fibi"].first]
    plain = Module(PLAIN)["k"].rewritten[0]
    assert regions_of(plain, plain.functions["k"]) is None


PLAIN = """.version 8.0
.target sm_90a
.address_size 64
.func f() { .reg .b32 %r; activemask.b32 %r; ret; }
.entry k() { call f; ret; }"""


class OneRegion:
    """A branch at 0 to 1 or 2, whose lanes meet at 3."""

    begins, meets, saves = {0: [0]}, {3: 0}, {}

    def last(self, pc):
        return SimpleNamespace(pc=pc, name="bra")


def chosen(warp, at, calls=None):
    return warp.choose(at, calls or dict.fromkeys(at, 0), 0, 0b1111)


def test_the_smaller_side_runs_first_and_all_meet():
    warp = Convergence(OneRegion())
    assert chosen(warp, dict.fromkeys(range(4), 0)) == 0b1111
    assert chosen(warp, {0: 1, 1: 1, 2: 1, 3: 2}) == 0b1000
    assert chosen(warp, {0: 1, 1: 1, 2: 1, 3: 3}) == 0b0111
    assert chosen(warp, dict.fromkeys(range(4), 3)) == 0b1111


def test_of_equal_sides_the_one_that_falls_through_runs_first():
    warp = Convergence(OneRegion())
    assert chosen(warp, dict.fromkeys(range(4), 0)) == 0b1111
    assert chosen(warp, {0: 2, 1: 2, 2: 1, 3: 1}) == 0b1100


def test_the_smallest_group_in_equally_many_calls_brings_all_of_its_place():
    warp = Convergence(OneRegion())
    at, calls = {1: 9, 2: 9, 3: 9, 4: 8, 5: 8}, {1: 0, 2: 1, 3: 1, 4: 0, 5: 0}
    assert chosen(warp, at, calls) == 0b1110


def test_who_is_released_from_elsewhere_waits_until_nobody_else_is_ready():
    regions = OneRegion()
    regions.meets = {3: 0, 6: 0}
    warp = Convergence(regions)
    assert chosen(warp, dict.fromkeys(range(4), 0)) == 0b1111
    assert chosen(warp, {0: 2, 1: 1, 2: 1, 3: 1}) == 0b0001
    assert chosen(warp, {0: 6, 1: 1, 2: 1, 3: 1}) == 0b1110
    # 1 to 3 complete the barrier at 3; 0, which waits at 6, goes on after them.
    assert chosen(warp, {0: 6, 1: 3, 2: 3, 3: 3}) == 0b1110
    assert chosen(warp, {0: 6, 1: 4, 2: 4, 3: 5}) == 0b1000
    assert chosen(warp, {0: 6, 1: 4, 2: 4}) == 0b0110
    assert chosen(warp, {0: 6}) == 0b0001
