"""Every constant of every recipe changed by one: do recordings and hand-derived results notice?

For rows that were measured the recordings must, for each type and family by themselves, as
`selftest` replays them; for all rows the dot products of probes.py and test_recipes_by_hand.py.
What nobody notices stands in UNSHOWN, or, where other recordings would, in `open` of its evidence.
"""

from collections import defaultdict
from dataclasses import replace
from functools import partial

import pytest
from dots import one_dot
from mutants import RIGHT, mutants, replaced
from probes import probe_codes, probes
from recorded import RECORDED
from test_constants import PROBED, lengths
from test_recipes_by_hand import SCALED, scaled

from emulator import Instruction, UnsupportedError
from emulator.arith import dot
from emulator.arith.evidence import find_recorded, open_constants
from emulator.arith.recipes import arithmetic_for_row, find_recipe
from emulator.targets import TARGETS
from emulator.tools.replay import replay

_NO_CUT = "nothing lies below the bits that the floor keeps: products end at 2^-32, an f16 at 2^-24"
#: (types of A, format of the sum, constant) -> why no operands show a change of it
UNSHOWN = {
    ("f16 e4m3 e5m2 e3m2 e2m3 e2m1", "f32", "floor"):
        "products have exponents of -28 and more, an f32 C has -126 and more: all above the floor",
    ("e4m3 e5m2 e3m2 e2m3 e2m1", "f16", "floor"): _NO_CUT,
    ("e4m3", "f32 f16", "to"): "what is subnormal in e4m3 is normal in f16 and in f32",
    ("f16", "", "nan_order"): "operands are widened first, and every NaN becomes the same one",
}  # fmt: skip


def is_unshown(a, steps, constant):
    total = next((step.result for step in steps if hasattr(step, "result")), "")
    return any(
        constant == name and a in types.split() and (total in sums.split() or total == sums == "")
        for (types, sums, name) in UNSHOWN
    )


@pytest.fixture
def put(monkeypatch):
    """``put(other, row)`` makes `other` stand in the table in place of `row`, or nothing if it is
    None; ``put(row, row)`` makes all right again, and so does the end of the test."""
    yield partial(replaced, monkeypatch)
    replaced(monkeypatch, RIGHT[0], RIGHT[0])


#: what a mutant raises that makes no sense, such as a sum of no products
_SENSELESS = (AssertionError, ValueError)


# --- recordings -----------------------------------------------------------------------------------


def family_of(ins):
    return "wmma" if ins.family.startswith("wmma") else ins.form.family


def recorded():
    """(row, family, type of A, generation) -> the recordings."""
    out = defaultdict(list)
    for variant in RECORDED:
        ins = Instruction.parse(variant.opcode)
        if hasattr(ins, "recipe"):
            generation = TARGETS[variant.target].generation
            key = (RIGHT.index(ins.recipe(variant.target)), family_of(ins), ins.a_type, generation)
            out[key].append(variant)
    return out


VARIANTS = recorded()


def notices(variants):
    """Whether any of the recordings has another result, or is refused, now."""
    for variant in variants:
        try:
            if replay(variant, "vector").differing:
                return True
        except (UnsupportedError, *_SENSELESS):
            return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("index", "family", "a", "generation"),
    [key for key in VARIANTS if RIGHT[key[0]].d != "s32"],
    ids=str,
)
def test_recordings_notice_every_constant(index, family, a, generation, put):
    """All but those that are open by the evidence; and of those, they do not notice all."""
    row, variants = RIGHT[index], VARIANTS[index, family, a, generation]
    ins = [Instruction.parse(variant.opcode) for variant in variants]
    forms = [find_recorded(generation, str(x)) for x in ins]
    assert all(forms)
    left = {name for x in ins for name in open_constants(generation, str(x))}
    missed = set()
    for mutant in mutants(row, {getattr(x, "stored_k", x.k) for x in ins}):
        put(mutant.row, row)
        noticed = notices(variants)
        if is_unshown(a, row.steps, mutant.constant):
            assert not noticed, f"{mutant.name} shows, and must leave the list UNSHOWN"
        elif not noticed:
            missed.add(mutant.constant)
    put(row, row)
    assert not notices(variants)
    if any("H200" in x.source for x in forms):
        assert not left
    assert missed <= left
    # Of two types in one row of OPEN, what is open may show in one.
    others = [k for k in VARIANTS if k[0] == index and k[1] == family and k[2] != a]
    assert missed == left or others


@pytest.mark.slow
@pytest.mark.parametrize("key", [key for key in VARIANTS if RIGHT[key[0]].d == "s32"], ids=str)
def test_recordings_notice_another_step_of_integers(key, put):
    """A product of bits is their AND, so that only XOR can be told from integers."""
    row, variants = RIGHT[key[0]], VARIANTS[key]
    (step,) = row.steps
    other = next(x.steps[0] for x in RIGHT if x.d == "s32" and x.steps[0] != step)
    put(replace(row, steps=(other,)), row)
    assert notices(variants) != all(".and.popc" in variant.opcode for variant in variants)
    put(row, row)
    assert not notices(variants)


def test_every_measured_row_is_recorded():
    measured = {i for i, row in enumerate(RIGHT) if "hopper" in row.generations.split()}
    assert measured == {index for index, *_, generation in VARIANTS if generation == "hopper"}


# --- results by hand ------------------------------------------------------------------------------


def shown_by_probes(mutant, path, generation, types, k):
    """Whether the probes of these types have another result by the mutant."""
    a, b, c, d = probe_codes(probes(path, generation, types, k), types, k)
    row = mutant.row or find_recipe("mma", generation, types[0], types[3], None, types[2])
    if row is None:
        return True
    arithmetic = arithmetic_for_row(row, *types[:3])
    if arithmetic.d.name != types[3]:
        return True
    try:
        return bool((dot(arithmetic, a, b, c, engine="vector") != d).any())
    except _SENSELESS:
        return True


@pytest.mark.slow
@pytest.mark.parametrize(
    ("row", "a"),
    [(row, a) for row in RIGHT if not row.kinds and row.d != "s32" for a in row.a.split()],
    ids=lambda x: x if isinstance(x, str) else f"{x.pipe}-{x.generations}-{x.d}-{x.c}",
)
def test_probes_notice_every_constant(row, a):
    served = [
        x for x in PROBED
        if x[2][0] == a and find_recipe(x[0], x[1], a, x[2][3], None, x[2][2]) is row
    ]  # fmt: skip
    assert served
    for mutant in mutants(row, {k for *_, k in served}):
        shown = any(shown_by_probes(mutant, *x) for x in served)
        assert shown != is_unshown(a, row.steps, mutant.constant), mutant.name


@pytest.mark.slow
@pytest.mark.parametrize(
    "row", [row for row in RIGHT if row.kinds and row.pipe == "mma"], ids=lambda row: row.kinds
)
def test_scaled_results_notice_every_constant(row, put):
    group = max(step.group for step in row.steps)
    for mutant in mutants(row, lengths(row.pipe, "e4m3", group)[-1:]):
        put(mutant.row, row)
        assert any(
            shown_by_scaled(line) for line in SCALED if line[0].split()[0] in row.kinds.split()
        ), mutant.name


def shown_by_scaled(line):
    *given, d = line
    try:
        return scaled(*given, "vector") != f"{d:#x}"
    except _SENSELESS:
        return True


# --- a test that can fail -------------------------------------------------------------------------


def test_a_mutant_is_another_recipe_and_goes_away(put):
    ins = Instruction.parse("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    row, right = ins.recipe("sm_90a"), ins.arithmetic("sm_90a")
    for mutant in mutants(row, {8, 16}):
        put(mutant.row, row)
        assert ins.arithmetic("sm_90a").steps == mutant.row.steps != right.steps
    put(row, row)
    assert ins.arithmetic("sm_90a") == right
    with pytest.raises(AssertionError):
        assert one_dot(right, 1.0, [(1.0, 1.0)], 16, "vector") == "0x0"


def test_recordings_that_notice_nothing_would_be_found(put):
    """Recordings of f16 results that meet no cut, as all were once, let F = 24 pass."""
    row = find_recipe("mma", "hopper", "f16", "f16", None)
    key = RIGHT.index(row), "mma", "f16", "hopper"
    put(replace(row, steps=(replace(row.steps[0], fraction_bits=24),)), row)
    blunt = [variant for variant in VARIANTS[key] if variant.group == "h200_dense"]
    assert blunt and not notices(blunt)
    assert notices(VARIANTS[key])
