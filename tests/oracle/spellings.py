"""Statements near to those that the tables have: right ones, and ones with a word or operand amiss.

Each is made of a form of the tables: its modifiers in another order, one left out, doubled,
replaced or put in, an operand of another type or kind, one too few or too many.
"""

import re
from dataclasses import dataclass
from functools import cache

from emulator.isa.conversion import expand as conversions
from emulator.isa.matrix_opcodes import expand as matrices
from emulator.isa.movement import expand as movements
from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.isa.ordinary.tables import ROWS
from emulator.isa.tcgen05 import ROWS as TENSOR_ROWS
from emulator.isa.tcgen05 import Tcgen05
from emulator.isa.wmma_opcodes import expand as wmmas
from emulator.targets import TARGETS

#: targets that ptxas of CUDA 13.5 assembles for
ASKED = tuple(name for name in TARGETS if name not in ("sm_70", "sm_72"))
#: PTX versions that files are written for
VERSIONS = tuple(
    (major, minor)
    for major, last in ((6, 5), (7, 8), (8, 8), (9, 5))
    for minor in range(last + 1)
    if (major, minor) >= (6, 3)
)
NEWEST = VERSIONS[-1]
#: words of other instructions
NOISE = (
    "rn", "rz", "ftz", "sat", "NaN", "relu", "abs", "u32", "s16", "f32", "f64", "f16", "bf16",
    "b64", "b128", "v2", "v4", "approx", "satfinite", "global", "shared", "shared::cta", "cta",
    "cluster", "gpu", "sync", "aligned", "volatile", "cc", "lo", "wide", "x2", "trans", "row",
    "col", "cta_group::1", "kind::f16", "collector::a::use", "sp", "u8x4", "f32x2", "e4m3x2",
    "relaxed", "acquire", "noftz", "uni",
)  # fmt: skip
REGISTERS = (
    "b8", "b16", "b32", "b64", "b128", "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64",
    "f16", "f32", "f64", "f16x2", "pred",
)  # fmt: skip


@dataclass(frozen=True)
class Spelling:
    """A statement with its declarations, asked on a target in a file of a version."""

    #: "tcgen05", "mma" …: the first word of the opcode that it was made of
    family: str
    #: what was changed
    change: str
    text: str
    target: str
    version: tuple[int, int]

    @property
    def file(self):
        return self.target, self.version


@cache
def pools():
    """Family -> the rows, or the instructions, that its forms come from."""
    out = {}
    for row in ROWS:
        out.setdefault(row.name, []).append((OrdinaryInstruction, row))
    for row in TENSOR_ROWS:
        name = f"tcgen05.{row.grammar.slots[0].name}"
        out.setdefault(name, []).append((Tcgen05, row))
    for expand in (conversions, matrices, movements, wmmas):
        for ins in expand():
            out.setdefault(ins.family, []).append(ins)
    return out


def form(rng, family):
    found = rng.choice(pools()[family])
    if not isinstance(found, tuple):
        return found
    kind, row = found
    choices = [slot.words if slot.needed else ("", *slot.words) for slot in row.grammar.slots]
    return kind(row, tuple(map(rng.choice, choices)))


# --- operands -------------------------------------------------------------------------------------


def written(operand, number, opcode):
    """An operand as it may stand in a statement."""
    kind, parts = operand.kind, operand.parts
    if operand.name == "_":
        return "_"
    if kind == "ids":
        return "{0, 0}"
    if kind == "immediate":
        return str(operand.values[0] if operand.values else 3)
    if kind in ("label", "function", "parameters"):
        return {"label": "END", "function": "f", "parameters": "()"}[kind]
    if kind == "address":
        if operand.space.startswith("param") and "func" not in operand.space:
            return "[pf]" if opcode.startswith("st") else "[pp]"
        if operand.space.startswith("param"):
            return "[pf]"
        if operand.space == "endpoint":
            places = "".join(f", %b64_{i}" for i in range(operand.coordinates))
            return f"[%b32_{number}{places}]"
        inside = ", ".join(f"%b32_{i}" for i in range(operand.coordinates))
        base = f"%{operand.types[0]}_{number}"
        return f"[{base}, {{{inside}}}]" if operand.coordinates else f"[{base}]"
    type_ = parts[0].types[0] if parts else operand.types[0]
    if kind == "vector":
        return "{" + ", ".join(f"%{type_}_{number + i}" for i in range(operand.count)) + "}"
    return f"%{type_}_{number}"


def operands(ins, target, rng):
    """The operands of one of the instruction's signatures, as texts; pairs stand as one."""
    signature = rng.choice(ins.signatures(target if target in ins.targets else None))
    out, number = [], 1
    for operand in signature.operands:
        if operand.optional and rng.random() < 0.7:
            continue
        text = written(operand, number, str(ins))
        number += operand.count
        if operand.paired:
            out[-1] += f"|{text}"
        else:
            out.append(text)
    return out


def declarations(text):
    """The registers that a statement names."""
    most = {}
    for type_, number in re.findall(r"%(\w+?)_(\d+)", text):
        most[type_] = max(most.get(type_, 0), int(number))
    return " ".join(f".reg .{type_} %{type_}_<{n + 1}>;" for type_, n in sorted(most.items()))


# --- changes --------------------------------------------------------------------------------------


@cache
def other_words(family):
    """Words that the forms of a family have."""
    words = set()
    for found in pools()[family]:
        if isinstance(found, tuple):
            words.update(word for slot in found[1].grammar.slots for word in slot.words)
        else:
            words.update(".".join(found.opcode_words.values()).split("."))
    return sorted(words - {""})


def change_words(rng, change, words, family):
    words = list(words)
    at = rng.randrange(len(words)) if words else 0
    new = rng.choice(other_words(family) or NOISE) if rng.random() < 0.75 else rng.choice(NOISE)
    if change == "order":
        if rng.random() < 0.5:
            rng.shuffle(words)
        else:
            words.insert(rng.randrange(len(words) + 1), words.pop(at))
    elif change == "dropped":
        del words[at]
    elif change == "doubled":
        words.insert(rng.randrange(len(words) + 1), words[at])
    elif change == "replaced":
        words[at] = new
    else:
        words.insert(rng.randrange(len(words) + 1), new)
    return words


def change_operands(rng, change, given):
    given = list(given)
    at = rng.randrange(len(given)) if given else 0
    other = rng.choice(REGISTERS)
    if change == "type" and given:
        given[at] = re.sub(r"%\w+?_(\d+)", rf"%{other}_\1", given[at])
    elif change == "kind" and given:
        given[at] = rng.choice(
            [f"%{other}_7", "1", "-3", "0f3F800000", "1.5", f"[%{other}_7]", f"{{%{other}_7}}",
             f"{{%{other}_7, %{other}_8}}", "_", "1000000"]
        )  # fmt: skip
    elif change == "fewer" and given:
        del given[at]
    else:
        given.insert(rng.randrange(len(given) + 1), f"%{other}_7")
    return given


WORD_CHANGES = ("order", "dropped", "doubled", "replaced", "put in")
OPERAND_CHANGES = ("type", "kind", "fewer", "more")


def spelling(rng, family):
    """One statement of a family, right or changed, on a target and in a version."""
    ins = form(rng, family)
    likely = [t for t in ins.targets if t in ASKED] or list(ASKED)
    target = rng.choice(likely if rng.random() < 0.7 else ASKED)
    version = NEWEST if rng.random() < 0.8 else rng.choice(VERSIONS)
    version = max(version, TARGETS[target].version)
    given = operands(ins, target, rng)
    words = str(ins).split(".")
    fixed = 1 + (0 if isinstance(ins, OrdinaryInstruction) else ins.name.count("."))
    name, words = words[:fixed], words[fixed:]
    change = rng.choices(
        ("none", *WORD_CHANGES, *OPERAND_CHANGES), (3, 3, 1, 1, 2, 2, 1, 1, 0.4, 0.4)
    )[0]
    if change in WORD_CHANGES and (words or change == "put in"):
        words = change_words(rng, change, words, family)
    elif change in OPERAND_CHANGES:
        given = change_operands(rng, change, given)
    statement = f"{'.'.join([*name, *words])} {', '.join(given)};"
    return Spelling(family, change, f"{declarations(statement)} {statement}", target, version)
