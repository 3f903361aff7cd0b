"""Every constant of every recipe: restated by hand, and shown by dot products derived by hand.

test_mutants.py, which is slow, changes each of them and looks who notices.
"""

import pytest
from bits import assert_same_codes
from dots import FAST
from mutants import mutants
from probes import probe_codes, probes
from restated import LINES, OTHERS

from emulator.arith import dot, reference
from emulator.arith.recipes import RECIPES, arithmetic_for_row, find_recipe
from emulator.arith.steps import AddC, Clear, Convert, FusedDotAdd, Widen

pytestmark = pytest.mark.sampled(16)

#: products of the instructions: of those with sparsity, the ones that are left
LENGTHS = {"f64": (4, 8, 16), "tf32": (4, 8), "f16": (8, 16), "bf16": (8, 16)}


def lengths(path, a, group=1):
    """k of the instructions of a datapath and type of A."""
    if group > 1:
        return (64,)
    if path == "quad":
        return (4,)
    if path in ("wgmma", "wmma", "tcgen05"):
        return {"tf32": (8,), "f16": (16,), "bf16": (16,)}.get(a, (32,))
    return LENGTHS.get(a, (16, 32))


def steps_of(line, k):
    """What the steps of a recipe must be by a line of the table, but for the order of k."""
    precision = line.precision if line.precision == 14 else None
    fused = (line.fraction_bits, line.floor, line.sum, line.rounding, precision)
    return [
        *([("to f16",), ("x = 0",)] if line.c == "last" else []),
        *([("C to f32",)] if line.c == "as_f32" else []),
        (*fused, line.blocks(k)),
        *([("+ c", line.sum)] if line.c == "last" else []),
        *([("D to f16",)] if line.after else []),
    ]


def told(steps, k):
    """The same of the steps that a recipe has."""
    out = []
    for step in steps:
        match step:
            case Widen(to):
                out.append((f"to {to}",))
            case Clear():
                out.append(("x = 0",))
            case AddC(fmt):
                out.append(("+ c", fmt))
            case Convert(to):
                out.append((f"{'D' if out else 'C'} to {to}",))
            case FusedDotAdd(bits, floor, result, rounding, precision):
                out.append((bits, floor, result, rounding, precision, step.blocks(k)))
    return out


@pytest.mark.parametrize(
    "line", LINES, ids=lambda x: f"{x.path}-{x.generation}-{x.a}-{x.d}{x.only}"
)
def test_recipes_have_the_constants_that_are_restated(line):
    row = find_recipe(line.path, line.generation, line.a, line.d, line.kind, line.c_type)
    assert row.pipe == line.path
    group = 16 if line.only in ("mxf4", "mxf4nvf4") else 1
    for k in lengths(line.path, line.a, group):
        assert told(row.steps, k) == steps_of(line, k)
    assert group == max(getattr(step, "group", 1) for step in row.steps)


def test_no_recipe_is_missing_in_the_tables():
    told_of = {(x.path, x.generation, x.a, x.d, x.kind or "") for x in LINES}
    for (path, generations, types, d), steps in OTHERS.items():
        for generation in generations.split():
            for a in types.split():
                assert find_recipe(path, generation, a, d, None).steps == steps
                told_of.add((path, generation, a, d, ""))
    used = set()
    for row in RECIPES:
        for generation in row.generations.split():
            for a in row.a.split():
                used |= {
                    (row.pipe, generation, a, row.d, kind) for kind in row.kinds.split() or [""]
                }
    assert used == told_of


def fused_rows():
    return [row for row in RECIPES if any(isinstance(step, FusedDotAdd) for step in row.steps)]


@pytest.mark.parametrize("row", fused_rows(), ids=lambda x: f"{x.pipe}-{x.generations}-{x.d}")
def test_a_changed_constant_differs_from_the_tables(row):
    """The planted error, for every constant."""
    line = next(
        x for x in LINES if x.path == row.pipe and x.generation in row.generations.split()
        and x.a in row.a.split() and x.d == row.d and (x.kind or "") in (row.kinds.split() or [""])
        and (not row.c or x.only == f"c={row.c}") and (row.c or x.only != "c=f32")
    )  # fmt: skip
    ks = lengths(line.path, line.a, max(getattr(step, "group", 1) for step in row.steps))
    assert all(told(row.steps, k) == steps_of(line, k) for k in ks)
    for mutant in mutants(row, ks):
        if mutant.row is not None and mutant.constant != "group":
            assert any(told(mutant.row.steps, k) != steps_of(line, k) for k in ks), mutant.name


# --- the probes -----------------------------------------------------------------------------------


def probed():
    """(path, generation, types of a, b, c and d, k) of all that has probes."""
    for line in LINES:
        if not line.kind:
            c = "f16" if line.c == "as_f32" else line.c_type
            for k in lengths(line.path, line.a):
                yield line.path, line.generation, (line.a, line.a, c, line.d), k
    for pair in (("e4m3", "e5m2"), ("e5m2", "e4m3"), ("e4m3", "e2m1")):
        for d in ("f32", "f16"):
            yield "mma", "rtx_blackwell", (*pair, d, d), 32
    for pair in (("e4m3", "e5m2"), ("e5m2", "e4m3")):
        for d in ("f32", "f16"):
            yield "mma", "hopper", (*pair, d, d), 32
            yield "wgmma", "hopper", (*pair, d, d), 32
    yield from (("quad", "hopper", ("f16", "f16", c, d), 4) for c, d in
                (("f32", "f32"), ("f16", "f32"), ("f16", "f16")))  # fmt: skip
    yield from (("mma", "hopper", ("f64",) * 4, k) for k in LENGTHS["f64"])


PROBED = list(dict.fromkeys(probed()))


@pytest.mark.parametrize(("path", "generation", "types", "k"), PROBED)
def test_probes_give_what_is_derived_by_hand(path, generation, types, k):
    a_type, b_type, c_type, d_type = types
    found = probes(path, generation, types, k)
    assert len(found) >= 5
    a, b, c, d = probe_codes(found, types, k)
    row = find_recipe(path, generation, a_type, d_type, None, c_type)
    arithmetic = arithmetic_for_row(row, a_type, b_type, c_type)
    for engine in FAST:
        assert_same_codes(dot(arithmetic, a, b, c, engine=engine), d)
    assert_same_codes(reference.dot(arithmetic, a[::3], b[::3], c[::3]), d[::3])
