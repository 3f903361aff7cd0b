"""Fidelity: every (instruction, target) has one, and the numbers behind it are in tests/golden."""

import json
import re
from collections import Counter
from dataclasses import fields, replace

import numpy as np
import pytest
from hardware.recorded_forms import FILE, recorded_forms
from paths import GOLDEN

from emulator import Instruction, UnsupportedError, find_faults, mma
from emulator.arith.evidence import CONSTANTS, OPEN, find_recorded
from emulator.arith.recipes import RECIPES
from emulator.isa.catalogue import instructions
from emulator.targets import TARGETS
from emulator.tools.recordings import groups, recordings


def test_every_instruction_has_a_fidelity_on_each_target():
    levels = Counter(ins.fidelity(t).level for ins in instructions() for t in ins.targets)
    assert set(levels) == {"exact", "validated", "modelled"}


def test_integers_are_exact_and_nothing_else():
    """Integers, and what moves elements as they are."""
    moves = ("wmma.load", "wmma.store")
    for ins in instructions():
        integer = getattr(ins, "d_type", None) == "s32"
        for target in ins.targets:
            exact = ins.fidelity(target).level == "exact"
            assert exact == (integer or ins.family in moves), (str(ins), target)


@pytest.mark.parametrize("opcode", [
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "mma.sp.sync.aligned.m16n8k64.row.col.f32.e4m3.e5m2.f32",
    "wgmma.mma_async.sync.aligned.m64n200k32.f16.e5m2.e5m2",
    "mma.sync.aligned.m8n8k4.col.row.f32.f16.f16.f16",
])  # fmt: skip
def test_hopper_is_validated(opcode):
    assert Instruction.parse(opcode).fidelity("sm_90a").level == "validated"


@pytest.mark.parametrize(
    ("opcode", "target"),
    [
        # Longer k than was recorded, sparse, targets without any recording, and a floor that the
        # recordings do not show.
        ("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32", "sm_80"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_80"),
        ("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_80"),
        ("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", "sm_75"),
        ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_120a"),
    ],
)
def test_what_was_never_compared_is_modelled(opcode, target):
    assert Instruction.parse(opcode).fidelity(target).level == "modelled"


@pytest.mark.parametrize(
    ("opcode", "target", "level"),
    [
        (
            "tex.2d.v4.f32.f32",
            "sm_90",
            "validated: 4,702,208 fetches recorded on an H200 or an H100",
        ),
        ("tex.2d.v4.f32.f32", "sm_100a", "modelled"),
        ("tex.2d.v2.f16x2.s32", "sm_90a", "modelled"),
    ],
)
def test_textures_are_validated_where_fetches_were_recorded(opcode, target, level):
    assert str(Instruction.parse(opcode).fidelity(target)).startswith(level)


def test_what_recordings_leave_open_is_said():
    bf16 = Instruction.parse("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32")
    text = str(bf16.fidelity("sm_80"))
    assert text.startswith("modelled: published, MMA-Sim; equal to 10,000 dots recorded by Khattak")
    assert text.endswith("which leave open: the exponent floor")
    f16 = Instruction.parse("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32")
    assert f16.fidelity("sm_80").level == "validated"


def test_open_constants_have_words():
    assert {name for *_, names in OPEN for name in names.split()} == set(CONSTANTS)
    fields_ = {field.name for row in RECIPES for step in row.steps for field in fields(step)}
    assert set(CONSTANTS) <= fields_


def test_fidelity_needs_a_target_that_has_the_instruction():
    with pytest.raises(UnsupportedError):
        Instruction.parse("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32").fidelity("sm_75")


# --- by form --------------------------------------------------------------------------------------


def test_the_list_of_recorded_forms_is_that_of_the_recordings():
    assert FILE.read_text(encoding="utf-8") == recorded_forms()


def test_every_recording_is_of_a_form_in_the_list():
    """What selftest replays: no form has a recording that the list does not know."""
    for group in groups():
        for variant in recordings(group):
            ins = Instruction.parse(variant.opcode)
            if ins.fidelity(variant.target).level != "exact":
                assert find_recorded(TARGETS[variant.target].generation, str(ins)), variant.opcode


def test_every_product_of_hopper_was_recorded_and_all_results_are_counted():
    counted = 0
    for ins in instructions():
        if "sm_90a" in ins.targets and hasattr(ins, "d_type") and ins.d_type != "s32":
            assert ins.fidelity("sm_90a").level == "validated", str(ins)
    for name, key in (("h200", "registers"), ("h200_wmma", "results"), ("h200_cvt", "results")):
        rows = json.loads((GOLDEN / "compared" / f"{name}.json").read_text())["rows"]
        counted += sum(row[key] for row in rows if row.get("d") != "s32")
    listed = FILE.read_text().split("[hopper: registers recorded")[0]
    assert sum(int(count) for count in re.findall(r"^\d+", listed, re.MULTILINE)) == counted


# --- forms that nobody recorded -------------------------------------------------------------------


def invented(opcode, **changes):
    """The instruction of a row that no hardware has."""
    known = Instruction.parse(opcode)
    m, n, k = (changes.get(size, getattr(known, size)) for size in "mnk")
    form = replace(known.form, shape=f"m{m}k{k}" if known.form.n else f"m{m}n{n}k{k}")
    return replace(known, form=form, **changes)


_MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"


@pytest.mark.parametrize(("opcode", "changes"), [
    (_MMA, {"k": 64}),
    (_MMA, {"m": 32}),
    (_MMA, {"layouts": ("col", "col")}),
    (_MMA, {"rounding": "rz"}),
    ("mma.sync.aligned.m16n8k16.row.col.f32.e4m3.e5m2.f32", {"a_type": "e4m3", "b_type": "e2m1"}),
    ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", {"n": 264}),
    ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", {"k": 32}),
])  # fmt: skip
def test_a_form_that_nobody_recorded_is_modelled(opcode, changes):
    assert Instruction.parse(opcode).fidelity("H200").level == "validated"
    assert invented(opcode, **changes).fidelity("H200").level == "modelled"


def test_an_ordinary_form_that_nobody_recorded_is_modelled():
    """Its rule was recorded with other types; orders and scopes of an atomic do not touch it."""
    levels = {
        "fma.rn.f32": "validated", "cvt.rz.sat.f32.s64": "modelled",
        "atom.add.f32": "validated", "atom.acquire.gpu.global.add.f32": "validated",
        "atom.global.max.noftz.v8.bf16": "modelled",
    }  # fmt: skip
    found = {opcode: Instruction.parse(opcode).fidelity("sm_90a").level for opcode in levels}
    assert found == levels


def test_a_row_without_a_lane_map_says_so():
    ins = invented(_MMA, m=32)
    a, b = np.ones((32, 16), np.float16), np.ones((16, 8), np.float16)
    d = mma(ins, a, b, target="H200")
    assert (d == 16).all(), "matrices need no lanes"
    for use in (lambda: find_faults(ins, a, b, d=d, target="H200"), lambda: ins.fragment("c")):
        with pytest.raises(UnsupportedError, match=r"no lane map 'c32'"):
            use()
