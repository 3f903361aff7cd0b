"""Probes on hardware: the recordings hold what is derived by hand, and the tool that makes them."""

import numpy as np
import pytest
from bits import assert_same_codes
from hardware import capture, cases, kernels, measure, wmma_check
from probes import probe_codes, probes
from stand_ins import Echo, StandIn, settings
from test_capture import B1, F64, MMA, ORDERED, QUAD, SPARSE, WGMMA, WGMMA_INT, WGMMA_SPARSE

from emulator import Instruction
from emulator.targets import TARGETS
from emulator.tools.recordings import recordings, save
from emulator.tools.replay import replay

pytestmark = pytest.mark.sampled(4)

FLOATS = (MMA, QUAD, F64, SPARSE, ORDERED, WGMMA, WGMMA_SPARSE)
RECORDED = list(recordings("h200_probes"))


def by_hand(ins, target):
    """The codes of D that the probes of an instruction have by hand."""
    types = (ins.a_type, ins.b_type, ins.c_type, ins.d_type)
    path = "wmma" if ins.family == "wmma.mma" else ins.form.pipe
    k = getattr(ins, "stored_k", ins.k)
    return probe_codes(probes(path, TARGETS[target].generation, types, k), types, k)[3]


def on_diagonals(ins, words, count):
    """The first `count` elements on the diagonals of D, of all cases and groups."""
    d = ins.fragment("d").gather(words).reshape(-1, ins.m, ins.n)
    on = np.arange(min(ins.m, ins.n))
    return d[:, on, on].reshape(-1)[:count]


@pytest.mark.parametrize("variant", RECORDED, ids=lambda variant: variant.name)
def test_an_h200_gives_what_is_derived_by_hand(variant):
    """No arithmetic of the emulator takes part."""
    ins = Instruction.parse(variant.opcode)
    want = by_hand(ins, variant.target)
    assert_same_codes(on_diagonals(ins, variant.expected, len(want)), want)


def test_all_families_and_accumulators_are_recorded():
    seen = {(ins.family, ins.a_type, ins.d_type) for ins in
            (Instruction.parse(variant.opcode) for variant in RECORDED)}  # fmt: skip
    wanted = {
        (ins.family, ins.a_type, ins.d_type)
        for ins in capture.choose("sm_90a", "", every_n=True)
        if ins.d_type != "s32"
    }
    assert seen == wanted
    wmma = {(ins.a_type, ins.c_type, ins.d_type) for ins in
            (Instruction.parse(variant.opcode) for variant in recordings("h200_wmma"))}  # fmt: skip
    assert wmma == {(i.a_type, i.c_type, i.d_type) for i in wmma_check.a_few("sm_90a", "")}


# --- the tool -------------------------------------------------------------------------------------


@pytest.mark.parametrize("opcode", FLOATS)
def test_probes_through_the_kernel_text(opcode, tmp_path):
    ins = Instruction.parse(opcode)
    report = measure.measure(StandIn(), ins, settings(record=True, probes=True))
    assert len(report.recordings) == (2 if ins.is_wgmma else 1)
    want = by_hand(ins, "sm_90a")
    for recording in report.recordings:
        assert replay(recording).differing == 0
        assert_same_codes(on_diagonals(ins, recording.expected, len(want)), want)


@pytest.mark.parametrize("opcode", (B1, WGMMA_INT))
def test_integers_have_no_probes(opcode):
    report = measure.measure(
        StandIn(), Instruction.parse(opcode), settings(record=True, probes=True)
    )
    assert (report.recordings, report.outcomes) == ([], [])


def test_probes_leave_signs_as_they_are_and_take_both_sources_of_a():
    rng = np.random.default_rng(3)
    found = list(kernels.for_probes(Instruction.parse(WGMMA), rng))
    assert [variant.a_shared for variant in found] == [False, True]
    for variant in found:
        assert {variant.options[f"imm_scale_{x}"] for x in "ab"} == {1}


def test_tiles_of_probes_share_no_byte():
    rng, taken = np.random.default_rng(4), np.zeros((1, kernels.IMAGE_BYTES), np.bool_)
    place = Instruction.parse(WGMMA).b_place
    for rows in (64, 24):
        image, codes = np.zeros_like(taken, np.uint8), np.ones((1, rows, 16), np.uint16)
        before = taken.sum()
        cases.write_tiles(image, codes, place, "k", rng, taken)
        assert (image != 0).sum() == rows * 16 and taken.sum() - before == rows * 16 * 2


def test_wmma_is_recorded_from_memory_to_memory(tmp_path):
    found = []
    for ins in wmma_check.a_few("sm_90a", "m16n16k")[::3]:
        plan = wmma_check.dense_plan(ins, np.random.default_rng(5))
        found.append(wmma_check.record(Echo(plan), plan, "sm_90a", "9.0", 2, 0))
        bad = wmma_check.record(Echo(plan, (1, 9)), plan, "sm_90a", "9.0", 2, 0)
        assert replay(bad) == (1, bad.cases)
    save(tmp_path / "wmma.npz", {"gpu": "stand-in"}, found)
    for loaded, made in zip(recordings("wmma", tmp_path), found, strict=True):
        assert loaded.name == made.name and replay(loaded).differing == 0


def test_wmma_probes_are_those_derived_by_hand():
    ins = Instruction.parse("wmma.mma.sync.aligned.row.col.m16n16k16.f16.f32")
    plan = wmma_check.dense_plan(ins, np.random.default_rng(6))
    memory = wmma_check.probe_memories(plan, "sm_90a")
    want = by_hand(ins, "sm_90a")
    after = wmma_check.emulated(plan, memory, "sm_90a").view(np.uint16).reshape(-1, 16, 16)
    on = np.arange(16)
    assert_same_codes(after[:, on, on].reshape(-1)[: len(want)], want)
