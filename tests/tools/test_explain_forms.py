"""``explain``: its trace ends in the code of D, for every form and every recipe."""

import json
from fractions import Fraction

import numpy as np
import pytest
from designed import operands, scales_of
from each_form import ALL, targets_of_each_arithmetic
from each_form import operands as registers_of
from recipe_cases import CASES
from sweeps import swept

from dtypes import FORMATS
from emulator import execute
from emulator.arith import reference
from emulator.arith.trace import Counted, Operated
from emulator.tools.explanations.explanation import explain_registers
from emulator.tools.explanations.numbers import ShownCode, number_text, ulps_apart

pytestmark = pytest.mark.sampled(6)

# --- the trace is that of the result --------------------------------------------------------------


def last_code(record):
    if isinstance(record, Operated):
        return record.result
    return record.result.code if isinstance(record, Counted) else record.after.code


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_records_end_in_the_result(case):
    """Every recipe: the observer changes nothing, and its last record holds the result."""
    rng = np.random.default_rng(7)
    for regime in ("near", "cut", "boundary") if case.arithmetic.a.is_float else ("any",):
        a, b, c = operands(rng, case, regime, 1)
        scales = scales_of(rng, case, regime, 1)
        records = []
        lists = [x[0].tolist() for x in (a, b, *scales)] + [[]] * (2 - len(scales))
        code = reference.dot_one(case.arithmetic, *lists, int(c[0]), records.append)
        assert code == reference.dot(case.arithmetic, a, b, c, *scales)[0]
        assert last_code(records[-1]) == code


def check_form(ins, target, seed):
    rng = np.random.default_rng(seed)
    registers, options = registers_of(ins, rng)
    d = execute(ins, *registers, target=target, **options)
    d = ins.fragment("d").gather(d)
    d = d[2] if d.ndim > 2 else d
    row, col = rng.integers(ins.m), rng.integers(ins.n)
    made = explain_registers(
        ins,
        *registers,
        row=row,
        col=col,
        target=target,
        computation=2 * (ins.fragment("d").groups > 1),
        **options,
    )
    assert int(made.data["d"]["code"], 16) == d[row, col]
    assert max(map(len, made.text().splitlines())) <= 100
    json.dumps(made.data, allow_nan=False)


@pytest.mark.parametrize("ins", ALL[::3], ids=str)
def test_forms_are_explained(ins):
    check_form(ins, ins.targets[-1], 1)


@pytest.mark.slow
@swept(ALL)
def test_every_form_on_every_generation(ins):
    for target in targets_of_each_arithmetic(ins):
        for seed in range(3):
            check_form(ins, target, seed)


# --- numbers as text ------------------------------------------------------------------------------


def value_of(text):
    factor, _, power = text.partition("*2^") if "*" in text else text.rpartition("2^")
    if not power:
        return Fraction(text)
    sign = {"": 1, "-": -1}.get(factor)
    return (Fraction(factor) if sign is None else sign) * Fraction(2) ** int(power)


@pytest.mark.parametrize("name", ["e4m3", "e5m2", "e2m1", "e3m2", "f16", "bf16"])
def test_text_is_exact_unless_it_says_so(name):
    fmt = FORMATS[name]
    for code in range(0, 1 << fmt.bits, 1 if fmt.bits < 16 else 37):
        value = ShownCode(fmt, code).value
        if value is None:
            assert ShownCode(fmt, code).text().lstrip("-") in ("inf", "nan")
            continue
        for long in (False, True):
            text = ShownCode(fmt, code).text(long)
            if text[0] == "~":
                assert abs(Fraction(text[1:]) - value) <= abs(value) * Fraction(1, 10**7)
            elif "2^" in text:
                assert value_of(text) == value
            else:
                assert Fraction(text) == value


def test_numbers_that_no_float_holds():
    assert number_text(Fraction(1, 1 << 5000)) == "2^-5000"
    assert number_text(Fraction(3**400, 1 << 5000)).startswith("~")
    assert number_text(Fraction(10) ** 400 * 7) == "~7e400"


def test_ulps():
    f32 = FORMATS["f32"]
    assert ulps_apart(Fraction(1), ShownCode(f32, 0x3F800001)) == 1
    assert ulps_apart(Fraction(2), ShownCode(f32, 0x3FFFFFFF)) == Fraction(-1, 2)
    assert ulps_apart(Fraction(0), ShownCode(f32, 1)) == 1
    assert ulps_apart(Fraction(1), ShownCode(f32, 0x7F800000)) is None
    assert ulps_apart(Fraction(7), ShownCode(FORMATS["s32"], 5)) == -2
