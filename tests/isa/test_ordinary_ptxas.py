"""The table of ordinary instructions against ptxas, in both directions, where ptxas is there.

A sample of the forms must assemble on the targets that the table names and on no other; opcodes
that the table refuses, made from its words, must be refused. The tool is that of CUDA 13.0; forms
of later PTX versions are left out.
"""

import random
import re
import shutil
import subprocess

import pytest

from emulator import EmulatorError, Instruction
from emulator.isa.ordinary.instruction import OrdinaryInstruction, names, rows_of
from emulator.isa.ordinary.tables import ROWS
from emulator.targets import TARGETS

PTXAS = shutil.which("ptxas")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PTXAS, reason="ptxas is not on this machine"),
]
VERSION = (9, 0)
#: targets that are assembled for no longer, or not yet
ASKED = [
    name
    for name, target in TARGETS.items()
    if name not in ("sm_70", "sm_72") and target.version <= VERSION
]
REGISTERS = (
    *(f".reg .b{n} %b{n}_<9>;" for n in (8, 16, 32, 64, 128)),
    *(f".reg .{sign}{n} %{sign}{n}_<9>;" for n in (8, 16, 32, 64) for sign in "us"),
    ".reg .f16 %f16_<9>; .reg .f32 %f32_<9>; .reg .f64 %f64_<9>; .reg .pred %pred_<9>;",
    ".reg .f16x2 %f16x2_<9>; .param .align 16 .b8 pf[64];",
)
#: other words that a modifier might be
NOISE = [
    "rn", "rz", "ftz", "sat", "NaN", "relu", "u32", "s16", "f32", "f64", "bf16", "b64", "v2",
    "approx", "satfinite", "global", "shared", "cta",
]  # fmt: skip
#: what ptxas takes though the manual has no such form: repeated modifiers, and these, of which 13.5
#: refuses the last below sm_90
LENIENT = re.compile(
    r"testp\.(f32|f64)$|addc\.s16|subc\.s16|\.pred\.|wgmma\.\w+\.sync$|fence\.proxy\.(shared|global)|"
    r"fence\.(acquire|release)\."
)


def value(operand, opcode):
    if operand.name == "_":
        return "_"
    if operand.kind == "address":
        if operand.space.startswith("param") and opcode.startswith("st"):
            return "[pf]"
        if operand.space.startswith("param") and "func" not in operand.space:
            return "[pp]"
        inside = ", ".join(f"%b32_{i}" for i in range(operand.coordinates))
        return f"[%b64_7, {{{inside}}}]" if operand.coordinates else "[%b64_7]"
    if operand.kind == "immediate":
        return str(operand.values[0] if operand.values else 3)
    if operand.kind in ("label", "function"):
        return {"label": "END", "function": "f"}[operand.kind]
    name = operand.types[0]
    if operand.kind == "vector":
        return "{" + ", ".join(f"%{name}_{i}" for i in range(operand.count)) + "}"
    return f"%{name}_{1 if operand.use == 'written' else 2}"


def statement(ins, target=None):
    out = []
    # Of video instructions c goes with a selector of d, of the others it is tried.
    video = ins.rule.startswith("video.")
    for x in ins.signature(target).operands:
        if x.optional and (video or x.kind in ("parameters", "label", "predicate")):
            continue
        # A cube has no offsets: an integer stands in their place, and is dropped.
        if x.optional and (x.name == "alignment" or not x.count):
            continue
        if x.paired:
            out[-1] += "|" + value(x, str(ins))
        else:
            out.append(value(x, str(ins)))
    return f"{ins} {', '.join(out)};"


def refused(statements, target):
    """The statements that ptxas refuses, each in a kernel of its own."""
    found, groups = set(), [statements[i : i + 150] for i in range(0, len(statements), 150)]
    while groups:
        group = groups.pop()
        lines = [f".version {VERSION[0]}.{VERSION[1]}", f".target {target}", ".address_size 64"]
        for i, text in enumerate(group):
            head = f".entry k{i}(.param .align 16 .b8 pp[64]) {{ {' '.join(REGISTERS)}"
            lines += [f"{head} {text}", "END: ret; }"]
        run = subprocess.run(
            [PTXAS, "-arch", target, "-o", "/dev/null", "-"],
            input="\n".join(lines) + "\n", capture_output=True, text=True, check=False,
        )  # fmt: skip
        if run.returncode == 0:
            continue
        if len(group) == 1:
            found.update(group)
            continue
        bad = {(int(n) - 4) // 2 for n in re.findall(r"line (\d+); (?:error|fatal)", run.stderr)}
        if not bad or "arsing error" in run.stderr:
            # After an error of syntax it refuses good lines, too.
            middle = len(group) // 2
            groups += [group[:middle], group[middle:]]
            continue
        found.update(group[i] for i in bad if i < len(group))
        rest = [text for i, text in enumerate(group) if i not in bad]
        groups += [rest] if rest else []
    return found


def sample(target):
    """A form of each row, another one for each target."""
    rng = random.Random(target)
    for row in ROWS:
        ins = OrdinaryInstruction(row, rng.choice(list(row.expand())))
        if ins.ptx_version <= VERSION and ins.family not in ("call", "brx"):
            yield ins


@pytest.mark.parametrize("target", ASKED)
def test_forms_assemble_where_the_table_says_so(target):
    asked = {
        statement(ins, target if target in ins.targets else None): ins for ins in sample(target)
    }
    no = refused(list(asked), target)
    unlike = [text for text, ins in asked.items() if (target in ins.targets) == (text in no)]
    assert not [text for text in unlike if not LENIENT.search(text)]
    assert len(asked) > 800


def outside(rng, name):
    """Statements with opcodes that the table refuses, near to those that it has."""
    slots = [slot for row in rows_of(name) for slot in row.grammar.slots]
    words = sorted({word for slot in slots for word in slot.words}) or NOISE
    row = rng.choice(rows_of(name))
    ins = OrdinaryInstruction(row, rng.choice(list(row.expand())[:2000]))
    changed = [word for word in ins.words if word]
    for _ in range(rng.randint(1, 2)):
        new = rng.choice(words if rng.random() < 0.7 else NOISE)
        if changed and rng.random() < 0.5:
            changed[rng.randrange(len(changed))] = new
        else:
            changed.insert(rng.randrange(len(changed) + 1), new)
    opcode = ".".join([name, *changed])
    try:
        Instruction.parse(opcode)
    except EmulatorError:
        repeated = len(set(changed)) < len(changed)
        if not repeated and not LENIENT.search(opcode):
            yield statement(ins).replace(str(ins), opcode, 1)


@pytest.mark.parametrize("target", ["sm_75", "sm_90a", "sm_100a"])
def test_what_the_table_refuses_does_not_assemble(target):
    rng = random.Random(5)
    asked = {
        text
        for name in names()
        if name not in ("call", "brx")
        for _ in range(25)
        for text in outside(rng, name)
    }
    assert len(asked) > 1000
    assert asked - refused(sorted(asked), target) == set()


def test_a_wrong_form_is_noticed():
    good, bad = "add.s32 %b32_1, %b32_2, %b32_3;", "add.sat.u32 %b32_1, %b32_2, %b32_3;"
    assert refused([good, bad, "nothing %b32_1;"], "sm_90a") == {bad, "nothing %b32_1;"}
