"""Every rule of ordinary arithmetic: the two engines agree word by word, and known results hold."""

import itertools
import random
from operator import attrgetter

import numpy as np
import pytest
from sweeps import swept
from words import array_of, boundary_words, random_words

from emulator import Instruction
from emulator.arith.fast import error_free
from emulator.arith.scalar import TYPES, arrays, bind_reference, bind_vector, fused, rounded
from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.isa.ordinary.tables import ROWS

pytestmark = pytest.mark.sampled(12)

# Words of 128 bits, which only mov has, are pairs, and vectors of registers are many words: tests
# of their own below, and in test_sparse_vectors.
THREAD_ROWS = [
    row
    for row in ROWS
    if row.rule and row.scope == "thread"
    and not row.form.endswith("b128")
    and not row.rule.startswith(("atomic.", "multimem.", "sparse_vectors."))
]  # fmt: skip
WARP_ROWS = [row for row in ROWS if row.rule and row.scope == "warp"]


def sampled(row, most, seed=0):
    """At most so many forms of a row; the same ones in every run."""
    forms = list(row.expand())
    chosen = random.Random(seed).sample(forms, most) if len(forms) > most else forms
    return [OrdinaryInstruction(row, words) for words in chosen]


def sources(ins):
    return [x for x in ins.signature().operands if x.use == "read"]


def cases(ins, most, seed=0):
    """Tuples of source words: boundaries with boundaries, as many as fit, then random ones."""
    rng = np.random.default_rng(seed)
    columns = []
    for operand in sources(ins):
        if operand.kind == "immediate":
            legal = operand.values or range(256)
            columns.append([legal[int(rng.integers(len(legal)))]])
        else:
            columns.append(boundary_words(operand.type))
    if ins.reads_carry:
        columns.append([0, 1])
    total = int(np.prod([len(column) for column in columns]))
    picks = range(total) if total <= most else rng.choice(total, most, replace=False).tolist()
    out = [_tuple(columns, pick) for pick in picks]
    rest = [
        [columns[i][0]] * (most // 3) if operand.kind == "immediate"
        else random_words(operand.type, most // 3, rng)
        for i, operand in enumerate(sources(ins))
    ]  # fmt: skip
    if ins.reads_carry:
        rest.append(rng.integers(0, 2, most // 3).tolist())
    return out + list(zip(*rest, strict=True))


def _tuple(columns, pick):
    words = []
    for column in columns:
        pick, place = divmod(pick, len(column))
        words.append(column[place])
    return tuple(words)


def differences(ins, tuples):
    """Operands and results of the cases in which the two engines differ."""
    reference, vector = bind_reference(ins), bind_vector(ins)
    columns = list(zip(*tuples, strict=True))
    arrays = [
        column[0] if operand.kind == "immediate" else array_of(operand.type, column)
        for operand, column in zip(sources(ins), columns, strict=False)
    ]
    if ins.reads_carry:
        arrays.append(np.array(columns[-1], bool))
    got = vector(*arrays)
    got = got if isinstance(got, tuple) else (got,)
    got = [np.broadcast_to(array, len(tuples)).tolist() for array in got]
    found = []
    for i, words in enumerate(tuples):
        want = reference(*words)
        want = want if isinstance(want, tuple) else (want,)
        have = tuple(int(column[i]) for column in got)
        if have != tuple(map(int, want)):
            found.append((str(ins), [hex(w) for w in words], want, have))
    return found


@pytest.mark.sampled(12, covered_by="test_the_engines_agree_on_every_form")
@pytest.mark.parametrize("row", THREAD_ROWS, ids=lambda row: row.form)
def test_the_engines_agree(row):
    for ins in sampled(row, 3):
        assert differences(ins, cases(ins, 150))[:3] == []


@pytest.mark.slow
@swept(THREAD_ROWS, 10, ids=attrgetter("form"))
def test_the_engines_agree_on_every_form(row):
    forms = sampled(row, 10_000)
    # Rows of hundreds of forms have one rule, which the forms try together.
    most = max(100, min(600, 12_000 // len(forms)))
    for i, ins in enumerate(forms):
        assert differences(ins, cases(ins, most, seed=i))[:3] == []


def test_a_difference_is_noticed(monkeypatch):
    ins = Instruction.parse("add.s32")
    rule = __import__("emulator.arith.scalar.integer", fromlist=["add"]).add
    monkeypatch.setattr(rule, "text", lambda w, t, a, b: a + b + (a == 7))
    assert differences(ins, cases(ins, 2000))


@pytest.mark.parametrize("opcode", ["min.f32", "max.f32", "min.f64", "max.f64"])
def test_signalling_nans_lose_on_every_processor(monkeypatch, opcode):
    """NumPy's fmin and fmax are instructions on Arm, which make a quiet NaN of a signalling one."""
    ins = Instruction.parse(opcode)
    quiet_bit = 1 << (22 if opcode.endswith("f32") else 51)

    def as_on_arm(pick):
        def picked(x, y):
            lost = [np.isnan(z) & (z.view(f"u{z.itemsize}") & quiet_bit == 0) for z in (x, y)]
            return np.where(lost[0] | lost[1], x.dtype.type(np.nan), pick(x, y))

        return picked

    for name in ("fmin", "fmax"):
        monkeypatch.setattr(np, name, as_on_arm(getattr(np, name)))
    type_, reference = opcode[-3:], bind_reference(ins)
    pairs = list(itertools.product(boundary_words(type_), repeat=2))
    found = bind_vector(ins)(*(array_of(type_, words) for words in zip(*pairs, strict=True)))
    assert found.tolist() == [reference(*pair) for pair in pairs]


@pytest.mark.parametrize("row", WARP_ROWS, ids=lambda row: row.form)
def test_the_engines_agree_on_warps(row):
    rng = np.random.default_rng(1)
    for ins in sampled(row, 4):
        for warp in range(12):
            given = [
                random_words(x.type, 32, rng) if warp % 3 else rng.choice(
                    boundary_words(x.type)[:3], 32
                ).tolist()
                for x in sources(ins)
            ]  # fmt: skip
            active = (rng.integers(0, 4, 32) > 0).tolist() if warp else [True] * 32
            want = bind_reference(ins)(*given, active=active)
            arrays = [array_of(x.type, w) for x, w in zip(sources(ins), given, strict=True)]
            got = bind_vector(ins)(*arrays, active=np.array(active))
            want, got = (x if isinstance(x, tuple) else (x,) for x in (want, got))
            for w, g in zip(want, got, strict=True):
                shown = [int(x) for x, a in zip(g, active, strict=True) if a]
                assert shown == [x for x, a in zip(w, active, strict=True) if a], str(ins)


def test_packed_types_are_two_elements():
    ins, half = Instruction.parse("add.rn.f16x2"), Instruction.parse("add.rn.f16")
    for low, high in itertools.product((0x3C00, 0x7C01, 0x8000), repeat=2):
        one = bind_reference(half)
        want = one(low, high) | one(high, low) << 16
        assert bind_reference(ins)(low | high << 16, high | low << 16) == want


def test_words_have_the_type_of_their_destination():
    for opcode, dtype in (
        ("cvt.rzi.u8.f32", "uint8"),
        ("mul.wide.s32", "uint64"),
        ("popc.b64", "uint32"),
    ):
        ins = Instruction.parse(opcode)
        given = [array_of(x.type, [1, 2]) for x in sources(ins)]
        assert bind_vector(ins)(*given).dtype == dtype
    assert TYPES["u8"].dtype == np.uint8


def test_words_of_128_bits_are_pairs():
    ins = Instruction.parse("mov.b128")
    pair = np.array([[1, 2], [3, 4]], np.uint64)
    low, high = bind_vector(ins, parts="2")(pair)
    assert (low.tolist(), high.tolist()) == ([1, 3], [2, 4])
    assert bind_vector(ins)(low, high).tolist() == pair.tolist()
    quarters = bind_vector(ins, parts="4")(pair)
    assert [x.tolist() for x in quarters] == [[1, 3], [0, 0], [2, 4], [0, 0]]
    assert bind_vector(ins)(*quarters).tolist() == pair.tolist()
    assert bind_reference(ins, parts="2")(1 | 2 << 64) == (1, 2)
    assert bind_reference(ins)(1, 0, 2, 0) == 1 | 2 << 64


def test_mov_takes_and_gives_vectors():
    ins = Instruction.parse("mov.b32")
    assert bind_reference(ins)(0x1234, 0xABCD) == 0xABCD1234
    assert bind_reference(ins, parts="4")(0x04030201) == (1, 2, 3, 4)
    halves = bind_vector(ins, parts="2")(np.array([0xABCD1234], np.uint32))
    assert [x.tolist() for x in halves] == [[0x1234], [0xABCD]]
    assert bind_vector(ins)(*halves).tolist() == [0xABCD1234]


ATOMIC_ROWS = [row for row in ROWS if row.rule.startswith("atomic.")]


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("row", ATOMIC_ROWS, ids=lambda row: row.form)
def test_the_engines_agree_on_atomic_operations(row, space):
    rng = np.random.default_rng(3)
    for ins in sampled(row, 3):
        name = ins.types[0]
        if name == "b128":
            continue
        count = 3 if ins.modifiers["operation"] == "cas" else 2
        words = boundary_words(name)
        picked = [[words[i] for i in rng.integers(0, len(words), 150)] for _ in range(count)]
        columns = [column + random_words(name, 50, rng) for column in picked]
        if count == 3:
            columns[1][::2] = columns[0][::2]
        got = bind_vector(ins, space=space)(*(array_of(name, column) for column in columns))
        reference = bind_reference(ins, space=space)
        want = [reference(*case) for case in zip(*columns, strict=True)]
        assert got.tolist() == want, str(ins)


MULTIMEM_ROWS = [row for row in ROWS if row.rule.startswith("multimem.")]


@pytest.mark.parametrize("row", MULTIMEM_ROWS, ids=lambda row: row.form)
def test_the_engines_agree_on_words_of_devices(row):
    rng = np.random.default_rng(4)
    for ins in sampled(row, 3):
        name = ins.types[0]
        words = boundary_words(name)
        picked = [[words[i] for i in rng.integers(0, len(words), 150)] for _ in range(3)]
        columns = [column + random_words(name, 50, rng) for column in picked]
        got = bind_vector(ins)(*(array_of(name, column) for column in columns))
        reference = bind_reference(ins)
        want = [reference(*case) for case in zip(*columns, strict=True)]
        assert got.tolist() == want, str(ins)


def test_every_row_with_a_rule_is_executed():
    b128 = [row for row in ROWS if row.form.startswith("mov.type=b128")]
    # test_small_floats.py has those of vectors of registers.
    vectors = [row for row in ROWS if row.form.startswith(("spcompress", "spdecompress"))]
    tested = [*THREAD_ROWS, *WARP_ROWS, *ATOMIC_ROWS, *MULTIMEM_ROWS, *b128, *vectors]
    assert {row for row in ROWS if row.rule} == set(tested)
    assert len(tested) > 250


# --- known results --------------------------------------------------------------------------------

QNAN, NAN64 = 0x7FFFFFFF, 0xFFF8 << 48


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("opcode", "words", "want"),
    [
        # integers: PTX ISA 9.7.1, and what an H200 does where it says nothing
        ("add.sat.s32", (0x7FFFFFFF, 1), 0x7FFFFFFF),
        ("div.s32", (0x80000000, 0xFFFFFFFF), 0x80000000),
        ("div.u16", (5, 0), 0xFFFF),
        ("rem.s64", (5, 0), (1 << 64) - 1),
        ("rem.s32", (0xFFFFFFF9, 2), 0xFFFFFFFF),
        ("mul.hi.s64", ((1 << 64) - 1, 1), (1 << 64) - 1),
        ("mad24.hi.u32", (0xFFFFFF, 0xFFFFFF, 1), 0xFFFFFE01),
        ("sub.cc.u32", (1, 1), (0, 1)),
        ("subc.u32", (1, 1, 0), 0xFFFFFFFF),
        ("addc.cc.u32", (0xFFFFFFFF, 0, 1), (0, 1)),
        ("bfe.s32", (0x80, 7, 1), 0xFFFFFFFF),
        ("bfe.s32", (0x80000000, 30, 8), 0xFFFFFFFE),
        ("bfe.u32", (0xFF, 256, 4), 0xF),
        ("bfe.u64", (0xFF, 256, 4), 0),
        ("bfi.b32", (0xF, 0xAAAAAAAA, 32, 4), 0xAAAAAAAA),
        ("fns.b32", (0b1010, 3, 0xFFFFFFFE), 1),
        ("bfind.s32", (0xFFFFFFFF,), 0xFFFFFFFF),
        ("bfind.shiftamt.u32", (1,), 31),
        ("prmt.b32", (0x80, 0, 0x8888), 0xFFFFFFFF),
        ("prmt.b32.rc16", (0x44332211, 0, 1), 0x44334433),
        ("lop3.b32", (0xFF00FF00, 0xF0F0F0F0, 0xCCCCCCCC, 0xCA), 0xF0CCF0CC),
        ("shl.b32", (1, 32), 0),
        ("shr.s32", (0x80000000, 1 << 31), 0xFFFFFFFF),
        ("shf.l.clamp.b32", (1, 2, 40), 1),
        ("vavrg2.s32.s32.s32", (0x0000FFFF, 0x00000000, 0), 0x0000FFFF),
        # floating point: special cases as an H200 has them
        ("add.f32", (0x7F800000, 0xFF800000), QNAN),
        ("add.f64", (0x7FF0 << 48, 0xFFF0 << 48), NAN64),
        ("add.f64", (0x7FF1 << 48, 0x7FF2 << 48), 0x7FFA << 48),
        ("sub.f64", (0, 0x7FF4 << 48), 0x7FFC << 48),
        ("div.rn.f64", (0x7FF1 << 48, 0x7FF2 << 48), 0x7FF9 << 48),
        ("fma.rn.f64", (0x7FF1 << 48, 0x7FF2 << 48, 0x7FF3 << 48), 0x7FFA << 48),
        ("add.rm.f32", (0x3F800000, 0xBF800000), 0x80000000),
        ("add.rn.f32", (0x3F800000, 0xBF800000), 0),
        ("add.sat.f32", (QNAN, 0), 0),
        ("add.sat.f32", (0x80000000, 0x80000000), 0),
        ("mul.ftz.f32", (0x00800001, 0x3F7FFFFE), 0x00800000),
        ("mul.ftz.f32", (0x00FFFFFF, 0x3F000000), 0),
        ("mul.f32", (0x00FFFFFE, 0x3F000000), 0x007FFFFF),
        ("fma.rn.relu.f16", (0x3C00, 0xBC00, 0), 0),
        ("fma.rn.relu.f16", (0x7C00, 0, 0), 0x7FFF),
        # fma.oob, all codes as each operand on an H200: as a or b two of them make +0
        ("fma.rn.oob.f16", (0x7FF7, 0x3C00, 0x3C00), 0),
        ("fma.rn.oob.f16", (0x3C00, 0xFFF7, 0x7FFF), 0),
        ("fma.rn.oob.relu.bf16", (0x3F80, 0x7FF7, 0x7FFF), 0),
        ("fma.rn.oob.bf16", (0xFFF7, 0xBF80, 0x8000), 0),
        ("fma.rn.oob.f16", (0x3C00, 0x3C00, 0x7FF7), 0x7FFF),
        ("fma.rn.oob.f16", (0x7FF6, 0x3C00, 0x3C00), 0x7FFF),
        ("fma.rn.oob.f16x2", (0x3C007FF7, 0x40003C00, 0x3C003C00), 0x42000000),
        ("fma.rn.oob.bf16x2", (0x7FF73F80, 0x3F804000, 0x7FFF3F80), 0x00004040),
        ("abs.f32", (0xFF800001,), QNAN),
        ("neg.f64", (0xFFF4 << 48,), 0xFFFC << 48),
        ("min.f32", (0, 0x80000000), 0x80000000),
        ("max.f32", (QNAN, 0x3F800000), 0x3F800000),
        ("max.NaN.f32", (QNAN, 0x3F800000), QNAN),
        ("max.xorsign.abs.f32", (0xC0000000, 0x3F800000), 0xC0000000),
        ("max.abs.f32", (0xC0000000, 0x3F800000, 0), 0x40000000),
        ("max.f32", (0, 0x3F800000, 0x40000000), 0x40000000),
        ("setp.ne.f32", (QNAN, QNAN), (0, 1)),
        ("setp.neu.f32", (QNAN, 0), (1, 0)),
        ("setp.lt.and.f16x2", (0x00003C00, 0x3C000000, 1), (0, 1)),
        ("set.eq.u32.f16x2", (0x3C003C00, 0x3C000000), 0xFFFF0000),
        ("slct.f32.f32", (1, 2, QNAN), 2),
        ("slct.f32.f32", (1, 2, 0x80000000), 1),
        ("testp.normal.f32", (0x80000000,), 1),
        ("copysign.f32", (0x80000000, 0x7F800001), 0xFF800001),
        # conversions
        ("cvt.rzi.u8.f64", (NAN64,), 0x80),
        ("cvt.rni.s32.f32", (0x40200000,), 2),
        ("cvt.rni.s32.f32", (QNAN,), 0),
        ("cvt.rzi.s64.f32", (QNAN,), 1 << 63),
        ("cvt.rzi.u64.f64", (0x43F0 << 48,), (1 << 64) - 1),
        ("cvt.rn.f16.u64", ((1 << 64) - 1,), 0x7C00),
        ("cvt.rz.f16.u64", ((1 << 64) - 1,), 0x7BFF),
        ("cvt.f64.f32", (0xFF800001,), 0xFFF80000_20000000),
        ("cvt.ftz.f64.f32", (0xFF800001,), 0x7FFFFFFF_E0000000),
        ("cvt.f32.bf16", (0x7F81,), 0x7F810000),
        ("cvt.f32.f16", (0xFC01,), QNAN),
        ("cvt.rp.ftz.f16.f32", (1,), 1),
        ("cvt.rna.tf32.f32", (0x7F800001,), 0x7F800000),
        ("cvt.rna.satfinite.tf32.f32", (0x7FC00000,), 0x7FBFE000),
        ("cvt.rn.satfinite.e4m3x2.f32", (QNAN, 0x7F800000), 0x7F7E),
        ("cvt.rn.f16x2.f32", (0x3F800000, 0x40000000), 0x3C004000),
        ("cvt.pack.sat.u8.s32.b32", (300, 0xFFFFFFFF, 0xAABBCCDD), 0xCCDDFF00),
        # approximate functions
        ("ex2.approx.ftz.f32", (0x3F800000,), 0x40000000),
        ("lg2.approx.f32", (0x3F7FFFFF,), 0xB24B4000),
        ("sin.approx.f32", (0x80000000,), 0x80000000),
        ("sin.approx.ftz.2pi.f32", (0x3E800000,), 0x3F800000),
        ("cos.approx.ftz.2pi.f32", (0x3F000000,), 0xBF800000),
        ("rcp.approx.ftz.f64", (0x4000000000000001,), 0x3FE0 << 48),
        ("ex2.approx.f16", (0x4C00,), 0x7C00),
        ("tanh.approx.bf16x2", (0x7F80FF80,), 0x3F80BF80),
    ],
)  # fmt: skip
def test_results_known_by_hand(opcode, words, want):
    ins = Instruction.parse(opcode)
    assert bind_reference(ins)(*words) == want
    operands = sources(ins)[: len(words)] if isinstance(ins, OrdinaryInstruction) else []
    names = [x.type for x in operands] or [ins.types[-1]] * len(words)
    names += ["pred"] * (len(words) - len(names))
    immediate = [x.kind == "immediate" for x in operands] or [False] * len(words)
    immediate += [False] * (len(words) - len(immediate))
    arrays = [
        word if plain else array_of(name, [word])
        for name, word, plain in zip(names, words, immediate, strict=True)
    ]
    got = bind_vector(ins)(*arrays)
    shown = tuple(int(x[0]) for x in got) if isinstance(got, tuple) else int(got[0])
    assert shown == want


def half_way_cases(name, count=400):
    """Operands of fma whose product lies half way between two codes, or near it, and an addend that
    is nothing, next to nothing or of any size."""
    fmt, rng = TYPES[name].format, np.random.default_rng(8)
    one, unit = fmt.bias << fmt.mantissa_bits, 1 << fmt.mantissa_bits
    addends = (0, 1, fmt.sign_mask | 1, 5 * unit, fmt.sign_mask | 5 * unit)
    for _ in range(count):
        # 1.5 times an odd significand has one bit more than a code, and no further ones.
        a = one + unit // 2 if rng.integers(2) else one + 1
        b = one + (int(rng.integers(unit)) | 1) - int(rng.integers(0, 9)) * unit
        for c in (*addends, int(rng.integers(fmt.infinity)) | int(rng.integers(2)) * fmt.sign_mask):
            yield a, b, c


def fused_differences(name, rounding):
    ins = Instruction.parse(f"fma.{rounding}.{name}")
    columns = list(zip(*half_way_cases(name), strict=True))
    got = bind_vector(ins)(*(array_of(name, column) for column in columns)).tolist()
    reference = bind_reference(ins)
    return [
        case
        for case, have in zip(half_way_cases(name), got, strict=True)
        if reference(*case) != have
    ]


FUSED = [(name, "rn") for name in ("f16", "bf16", "f32", "f64")]
FUSED += [(name, rounding) for name in ("f32", "f64") for rounding in ("rz", "rm", "rp")]


@pytest.mark.parametrize(("name", "rounding"), FUSED)
def test_sums_half_way_between_two_codes(name, rounding):
    assert fused_differences(name, rounding) == []


def test_a_sum_that_is_rounded_twice_is_noticed(monkeypatch):
    nowhere = lambda t, floats: np.zeros(floats.shape, bool)  # noqa: E731
    monkeypatch.setattr(rounded, "half_way", nowhere)
    assert fused_differences("f16", "rn")
    assert fused_differences("bf16", "rn")
    monkeypatch.setattr(arrays, "odd_sum", np.add)
    assert fused_differences("f32", "rn")
    monkeypatch.setattr(fused, "odd_sum", np.add)
    assert fused_differences("f32", "rz")
    monkeypatch.setattr(error_free, "odd_sum", np.add)
    assert fused_differences("f64", "rn")


def test_the_last_factors_of_a_quotient():
    """What ptxas fuses with an addition: the two factors, whose product is the result."""
    words = np.array([w for w in boundary_words("f32") if w & 0x7FFFFFFF <= 0x7F800000], np.uint32)
    x, y = (axis.reshape(-1) for axis in np.meshgrid(words, words))
    for opcode, operands in (
        ("div.full.f32", (x, y)), ("div.full.ftz.f32", (x, y)), ("div.approx.f32", (x, y)),
        ("div.approx.ftz.f32", (x, y)), ("rcp.approx.f32", (y,)),
    ):  # fmt: skip
        ins = Instruction.parse(opcode)
        first, second = bind_vector(ins, factors="factors")(*operands)
        ftz = "ftz" if ins.modifiers["ftz"] else ""
        product = bind_vector(Instruction.parse(f"mul.rn{'.ftz' * bool(ftz)}.f32"))(first, second)
        assert product.tolist() == bind_vector(ins)(*operands).tolist()
        one = bind_reference(ins, factors="factors")(*(int(o[100]) for o in operands))
        assert one == (int(first[100]), int(second[100]))
