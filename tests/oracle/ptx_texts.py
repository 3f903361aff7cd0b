"""One text of PTX, parsed or checked."""

from emulator.ptx.parser import parse_texts
from emulator.ptx.statements import Declared, bind
from emulator.targets import find_target


def parse_module(text):
    """The syntax tree of a PTX file."""
    (module,) = parse_texts(text)
    return module


def check_statement(text, target):
    """Raises what ``Warp.run`` or ``Warpgroup.run`` would raise before it executes `text`."""
    bind(text, Declared(), find_target(target), lanes=128)
