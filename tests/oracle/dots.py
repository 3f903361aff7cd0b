"""Single dot products of a recipe, stated by codes; for the tests of engines."""

from importlib.util import find_spec

import numpy as np
import pytest

from dtypes import code_type, encode
from emulator.arith import dot
from emulator.arith.recipes import arithmetic_for_row, find_recipe

#: engines that must equal "reference"
FAST = ("vector", *(["compiled"] if find_spec("llvmlite") else []))
each_fast = pytest.mark.parametrize("engine", FAST)
each_engine = pytest.mark.parametrize("engine", ("reference", *FAST))
#: rounding modifiers of f64
ROUNDINGS = ("rn", "rz", "rm", "rp")


def codes_of(fmt, values):
    """Integers of a float format are codes, all other numbers are values."""
    if not fmt.is_float:
        return encode(fmt, values)
    given = [v if isinstance(v, int) else int(encode(fmt, [v])[0]) for v in values]
    return np.array(given, code_type(fmt.bits))


def by_hand(where, b=None):
    pipe, generation, a, d = where.split()
    row = find_recipe(pipe, generation, a, d, None)
    return arithmetic_for_row(row, a, b or a, d)


def one_dot(arithmetic, c, pairs, k, engine, scales=()):
    """The code of D; an integer c is a code, a float a value."""
    pairs = [*pairs, *[(0, 0)] * (k - len(pairs))]
    a = codes_of(arithmetic.a, [p for p, _ in pairs])[None]
    b = codes_of(arithmetic.b, [q for _, q in pairs])[None]
    c = encode(arithmetic.c, [c]) if isinstance(c, float) else [c]
    c = np.array(c, code_type(arithmetic.c.bits))
    return f"{dot(arithmetic, a, b, c, *scales, engine=engine)[0]:#x}"
