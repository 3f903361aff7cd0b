"""Ordinary instructions against recordings of an H200: the same bits in, the same bits out."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from scalar_recordings import Form, forms, special_forms, updates

from emulator import Instruction
from emulator.arith import special, special_tables, special_words
from emulator.arith.scalar import TYPES, bind_reference, bind_vector
from emulator.arith.scalar.arrays import ARRAYS

pytestmark = pytest.mark.sampled(4)

EVERY = [*forms(), *special_forms()]
BY_NAME = defaultdict(list)
for _form in EVERY:
    BY_NAME[_form.opcode.split(".")[0]].append(_form)
WARP_WIDE = ("shfl", "vote", "match", "redux", "elect", "activemask")


def words(ins, form):
    """The sources as the vector rule takes them: words of their own types."""
    if ins.family == "mov" or ins.rule.startswith("packing."):
        types = [ins.types[-1]] * len(form.sources)
        if ins.family == "mov":
            return list(form.sources)
    else:
        types = [x.type or "b32" for x in ins.signature().operands if x.use == "read"]
        types += ["pred"] * ins.reads_carry
    return [
        x if isinstance(x, int) and t == "b32" else np.asarray(x).astype(TYPES[t].dtype)
        for x, t in zip(form.sources, types, strict=False)
    ]


def differing(form, bind=bind_vector, first=None):
    """In how many cases any result has another bit than the hardware's."""
    ins = Instruction.parse(form.opcode)
    given = words(ins, form)
    name = form.opcode.split(".")[0]
    warp = name in WARP_WIDE
    if form.opcode == "activemask.b32":
        mask = form.results[0]
        active = (np.bitwise_or.reduce(mask, axis=-1)[..., None] >> np.arange(32) & 1) != 0
        got = bind(ins)(active=active)
    elif bind is bind_vector:
        got = bind(ins, **form.options)(*given)
    else:
        got = one_by_one(bind(ins, **form.options), given, warp, form.cases, first)
    got = got if isinstance(got, tuple) else (got,)
    unlike = np.zeros(form.results[0].shape if first is None or warp else first, bool)
    for g, want in zip(got, form.results, strict=False):
        g = np.broadcast_to(g, want.shape) if first is None or warp else g
        want = want if first is None or warp else want[:first]
        size = min(g.dtype.itemsize, want.dtype.itemsize)
        if name == "cvt" and ins.types[0] in ("u8", "s8"):  # their registers are wider
            size = 1
        unlike |= g.astype(f"u{size}") != want.astype(f"u{size}")
    if warp and form.opcode != "activemask.b32":
        unlike &= (form.sources[-1] >> np.arange(32, dtype=np.uint32) & 1) != 0
    elif warp:
        unlike &= active
    return int(unlike.sum())


def one_by_one(rule, given, warp, cases, first):
    """The results of the reference rule: case by case, or warp by warp."""
    if warp:
        count = len(given[0])
        rows = [rule(*(x[i].tolist() for x in given)) for i in range(count)]
    else:
        count = first or cases
        arrays = [np.broadcast_to(x, cases)[:count].tolist() for x in given]
        rows = [rule(*case) for case in zip(*arrays, strict=True)]
    rows = [row if isinstance(row, tuple) else (row,) for row in rows]
    return tuple(np.array(column, np.uint64) for column in zip(*rows, strict=True))


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_arrays_have_the_bits_of_the_hardware(name):
    assert {form.opcode: n for form in BY_NAME[name] if (n := differing(form))} == {}


@pytest.mark.sampled(4, covered_by="test_the_reference_has_the_bits_of_the_hardware_in_every_case")
@pytest.mark.parametrize("name", sorted(set(BY_NAME) - {"activemask"}))
def test_the_reference_has_the_bits_of_the_hardware(name):
    some = BY_NAME[name][:: max(1, len(BY_NAME[name]) // 12)]
    assert {form.opcode: n for form in some if (n := differing(form, bind_reference, 6))} == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(BY_NAME) - {"activemask"}))
def test_the_reference_has_the_bits_of_the_hardware_in_every_case(name):
    found = {
        form.opcode: n
        for form in BY_NAME[name]
        if (n := differing(form, bind_reference, form.cases))
    }
    assert found == {}


@pytest.mark.slow
@pytest.mark.parametrize("bind", [bind_vector, bind_reference])
def test_forms_that_no_compiler_writes(bind):
    """ptxas takes more than the manual has; these are what its sequences gave."""
    found = {form.opcode: n for form in forms("h200_sweep") if (n := differing(form, bind))}
    assert len(forms("h200_sweep")) > 4000 and found == {}


def test_forms_that_the_manual_does_not_have():
    names = ("fma.", "vmad.s32.u", "vabs", "vshl.u32")
    every = [f for f in forms("h200_sweep") if f.opcode.startswith(names)]
    assert sum("bf16" in form.opcode for form in every) == 12
    assert {form.opcode: n for form in every if (n := differing(form))} == {}


@pytest.mark.parametrize("opcode", ["add.s32", "fma.rn.f64", "setp.lt.f32", "ex2.approx.f32"])
def test_one_flipped_bit_is_noticed(opcode):
    form = next(form for form in EVERY if form.opcode == opcode)
    planted = form.results[0].copy()
    planted[-1] ^= planted.dtype.type(1)
    assert differing(Form(opcode, form.sources, [planted, *form.results[1:]], {})) == 1


# --- atomic operations ---


@pytest.mark.parametrize("bind", [bind_vector, bind_reference])
def test_locations_are_updated_as_on_the_hardware(bind):
    wrong = {}
    for update in updates():
        rule = bind(Instruction.parse(update.opcode), space=update.space)
        if bind is bind_vector:
            got = rule(*update.sources)
        else:
            got = [rule(*case) for case in zip(*(x.tolist() for x in update.sources), strict=True)]
        if n := int((np.asarray(got, np.uint64) != update.new).sum()):
            wrong[update.opcode] = n
    assert len(updates()) > 200
    assert wrong == {}


@pytest.mark.parametrize(
    ("opcode", "space"),
    [
        ("atom.shared.add.f32", "global"),
        ("atom.global.add.f32", "shared"),
        ("atom.shared.add.f64", "global"),
        ("atom.relaxed.gpu.global.add.f64", "shared"),
    ],
)
def test_the_state_space_of_an_atomic_sum_matters(opcode, space):
    found = [u for u in updates() if u.opcode == opcode]
    rule = bind_vector(Instruction.parse(opcode), space=space)
    assert any((rule(*u.sources) != u.new).any() for u in found)


def test_a_bulk_sum_does_not_flush():
    name = "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f64"
    assert name in [u.opcode for u in updates()]
    tiny = np.array([1, 1 << 31 | 5], np.uint32)
    bulk = Instruction.parse(name.replace("f64", "f32"))
    plain = Instruction.parse("red.global.add.f32")
    assert bind_vector(bulk, space="global")(tiny, tiny).tolist() == [2, 1 << 31 | 10]
    assert bind_vector(plain, space="global")(tiny, tiny).tolist() == [0, 1 << 31]


# --- the special function unit --------------------------------------------------------------------


def coefficients():
    for name in ("RCP", "RSQRT", "SQRT", "EX2", "LG2", "SIN", "TANH"):
        for row in range(len(getattr(special_tables, name).rows)):
            yield name, row


TABLES = sorted({name for name, _ in coefficients()})
#: forms in which each table shows
SHOWN_BY = {
    "RCP": ("rcp.approx.ftz.f32", "div.approx.ftz.f32"), "RSQRT": ("rsqrt.approx.ftz.f32",),
    "SQRT": ("sqrt.approx.ftz.f32",), "EX2": ("ex2.approx.ftz.f32",),
    "LG2": ("lg2.approx.ftz.f32",), "SIN": ("sin.approx.f32", "cos.approx.f32"),
    "TANH": ("tanh.approx.f32",),
}  # fmt: skip


def changed(table, row, column, by):
    rows = [list(x) for x in table.rows]
    rows[row][column] += by
    return replace(table, rows=tuple(map(tuple, rows)))


@pytest.mark.parametrize("name", TABLES)
def test_every_coefficient_is_noticed(name, monkeypatch):
    table = getattr(special_tables, name)
    shown = [form for form in special_forms() if form.opcode in SHOWN_BY[name]]
    survived = []
    for row in range(len(table.rows)):
        for column in range(3):
            for by in (1, -1):
                monkeypatch.setattr(special_words, name, changed(table, row, column, by))
                if not any(differing(form) for form in shown):
                    survived.append((row, column, by))
    assert survived == []


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("field", ["bias", "c0_shift", "c1_shift", "c1_sign", "c2_sign", "weight"])
def test_every_constant_of_a_table_is_noticed(name, field, monkeypatch):
    table = getattr(special_tables, name)
    # What a bias adds is known to the step of the linear term.
    by = {"bias": 1 << 30, "c1_sign": -2 * table.c1_sign, "c2_sign": -2 * table.c2_sign}.get(
        field, 1
    )
    mutant = replace(table, **{field: getattr(table, field) + by})
    for unit in (special, special_words):
        monkeypatch.setattr(unit, name, mutant)
    shown = [form for form in special_forms() if form.opcode in SHOWN_BY[name]]
    assert any(differing(form) for form in shown)


def test_the_units_of_codes_and_of_words_agree():
    rng = np.random.default_rng(5)
    edges = [0, 1, 0x7FFFFF, 0x800000, 0x3F800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FFFFFFF]
    edges += [0x42FFFFFF, 0x43000000, 0x3F7FFFFF, 0x3B800000, 0x41000000]
    parts = (edges, rng.integers(0, 1 << 31, 600), rng.integers(0x3B000000, 0x44000000, 600))
    x = np.concatenate(parts).astype(np.uint32)
    x = np.concatenate([x, x | np.uint32(1 << 31)])
    for unit in ("rcp", "rsqrt", "sqrt", "ex2", "lg2", "sin", "cos", "tanh", "rcp64h", "rsq64h"):
        one, many = getattr(special, unit), getattr(special_words, unit)
        with np.errstate(invalid="ignore"):
            got = many(ARRAYS, x).tolist()
        assert got == [one(code) for code in x.tolist()], unit


@pytest.mark.parametrize(
    ("opcode", "target", "level"),
    [
        ("add.rn.f32", "sm_90a", "validated"),
        ("add.rn.f32", "sm_80", "modelled"),
        ("ex2.approx.f32", "sm_90", "validated"),
        ("ex2.approx.f32", "sm_100a", "modelled"),
        ("add.s32", "sm_120", "exact"),
        ("add.rn.f32.f16", "sm_100", "modelled"),
        ("fma.rn.oob.f16", "sm_90a", "modelled"),
        ("redux.sync.min.f32", "sm_100a", "modelled"),
        ("bar.sync", "sm_90a", "exact"),
    ],
)
def test_fidelity(opcode, target, level):
    assert Instruction.parse(opcode).fidelity(target).level == level
