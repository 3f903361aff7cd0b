"""Where instructions are legal: targets, recipes, and what ptxas takes."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from paths import GOLDEN, ROOT, TESTS

from emulator import EmulatorError, Instruction, UnsupportedError
from emulator.isa.matrix_opcodes import expand as instructions

ALL = list(instructions())

# --- targets and recipes ---

TARGETS = (
    "70", "72", "75", "80", "86", "87", "88", "89", "90", "90a", "100", "100a", "100f", "103",
    "103a", "103f", "107", "107a", "107f", "110", "110a", "110f", "120", "120a", "120f", "121",
    "121a", "121f",
)  # fmt: skip
MX8 = "row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e3m2.e5m2.f32.ue8m0"
MX4 = "row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0"
NV4 = "row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"
ORDERED = "sp::ordered_metadata.sync.aligned"


def since(number, *, specific=False):
    return {t for t in TARGETS if int(t.rstrip("af")) >= number and (t[-1] in "af" or not specific)}


#: what the manual's target notes and ptxas 13.0 say, without "mma."
LEGAL_ON = {
    "sync.aligned.m8n8k4.col.row.f32.f16.f16.f16": since(70),
    "sync.aligned.m8n8k4.row.col.f64.f64.f64.f64": since(80),
    "sync.aligned.m16n8k4.row.col.f64.f64.f64.f64": since(90),
    "sync.aligned.m16n8k16.row.col.rp.f64.f64.f64.f64": since(90),
    "sync.aligned.m16n8k8.row.col.f16.f16.f16.f16": since(75),
    "sync.aligned.m16n8k16.row.col.f32.f16.f16.f32": since(80),
    "sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32": since(80),
    "sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32": since(80),
    "sync.aligned.m16n8k16.row.col.f16.e4m3.e5m2.f16": since(89),
    "sync.aligned.m16n8k32.row.col.f32.e5m2.e4m3.f32": since(89),
    "sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e5m2.e4m3.f32": since(100, specific=True),
    "sync.aligned.m16n8k32.row.col.kind::f8f6f4.f16.e2m1.e4m3.f16": since(120, specific=True),
    f"sync.aligned.m16n8k32.{MX8}": since(120, specific=True),
    f"sync.aligned.m16n8k64.{MX4}": since(120, specific=True),
    f"sync.aligned.m16n8k64.{NV4}": since(120, specific=True),
    "sync.aligned.m8n8k16.row.col.s32.s8.u8.s32": since(75),
    "sync.aligned.m16n8k32.row.col.satfinite.s32.u8.u8.s32": since(80),
    "sync.aligned.m8n8k32.row.col.s32.s4.u4.s32": since(75),
    "sync.aligned.m16n8k64.row.col.s32.s4.s4.s32": since(80),
    "sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc": since(75),
    "sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.and.popc": since(80),
    "sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc": since(80),
    "sp.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16": since(80),
    f"{ORDERED}.m16n8k8.row.col.f32.tf32.tf32.f32": since(80),
    "sp.sync.aligned.m16n8k128.row.col.s32.u4.s4.s32": since(80),
    "sp.sync.aligned.m16n8k64.row.col.f32.e4m3.e4m3.f32": since(89),
    f"{ORDERED}.m16n8k64.row.col.f16.e4m3.e4m3.f16": since(120, specific=True),
    f"{ORDERED}.m16n8k64.row.col.kind::f8f6f4.f32.e4m3.e4m3.f32": since(100, specific=True),
    f"{ORDERED}.m16n8k64.row.col.kind::f8f6f4.f32.e3m2.e4m3.f32": since(120, specific=True),
    f"{ORDERED}.m16n8k64.{MX8}": since(120, specific=True),
    f"{ORDERED}.m16n8k128.{MX4}": {"120a", "121a"},
    f"{ORDERED}.m16n8k128.{NV4}": {"120a", "121a"},
}


@pytest.mark.parametrize("opcode", LEGAL_ON)
def test_targets(opcode):
    names = Instruction.parse(f"mma.{opcode}").targets
    assert {name.removeprefix("sm_") for name in names} == LEGAL_ON[opcode]


def test_wgmma_is_of_sm_90a_alone():
    assert {ins.targets for ins in ALL if str(ins).startswith("wgmma")} == {("sm_90a",)}


def test_every_instruction_has_a_recipe_on_each_of_its_targets():
    for ins in ALL:
        for target in ins.targets:
            assert ins.arithmetic(target).steps
        for target in TARGETS:
            if f"sm_{target}" not in ins.targets:
                with pytest.raises(UnsupportedError, match=f"not available on sm_{target};"):
                    ins.recipe(f"sm_{target}")


# --- what ptxas takes ---


def ptxas_table():
    """(opcode, accepted targets) of every line, and the targets that were asked."""
    lines = (GOLDEN / "ptxas_accept.txt").read_text().splitlines()
    asked = next(line for line in lines if line.startswith("# 75")).removeprefix("# ").split()
    rows = [line.split() for line in lines if not line.startswith("#")]
    return [(opcode, set(on) - {"-"}) for opcode, *on in rows], set(asked)


def wrong_acceptances(rows, asked):
    """Opcodes of whose targets ptxas and the table think differently."""
    wrong = []
    for opcode, accepted in rows:
        try:
            here = {t.removeprefix("sm_") for t in Instruction.parse(opcode).targets} & asked
        except EmulatorError:
            here = set()
        if here != accepted:
            wrong.append((opcode, sorted(here), sorted(accepted)))
    return wrong


def test_accepts_what_ptxas_accepts():
    rows, asked = ptxas_table()
    taken, refused = [r for r in rows if r[1]], [r for r in rows if not r[1]]
    assert (len(taken), len(refused), len(asked)) == (672, 1500, 16)
    assert wrong_acceptances(taken, asked) == []
    assert wrong_acceptances(refused[::15], asked) == []
    # A line that is wrong shows.
    opcode, on = taken[0]
    planted = [(opcode, on - {"80"}), (refused[0][0], {"90a"})]
    assert len(wrong_acceptances(planted, asked)) == 2


@pytest.mark.slow
def test_refuses_what_ptxas_refuses():
    rows, asked = ptxas_table()
    assert wrong_acceptances(rows, asked) == []


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("ptxas"), reason="ptxas is not installed")
def test_ptxas_agrees_today():
    """A sample by the ptxas of this machine: exit status is the number of disagreements."""
    script = TESTS / "hardware" / "ptxas_legality.py"
    command = [sys.executable, str(script), "--sample", "60", "--seed", "2"]
    env = {"PYTHONPATH": str(ROOT), "PATH": str(Path(shutil.which("ptxas")).parent)}
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "0 disagreements" in run.stdout
