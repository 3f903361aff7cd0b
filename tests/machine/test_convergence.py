"""Lanes that part in a recursion: their values are the H200's; whom activemask sees is a choice."""

import json

import numpy as np
import pytest
from paths import GOLDEN

from emulator import Module

ENGINES = ["vector", "reference"]
RECURSIONS = ["lin", "fib", "lop"]
#: warps of control.npz that the H200 left in one group
WHOLE = [0, 3, 4]


def recursion(name, engine):
    """Masks and results of each lane, from the emulator and from the H200."""
    held = np.load(GOLDEN / "convergence" / "recursion.npz")
    kernel = Module(bytes(held["ptx"]).decode(), target="sm_90a")[f"u_{name}"]
    depths = held[f"{name}/depths"].astype(np.int32)
    out = np.zeros((*depths.shape, 2), np.uint32)
    kernel.launch(len(depths), 32, [depths, out], engine=engine)
    return out[..., 0], out[..., 1], held[f"{name}/masks"], held[f"{name}/results"]


@pytest.mark.parametrize("name", RECURSIONS)
@pytest.mark.parametrize("engine", ENGINES)
def test_values_do_not_depend_on_who_runs_together(name, engine):
    _, results, _, recorded = recursion(name, engine)
    assert (results == recorded).all()


@pytest.mark.parametrize("name", RECURSIONS)
@pytest.mark.parametrize("engine", ENGINES)
def test_all_lanes_meet_after_a_recursion(name, engine):
    masks, _, recorded, _ = recursion(name, engine)
    assert (masks == 0xFFFFFFFF).all()
    parted = (recorded != 0xFFFFFFFF).any(-1)
    assert parted[:24].all()
    assert not parted[24:].any()


@pytest.mark.parametrize("engine", ENGINES)
def test_control_flow(engine):
    held = np.load(GOLDEN / "convergence" / "control.npz")
    meta = json.loads(bytes(held["meta"]))
    buffers = [held[f"in{i}"].copy() for i in range(3)]
    kernel = Module(bytes(held["ptx"]).decode(), target="sm_90a")[meta["entry"]]
    kernel.launch(meta["grid"], meta["block"], [*buffers, np.int32(250)], engine=engine)
    assert (buffers[0] == held["out0"]).all()
    assert (buffers[2] == held["out2"]).all()
    words, recorded = (b.view(np.uint32).reshape(-1, 8) for b in (buffers[1], held["out1"]))
    same = words == recorded
    # Words 4 to 7 are votes of those whom activemask saw.
    assert same[:, :4].all()
    for warp in WHOLE:
        assert same[32 * warp : 32 * warp + 32].all()
