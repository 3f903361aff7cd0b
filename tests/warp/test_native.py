"""Kernels of machine code: constants, operands in memory, batches, and what is left to others."""

import importlib
import subprocess
import sys

import numpy as np
import pytest
from designed import REGIMES, fma_operands
from dots import ROUNDINGS
from each_form import ALL
from kernel_operands import by_address, by_kernel, drawn, in_memory
from mutants import mutants

from dtypes import FORMATS, encode
from emulator import Instruction, OperandError, UndefinedError, execute
from emulator.arith import engines
from emulator.arith.fast import threads
from emulator.arith.recipes import arithmetic_for_row
from emulator.memory.space import Space
from emulator.targets import find_target
from emulator.warp import multiply
from emulator.warp.operands import Checked, Setting

pytestmark = pytest.mark.sampled(7)

native = pytest.importorskip("emulator.warp.native")
emitter = importlib.import_module("emulator.arith.fast.emitter")
ordinary = importlib.import_module("emulator.arith.fast.kernels.ordinary")
tile_module = importlib.import_module("emulator.arith.fast.kernels.tile")
MMA, WGMMA = "mma.sync.aligned.", "wgmma.mma_async.sync.aligned."
F16 = Instruction.parse(MMA + "m16n8k16.row.col.f32.f16.f16.f32")
SPARSE = Instruction.parse("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32")
SCALED = Instruction.parse(
    MMA + "m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e5m2.e4m3.f32.ue8m0"
)
INTEGERS = Instruction.parse("mma.sp.sync.aligned.m16n8k64.row.col.s32.s8.u8.s32")
TF32 = Instruction.parse("mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32")


def same(monkeypatch, ins, target, operands, **options):
    found = by_kernel(monkeypatch, ins, target, operands, **options)
    expected = execute(ins, target=target, engine="vector", **operands, **options)
    return np.array_equal(found, expected)


# --- constants ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "opcode, target",
    [
        ("m16n8k8.row.col.f32.tf32.tf32.f32", "sm_90a"),
        pytest.param("m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_89", marks=pytest.mark.slow),
        pytest.param("m16n8k16.row.col.f16.f16.f16.f16", "sm_80", marks=pytest.mark.slow),
    ],
)
def test_every_constant_of_a_recipe_is_in_the_code(monkeypatch, opcode, target):
    """A recipe with a constant changed gives what the vector engine makes of it, not the same."""
    ins, where = Instruction.parse(MMA + opcode), find_target(target)
    product = native.product_of(ins, where, Setting())
    operands = drawn(ins, target, np.random.default_rng(5), (*REGIMES, *["floor"] * 80))
    right = by_kernel(monkeypatch, ins, target, operands)
    unnoticed = []
    for mutant in mutants(ins.recipe(target), {ins.k}):
        changed = arithmetic_for_row(mutant.row, ins.a_type, ins.b_type, ins.c_type)
        other = product._replace(arithmetic=changed)
        if native.arranged(changed) is None:
            continue
        monkeypatch.setattr(native, "product_of", lambda *_, other=other: other)
        found = native.run(ins, where, Checked(operands), (len(right),))[0]
        monkeypatch.undo()
        monkeypatch.setattr(type(ins), "arithmetic", lambda *_, changed=changed: changed)
        monkeypatch.setattr(multiply, "_by_kernel", lambda call: None)
        expected = execute(ins, target=target, engine="vector", **operands)
        monkeypatch.undo()
        assert np.array_equal(found, expected), mutant.name
        if np.array_equal(found, right):
            unnoticed.append(mutant.name)
    # Products of e4m3 are never so small that the floor counts.
    assert all(ins.a_type == "e4m3" and x.startswith("floor") for x in unnoticed), unnoticed


def test_a_wrong_table_is_noticed(monkeypatch):
    operands = drawn(F16, "sm_90a", np.random.default_rng(6), REGIMES)
    assert same(monkeypatch, F16, "sm_90a", operands)
    table = native._table

    def swapped(*which):
        starts, run, known = table(*which)
        return starts, run, known[8:16] + known[:8] + known[16:]

    monkeypatch.setattr(native, "_table", swapped)
    native._remembered.cache_clear()
    found = execute(F16, target="sm_90a", engine="compiled", **operands)
    monkeypatch.undo()
    native._remembered.cache_clear()
    assert not np.array_equal(found, execute(F16, target="sm_90a", engine="vector", **operands))


# --- processors and ways --------------------------------------------------------------------------


@pytest.fixture
def made_anew(monkeypatch, tmp_path):
    """Kernels of this test are its own."""
    monkeypatch.setenv("EMULATOR_CACHE_DIR", str(tmp_path))
    made = native.kernels._compiled, native.kernels.of_warp, native._remembered
    for function in made:
        function.cache_clear()
    yield
    for function in made:
        function.cache_clear()


FAMILIES = [
    F16,
    *(
        pytest.param(Instruction.parse(MMA + x), marks=pytest.mark.slow)
        for x in (
            "m16n8k16.row.col.f16.f16.f16.f16",
            "m16n8k8.row.col.f32.tf32.tf32.f32",
            "m16n8k32.row.col.f32.e4m3.e4m3.f32",
            "m16n8k32.row.col.s32.s8.u8.s32.satfinite",
            "m16n8k4.row.col.f64.f64.f64.f64",
            "m16n8k4.row.col.f64.f64.f64.f64.rm",
        )
    ),
    pytest.param(SPARSE, marks=pytest.mark.slow),
    pytest.param(Instruction.parse(WGMMA + "m64n24k16.f32.bf16.bf16"), marks=pytest.mark.slow),
    pytest.param(INTEGERS, marks=pytest.mark.slow),
    pytest.param(Instruction.parse(WGMMA + "m64n24k32.s32.u8.s8"), marks=pytest.mark.slow),
]


@pytest.mark.parametrize("vector", [32, 64])
@pytest.mark.parametrize("ins", FAMILIES, ids=str)
def test_a_processor_without_wide_vectors(monkeypatch, made_anew, ins, vector):
    """Vectors of any length are right where LLVM has to cut them."""
    import llvmlite.binding as llvm

    machine_code = native.kernels.machine_code
    if not llvm.get_process_triple().startswith("x86_64"):
        pytest.skip("another kind of processor")
    operands = drawn(ins, "sm_90a", np.random.default_rng(18), REGIMES)
    expected = execute(ins, target="sm_90a", engine="vector", **operands)
    monkeypatch.setattr(machine_code, "_processor", lambda: ("x86-64", ""))
    monkeypatch.setattr(machine_code, "vector_bytes", lambda: vector)
    if not ins.is_wgmma:
        function = native.warp_function.__wrapped__(ins, find_target("sm_90a"))
        assert np.array_equal(by_address(function, operands, expected), expected)
    assert np.array_equal(by_kernel(monkeypatch, ins, "sm_90a", operands), expected)


def f64_warps(rounding, count=40):
    """The instruction, and warps of products at every distance from their addends."""
    modifier = "" if rounding == "rn" else f".{rounding}"
    ins = Instruction.parse(f"{MMA}m8n8k4.row.col.f64.f64.f64.f64{modifier}")
    rng = np.random.default_rng(22)
    operands = drawn(ins, "sm_90a", rng, REGIMES)
    for name, codes in zip("abc", fma_operands(FORMATS["f64"], rng, count * 64), strict=True):
        words = codes.reshape(count, 32, -1)[..., : operands[name].shape[-1]]
        operands[name] = np.concatenate([operands[name], words])
    return ins, operands, execute(ins, target="sm_90a", engine="vector", **operands)


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_f64_is_rounded_as_the_instruction_says(monkeypatch, rounding):
    """In every thread, and by a function of one warp; what runs afterwards rounds to nearest."""
    ins, operands, expected = f64_warps(rounding)
    function = native.warp_function(ins, find_target("sm_90a"))
    assert np.array_equal(by_address(function, operands, expected), expected)
    monkeypatch.setattr(native.kernels, "_WORTH_A_THREAD", 1 << 10)
    monkeypatch.setattr(threads, "processors", lambda: 3)
    threads._pool.cache_clear()
    assert np.array_equal(by_kernel(monkeypatch, ins, "sm_90a", operands), expected)
    threads._pool.cache_clear()
    assert (np.ones(8) + 2.0**-80 == 1).all() and (2.0**-80 - np.ones(8) == -1).all()


@pytest.mark.parametrize("rounding", ROUNDINGS[1:])
def test_a_wrong_rounding_of_f64_is_noticed(monkeypatch, made_anew, rounding):
    ins, operands, expected = f64_warps(rounding)
    given = find_target("sm_90a"), Checked(operands), (len(expected),)
    right = emitter._ROUNDINGS[rounding]
    for mode in range(4):
        monkeypatch.setitem(emitter._ROUNDINGS, rounding, mode)
        native.kernels._compiled.cache_clear()
        native._remembered.cache_clear()
        found = native.run(ins, *given)[0]
        assert np.array_equal(found, expected) == (mode == right)


@pytest.mark.parametrize("ins", FAMILIES[:4], ids=str)
def test_ordinary_numbers_are_computed_the_short_way(monkeypatch, made_anew, ins):
    """Without the long way they come out right, but not NaNs and numbers far from 1."""
    rng = np.random.default_rng(19)
    a, b, c = (encode(x.fmt, rng.standard_normal((4, *x.shape))) for x in map(ins.fragment, "abc"))
    a[1, 0, 0], odd = ins.fragment("a").fmt.nan, [1]
    if ins.a_type == "tf32":
        a[3], c[3], odd = 0x03800000, 0, [1, 3]
    a, b, c = (ins.fragment(name).scatter(x) for name, x in zip("abc", (a, b, c), strict=True))
    expected = execute(ins, a, b, c, target="sm_90a", engine="vector")
    monkeypatch.setattr(native.kernels.modules.Tile, "_general", lambda *_: None)
    found = execute(ins, a, b, c, target="sm_90a", engine="compiled")
    assert np.flatnonzero((found != expected).any((1, 2))).tolist() == odd


WARPGROUPS = [
    Instruction.parse(f"{WGMMA}m64n16k{types}")
    for types in ("16.f32.f16.f16", "16.f32.bf16.bf16", "8.f32.tf32.tf32", "32.f32.e4m3.e5m2",
                  "32.f32.e5m2.e5m2", "16.f16.f16.f16", "32.f16.e4m3.e4m3")
]  # fmt: skip


def near_and_far(ins):
    """Operands of the whole range of exponents near 0 and of zeros, in all shares, and
    accumulators far below them."""
    rng, codes = np.random.default_rng(24), {}
    shares = np.array([0, 0.3, 0.9, 0.99, 1])[:, None, None]
    for name in "abd":
        fragment = ins.fragment("d") if name == "d" else None
        fmt = (
            FORMATS[ins.a_type if name == "a" else ins.b_type] if fragment is None else fragment.fmt
        )
        rows, columns = (ins.m, ins.n) if name == "d" else (ins.m if name == "a" else ins.n, ins.k)
        shape = len(shares), rows, columns
        least, most = max(-20, fmt.emin - fmt.mantissa_bits), min(15, 1 - fmt.emin)
        least = max(-120, fmt.emin) if name == "d" else least
        x = rng.uniform(1, 2, shape) * 2.0 ** rng.integers(least, most, shape)
        x *= (rng.random(shape) >= shares) | (name == "d")
        codes[name] = encode(fmt, x * rng.choice([-1, 1], shape))
    return {name: ins.fragment(name).scatter(codes[name]) for name in "ad"} | in_memory(
        ins, {"b": codes["b"]}, 0, "b", "k"
    )


@pytest.mark.parametrize("ins", WARPGROUPS, ids=str)
def test_the_largest_products_of_a_warpgroup(monkeypatch, ins):
    assert same(monkeypatch, ins, "sm_90a", near_and_far(ins))


@pytest.mark.parametrize("wrong", ["_power", "_short_exponent"])
def test_a_wrong_largest_product_is_noticed(monkeypatch, made_anew, wrong):
    """An exponent more than it is, and that of no product."""
    ins, tile = WARPGROUPS[0], native.kernels.modules.Tile
    right = getattr(tile, wrong)

    def other(*given):
        if wrong == "_short_exponent":
            return right(*given) + 1
        with monkeypatch.context() as planted:
            planted.setattr(tile_module, "select", lambda condition, a, b: b)
            return right(*given)

    monkeypatch.setattr(tile, wrong, other)
    found = execute(ins, target="sm_90a", engine="compiled", **near_and_far(ins))
    expected = execute(ins, target="sm_90a", engine="vector", **near_and_far(ins))
    assert not np.array_equal(found, expected)


def test_scales_that_are_ordinary_and_not(monkeypatch):
    """Of zeros and of numbers, around the ends of what the short way takes."""
    ins = SCALED
    codes = np.array([0, 111, 112, 113, 127, 141, 142, 143, 255], np.uint32) * 0x01010101
    pairs = np.tile(np.stack(np.meshgrid(codes, codes), -1).reshape(-1, 2), (4, 1))
    rng, count = np.random.default_rng(20), len(pairs)
    fragments = [ins.fragment(name) for name in "abc"]
    a, b, c = (encode(x.fmt, rng.standard_normal((count, *x.shape))) for x in fragments)
    a[: count // 2], c[count // 4 : 3 * count // 4] = 0, 0
    b[::5], c[::7] = 1, 0x01000000
    operands = {x.operand: x.scatter(y) for x, y in zip(fragments, (a, b, c), strict=True)}
    for name, words in zip(("scale_a", "scale_b"), pairs.T, strict=True):
        operands[name] = np.repeat(words[:, None], 32, 1)
    assert same(monkeypatch, ins, "sm_120a", operands)


def test_scales_take_the_short_way_up_to_a_limit(monkeypatch, made_anew):
    """No bits tell where it ends, which is a margin: here the short way gives another last bit.

    The last warp has zeros and a tiny accumulator: of the units of zeros comes no NaN, of which
    each product would be the least integer, and an odd number of those would go the long way.
    """
    ins = Instruction.parse(
        MMA + "m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e5m2.f32.ue8m0"
    )
    exponents = np.array([[-16, 0], [-15, 0], [0, -15], [0, -16], [15, 15], [16, 0], [15, 15]])
    scales = ((exponents + 127).astype(np.uint32) * 0x01010101)[..., None].repeat(32, -1)
    ones = [np.ones((7, *ins.fragment(name).shape)) for name in "abc"]
    ones[0][-1], ones[2][-1] = 0, 2.0**-100
    operands = {
        name: ins.fragment(name).scatter(encode(ins.fragment(name).fmt, x))
        for name, x in zip("abc", ones, strict=True)
    } | {"scale_a": scales[:, 0], "scale_b": scales[:, 1]}
    right = ordinary.dot_add

    def other(*given):
        code, odd = right(*given)
        return code ^ 1, odd

    monkeypatch.setattr(ordinary, "dot_add", other)
    found = execute(ins, target="sm_120a", engine="compiled", **operands)
    expected = execute(ins, target="sm_120a", engine="vector", **operands)
    assert np.flatnonzero((found == expected).all((1, 2))).tolist() == [0, 3, 5]


def test_runs_of_units():
    places = np.array([8, 12, 40, 44, 0, 4])
    assert (native.in_runs(places, 4)[0] == [8, 40, 0]).all() and native.in_runs(places, 4)[1] == 2
    assert native.in_runs(places, 2)[1] == 1 and native.in_runs(places[1:], 4)[1] == 1
    several = np.array([[0, 2, 4, 6], [9, 11, 13, 15]])
    assert native.in_runs(several, 2)[1] == 4 and native.in_runs(several[:, 1:], 2)[1] == 1


# --- operands in memory ---------------------------------------------------------------------------


@pytest.mark.parametrize("a_in_memory", [False, True])
@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize("major", ["k", "mn"])
def test_swizzles_and_majors(monkeypatch, swizzle, a_in_memory, major):
    ins = Instruction.parse(WGMMA + "m64n64k16.f32.bf16.bf16")
    how = {"swizzle": swizzle, "a_in_memory": a_in_memory, "major": major}
    operands = drawn(ins, "sm_90a", np.random.default_rng(7), REGIMES[-3:], **how)
    keep = np.array([True, False, True])
    signs = {"imm_scale_a": -1, "imm_scale_b": -1 if major == "k" else 1}
    assert same(monkeypatch, ins, "sm_90a", operands, scale_d=keep, **signs)


def test_a_batch_of_descriptors_and_one_memory(monkeypatch):
    """Descriptors that differ, and a memory that all share."""
    ins = Instruction.parse(WGMMA + "m64n8k32.s32.s8.u8")
    operands = drawn(ins, "sm_90a", np.random.default_rng(8), REGIMES[-1:] * 4, a_in_memory=True)
    operands["descriptor_b"] = operands["descriptor_b"] + np.arange(4, dtype=np.uint64) * 8
    operands["shared"] = operands["shared"][0]
    assert same(monkeypatch, ins, "sm_90a", operands)


def test_a_matrix_that_leaves_memory():
    ins = Instruction.parse(WGMMA + "m64n8k16.f32.f16.f16")
    operands = drawn(ins, "sm_90a", np.random.default_rng(9), REGIMES[-1:])
    operands["shared"] = operands["shared"][:, :200]
    with pytest.raises(UndefinedError, match=r"operand b: element .* lies at byte 2"):
        execute(ins, target="sm_90a", engine="compiled", **operands)


# --- batches --------------------------------------------------------------------------------------


@pytest.mark.parametrize("remembered", [0, 1 << 14])
def test_axes_of_a_batch_broadcast_in_any_strides(monkeypatch, remembered):
    operands = drawn(F16, "sm_90a", np.random.default_rng(10), REGIMES * 2)
    a, b, c = (operands[name].reshape(2, 10, 32, -1) for name in "abc")
    nearby = {"a": a[:, ::-1, ::-1, ::-1], "b": b[:1, :, None][:, :, 0], "c": c[0, 3]}
    apart = {"a": np.asfortranarray(a), "b": b[::2, :1], "c": c}
    for given in (nearby, apart):
        monkeypatch.setattr(native, "_REMEMBERED", remembered)
        assert same(monkeypatch, F16, "sm_90a", given)
    nothing = {name: x[:0] for name, x in apart.items()}
    assert execute(F16, target="sm_90a", engine="compiled", **nothing).shape == (0, 10, 32, 4)


@pytest.mark.parametrize("ins, target", [(SPARSE, "sm_90a"), (SCALED, "sm_120a")], ids=str)
def test_where_operands_lay_before_means_nothing(monkeypatch, ins, target):
    """Batches of one shape, of other arrays, and whose lanes are not side by side."""
    for seed in range(3):
        operands = drawn(ins, target, np.random.default_rng(seed), REGIMES)
        if seed == 2:
            operands = {name: np.asfortranarray(x) for name, x in operands.items()}
        assert same(monkeypatch, ins, target, operands)


def test_threads_share_a_batch(monkeypatch):
    operands = drawn(F16, "sm_90a", np.random.default_rng(11), REGIMES * 60)
    monkeypatch.setattr(native.kernels, "_WORTH_A_THREAD", 1 << 12)
    monkeypatch.setattr(threads, "processors", lambda: 3)
    threads._pool.cache_clear()
    assert same(monkeypatch, F16, "sm_90a", operands)
    threads._pool.cache_clear()


def test_as_many_threads_as_are_worth_it(monkeypatch):
    counts = []
    monkeypatch.setattr(native.kernels, "in_parts", lambda *given: counts.append(given[-1]) or 0)
    f64 = Instruction.parse(MMA + "m8n8k4.row.col.f64.f64.f64.f64")
    for ins, count in ((F16, 500), (F16, 513), (f64, 2000), (f64, 2050)):
        operands = [ins.fragment(x).zeros(count) for x in "abc"]
        execute(ins, *operands, target="sm_90a", engine="compiled")
    assert counts == [1, 2, 1, 2]


# --- registers as arrays of their own -------------------------------------------------------------


@pytest.mark.parametrize(
    "ins",
    [
        F16,
        SPARSE,
        Instruction.parse(MMA + "m8n8k4.row.col.f64.f64.f64.f64"),
        Instruction.parse(WGMMA + "m64n16k16.f32.f16.f16"),
        Instruction.parse("wgmma.mma_async.sp.sync.aligned.m64n8k64.f32.e4m3.e5m2"),
    ],
    ids=str,
)
def test_lanes_one_after_the_other(ins):
    operands = drawn(ins, "sm_90a", np.random.default_rng(17), REGIMES)
    expected = execute(ins, target="sm_90a", engine="vector", **operands)
    registers = {
        "c" if name == "d" else name: [np.ascontiguousarray(x.reshape(-1, x.shape[-1])[:, i])
                                       for i in range(x.shape[-1])]
        for name, x in operands.items() if name in "abcd"
    }  # fmt: skip
    words = {"e": operands["e"]} if ins.is_sparse else {}
    shared, rows = None, None
    if ins.is_wgmma:
        words["b"] = operands["descriptor_b"]
        # The memories in another order, and more of them than are used.
        held = np.concatenate([operands["shared"][::-1], operands["shared"][:2]])
        shared, rows = Space("shared memory", held), np.arange(len(REGIMES))[::-1]
    for given in (registers, {name: np.array(columns) for name, columns in registers.items()}):
        found, flags = native.run_lanes(
            ins, find_target("sm_90a"), Setting(), given, len(REGIMES),
            words=words, shared=shared, rows=rows,
        )  # fmt: skip
        assert flags == 0
        got = np.stack(found, -1).reshape(expected.shape)
        assert np.array_equal(got, expected)


# --- what is not legal ----------------------------------------------------------------------------


def test_bits_that_no_element_uses():
    ins = next(x for x in ALL if x.form.container and not x.is_sparse and x.a_type == "e2m1")
    operands = drawn(ins, "sm_120a", np.random.default_rng(12), REGIMES[-1:])
    operands["a"][0, 5, 0] |= 1
    with pytest.raises(UndefinedError, match="operand a: bits that hold no part"):
        execute(ins, target="sm_120a", engine="compiled", **operands)


def test_metadata(monkeypatch):
    """Equal indices are undefined but over zeros; hardware takes any two indices."""
    operands = drawn(SPARSE, "sm_90a", np.random.default_rng(13), REGIMES[-1:] * 2)
    operands["e"][1, 8] = 0x4444_4440
    with pytest.raises(UndefinedError, match="metadata of row"):
        execute(SPARSE, target="sm_90a", engine="compiled", **operands)
    assert same(monkeypatch, SPARSE, "sm_90a", operands, undefined="hardware")
    operands["a"][1] = 0
    assert same(monkeypatch, SPARSE, "sm_90a", operands)


@pytest.mark.parametrize("types", ["m16n8k64.row.col.s32.s8.u8", "m16n8k128.row.col.s32.s4.s4"])
def test_metadata_of_integers(monkeypatch, types):
    """Any two indices; two that are one are left to others where they add bits of one place."""
    ins = Instruction.parse(f"mma.sp::ordered_metadata.sync.aligned.{types}.s32")
    rng = np.random.default_rng(21)
    operands = drawn(ins, "sm_90a", rng, REGIMES[-1:] * 8)
    operands["e"] = rng.integers(0, 1 << 32, operands["e"].shape, np.uint32)
    given = operands | {"a": operands["a"] & np.uint32(0x0FF0_0FF0)}
    assert same(monkeypatch, ins, "sm_90a", given, undefined="hardware")
    with pytest.raises(UndefinedError, match="metadata of row"):
        execute(ins, target="sm_90a", engine="compiled", **given)
    with pytest.raises(AssertionError, match="no kernel"):
        by_kernel(monkeypatch, ins, "sm_90a", operands, undefined="hardware")
    found, expected = (
        execute(ins, target="sm_90a", engine=engine, undefined="hardware", **operands)
        for engine in ("compiled", "vector")
    )
    assert np.array_equal(found, expected)


def test_words_of_tf32_that_metadata_mixes(monkeypatch):
    """No kernel computes that; the others do."""
    monkeypatch.setattr(engines, "_WORTH_A_KERNEL", 0)
    operands = drawn(TF32, "sm_90a", np.random.default_rng(14), REGIMES[-1:] * 2)
    operands["e"][0] = 0x9999_9999
    found = execute(TF32, target="sm_90a", undefined="hardware", **operands)
    assert np.array_equal(
        found, execute(TF32, target="sm_90a", engine="vector", undefined="hardware", **operands)
    )
    with pytest.raises(UndefinedError, match="metadata of row"):
        execute(TF32, target="sm_90a", **operands)


def test_wgmma_has_no_function_of_one_warp():
    wgmma = Instruction.parse(WGMMA + "m64n8k16.f32.f16.f16")
    assert native.warp_function(wgmma, find_target("sm_90a")) is None


def test_ids_that_an_instruction_has_not():
    ins = next(x for x in ALL if x.is_block_scaled)
    with pytest.raises(OperandError, match="byte_id_b is 9"):
        native.warp_function(ins, find_target(ins.targets[-1]), ids=(0, 0, 9, 0))


# --- when kernels are made ------------------------------------------------------------------------


def test_auto_makes_a_kernel_when_it_would_have_paid(monkeypatch):
    monkeypatch.setattr(engines, "_asked", {})
    ran = []
    run = multiply._run_kernel
    monkeypatch.setattr(multiply, "_run_kernel", lambda *x: ran.append(1) or run(*x))
    operands = drawn(F16, "sm_90a", np.random.default_rng(15), REGIMES)
    for _ in range(3):
        execute(F16, target="sm_90a", **operands)
        assert not ran
    monkeypatch.setattr(engines, "_WORTH_A_KERNEL", 4 * len(REGIMES) * 16 * 8 * 16)
    execute(F16, target="sm_90a", **operands)
    assert ran


def test_llvm_that_fails_is_given_up(monkeypatch, caplog):
    monkeypatch.setattr(engines, "_no_kernels", [])
    monkeypatch.setattr(engines, "_WORTH_A_KERNEL", 0)
    operands = drawn(F16, "sm_90a", np.random.default_rng(16), REGIMES)
    expected = execute(F16, target="sm_90a", engine="vector", **operands)

    def fails(*_, **__):
        raise RuntimeError("LLVM ERROR")

    monkeypatch.setattr(native, "run", fails)
    for _ in range(2):
        assert np.array_equal(execute(F16, target="sm_90a", **operands), expected)
    assert caplog.text.count("LLVM ERROR") == 1
    monkeypatch.setattr(engines, "_no_kernels", [])
    with pytest.raises(RuntimeError, match="LLVM ERROR"):
        execute(F16, target="sm_90a", engine="compiled", **operands)


def test_small_work_imports_no_llvm():
    text = (
        "import sys, numpy as np; from emulator import execute\n"
        f"execute({str(F16)!r}, *(np.zeros((2, 32, n), np.uint32) for n in (4, 2, 4)), "
        "target='sm_90a')\n"
        "print(any(x.startswith('llvmlite') for x in sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"
