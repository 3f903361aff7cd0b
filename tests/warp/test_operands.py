"""Operands that `execute` must refuse, and that it leaves alone those it takes."""

import numpy as np
import pytest

from emulator import (
    EmulatorError,
    Instruction,
    OperandError,
    ParseError,
    UndefinedError,
    UnsupportedError,
    compress,
    decompress,
    execute,
    gemm,
    mma,
)
from emulator.arith import engines
from emulator.layout.addressing import encode_descriptor
from emulator.memory.descriptors import store_tile

pytestmark = pytest.mark.sampled(3)

parse = Instruction.parse
DENSE = parse("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
F64 = parse("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64")
ORDERED = parse("mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
SPARSE = parse("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
TF32 = parse("mma.sp.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32")
INT8 = parse("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32")
SMALL = parse("mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e3m2.f32")
SCALED = parse(
    "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0"
)
WGMMA = parse("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16")
WGMMA_SP = parse("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16")
WGMMA_TF32 = parse("wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32")
WGMMA_S8 = parse("wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8")
EVERY = [DENSE, F64, ORDERED, SPARSE, TF32, INT8, SMALL, SCALED, WGMMA, WGMMA_SP, WGMMA_TF32]
EVERY.append(WGMMA_S8)

DESCRIPTOR = encode_descriptor(0, 128, 256)


def good(ins, batch=()):
    """Operands and options that `ins` takes, all zeros but for the metadata and shared memory."""
    a = ins.fragment("a").zeros(*batch)
    if ins.is_wgmma:
        operands = [a, np.full(batch, DESCRIPTOR), ins.fragment("d").zeros(*batch)]
        options = {"shared": np.arange(4096, dtype=np.uint32).astype(np.uint8)}
    else:
        operands = [a, ins.fragment("b").zeros(*batch), ins.fragment("c").zeros(*batch)]
        options = {}
    if ins.is_sparse:
        operands.append(np.full((*batch, ins.lanes), 0x44444444, np.uint32))
    if ins.is_block_scaled:
        options["scale_a"] = options["scale_b"] = np.zeros((*batch, 32), np.uint32)
    return operands, options


def run(ins, changes=None, batch=(), **options):
    """Executes `ins` with operand number i replaced by changes[i], and other options."""
    operands, usual = good(ins, batch)
    for i, operand in (changes or {}).items():
        operands[i] = operand
    options = {"target": ins.targets[-1], **usual, **options}
    return execute(ins, *operands, **{k: v for k, v in options.items() if v is not LEFT_OUT})


LEFT_OUT = object()


@pytest.mark.parametrize("ins", EVERY, ids=str)
def test_good_operands_are_taken(ins):
    assert run(ins).shape == (ins.lanes, ins.fragment("d").registers)
    assert run(ins, batch=(2, 3)).shape == (2, 3, ins.lanes, ins.fragment("d").registers)


# --- operands ---


def zeros(ins, operand, *batch):
    return ins.fragment(operand).zeros(*batch)


E = np.full(32, 0x44444444, np.uint32)
SHARED = np.zeros(4096, np.uint8)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: execute(7, target="sm_80"), "an Instruction, or its opcode, is needed; got int"),
        (lambda: execute(DENSE, target="sm_80"), r"3 operands \(a, b, c\); got 0"),
        (lambda: execute(DENSE, *good(DENSE)[0], E, target="sm_80"), "3 operands.*got 4"),
        (lambda: execute(SPARSE, *good(DENSE)[0], target="sm_80"), r"\(a, b, c, e\); got 3"),
        (
            lambda: execute(WGMMA_SP, *good(WGMMA)[0], target="sm_90a"),
            r"4 operands \(descriptor_a or a, descriptor_b, d, e\); got 3",
        ),
        # shapes
        (lambda: run(DENSE, {0: zeros(DENSE, "b")}), r"operand a.*4 registers.*\(32, 2\)"),
        (lambda: run(DENSE, {1: zeros(DENSE, "a")}), r"operand b.*2 registers.*\(32, 4\)"),
        (lambda: run(DENSE, {2: zeros(DENSE, "c")[:16]}), r"operand c.*32 lanes.*\(16, 4\)"),
        (lambda: run(DENSE, {0: zeros(DENSE, "a")[0]}), r"operand a.*\(4,\)"),
        (lambda: run(DENSE, {0: 7}), "operand a"),
        (lambda: run(DENSE, {0: None}), "operand a.*object"),
        (lambda: run(WGMMA, {0: zeros(DENSE, "a")}), r"operand a.*128 lanes.*\(32, 4\)"),
        (lambda: run(WGMMA, {2: zeros(WGMMA, "d")[:, :3]}), r"operand d.*\(128, 3\)"),
        (lambda: run(SPARSE, {3: E[:, None, None]}), r"e is one metadata word.*\(32, 1, 1\)"),
        (lambda: run(SPARSE, {3: E[:31]}), r"uint32 \(…, 32\).*\(31,\)"),
        (lambda: run(SPARSE, {3: 5}), "e is one metadata word"),
        (lambda: run(WGMMA_SP, {3: E}), r"uint32 \(…, 128\).*\(32,\)"),
        # types
        (lambda: run(DENSE, {0: zeros(DENSE, "a").astype(np.int32)}), "uint32.*int32.*view"),
        (lambda: run(DENSE, {1: zeros(DENSE, "b").astype(np.float32)}), "operand b.*float32"),
        (lambda: run(DENSE, {2: zeros(DENSE, "c").astype(np.uint64)}), "operand c.*uint64"),
        (lambda: run(F64, {0: zeros(F64, "a").astype(np.uint32)}), "operand a.*uint64 words"),
        (lambda: run(SPARSE, {3: E.astype(np.int32)}), "metadata word.*int32"),
        (lambda: run(WGMMA, {1: -1}), "operand b: .*descriptor is a 64-bit word.*got -1"),
        (lambda: run(WGMMA, {1: np.zeros(2, np.int64)}), "descriptor.*int64"),
        (lambda: run(WGMMA, {0: 1 << 64}), "operand a: .*descriptor.*got 18446744073709551616"),
        # batches
        (lambda: run(DENSE, {0: zeros(DENSE, "a", 2), 1: zeros(DENSE, "b", 3)}), "batch axes"),
        (lambda: run(DENSE, {2: zeros(DENSE, "c", 3)}, batch=(2,)), r"c \(3, 32, 4\)"),
        (lambda: run(WGMMA, {1: np.full(3, DESCRIPTOR)}, batch=(2,)), r"descriptor_b \(3,\)"),
        (
            lambda: run(WGMMA, {1: DESCRIPTOR}, (2,), shared=np.zeros((3, 4096), np.uint8)),
            "batch axes",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("worth", ["usual", "always"])
def test_operands_that_do_not_fit(call, message, worth, monkeypatch):
    if worth == "always":
        monkeypatch.setattr(engines, "_WORTH_A_KERNEL", 0)
    with pytest.raises(OperandError, match=message):
        call()


def test_opcodes_and_words_of_a_fragment_are_taken():
    (a, b, c, e), _ = good(SPARSE)
    want = execute(SPARSE, a, b, c, e, target="sm_80")
    assert np.array_equal(execute(str(SPARSE), a, b, c, e, target="sm_80"), want)
    assert np.array_equal(execute(SPARSE, a, b, c, e[..., None], target="sm_80"), want)
    one = {x: np.full(32, 0x80, np.uint32) for x in ("scale_a", "scale_b")}
    words = {x: one[x][:, None] for x in one}
    assert np.array_equal(run(SCALED, **words), run(SCALED, **one))
    with pytest.raises(ParseError, match="unknown modifier"):
        execute("mma.snyc", a, b, c, target="sm_80")


# --- options ---


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: run(DENSE, engine="fast"), "no engine 'fast'; engines are auto, ref"),
        (lambda: run(DENSE, engine=None), "no engine None"),
        (lambda: run(DENSE, undefined="ignore"), "'raise' or 'hardware'; got 'ignore'"),
        # options that the instruction does not take
        (lambda: run(DENSE, selector=0), "takes no selector=; its options are none"),
        (lambda: run(DENSE, shared=SHARED), "takes no shared="),
        (lambda: run(DENSE, scale_a=E), "takes no scale_a="),
        (lambda: run(SPARSE, scale_d=True), "takes no scale_d=; its options are selector"),
        (lambda: run(WGMMA, selector=0), "takes no selector="),
        (lambda: run(SCALED, sellector=0), "takes no sellector=; .* scale_a, byte_id_a, "),
        # selectors
        (lambda: run(SPARSE, selector=4), "selector 4.*0, 1, 2, 3"),
        (lambda: run(SPARSE, selector=-1), "selector -1"),
        (lambda: run(SPARSE, selector=True), "selector True"),
        (lambda: run(SPARSE, selector="0"), "selector '0'"),
        (lambda: run(SPARSE, selector=None), "selector None"),
        (lambda: run(INT8, selector=1), "selector 1.*: 0$"),
        (lambda: run(WGMMA_SP, selector=2), "selector 2.*: 0, 1$"),
        # scales
        (lambda: run(SCALED, scale_b=LEFT_OUT), "needs scale_b=, one uint32 word"),
        (lambda: run(SCALED, scale_a=None), "needs scale_a="),
        (lambda: run(SCALED, scale_a=E.astype(np.int64)), "scale_a.*uint32.*int64"),
        (lambda: run(SCALED, scale_b=E[:8]), r"scale_b is one word per lane.*\(8,\)"),
        (lambda: run(SCALED, scale_b=3), "scale_b is one word per lane"),
        (lambda: run(SCALED, byte_id_a=1), "byte_id_a is 1.*2X.*0, 2"),
        (lambda: run(SCALED, byte_id_b=4), "byte_id_b is 4"),
        (lambda: run(SCALED, byte_id_b=None), "byte_id_b is None"),
        (lambda: run(SCALED, thread_id_a=2), "thread_id_a is 2.*0, 1"),
        (lambda: run(SCALED, thread_id_b=4), "thread_id_b is 4.*0, 1, 2, 3"),
        (lambda: run(SCALED, scale_a=np.zeros((3, 32), np.uint32), batch=(2,)), "batch axes"),
        # shared memory and immediates of wgmma
        (lambda: run(WGMMA, shared=LEFT_OUT), r"uint8 array \(…, bytes\); got None"),
        (lambda: run(WGMMA, shared=bytes(4096)), "uint8 array.*got b'"),
        (lambda: run(WGMMA, shared=SHARED.view(np.int8)), "uint8 array.*got int8"),
        (lambda: run(WGMMA, shared=np.uint8(3)), "uint8 array"),
        (lambda: run(WGMMA, imm_scale_a=2), "imm_scale_a.*1 or -1; got 2"),
        (lambda: run(WGMMA, imm_scale_b=0), "imm_scale_b.*1 or -1; got 0"),
        (lambda: run(WGMMA_S8, imm_scale_a=-1), "imm_scale_a.*is 1; got -1"),
        (lambda: run(WGMMA, imm_trans_b=2), "imm_trans_b.*0 or 1; got 2"),
        (lambda: run(WGMMA, imm_trans_a=1), "imm_trans_a.*with A from registers is 0; got 1"),
        (lambda: run(WGMMA_TF32, imm_trans_b=1), "imm_trans_b.*is 0; got 1"),
        (lambda: run(WGMMA_S8, {0: DESCRIPTOR}, imm_trans_a=1), "imm_trans_a.*is 0; got 1"),
        (lambda: run(WGMMA, scale_d=2), "scale_d is true or false.*got 2"),
        (lambda: run(WGMMA, scale_d="yes"), "scale_d"),
        (lambda: run(WGMMA, scale_d=None), "scale_d"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("worth", ["usual", "always"])
def test_options_that_are_not_legal(call, message, worth, monkeypatch):
    if worth == "always":  # as after many calls of the same instruction
        monkeypatch.setattr(engines, "_WORTH_A_KERNEL", 0)
    with pytest.raises(OperandError, match=message):
        call()


@pytest.mark.parametrize(
    ("ins", "target", "message"),
    [
        (DENSE, "sm_75", "not available on sm_75; its targets are sm_80"),
        (WGMMA, "sm_90", "not available on sm_90; its targets are sm_90a$"),
        (WGMMA, "b200", "not available on sm_100a"),
        (SCALED, "sm_100a", "not available on sm_100a"),
        (DENSE, "sm_81", "no target 'sm_81'.*nearest is 'sm_8"),
        (DENSE, "hoper", "nearest is 'hopper'"),
        (DENSE, 90, "such as 'sm_90a'; got 90"),
        (DENSE, None, "got None"),
    ],
)
def test_targets_that_lack_it_or_do_not_exist(ins, target, message):
    with pytest.raises(UnsupportedError, match=message):
        run(ins, target=target)


@pytest.mark.parametrize(
    "call",
    [
        lambda: run(SPARSE, {0: zeros(SPARSE, "a", 2), 3: np.stack([E] * 3)}),
        lambda: run(SPARSE, {1: zeros(SPARSE, "b", 2), 3: np.stack([E] * 3)}, undefined="hardware"),
        lambda: run(WGMMA_SP, {3: np.full((3, 128), 0x44444444, np.uint32)}, batch=(2,)),
        lambda: run(WGMMA, batch=(2,), scale_d=np.array([True, False, True])),
        lambda: run(
            WGMMA, {1: np.full(2, DESCRIPTOR)}, shared=np.zeros((3, 4096), np.uint8)
        ),
        lambda: run(SPARSE, selector=np.array([0, 1])),
        lambda: run(SCALED, byte_id_a=np.array([0, 2])),
        lambda: run(SCALED, byte_id_a=0.0),
        lambda: run(WGMMA, imm_scale_a=np.array([1, -1])),
        lambda: run(WGMMA, imm_trans_b=np.array([0, 1])),
        lambda: run(DENSE, engine=["vector"]),
        lambda: encode_descriptor(16.0),
        lambda: DENSE.fragment("a").lane(1.5, 0),
        lambda: DENSE.fragment("a").scatter(np.full((16, 16), 1 << 16, np.uint32)),
    ],
    ids=[
        "e batch", "e batch against b", "wgmma e batch", "scale_d batch", "shared batch",
        "selector array", "byte id array", "byte id float", "imm_scale array", "imm_trans array",
        "engine list", "start float", "row float", "codes too wide",
    ],
)  # fmt: skip
def test_these_too_raise_operand_errors(call):
    with pytest.raises(OperandError):
        call()


# --- undefined by PTX ---


def metadata(ins, row, chunk, nibble):
    """Metadata 0b0100 everywhere but for one nibble, selector 0; and where that nibble is."""
    place = ins.fragment("e").lane(row, chunk, 0)
    words = np.full(ins.lanes, 0x44444444, np.uint32)
    keep = np.uint32(0xFFFFFFFF ^ 0xF << place.low_bit)
    words[place.lane] = words[place.lane] & keep | np.uint32(nibble << place.low_bit)
    return words, place


ORDERED_NIBBLES = {0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110}
EQUAL_NIBBLES = {0b0000, 0b0101, 0b1010, 0b1111}


@pytest.mark.parametrize(
    ("ins", "legal"),
    [
        (ORDERED, ORDERED_NIBBLES),
        (INT8, ORDERED_NIBBLES),
        (SPARSE, set(range(16)) - EQUAL_NIBBLES),
        (WGMMA_SP, set(range(16)) - EQUAL_NIBBLES),
        (TF32, {0b0100, 0b1110}),
    ],
    ids=["ordered", "ordered s8", "plain", "wgmma", "tf32"],
)
def test_undefined_metadata_is_named(ins, legal):
    row, chunk = 11, 2
    a = np.full_like(zeros(ins, "a"), 0x3C003C00)  # no zeros: equal indices are then an error
    for nibble in range(16):
        words, place = metadata(ins, row, chunk, nibble)
        if nibble in legal:
            run(ins, {0: a, 3: words})
            continue
        where = (
            rf"row {row}, chunk {chunk} \(lane {place.lane}, bits {place.low_bit}…"
            rf"{place.low_bit + 3} of e\) is 0b{nibble:04b};"
        )
        with pytest.raises(UndefinedError, match=where):
            run(ins, {0: a, 3: words})
        run(ins, {0: a, 3: words}, undefined="hardware")


def test_undefined_metadata_of_a_batch_names_the_case():
    a = np.full_like(zeros(SPARSE, "a", 3), 0x3C003C00)
    words = np.stack([E, E, metadata(SPARSE, 0, 1, 0)[0]])
    with pytest.raises(UndefinedError, match=r"row 0, chunk 1 .*batch \(2,\)"):
        run(SPARSE, {0: a, 3: words}, batch=(3,))


def test_equal_indices_over_stored_zeros_are_taken():
    """CUTLASS's compressor writes nibble 0 for a chunk of zeros; minus zero counts as one."""
    a = np.full_like(zeros(SPARSE, "a"), 0x3C003C00)
    stored = SPARSE.fragment("a").gather(a)
    words, _ = metadata(SPARSE, 11, 2, 0)
    stored[11, 4:6] = 0, 0x8000
    run(SPARSE, {0: SPARSE.fragment("a").scatter(stored), 3: words})
    stored[11, 5] = 1
    with pytest.raises(UndefinedError, match="row 11, chunk 2"):
        run(SPARSE, {0: SPARSE.fragment("a").scatter(stored), 3: words})


def test_metadata_of_lanes_that_do_not_contribute_is_ignored():
    words, place = metadata(SPARSE, 11, 2, 0)
    a = np.full_like(zeros(SPARSE, "a"), 0x3C003C00)
    assert place.lane % 4 == 0
    run(SPARSE, {0: a, 3: words}, selector=1)


def test_negation_of_a_sparse_tf32_b_comes_after_the_selection():
    """Nibble 0 joins the low half of B[0,0] with itself; an H200 flips the sign of what results."""
    ins = parse("wgmma.mma_async.sp.sync.aligned.m64n8k16.f32.tf32.tf32")
    a = np.zeros((64, 8), np.uint32)
    a[0, 0] = 0x3F800000
    shared = np.zeros(4096, np.uint8)
    shared[:4] = np.array([0x40003F80], "<u4").view(np.uint8)
    nibbles = ins.fragment("e").scatter(np.zeros((2, 64, 8), np.uint8))[:, 0]
    operands = [ins.fragment("a").scatter(a), DESCRIPTOR, zeros(ins, "d"), nibbles]
    options = {"shared": shared, "undefined": "hardware", "target": "sm_90a"}
    plus, minus = (execute(ins, *operands, imm_scale_b=s, **options) for s in (1, -1))
    assert plus[0, 0] == 0x3F802000 and minus[0, 0] == 0xBF802000


def test_padding_bits_are_named():
    a = zeros(SMALL, "a")
    a[3, 1] = 1  # bit 0 of a byte whose e2m1 sits in bits 2…5
    with pytest.raises(UndefinedError, match=r"operand a.*e2m1 uses bits 2…5"):
        run(SMALL, {0: a})


@pytest.mark.parametrize("ins", [WGMMA, WGMMA_SP, WGMMA_TF32, WGMMA_S8], ids=str)
def test_descriptor_out_of_bounds(ins):
    far = encode_descriptor(1 << 16, 128, 256)
    with pytest.raises(UndefinedError, match=r"operand b.*byte 65536 of.*4096 bytes.*LBO, SBO"):
        run(ins, {1: far})
    with pytest.raises(UndefinedError, match="operand a"):
        run(ins, {0: far})


# --- what is taken stays as it was ---


@pytest.mark.parametrize("ins", EVERY, ids=str)
@pytest.mark.parametrize("engine", ["auto", "reference"])
def test_inputs_are_never_modified(ins, engine):
    operands, options = good(ins, (2,))
    rng = np.random.default_rng(6)
    if not ins.is_block_scaled and ins is not SMALL:
        operands[0] = rng.integers(0, 1 << 32, operands[0].shape, np.uint32).astype(
            operands[0].dtype
        )
    if ins.is_wgmma and ins.d_type == "f32":
        options |= {"imm_scale_a": -1, "imm_scale_b": -1, "scale_d": np.array([True, False])}
    arrays = [*operands, *(x for x in options.values() if isinstance(x, np.ndarray))]
    before = [x.copy() for x in arrays]
    for x in arrays:
        x.flags.writeable = False
    first = execute(ins, *operands, target=ins.targets[-1], engine=engine, **options)
    assert all(np.array_equal(x, y) for x, y in zip(arrays, before, strict=True))
    second = execute(ins, *operands, target=ins.targets[-1], engine=engine, **options)
    assert np.array_equal(first, second)
    assert not any(np.shares_memory(first, x) for x in arrays)


@pytest.mark.parametrize("ins", EVERY, ids=str)
@pytest.mark.parametrize("engine", ["auto", "reference"])
@pytest.mark.parametrize("batch", [(0,), (2, 0)])
def test_an_empty_batch_gives_an_empty_result(ins, engine, batch):
    got = run(ins, batch=batch, engine=engine)
    assert got.shape == (*batch, ins.lanes, ins.fragment("d").registers)


def test_empty_batches_of_the_other_kinds():
    words, memory = np.zeros((0, 32, 1), np.uint32), np.zeros((0, 4096), np.uint8)
    empty = np.zeros(0, np.uint32)
    for opcode, operands, options, shape in (
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b16", [np.zeros((0, 32), int)], {}, (0, 32, 1)),
        ("stmatrix.sync.aligned.m8n8.x1.shared.b16", [np.zeros((0, 32), int), words],
         {"shared": memory}, (0, 32, 0)),
        ("movmatrix.sync.aligned.m8n8.trans.b16", [words], {"shared": None}, (0, 32, 1)),
        ("wmma.load.a.sync.aligned.row.m8n8k32.shared.s4", [empty], {}, (0, 32, 1)),
        ("wmma.mma.sync.aligned.row.col.m8n8k32.s32.s4.s4.s32",
         [words, words, np.zeros((0, 32, 2), np.uint32)], {"shared": None}, (0, 32, 2)),
        ("cvt.rn.f16x2.f32", [empty, empty], {"shared": None}, (0,)),
    ):  # fmt: skip
        options = {"shared": np.zeros(4096, np.uint8), **options}
        options = {name: value for name, value in options.items() if value is not None}
        assert execute(opcode, *operands, target="sm_90a", **options).shape == shape, opcode


DEEP = [1]
for _ in range(70):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([[1, 2], [3]], "the rows of the list are not of one length"),
        (DEEP, "it makes no array|codes must be|one address|raw words"),
        (np.ma.zeros((32, 4), np.uint32), "is a masked array"),
        (np.ma.array(np.zeros((32, 4), np.uint16), mask=True), "is a masked array"),
    ],
    ids=["ragged", "deep", "masked", "all masked"],
)
def test_what_is_no_array(given, message):
    b, c = (DENSE.fragment(x).zeros() for x in "bc")
    shared = np.zeros(4096, np.uint8)
    sp = good(SPARSE)[0]
    half = np.zeros((16, 8), np.uint16)
    calls = [
        lambda: execute(DENSE, given, b, c, target="sm_90"),
        lambda: execute(SPARSE, *sp[:3], given, target="sm_90"),
        lambda: run(WGMMA, {0: given}),
        lambda: run(WGMMA, {2: given}),
        lambda: run(WGMMA, scale_d=given),
        lambda: run(SCALED, scale_a=given),
        lambda: execute("cvt.rn.f16x2.f32", given, given, target="sm_90"),
        lambda: execute("ldmatrix.sync.aligned.m8n8.x1.shared.b16", given, shared=shared,
                        target="sm_90"),
        lambda: execute("wmma.load.a.sync.aligned.row.m8n8k32.shared.s4", given, shared=shared,
                        target="sm_90"),
        lambda: execute("wmma.load.a.sync.aligned.row.m8n8k32.shared.s4", 0, stride=given,
                        shared=shared, target="sm_90"),
        lambda: DENSE.fragment("a").gather(given),
        lambda: DENSE.fragment("a").scatter(given),
        lambda: mma(DENSE, given, np.zeros((16, 8), "f2"), target="sm_90"),
        lambda: mma(SPARSE, half, half, nibbles=given, codes=True,
                    target="sm_90"),
        lambda: gemm(given, np.zeros((16, 8), "f2"), instruction=DENSE, target="sm_90"),
        lambda: compress(SPARSE, given),
        lambda: decompress(SPARSE, half, given),
        lambda: store_tile(shared, DESCRIPTOR, given, "f16"),
    ]  # fmt: skip
    for number, call in enumerate(calls):
        with pytest.raises(OperandError) as error:
            call()
        assert len(str(error.value)) < 500
        if "masked" in message or "rows" in message:
            assert message in str(error.value), number


@pytest.mark.parametrize("engine", ["bogus", None, 5, ["auto"]])
def test_engines_are_checked_before_anything_else(engine):
    with pytest.raises(OperandError, match="no engine"):
        run(DENSE, engine=engine)
    for opcode in ("ldmatrix.sync.aligned.m8n8.x1.shared.b16", "cvt.rn.f16x2.f32"):
        with pytest.raises(OperandError, match="no engine"):
            execute(opcode, engine=engine, target="sm_90")


def test_mistakes_are_emulator_errors():
    for error in (OperandError, UndefinedError, UnsupportedError):
        assert issubclass(error, EmulatorError)
