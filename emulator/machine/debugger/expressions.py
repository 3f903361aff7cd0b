"""Debugger: expressions over the registers of a thread, such as ``%r3 == 7 && %tid.x < 32``.

Python's operators, with C's ``&&``, ``||`` and ``!``. ``%r3``, or ``$r3`` as in gdb, is a register,
``%tid.x`` a special one, and a name a variable or a parameter that the session knows.
"""

from __future__ import annotations

import ast
import keyword
import math
import operator
import re
from collections.abc import Callable
from typing import Any

from emulator.errors import OperandError, needed, quoted

Value = Any
#: the value of a name: "%r3", or "n"
Lookup = Callable[[str], Value]

_LONGEST = 1000
#: bits that a shift may add
_MOST_BITS = 512
_REGISTER = re.compile(r"[%$]([A-Za-z_][\w$]*(?:\.[A-Za-z]\w*)?)")
_NAME = re.compile(r"[A-Za-z_]\w*")
#: prefixes of a register, and of a variable that Python would take for a keyword
_PREFIX, _VARIABLE = "register__", "variable__"
_KEPT = ("and", "or", "not", "True", "False")
_WORDS = ((re.compile(r"&&"), " and "), (re.compile(r"\|\|"), " or "),
          (re.compile(r"!(?!=)"), " not "))  # fmt: skip


def _shift(given: Value, bits: Value) -> Value:
    if not 0 <= bits <= _MOST_BITS:
        raise OperandError(f"a shift is by 0 … {_MOST_BITS} bits; got {bits}")
    return given << bits


_BINARY: dict[type[ast.operator], Callable[[Value, Value], Value]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.LShift: _shift, ast.RShift: operator.rshift, ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_, ast.BitXor: operator.xor,
}  # fmt: skip
_UNARY: dict[type[ast.unaryop], Callable[[Value], Value]] = {
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert,
    ast.Not: operator.not_,
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], Callable[[Value, Value], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[[Value], Value]] = {
    "isnan": math.isnan, "isinf": math.isinf, "abs": abs,
}  # fmt: skip


class Expression:
    """A compiled expression. Raises OperandError for a text that is none."""

    def __init__(self, text: str) -> None:
        self.text = needed(str, text).strip()
        if not self.text or len(self.text) > _LONGEST:
            raise OperandError(
                f"an expression has 1 … {_LONGEST} characters; got {len(self.text):,}"
            )
        python = _REGISTER.sub(lambda m: _PREFIX + m[1].replace(".", "__dot__"), self.text)
        python = _NAME.sub(_no_keyword, python)
        for pattern, word in _WORDS:
            python = pattern.sub(word, python)
        try:
            tree = ast.parse(python.strip(), mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise OperandError(
                f"{quoted(self.text)} is no expression; one is %r3 == 7 && %tid.x < 32"
            ) from None
        self._run = self._compiled(tree.body)
        #: the names of registers and variables in it
        self.names = tuple(
            dict.fromkeys(_name(x.id) for x in ast.walk(tree) if isinstance(x, ast.Name))
        )

    def __call__(self, lookup: Lookup) -> Value:
        """The value for a thread. Raises OperandError where there is none."""
        try:
            return self._run(lookup)
        except (ArithmeticError, RecursionError, TypeError, ValueError) as error:
            raise OperandError(f"{quoted(self.text)}: {error}") from None

    def _compiled(self, node: ast.expr) -> Callable[[Lookup], Value]:
        if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
            constant = node.value
            return lambda lookup: constant
        if isinstance(node, ast.Name):
            name = _name(node.id)
            return lambda lookup: lookup(name)
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            apply = _BINARY[type(node.op)]
            left, right = self._compiled(node.left), self._compiled(node.right)
            return lambda lookup: apply(left(lookup), right(lookup))
        if isinstance(node, ast.UnaryOp):
            change, inner = _UNARY[type(node.op)], self._compiled(node.operand)
            return lambda lookup: change(inner(lookup))
        if isinstance(node, ast.BoolOp):
            parts, every = [self._compiled(x) for x in node.values], isinstance(node.op, ast.And)
            choose = all if every else any
            return lambda lookup: choose(part(lookup) for part in parts)
        if isinstance(node, ast.Compare) and all(type(x) in _COMPARE for x in node.ops):
            return self._comparison(node)
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in _FUNCTIONS
            and len(node.args) == 1
            and not node.keywords
        ):
            function, given = _FUNCTIONS[node.func.id], self._compiled(node.args[0])
            return lambda lookup: function(given(lookup))
        raise OperandError(
            f"{quoted(self.text)}: an expression has registers, variables, numbers, comparisons, "
            "and the operators of C"
        )

    def _comparison(self, node: ast.Compare) -> Callable[[Lookup], bool]:
        tests = [_COMPARE[type(op)] for op in node.ops]
        terms = [self._compiled(x) for x in (node.left, *node.comparators)]

        def run(lookup: Lookup) -> bool:
            held = [term(lookup) for term in terms]
            pairs = zip(tests, held, held[1:], strict=False)
            return all(test(a, b) for test, a, b in pairs)

        return run


def _no_keyword(match: re.Match[str]) -> str:
    name = match[0]
    return _VARIABLE + name if keyword.iskeyword(name) and name not in _KEPT else name


def _name(python: str) -> str:
    python = python.removeprefix(_VARIABLE)
    if not python.startswith(_PREFIX):
        return python
    return "%" + python.removeprefix(_PREFIX).replace("__dot__", ".")
