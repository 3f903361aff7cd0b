"""What an opcode does is told by its row: code outside tables and rules names none."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import emulator
from emulator.isa.instruction import EFFECTS
from emulator.isa.kinds import names
from emulator.isa.ordinary.tables import ROWS
from emulator.isa.tcgen05 import ROWS as TENSOR_ROWS
from emulator.machine.checks.kinds import KINDS as FINDINGS
from emulator.machine.report import KINDS as ERRORS

HOUSE = Path(emulator.__file__).parent
#: folders and files that are tables of opcodes, or rules about single ones
TABLES = {
    "isa": "the tables",
    "targets.py": "features, named after what they bring",
    "arith": "recipes, steps, evidence and rules",
    "adapters/triton_lowering.py": "which instruction a product of Triton is",
    "matrices/library/rules.py": "which instructions libraries multiply with",
    "ptx/declarations.py": "syntax: names of state spaces",
    "ptx/body.py": "syntax: a pragma for the next ld",
    "ptx/contraction": "rules of ptxas",
    "ptx/dataflow.py": "rules of ptxas",
    "ptx/folding.py": "rules of ptxas",
    "ptx/loops.py": "rules of ptxas",
    "ptx/rewriting.py": "rules of ptxas",
    "ptx/operands.py": "syntax: the operands of a call have a grammar of their own",
    "machine/checks/miscompilations.py": "rules of ptxas",
    "machine/debugger/expressions.py": "words of Python",
    "machine/debugger/looking.py": "names of what is under way",
    "machine/shared/tensor_cores.py": "modifiers of a tcgen05.ld",
    "machine/shared/tensor_order.py": "which operations of tensor cores wait for which",
    "tools/coverage.py": "the manual's index",
    "tools/debugging/terminal.py": "gdb's commands",
    "tools/descriptors/command.py": "an example",
    "tools/explanations/steps.py": "steps of recipes",
    "tools/guide.py": "names of pages",
    "tools/launching.py": "words of --arg",
    "tools/pytorch/device/pointwise.py": "operators of PyTorch",
    "tools/recordings.py": "kinds of recordings",
    "tools/support.py": "rows of the table of support",
}
#: words that mean other things, too: effects, modifiers, and kinds of errors and findings
_SLOTS = (slot for row in (*ROWS, *TENSOR_ROWS) for slot in row.grammar.slots)
_MODIFIERS = (word for slot in _SLOTS if slot.words != (slot.name,) for word in slot.words)
OTHERS = {"set", *EFFECTS, *_MODIFIERS, *ERRORS, *FINDINGS}
NAMES = {name for each in names() for name in (each, each.partition(".")[0])} - OTHERS


def opcodes_in(source: str) -> Iterator[tuple[int, str]]:
    """Lines and opcodes that code compares with, looks up, or holds in collections; a dictionary
    from opcodes to functions is a table."""
    nodes = list(ast.walk(ast.parse(source)))
    tables = {
        id(key)
        for node in nodes
        if isinstance(node, ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
        if not isinstance(value, ast.Constant)
    }
    for node in nodes:
        parts: list[ast.AST | None] = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.Tuple | ast.List | ast.Set):
            parts = list(node.elts)
        elif isinstance(node, ast.Dict):
            parts = [key for key in node.keys if id(key) not in tables]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("startswith", "get", "removeprefix", "isdisjoint"):
                parts = list(node.args)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            # A constant of a module.
            parts = [node.value] if node.targets[0].id.isupper() else []
        for part in parts:
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                first = part.value.partition(".")[0]
                if first in NAMES and " " not in part.value and part.value not in OTHERS:
                    yield part.lineno, part.value


def found_in(path: Path) -> list[str]:
    place, text = path.relative_to(HOUSE).as_posix(), path.read_text()
    # Most files quote no word that begins an opcode, and need not be parsed.
    if NAMES.isdisjoint(re.findall(r"[\"']([a-z]\w*)[\w.:]*[\"']", text)):
        return []
    return [f"{place}:{line} {opcode}" for line, opcode in opcodes_in(text)]


def is_table(path: Path) -> bool:
    return any(path.is_relative_to(HOUSE / place) for place in TABLES)


def test_code_names_no_opcode():
    files = (path for path in sorted(HOUSE.rglob("*.py")) if not is_table(path))
    assert not [line for path in files for line in found_in(path)]


@pytest.mark.parametrize("place", TABLES)
def test_every_exception_is_needed(place):
    root = HOUSE / place
    assert any(map(found_in, [root] if root.is_file() else root.rglob("*.py")))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("if statement.name == 'mov': pass", ["mov"]),
        ("if opcode.startswith('tcgen05.ld.'): pass", ["tcgen05.ld."]),
        ("LISTED = ('cp.async.wait_all', 'wait_all')", ["cp.async.wait_all"]),
        ("ONE = 'wgmma'", ["wgmma"]),
        ("WHY = {'multimem': 'a reason', **dict.fromkeys(('shfl',), 1)}", ["multimem", "shfl"]),
        ("STEPS = {'ld': load}", []),
        ("if 'reads' in effects or operation == 'and': pass", []),
        ("fail('setmaxnreg', f'{place}: mov is no store')", []),
    ],
)
def test_an_opcode_in_code_is_found(source, found):
    assert sorted(opcode for _, opcode in opcodes_in(source)) == found
