"""Ordinary arithmetic: what every instruction that only computes on registers does to its words.

Rules were measured on an H200 (every form of sm_90a that has one) and are written down twice: a
function on Python integers that is the specification, and a text over words, from which both the
arrays of the vector engine and the machine code of the compiled one come. Engines bind the rule of
an instruction once and call it for every execution.
"""

from emulator.arith.scalar.rule import Operation, bind_reference, bind_vector, find_rule
from emulator.arith.scalar.types import TYPES, ScalarType, cut, extend

__all__ = [
    "TYPES",
    "Operation",
    "ScalarType",
    "bind_reference",
    "bind_vector",
    "cut",
    "extend",
    "find_rule",
]
