"""The arguments of a command: from the signature of its function, and a line of help for each."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

if TYPE_CHECKING:
    from argparse import ArgumentParser


def add_command(parser: ArgumentParser, tool: ModuleType, name: str) -> None:
    """Adds the arguments of a command of a module: ``NAME_HELP`` describes those of the function
    ``NAME_command``, and of ``NAME_WORDS`` where that takes words for it."""
    own = getattr(tool, f"{name}_command")
    words = getattr(tool, f"{name.upper()}_WORDS", own)
    add_arguments(parser, getattr(tool, f"{name.upper()}_HELP"), words, own)


def add_arguments(
    parser: ArgumentParser, helps: Mapping[str, str], *functions: Callable[..., object]
) -> None:
    """Adds the arguments that `helps` describes, in its order.

    A key is ``name`` or ``name METAVAR`` of a positional argument, or the spellings of an option
    and its metavar: ``-o --output FILE``. The parameter of that name in one of `functions` says the
    rest: a bool is a flag, a number is read as one, a sequence takes several words, a Literal has
    choices, and what has no default is required. ``name ...`` takes all words that are left.
    """
    from argparse import REMAINDER

    known: dict[str, inspect.Parameter] = {}
    for function in functions:
        known |= inspect.signature(function, eval_str=True).parameters
    for key, text in helps.items():
        words = key.split()
        names = [x for x in words if x.startswith("-")] or words[:1]
        name = names[-1].lstrip("-").replace("-", "_")
        name = name if name in known else f"{name}_"
        parameter, is_option = known[name], names[0].startswith("-")
        rules: dict[str, Any] = _rules(parameter, is_option)
        if is_option:
            rules["dest"] = name
        if words[-1] == REMAINDER:
            rules["nargs"] = REMAINDER
        elif len(words) > len(names):
            rules["metavar"] = words[-1]
        parser.add_argument(*names, help=text or None, **rules)


def _rules(parameter: inspect.Parameter, is_option: bool) -> dict[str, object]:
    """What argparse must know of a parameter besides its name."""
    kinds = [x for x in get_args(parameter.annotation) if x is not type(None)]
    kind = parameter.annotation
    if get_origin(kind) not in (Literal, Sequence, list) and kinds:
        (kind,) = kinds
    needed = parameter.default is parameter.empty
    if kind is bool:
        return {"action": "store_true"}
    if get_origin(kind) in (Sequence, list):
        return {"action": "append"} if is_option else {"nargs": "+" if needed else "*"}
    rules: dict[str, object] = {"type": kind} if kind in (int, float) else {}
    if get_origin(kind) is Literal:
        rules["choices"] = get_args(kind)
    if is_option:
        return rules | ({"required": True} if needed else {})
    return rules if needed else rules | {"nargs": "?"}
