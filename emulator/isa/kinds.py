"""The kinds of instructions: what their opcodes start with, and where each kind is.

A kind is a module of this package with its table, its subclass of ``Instruction``, and two
functions: ``parse(opcode)`` gives the instruction of an opcode, ``expand()`` all that the table
has. It is named here as text, and imported when the first of its opcodes is read: an opcode costs
the tables of its own kind alone.
"""

from __future__ import annotations

import re
from importlib import import_module
from types import ModuleType
from typing import NamedTuple


class Kind(NamedTuple):
    """One kind of instruction."""

    #: first words of its opcodes, with spaces between them
    names: str
    module: str
    #: its instructions are in the catalogue: those that `warp.execute` takes matrices for
    listed: bool = True

    def load(self) -> ModuleType:
        """The module of the kind."""
        return import_module(self.module)


_ORDINARY = "emulator.isa.ordinary.instruction"

#: Where two kinds have a name, an opcode is of the first one that takes it.
KINDS = (
    Kind("mma wgmma.mma_async", "emulator.isa.matrix_opcodes"),
    Kind("ldmatrix stmatrix movmatrix", "emulator.isa.movement"),
    Kind("wmma.mma wmma.load.a wmma.load.b wmma.load.c wmma.store.d", "emulator.isa.wmma_opcodes"),
    Kind("cvt", "emulator.isa.conversion"),
    Kind("tcgen05", "emulator.isa.tcgen05", listed=False),
    Kind("cvt wgmma.commit_group wgmma.fence wgmma.wait_group", _ORDINARY, listed=False),
)
#: The kind of all names that rows of ordinary instructions have, and no other kind.
REST = Kind("", _ORDINARY, listed=False)
_FIRST_WORDS = {name.partition(".")[0] for kind in KINDS for name in kind.names.split()}

#: Other people's names of instructions: how they start, and whose ``parse`` knows them.
ALIASES = (
    re.compile(r"cute::|SM\d|G?MMA_|m\d+n\d+k\d+\.", re.ASCII),
    Kind("", "emulator.isa.aliases"),
)

_NEWER = "it is newer than PTX 9.3"
#: First words of PTX's other opcodes (PTX ISA 9.7), which are legal, and why they are not modelled.
OTHER_PTX = {
    "applypriority.async": _NEWER,
    **dict.fromkeys(
        (
            "fabric.submit.commit_group",
            "fabric.try_atom",
            "fabric.try_get.async.tensor",
            "fabric.try_put.async.tensor",
            "fabric.try_red.async.tensor",
        ),
        _NEWER,
    ),
    "tensormap.query": _NEWER,
}


def names() -> tuple[str, ...]:
    """First words of the opcodes of all kinds."""
    named = (name for kind in KINDS for name in kind.names.split())
    others = (name for name in REST.load().names() if name not in _FIRST_WORDS)
    return tuple(dict.fromkeys((*named, *others)))


def kinds_of(opcode: str) -> list[Kind]:
    """The kinds that an opcode may be of, by the name that it starts with."""
    first = opcode.partition(".")[0]
    if first not in _FIRST_WORDS:
        return [REST] if first in REST.load().names() else []
    return [kind for kind in KINDS if any(starts_with(opcode, name) for name in kind.names.split())]


def why_not_modelled(opcode: str) -> str:
    """Why this package does not model the opcode of PTX that a text starts as; "" where it does, or
    the text is no such opcode."""
    return next((why for name, why in OTHER_PTX.items() if starts_with(opcode, name)), "")


def is_tensor(given: object) -> bool:
    """True if a text is an opcode on tensor memory."""
    return isinstance(given, str) and starts_with(given.strip(), "tcgen05")


def is_of_warpgroup(opcode: str) -> bool:
    """True if a text is an opcode that a warpgroup executes together."""
    return starts_with(opcode, "wgmma")


def is_tensor_product(given: object) -> bool:
    """True if a text is the opcode of a tcgen05.mma, which needs an instruction descriptor."""
    return isinstance(given, str) and starts_with(given.strip(), "tcgen05.mma")


def is_tensor_copy(opcode: str) -> bool:
    """True for a bulk copy of a tensor's box, to or from shared memory."""
    return starts_with(opcode, "cp.async.bulk.tensor")


def starts_with(opcode: str, name: str) -> bool:
    """True if the first words of an opcode are those of a name."""
    return opcode == name or opcode.startswith(f"{name}.")
