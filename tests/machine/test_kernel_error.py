"""KernelError as other programs use it: its kinds, its class, pickles and equality."""

from __future__ import annotations

import ast
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

import emulator
from emulator import KernelError, Module
from emulator.errors import OperandError, UndefinedError, UnsupportedError
from emulator.machine.report import KINDS

ROOT = Path(emulator.__file__).parent
#: calls that take the kind of an error -> the position of the kind
CALLS = {"Failure": 0, "KernelError": 0}
TEXT = ".version 8.0 .target sm_90 .visible .entry k() { trap; }"


def words(node: ast.expr) -> Iterator[str]:
    """The strings that an expression may be, in the function around it or by itself."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from words(node.body)
        yield from words(node.orelse)


def kinds_in(tree: ast.AST) -> Iterator[str]:
    """The kinds of errors that a file raises, as far as they stand there as words."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in CALLS and node.args:
                yield from words(node.args[0])
            elif node.func.id == "Fault" and len(node.args) == 4:
                yield from words(node.args[2])
        if isinstance(node, ast.Assign):
            yield from _assigned(node)


def _assigned(node: ast.Assign) -> Iterator[str]:
    """What is assigned to a variable `kind`, alone or beside others."""
    for target in node.targets:
        if isinstance(target, ast.Name) and target.id == "kind":
            yield from words(node.value)
        elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            for name, value in zip(target.elts, node.value.elts, strict=False):
                if isinstance(name, ast.Name) and name.id == "kind":
                    yield from words(value)


def files() -> list[Path]:
    checks = ROOT / "machine" / "checks"
    rooms = [*(ROOT / "machine").rglob("*.py"), ROOT / "memory" / "arena.py"]
    return [
        path for path in rooms
        if checks not in path.parents or path.name == "nonfinite.py"
    ]  # fmt: skip


def test_every_kind_that_is_raised_has_a_meaning() -> None:
    found = {kind for path in files() for kind in kinds_in(ast.parse(path.read_text()))} - {""}
    assert {"out of bounds", "trap", "use after free", "deadlock"} <= found
    assert found <= KINDS.keys(), found - KINDS.keys()


def test_a_kind_without_a_meaning_is_seen() -> None:
    tree = ast.parse('raise Failure("strange", "x")\nkind = "odd"\nFault(0, 1, "rare", reason)')
    assert set(kinds_in(tree)) == {"strange", "odd", "rare"}


@pytest.mark.parametrize("error", [OperandError, UnsupportedError, UndefinedError])
def test_errors_of_the_package_have_a_meaning_as_kinds(error: type[Exception]) -> None:
    assert error.__name__.removesuffix("Error").lower() in KINDS


def test_the_guide_lists_all_kinds() -> None:
    guide = (ROOT / "guide" / "kernels.md").read_text()
    missing = [k for k, meaning in KINDS.items() if f"| {k} | {meaning} |" not in guide]
    assert not missing


def test_an_error_is_a_runtime_error_and_survives_a_pickle() -> None:
    with pytest.raises(RuntimeError) as caught:
        Module(TEXT)["k"].launch(1, 1, check=True)
    error = caught.value
    assert isinstance(error, KernelError) and isinstance(error, ValueError)
    again = pickle.loads(pickle.dumps(error))
    assert again == error and str(again) == str(error) and hash(again) == hash(error)
    assert again.line == error.line == 1 and again.threads == ((0, 0, 0),)
    assert again != KernelError(error.kind, "another reason", error.place)
    assert error != "trap"


def test_zeros_at_the_end_of_a_text_are_its_end() -> None:
    assert Module(TEXT + "\n\0\0").kernels == ("k",)
    with pytest.raises(emulator.ParseError):
        Module(TEXT + "\0" + TEXT)
