"""Declarations of a module that are not whole, or that do not fit one another.

The rules are those of ptxas 13.0, which was asked about every pair that the tests list.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from emulator.errors import EmulatorError, OperandError
from emulator.ptx import tree
from emulator.ptx.source import Source
from emulator.ptx.variables import ELEMENT_BYTES, OPAQUE, check_complete, extent, is_incomplete

Declared = tree.Variable | tree.Function
#: linkage of a function's declaration -> those that its definition may have
_DEFINED_AS: dict[str | None, tuple[str | None, ...]] = {
    None: (None,), "visible": (None, "visible"), "weak": (None, "weak"), "extern": (),
}  # fmt: skip


class Conflict(NamedTuple):
    """A mistake of a declaration."""

    at: int
    name: str
    reason: str


def faults(module: tree.Module) -> list[Conflict]:
    """All declarations of a file that ptxas refuses, in the order of the file."""
    out = []
    seen: dict[str, list[Declared]] = {}
    declared: list[Declared] = [*module.variables, *module.functions]
    for node in sorted(declared, key=lambda node: node.at):
        name = name_of(node)
        earlier = seen.setdefault(name, [])
        pairs = ((_pair(other, node), other) for other in earlier)
        found = next(((reason, other) for reason, other in pairs if reason), None)
        if found is not None:
            line = line_of(module.source, found[1].at)
            out.append(Conflict(node.at, name, f"{name!r} {found[0]} ({line})"))
        elif reason := _alone(node):
            out.append(Conflict(node.at, name, reason))
        earlier.append(node)
    out += _aliases(module)
    return sorted(out)


def line_of(source: Source, at: int) -> str:
    """``line 12``; ``b.ptx:12`` where several texts are one program."""
    return source.file_line(at) or f"line {source.position(at).line}"


def name_of(node: Declared) -> str:
    return node.name if isinstance(node, tree.Function) else node.name.text


# --- a declaration by itself ----------------------------------------------------------------------


def _alone(node: Declared) -> str:
    """Judges one declaration by itself; "" where it is legal."""
    try:
        if isinstance(node, tree.Variable):
            _check(node)
            return ""
        takes_any = node.kind == "func" and has_any_bytes(node)
        for variable in (*node.returns, *node.parameters[: -1 if takes_any else None]):
            _check(variable)
        if node.kind == "func" and "_" in _parameters_of(node):
            return f"{node.name!r} has a parameter '_': that is no name"
    except EmulatorError as error:
        return str(error)
    return _of_definition(node) if node.body is not None else ""


def _parameters_of(node: tree.Function) -> list[str]:
    return [variable.name.text for variable in (*node.returns, *node.parameters)]


def _check(variable: tree.Variable) -> None:
    if variable.space == "reg" and variable.dimensions:
        raise OperandError(f"{variable.name.text!r} is an array, which no register holds")
    check_complete(variable)
    if variable.space != "reg" and variable.type not in OPAQUE:
        extent(variable)


def has_any_bytes(function: tree.Function) -> bool:
    """True if a function's last parameter is one of any size, such as ``x[]``."""
    last = function.parameters[-1:]
    return bool(last) and is_incomplete(last[0]) and last[0].space == "param"


def _of_definition(node: tree.Function) -> str:
    if node.linkage == "extern":
        return f"{node.name!r} is .extern and has a body"
    names = _parameters_of(node)
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    return f"{node.name!r} has a parameter {twice!r} twice" if twice is not None else ""


# --- aliases ---


def _aliases(module: tree.Module) -> Iterator[Conflict]:
    seen: set[str] = set()
    for alias in module.aliases:
        earlier = [x for x in module.functions if x.at < alias.at]
        names, of = ([x for x in earlier if x.name == name] for name in (alias.name, alias.of))
        if not names or not of:
            missing = alias.of if names else alias.name
            reason = f"{missing!r} is no function that is declared before its alias"
        elif alias.name in seen or any(function.body is not None for function in names):
            reason = f"{alias.name!r} is defined already"
        else:
            reason = _not_aliased(of[-1]) or unlike(of[-1], names[-1])
            reason = f"{alias.name!r} as an alias of {alias.of!r}: {reason}" if reason else ""
        if reason:
            yield Conflict(alias.at, alias.name, reason)
        seen.add(alias.name)


def _not_aliased(function: tree.Function) -> str:
    """The reason why a function can have no alias; "" if it can."""
    if function.kind == "entry":
        return "kernels have no aliases"
    if function.linkage in ("extern", "weak"):
        return f"functions of .{function.linkage} have no aliases"
    return ""


# --- two declarations of a name -------------------------------------------------------------------


def _pair(first: Declared, second: Declared) -> str:
    """The reason why a second declaration does not fit the first; "" where it does."""
    if isinstance(first, tree.Variable) and isinstance(second, tree.Variable):
        return _variables(first, second)
    if isinstance(first, tree.Function) and isinstance(second, tree.Function):
        return _functions(first, second)
    return "is a variable and a function"


def _variables(first: tree.Variable, second: tree.Variable) -> str:
    is_extern = first.linkage == "extern"
    if not is_extern and second.linkage != "extern":
        return "is defined already"
    if not _fit(first, second):
        return f"is {_shown(second)} here and was declared as {_shown(first)}"
    if is_extern and second.linkage is None:
        return "is declared as .extern: its definition is .visible, .weak or .common"
    return ""


def _fit(first: tree.Variable, second: tree.Variable) -> bool:
    """True if two variables are of one type; alignment and state space may differ."""
    types = {(x.type, x.vector, len(x.dimensions), x.dimensions[1:]) for x in (first, second)}
    if len(types) != 1 or first.type not in ELEMENT_BYTES:
        return len(types) == 1
    any_size = is_incomplete(first) or is_incomplete(second)
    return any_size or extent(first).bytes == extent(second).bytes


def _shown(variable: tree.Variable) -> str:
    vector = f".v{variable.vector} " if variable.vector > 1 else ""
    sizes = "".join(f"[{'' if x is None else x}]" for x in variable.dimensions)
    return f"{vector}.{variable.type}{sizes}"


def _functions(first: tree.Function, second: tree.Function) -> str:
    if first.kind != second.kind:
        return f"is .{second.kind} here and was declared as .{first.kind}"
    if first.body is not None:
        return "is defined already"
    if reason := unlike(first, second):
        return reason
    if second.body is not None and second.linkage not in _DEFINED_AS.get(first.linkage, ()):
        own = f".{second.linkage}" if second.linkage else "of this file alone"
        return f"is {own} here and was declared as {_linkage(first)}"
    return ""


def _linkage(function: tree.Function) -> str:
    return f".{function.linkage}" if function.linkage else "of this file alone"


def unlike(first: tree.Function, second: tree.Function) -> str:
    """In what two functions differ that have to take and return the same; "" in nothing."""
    for what, ones, others in (
        ("takes", first.parameters, second.parameters),
        ("returns", first.returns, second.returns),
    ):
        if len(ones) != len(others):
            return f"{what} {len(others)} parameters here and {len(ones)} where it was declared"
        for number, (one, other) in enumerate(zip(ones, others, strict=True), 1):
            if _formal(one) != _formal(other):
                return (
                    f"{what} {_formal_shown(other)} as parameter {number} here and "
                    f"{_formal_shown(one)} where it was declared"
                )
    if _returns(first) != _returns(second):
        return "is .noreturn in one of its declarations"
    return ""


def _formal(variable: tree.Variable) -> tuple[object, ...]:
    in_memory = variable.space != "reg" and variable.type in ELEMENT_BYTES
    alignment = extent(variable).alignment if in_memory else None
    sizes = tuple(size or 0 for size in variable.dimensions)
    return variable.space, variable.type, variable.vector, sizes, alignment


def _formal_shown(variable: tree.Variable) -> str:
    aligned = f" .align {variable.alignment}" if variable.alignment else ""
    return f".{variable.space}{aligned} {_shown(variable)}"


def _returns(function: tree.Function) -> bool:
    return all(directive.name != "noreturn" for directive in function.directives)
