"""PTX in which everything that ptxas contracts is written out, so that it has nothing left to do.

Fused additions become fma.rn, all other sums and products name their rounding. If the contraction
is what ptxas does, it makes the same machine code of this text as of the first one.
"""

import re

from emulator import Module
from emulator.ptx.program import Constant, Register, Vector

#: sums and products that ptxas may contract
CONTRACTIBLE = re.compile(
    r"(add|sub|mul)((?:\.ftz|\.sat)*\.(?:f32|f64|f16|bf16|f16x2|bf16x2|f32x2))"
)
GUARD = re.compile(r"@!?[\w%$.]+\s*$")


def written_out(text, target=None):
    """The text written out, and how many statements of it are contracted."""
    module = Module(text, target)
    edits, count = [], 0
    for name in module.kernels:
        kernel = module[name]
        if kernel.problems:
            continue
        program, changed = kernel.rewritten
        count += len(changed)
        before = kernel.bound.program
        scaled = {p for place in changed if place.kind == "scaled" for p in place[:2]}
        for function in program.functions.values():
            hidden = function.registers[len(before.functions[function.name].registers) :]
            edits += _edits(text, program, function, before, scaled)
            name = re.escape(function.name)
            start = re.search(rf"\.(?:entry|func)[^;{{]*\b{name}\b[^;{{]*{{", text).end()
            declared = "".join(f" .reg .{r.type} {r.name};" for r in hidden)
            edits.append((start, start, declared))
    for start, stop, new in sorted(set(edits), reverse=True):
        text = text[:start] + new + text[stop:]
    return text, count


def _edits(text, program, function, before, scaled):
    for pc in range(function.first, function.end):
        old, new = before.statements[pc], program.statements[pc]
        opcode = str(old.instruction)
        if pc in scaled or (old is new and not CONTRACTIBLE.fullmatch(opcode)):
            continue
        match = GUARD.search(text, max(0, old.at - 40), old.at)
        guard = match[0] if match else ""
        parts = new.expansion or (new,)
        # Registers that the text does not have may be written in any case.
        lines = [
            line for part in parts
            for line in _lines(part, function, guard if part is parts[-1] else "")
        ]  # fmt: skip
        yield old.at - len(guard), text.index(";", old.at) + 1, " ".join(lines)


def _lines(statement, function, guard):
    """A statement of an expansion as PTX."""
    ins, operands = statement.instruction, statement.operands
    if "factors" in statement.selectors:
        yield from _quotient(statement, function, guard)
        return
    opcode = CONTRACTIBLE.sub(r"\1.rn\2", str(ins), count=1)
    words = [
        spelled(operands[operand.name], operand.type, function)
        for operand in statement.signature.operands
    ]
    if str(ins) in ("add.sat.f32", "add.ftz.sat.f32") and words[2] == "0f80000000":
        # as ptxas absorbs it into what computes the operand
        opcode = str(ins).replace("add", "cvt") + ".f32"
        words.pop()
    yield f"{guard}{opcode} {', '.join(words)};"


def spelled(bound, type_, function):
    if isinstance(bound, Register):
        return function.registers[bound.index].name
    if isinstance(bound, Vector):
        items = ("_" if item is None else spelled(item, "b32", function) for item in bound.items)
        return "{" + ", ".join(items) + "}"
    assert isinstance(bound, Constant), bound
    return {"f32": f"0f{bound.word:08X}", "f64": f"0d{bound.word:016X}"}.get(type_, str(bound.word))


def _quotient(statement, function, guard):
    """The last two factors of an approximate division, as the chip's sequence computes them."""
    opcode = str(statement.instruction)
    first, second, *sources = (
        spelled(bound, "f32", function) for bound in statement.operands.values()
    )
    ftz = ".ftz" * ("ftz" in opcode)
    own = "{ .reg .f32 z<9>; .reg .pred zp<3>;"
    small, large = "0f00800000", "0f7E800000"
    if opcode.startswith("rcp"):
        (x,) = sources
        steps = f"""abs.f32 z0, {x}; setp.lt.f32 zp0, z0, {small}; setp.gt.f32 zp1, z0, {large};
            selp.f32 z1, 0f4B800000, 0f3F800000, zp0; selp.f32 z2, 0f3E800000, z1, zp1;
            mul.rn.f32 z3, {x}, z2; rcp.approx.ftz.f32 z4, z3;
            {guard} mov.f32 {first}, z2; {guard} mov.f32 {second}, z4;"""
        yield f"{own} {steps} }}"
        return
    x, y = sources
    steps = f"mov.f32 z1, {x}; mov.f32 z2, {y}; abs{ftz}.f32 z0, {y};"
    scalings = [(f"setp.gt{ftz}.f32 zp0, z0, {large};", "0f3E800000")] if "full" in opcode else []
    scalings += [(f"setp.lt.f32 zp0, z0, {small};", "0f4B800000")] if not ftz else []
    for test, factor in scalings:
        steps += f"""{test} mul.rn{ftz}.f32 z3, z1, {factor}; mul.rn{ftz}.f32 z4, z2, {factor};
            selp.f32 z1, z3, z1, zp0; selp.f32 z2, z4, z2, zp0;"""
    steps += (
        f"rcp.approx.ftz.f32 z5, z2; {guard} mov.f32 {first}, z5; {guard} mov.f32 {second}, z1;"
    )
    yield f"{own} {steps} }}"
