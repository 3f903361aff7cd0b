"""Whole statements are legal exactly where ptxas takes them: opcode, operands, register types."""

import gzip
import json
from pathlib import Path

import pytest

from emulator import EmulatorError
from emulator.ptx.statements import check_statement

SAMPLE = json.loads(
    gzip.decompress((Path(__file__).parent / "golden" / "ptxas_statements.json.gz").read_bytes())
)
TARGETS = SAMPLE["provenance"]["targets"].split()
ROWS = [(opcode, operands, accepted.split()) for opcode, operands, accepted in SAMPLE["rows"]]


def statement(opcode, operands):
    """PTX that declares a register for each place, and uses them."""
    declared, written = [], []
    for i, operand in enumerate(operands.values()):
        name = f"%o{i}_"
        if isinstance(operand, int):
            written.append(str(operand))
        elif operand == "addr":
            declared.append(f".reg .b64 {name};")
            written.append(f"[{name}]")
        elif isinstance(operand, str):
            declared.append(f".reg .{operand} {name};")
            written.append(name)
        elif operand[0] == "imm":
            written.append("{" + ", ".join(map(str, operand[1])) + "}")
        else:
            type_, count = operand
            declared.append(f".reg .{type_} {name}<{count}>;")
            written.append("{" + ", ".join(f"{name}{j}" for j in range(count)) + "}")
    return f"{' '.join(declared)}\n{opcode} {', '.join(written)};"


def is_legal(text, target):
    try:
        check_statement(text, target)
    except EmulatorError as error:
        assert "line 2" in str(error) or "not available" in str(error)
        return False
    return True


def disagreements(rows, targets_of):
    out = []
    for opcode, operands, accepted in rows:
        text = statement(opcode, operands)
        for target in targets_of(accepted):
            if is_legal(text, target) != (target in accepted):
                out.append((text, target, target in accepted))
    return out


def test_a_sample_on_two_targets():
    """One target that takes the statement, where there is one, and one that need not."""
    assert len(ROWS) > 1000
    found = disagreements(ROWS[::2], lambda accepted: {*accepted[:1], "sm_90a"})
    assert found == []


@pytest.mark.slow
def test_the_sample_on_all_targets():
    assert disagreements(ROWS, lambda _: TARGETS) == []


def test_a_wrong_expectation_shows():
    opcode, operands, accepted = next(row for row in ROWS if row[2])
    wrong = (opcode, operands, accepted[1:])
    assert len(disagreements([wrong], lambda _: [accepted[0]])) == 1


X4 = "ldmatrix.sync.aligned.m8n8.x4.shared.b16"


@pytest.mark.parametrize(
    ("declared", "text", "legal"),
    [
        (".reg .b32 %d<4>, %p;", f"{X4} {{%d0,%d1,%d2,%d3}}, [%p+16]", True),
        (".reg .b32 %d<4>, %p;", f"{X4} {{%d0,%d1,%d2}}, [%p]", False),
        (".reg .b32 %d<4>, %p;", "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%d0}, %p", False),
        (".reg .b32 d, a;", "movmatrix.sync.aligned.m8n8.trans.b16 d, a", True),
        (".reg .b32 d, a;", "movmatrix.sync.aligned.m8n8.trans.b16 {d}, {a}", False),
        (".reg .b32 d; .reg .f32 a, b;", "cvt.rn.f16x2.f32 d, a, b", True),
        (".reg .b16 d; .reg .f32 a, b;", "cvt.rn.f16x2.f32 d, a, b", False),
        (".reg .b16 d; .reg .f32 a, b;", "cvt.rn.satfinite.e4m3x2.f32 d, a, b", True),
    ],
)  # fmt: skip
def test_moves_and_conversions(declared, text, legal):
    assert is_legal(f"{declared}\n{text};", "sm_90a") == legal
