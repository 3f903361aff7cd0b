"""Fidelity: every (instruction, target) has one, and the numbers behind it are in tests/golden."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from emulator import Instruction, UnsupportedError
from emulator.arith.evidence import EVIDENCE
from emulator.isa.catalogue import instructions

GOLDEN = Path(__file__).parent / "golden"


def test_every_instruction_has_a_fidelity_on_each_target():
    levels = Counter(ins.fidelity(t).level for ins in instructions() for t in ins.targets)
    assert set(levels) == {"exact", "validated", "modelled"}


def test_integers_are_exact_and_nothing_else():
    for ins in instructions():
        for target in ins.targets:
            multiplies = str(ins).split(".")[0] in ("mma", "wgmma", "wmma")
            integer = multiplies and ".s32." in str(ins)
            if integer:
                assert ins.fidelity(target).level == "exact", (str(ins), target)


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
        # Longer k than was recorded, sparse, and targets without any recording.
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_80"),
        ("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_80"),
        ("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", "sm_75"),
        ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_120a"),
    ],
)
def test_what_was_never_compared_is_modelled(opcode, target):
    assert Instruction.parse(opcode).fidelity(target).level == "modelled"


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
    rows = [row for row in EVIDENCE if row.generation == "hopper"]
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
    total = sum(row["results"] for row in result["rows"])
    assert f"{total:,} results" in next(iter(of_hopper.values())).detail


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
