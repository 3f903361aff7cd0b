"""wgmma statements on a Warpgroup, and the ordering rules that they must keep."""

import numpy as np
import pytest
from test_ptx import REGISTERS, STATEMENT, fill, warp

from emulator import OperandError, UndefinedError, UnsupportedError, Warpgroup
from emulator.layout.addressing import encode_descriptor

WGMMA = (
    "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 {%d0,%d1,%d2,%d3}, {%a0,%a1,%a2,%a3}, desc, p;"
)
FENCE = "wgmma.fence.sync.aligned;"
COMMIT = "wgmma.commit_group.sync.aligned;"


def wait(n):
    return f"wgmma.wait_group.sync.aligned {n};"


def warpgroup(**options):
    machine = Warpgroup(target="sm_90a", shared_bytes=4096, **options)
    machine.run(".reg .b32 %a<4>; .reg .s32 %d<4>; .reg .b64 desc; .reg .pred p; mov.pred p, 0;")
    machine["desc"] = int(encode_descriptor(0, 128, 256))
    machine.write("%a", np.full((128, 4), 0x01010101, np.uint32))
    machine.shared[:] = 2
    return machine


def test_wgmma_runs():
    machine = warpgroup()
    machine.run(FENCE + WGMMA + COMMIT + wait(0))
    assert machine.registers["%d0"].values.tolist() == [64] * 128
    machine.run("mov.pred p, 1;" + FENCE + WGMMA + WGMMA + COMMIT + wait(0))
    assert machine.registers["%d3"].values.tolist() == [192] * 128


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (WGMMA, "wgmma.fence must come before the first"),
        (FENCE + WGMMA + COMMIT + "mov.b32 %a0, %d0;", "read while the wgmma"),
        (FENCE + WGMMA + COMMIT + wait(1) + "mov.b32 %a0, %d0;", "read while the wgmma"),
        (FENCE + WGMMA + wait(0) + "mov.b32 %a0, %d0;", "read while the wgmma"),
        (FENCE + WGMMA + COMMIT + "mov.b32 %a0, 1;", "still be using it"),
        (FENCE + "mov.b32 %a0, 1;" + WGMMA, "touched since the last wgmma.fence"),
        (FENCE + WGMMA + WGMMA.replace("%d0,%d1", "%d1,%d0"), "may still be writing"),
    ],
)
def test_wgmma_races_are_undefined(text, words):
    machine = warpgroup()
    before = machine["%a0"]
    with pytest.raises(UndefinedError, match=words):
        machine.run(text)
    assert np.array_equal(machine["%a0"], before)
    warpgroup(undefined="hardware").run(text)


def test_reading_an_accumulator_too_early_from_python():
    machine = warpgroup()
    machine.run(FENCE + WGMMA + COMMIT)
    with pytest.raises(UndefinedError, match="read while"):
        machine["%d0"]
    with pytest.raises(UndefinedError, match="still be using"):
        machine["%a0"] = 0
    machine.run(wait(0))
    assert machine["%d0"][0] == 64


def test_wait_keeps_the_most_recent_groups_pending():
    machine = warpgroup()
    machine.run(".reg .s32 %e<4>;")
    other = WGMMA.replace("%d", "%e")
    machine.run(FENCE + WGMMA + COMMIT + other + COMMIT + wait(1))
    assert machine["%d0"][0] == 64
    with pytest.raises(UndefinedError):
        machine["%e0"]


def test_waiting_for_more_groups_than_are_in_flight_completes_none():
    machine = warpgroup()
    machine.run(".reg .s32 %e<4>;")
    other = WGMMA.replace("%d", "%e")
    machine.run(FENCE + WGMMA + COMMIT + other + COMMIT + wait(3))
    for name in ("%d0", "%e0"):
        with pytest.raises(UndefinedError, match="read while the wgmma"):
            machine[name]
    machine.run(wait(2))
    with pytest.raises(UndefinedError, match="read while the wgmma"):
        machine["%d0"]
    machine.run(wait(1))
    assert machine["%d0"][0] == 64
    machine.run(wait(1000) + wait(0))
    assert machine["%e0"][0] == 64


def test_an_accumulator_is_no_input_before_it_is_complete():
    """Not even of a wgmma that goes on with the same accumulator."""
    machine = warpgroup()
    chained = WGMMA.replace("{%a0,%a1,%a2,%a3}", "{%d0,%d1,%d2,%d3}")
    with pytest.raises(UndefinedError, match="may still be writing registers that this one uses"):
        machine.run(FENCE + WGMMA + chained)
    machine.run(FENCE + WGMMA + COMMIT + wait(0) + FENCE + chained + COMMIT + wait(0))
    # 64 in every s32 is 64, 0, 0, 0 in s8: a quarter of the elements, of 2 each
    assert machine["%d0"][0] == 64 * 8 * 2


def test_registers_are_written_together_or_not_at_all():
    machine = warpgroup()
    machine.run(".reg .b32 %x<3>;")
    machine.write("%x", np.zeros((128, 3), np.uint32))
    machine.run(FENCE + WGMMA.replace("%a3", "%x2") + COMMIT)
    with pytest.raises(UndefinedError, match="'%x2' is written while"):
        machine.write("%x", np.ones((128, 3), np.uint32))
    with pytest.raises(OperandError, match="'%x3' is not declared"):
        machine.write("%x", np.ones((128, 4), np.uint32))
    assert not machine["%x0"].any() and not machine["%x1"].any()
    machine.run(wait(0))
    machine.write("%x", np.ones((128, 3), np.uint32))
    assert machine["%x2"].all()


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        (WGMMA.replace("p;", "2;"), OperandError, "a predicate, or 0 or 1"),
        (WGMMA.replace("desc", "%a0"), OperandError, "takes registers of type .b64"),
        (WGMMA.replace("desc", "{desc}"), OperandError, "is a single register; got"),
        (WGMMA.replace("%d3", "_"), OperandError, "cannot be discarded"),
        ("wgmma.wait_group.sync.aligned -1;", OperandError, "is 0 … 2147483647; got -1"),
        ("wgmma.fence.sync;", UnsupportedError, "wgmma.fence.sync.aligned"),
    ],
)
def test_bad_wgmma_statement(text, error, words):
    machine = warpgroup()
    with pytest.raises(error, match=words):
        machine.run(FENCE + text)


def test_every_warp_of_a_group_runs_its_own_mma():
    group = Warpgroup(target="sm_90a")
    group.run(REGISTERS)
    fill(group)
    words = {x: group.read(f"%{x}", n) for x, n in (("a", 4), ("b", 2), ("c", 4))}
    group.run(STATEMENT)
    for w in range(4):
        one = warp()
        for x, values in words.items():
            one.write(f"%{x}", values[32 * w : 32 * w + 32])
        one.run(STATEMENT)
        assert np.array_equal(group.read("%d", 4)[32 * w : 32 * w + 32], one.read("%d", 4))


def test_descriptor_must_be_uniform():
    machine = warpgroup()
    machine["desc"] = np.arange(128, dtype=np.uint64)
    with pytest.raises(OperandError, match="same in all lanes"):
        machine.run(FENCE + WGMMA)
