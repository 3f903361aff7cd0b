"""Fidelity: every (instruction, target) has one, and the numbers behind it are in tests/golden."""

import json
from collections import Counter
from dataclasses import fields

import numpy as np
import pytest
from paths import GOLDEN

from emulator import Instruction, UnsupportedError
from emulator.arith.evidence import CONSTANTS, EVIDENCE
from emulator.arith.recipes import RECIPES
from emulator.isa.catalogue import instructions
from emulator.tools.recordings import recordings

_MULTIPLY = ("mma", "mma.sp", "wgmma", "wgmma.sp", "wmma")


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


def test_what_recordings_leave_open_is_said():
    bf16 = Instruction.parse("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32")
    text = str(bf16.fidelity("sm_80"))
    assert text.startswith("modelled: published, MMA-Sim; equal to 10,000 dots recorded by Khattak")
    assert text.endswith("which leave open: the exponent floor")
    f16 = Instruction.parse("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32")
    assert f16.fidelity("sm_80").level == "validated"


def test_open_constants_have_words():
    assert {name for row in EVIDENCE for name in row.open.split()} == set(CONSTANTS)
    fields_ = {field.name for row in RECIPES for step in row.steps for field in fields(step)}
    assert set(CONSTANTS) <= fields_


def test_fidelity_needs_a_target_that_has_the_instruction():
    with pytest.raises(UnsupportedError):
        Instruction.parse("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32").fidelity("sm_75")


def test_hopper_counts_are_those_of_the_result_files():
    registers = Counter()
    for name, counted in (("h200", "registers"), ("h200_wmma", "results")):
        result = json.loads((GOLDEN / "compared" / f"{name}.json").read_text())
        assert "H200" in result["provenance"]["gpu"]
        for row in result["rows"]:
            assert row["differing"] == row["failed"] == 0
            registers[row["family"], row["a"], row["d"]] += row[counted]
    rows = [row for row in EVIDENCE if row.generation == "hopper" and row.family in _MULTIPLY]
    for row in rows:
        want = sum(registers.pop((row.family, a, row.d), 0) for a in row.a.split())
        assert row.results == want, row
    assert {d for _, _, d in registers} == {"s32"}, "what is left is exact anyway"


def test_conversions_are_those_of_their_result_file():
    result = json.loads((GOLDEN / "compared" / "h200_cvt.json").read_text())
    assert not any(row["differing"] for row in result["rows"])
    compared = {row["opcode"] for row in result["rows"]}
    of_hopper = {str(i): i.fidelity("sm_90a") for i in instructions("cvt") if "sm_90a" in i.targets}
    assert {opcode for opcode, f in of_hopper.items() if f.level == "validated"} == compared
    results = Counter()
    for row in result["rows"]:
        *_, to, source = row["opcode"].split(".")
        results[source, to] += row["results"]
    for row in [row for row in EVIDENCE if row.family == "cvt"]:
        want = sum(results.pop((a, d), 0) for a in row.a.split() for d in row.d.split())
        assert row.results == want, row
    assert not results


def test_movements_are_those_of_their_recordings():
    recorded = Counter()
    for variant in recordings("h200_move"):
        recorded[variant.opcode.split(".")[0], variant.opcode] += variant.expected.size
    for row in [row for row in EVIDENCE if row.a == "b16"]:
        of_family = {opcode: n for (family, opcode), n in recorded.items() if family == row.family}
        assert row.results == sum(of_family.values()), row
        claimed = {str(i) for i in instructions(row.family) if i.form.shape == row.shapes}
        assert set(of_family) == claimed, "every form of these shapes"


def test_published_counts_are_those_of_the_recordings():
    """tests/golden keeps a part of the 5,000 dots of each GPU, type and accumulator."""
    dots = json.loads((GOLDEN / "published_dots.json").read_text())
    with np.load(GOLDEN / "published_dots.npz") as arrays:
        assert arrays.files
    kept = Counter()
    for variant in dots["variants"]:
        kept[variant["opcode"]] += 1
    for row in EVIDENCE:
        if row.generation != "hopper":
            assert row.shapes and row.results % 5000 == 0
            assert any(f".{shape}." in opcode for opcode in kept for shape in row.shapes.split())
