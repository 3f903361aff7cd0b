"""The fault finder on shared memory: ldmatrix addresses, descriptors of every step, tensor copies.

Tiles are stored and addressed here by hand, from the manual's text.
"""

from dataclasses import replace

import numpy as np
import pytest
from planted import DENSE, LANE, best

from emulator import Instruction, OperandError, TensorMap, UndefinedError, execute, gemm
from emulator.tools.faults import copies as tensor_copies
from emulator.tools.faults import rows
from emulator.tools.faults.copies import as_boxes, filled
from emulator.tools.faults.finder import find_faults

pytestmark = pytest.mark.sampled(8)

INT8 = Instruction.parse("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32")
START, STEPS = 1024, 4


@pytest.fixture(scope="module")
def dense():
    """A and B of four steps along k."""
    rng = np.random.default_rng(7)
    return rng.standard_normal((16, 64)).astype("f2"), rng.standard_normal((64, 8)).astype("f2")


def plain(address):
    return address


def swizzle_128(address):
    return address ^ (address >> 7 & 7) << 4


def swizzle_64(address):
    return address ^ (address >> 7 & 3) << 4


def store(matrix, stride, how=plain, start=START, into=None):
    """Rows of a matrix, their 16-byte units permuted."""
    memory = np.zeros(1 << 15, np.uint8) if into is None else into
    for r, row in enumerate(np.ascontiguousarray(matrix)):
        for u, unit in enumerate(row.view(np.uint8).reshape(-1, 16)):
            at = how(start + r * stride + 16 * u)
            memory[at : at + 16] = unit
    return memory


# --- ldmatrix -------------------------------------------------------------------------------------


def of_a(stride, how=plain, start=START, step=32, row=LANE % 16, unit=LANE // 16):
    """Addresses for A in row-major memory: lanes 0-15 the left half of its rows."""
    return np.stack([how(start + row * stride + unit * 16 + s * step) for s in range(STEPS)])


def of_b(stride, how=plain, start=START, step=None):
    """Addresses for B in row-major memory, with .trans: lanes 0-15 its rows of k."""
    step = 16 * stride if step is None else step
    return np.stack([how(start + LANE % 16 * stride + s * step) for s in range(STEPS)])


RIGHT = {
    "padded": (144, plain), "128-byte swizzle": (128, swizzle_128), "plain": (128, plain),
    "64-byte swizzle in wide rows": (256, swizzle_64),
}  # fmt: skip


@pytest.mark.parametrize("layout", RIGHT)
def test_right_addresses_have_no_fault(dense, layout):
    stride, how = RIGHT[layout]
    report = find_faults(DENSE, *dense, target="sm_80", shared=store(dense[0], stride, how),
                         addresses_a=of_a(stride, how))  # fmt: skip
    assert report.verdict == "right" and report.operands == {"a": True} and not report.notes
    report = find_faults(DENSE, *dense, target="sm_80", shared=store(dense[1], stride, how),
                         addresses_b=of_b(stride, how), trans_b=True)  # fmt: skip
    assert report.verdict == "right" and not report.faults


#: the tile as stored, the addresses, what is named: mistake and words
ADDRESSES = {
    "padding left out": (
        (144, plain), of_a(128), "row stride of ldmatrix",
        "rows 144 bytes apart instead of 128: the padding of 16 bytes behind each row is left out",
    ),
    "padding that is not there": (
        (128, plain), of_a(144), "row stride of ldmatrix",
        "rows 128 bytes apart instead of 144: a padding of 16 bytes is counted that is not there",
    ),
    "stride in elements": (
        (128, plain), of_a(64), "row stride of ldmatrix", "elements are counted, not bytes",
    ),
    "stride of another tile": (
        (128, plain), of_a(512), "row stride of ldmatrix", "rows 128 bytes apart instead of 512",
    ),
    "stride no multiple of 16": (
        (144, plain), of_a(136), "row stride of ldmatrix", "rows 144 bytes apart instead of 136",
    ),
    "not swizzled": (
        (128, swizzle_128), of_a(128), "swizzle of ldmatrix",
        "the 128-byte swizzle instead of no swizzle, as the tile is stored",
    ),
    "swizzled, the tile is not": (
        (128, plain), of_a(128, swizzle_128), "swizzle of ldmatrix",
        "no swizzle instead of the 128-byte swizzle",
    ),
    "another swizzle": (
        (128, swizzle_64), of_a(128, swizzle_128), "swizzle of ldmatrix",
        "the 64-byte swizzle instead of the 128-byte swizzle",
    ),
    "a swizzle of its own": (
        (64 * 2, lambda x: x ^ (x >> 8 & 3) << 4), of_a(128), "swizzle of ldmatrix",
        "the swizzle Swizzle<2, 4, 4> instead of no swizzle",
    ),
    "a tile too far": (
        (128, swizzle_128), of_a(128, swizzle_128, START + 2048), "start address of ldmatrix",
        "start -2048 bytes (1 tile of 2048 bytes)",
    ),
    "two stages too early": (
        (128, plain), of_a(128, start=START - 512), "start address of ldmatrix",
        "start +512 bytes (4 rows of 128 bytes)",
    ),
    "half a step along k": (
        (128, swizzle_128), of_a(128, swizzle_128, step=16), "k step of ldmatrix",
        "steps along k 32 bytes apart instead of 16",
    ),
    "not advanced along k": (
        (128, plain), of_a(128)[0], "loop over k", "a: every step along k takes that of the first",
    ),
    "tiles in the order of B": (
        (128, plain), of_a(128, row=LANE % 8 + LANE // 16 * 8, unit=LANE // 8 % 2),
        "registers exchanged", "a1 and a2 exchanged",
    ),
    "stride and swizzle": (
        (144, plain), of_a(128, swizzle_128), "row stride of ldmatrix",
        "is left out; no swizzle instead of the 128-byte swizzle",
    ),
    "outside of shared memory": (
        (128, plain), of_a(128, start=1 << 15), "start address of ldmatrix",
        "start -31744 bytes (248 rows of 128 bytes)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("planted", ADDRESSES)
def test_addresses_of_ldmatrix(dense, planted):
    layout, addresses, mistake, detail = ADDRESSES[planted]
    report = find_faults(DENSE, *dense, target="sm_80", shared=store(dense[0], *layout),
                         addresses_a=addresses)  # fmt: skip
    fault = best(report)
    assert (fault.mistake, fault.operand) == (mistake, "a") and detail in fault.detail
    assert len(report.faults) == 1


def test_one_wrong_lane_is_named(dense):
    addresses = of_a(144)
    addresses[2, 5] += 144
    fault = best(find_faults(DENSE, *dense, target="sm_80", shared=store(dense[0], 144),
                             addresses_a=addresses))  # fmt: skip
    assert fault.mistake == "addresses of ldmatrix"
    right, wrong = START + 5 * 144 + 64, START + 6 * 144 + 64
    assert f"lane 5 of step 2 {right:#x} instead of {wrong:#x}; 1 of 128 are" in fault.detail


OF_B = {
    "stride": (of_b(32), True, "row stride of ldmatrix", "rows 16 bytes apart instead of 32"),
    "step": (of_b(16, step=16), True, "k step of ldmatrix",
             "steps along k 256 bytes apart instead of 16"),
    "no .trans": (of_b(16), False, "ldmatrix .trans", "b: every register transposed"),
    "no .trans, and another stride": (of_b(32), False, "row stride of ldmatrix", ", and .trans"),
}  # fmt: skip


@pytest.mark.parametrize("planted", OF_B)
def test_addresses_of_a_row_major_b(dense, planted):
    addresses, trans, mistake, detail = OF_B[planted]
    fault = best(find_faults(DENSE, *dense, target="sm_80", shared=store(dense[1], 16),
                             addresses_b=addresses, trans_b=trans))  # fmt: skip
    assert (fault.mistake, fault.operand) == (mistake, "b") and detail in fault.detail


def test_every_mistake_with_addresses_is_planted():
    named = {mistake for _, _, mistake, _ in ADDRESSES.values()} | {"addresses of ldmatrix"}
    assert {x.name for x in (*rows.MISTAKES, rows.OF_LANES)} <= named


def test_addresses_of_bytes(dense):
    rng = np.random.default_rng(3)
    a, b = rng.integers(-99, 99, (16, 64)).astype("i1"), rng.integers(-99, 99, (64, 8)).astype("i1")
    memory = store(a, 80)
    for stride in (80, 64):
        addresses = of_a(stride)[:2]
        report = find_faults(INT8, a, b, target="sm_80", shared=memory, addresses_a=addresses)
        assert report.verdict == ("right" if stride == 80 else "found")
    assert "rows 80 bytes apart instead of 64" in report[0].detail


def test_a_tile_that_is_nowhere_is_not_explained(dense):
    memory = np.random.default_rng(1).integers(0, 256, 1 << 15, np.uint8)
    report = find_faults(DENSE, *dense, target="sm_80", shared=memory, addresses_a=of_a(128))
    assert report.verdict == "none" and not report.faults


def test_misaligned_addresses_are_said(dense):
    report = find_faults(DENSE, *dense, target="sm_80", shared=store(dense[0], 144),
                         addresses_a=of_a(136))  # fmt: skip
    assert "A: ldmatrix: the address of lane 1, 1160, is no multiple of 16" in report.notes


@pytest.mark.parametrize(
    ("ins", "passed", "words"),
    [
        (DENSE, {"addresses_a": of_a(128)}, "addresses_a= lead into .* shared= is missing"),
        (DENSE, {"addresses_a": of_a(128)[:, :16]}, r"one of each lane, \(32,\)"),
        (DENSE, {"addresses_a": of_a(128) * 1.0}, "addresses_a are integers"),
        (DENSE, {"addresses_a": of_a(128)[:3]}, "the operands differ in k"),
        (DENSE, {"addresses_a": of_a(128), "registers_a": np.zeros((4, 32, 4), "u4")}, "give one"),
        (DENSE, {"descriptor_b": np.uint64(1)}, "takes no 'descriptor_b'"),
    ],
)
def test_addresses_that_cannot_be_used(dense, ins, passed, words):
    shared = {} if "missing" in words else {"shared": np.zeros(1 << 15, np.uint8)}
    with pytest.raises(OperandError, match=words):
        find_faults(ins, *dense, target="sm_80", **passed, **shared)


@pytest.mark.parametrize("ins", [DENSE, Instruction.parse(str(DENSE).replace("f16", "bf16"))])
def test_memory_that_nothing_reads(dense, ins):
    with pytest.raises(OperandError, match="shared= and boxes= are read through addresses_a="):
        find_faults(ins, *(x.view("u2") for x in dense), target="sm_80",
                    shared=np.zeros(4096, np.uint8), d=np.zeros((16, 8), "f4"))  # fmt: skip


def test_a_of_wgmma_is_loaded_by_four_warps(dense):
    """B, of which nothing is said, lies where the finder puts it."""
    ins = Instruction.parse("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16")
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((64, 64)).astype("f2"), rng.standard_normal((64, 16)).astype("f2")
    lane = np.arange(128)
    d = gemm(a, b, instruction=ins, target="H100")

    def check(warp, stride, **more):
        row = lane // 32 * warp + lane % 16
        addresses = [START + row * stride + lane // 16 % 2 * 16 + 32 * s for s in range(STEPS)]
        return find_faults(ins, a, b, target="H100", shared=store(a, 144),
                           addresses_a=np.stack(addresses), **more)  # fmt: skip

    assert check(16, 144).verdict == "right" and check(16, 144, d=d).verdict == "right"
    fault = best(check(16, 128))
    assert fault.mistake == "row stride of ldmatrix"
    fault = best(check(0, 144))
    assert "every warp holds what belongs to the first" in fault.detail
    with pytest.raises(OperandError, match="no room for B behind them: descriptor_b= is missing"):
        find_faults(ins, a, b, target="H100", shared=np.zeros(1 << 18, np.uint8),
                    addresses_a=np.zeros((STEPS, 128), int))  # fmt: skip


def test_addresses_of_a_sparse_a():
    ins = Instruction.parse(
        "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
    )
    rng = np.random.default_rng(4)
    stored, b = rng.standard_normal((16, 32)).astype("f2"), rng.standard_normal((64, 8))
    full = np.zeros((16, 16, 4), "f2")
    full[..., :2] = stored.reshape(16, 16, 2)
    for stride in (80, 64):
        report = find_faults(
            ins, full.reshape(16, 64), b.astype("f2"), target="sm_80", shared=store(stored, 80),
            addresses_a=of_a(stride)[:2], e=np.full((2, 32), 0x44444444, np.uint32),
        )  # fmt: skip
        assert report.verdict == ("right" if stride == 80 else "found"), str(report)
    assert report[0].mistake == "row stride of ldmatrix"


def test_ldmatrix_loads_no_doubles():
    ins = Instruction.parse("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64")
    with pytest.raises(OperandError, match="registers of 32 bits; operand a has 1 of 64"):
        find_faults(ins, np.ones((8, 4)), np.ones((4, 8)), target="sm_80",
                    shared=np.zeros(4096, np.uint8), addresses_a=LANE * 16)  # fmt: skip


# --- descriptors of every step along k ------------------------------------------------------------

WGMMA = Instruction.parse("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16")
LONG = 8
A_AT, B_AT = 4096, 32768
#: 64 rows of 128 bytes, twice: columns 0-63 and 64-127 of A
HALF = 64 * 128
SBO_1024 = 1 << 16 | 64 << 32 | 1 << 62


@pytest.fixture(scope="module")
def large():
    """A and B of eight steps along k, cut out of larger matrices, and these."""
    rng = np.random.default_rng(11)
    whole_a, whole_b = (rng.standard_normal((256, 256)).astype("f2") for _ in range(2))
    return whole_a[64:128, 128:256], whole_b[128:256, 64:128], whole_a, whole_b


def in_memory(large):
    """A K-major in two boxes, B MN-major (a line for each k), both with the 128-byte swizzle."""
    memory = np.zeros(1 << 16, np.uint8)
    for half in range(2):
        part = large[0][:, 64 * half : 64 * half + 64]
        store(part, 128, swizzle_128, A_AT + half * HALF, memory)
    return store(large[1], 128, swizzle_128, B_AT, memory)


def words(at, steps):
    return np.array([SBO_1024 | at + x >> 4 for x in steps], np.uint64)


A_STEPS = [s % 4 * 32 + s // 4 * HALF for s in range(LONG)]
B_STEPS = [2048 * s for s in range(LONG)]


def check(large, **passed):
    given = {"descriptor_a": words(A_AT, A_STEPS), "descriptor_b": words(B_AT, B_STEPS),
             "imm_trans_b": 1} | passed  # fmt: skip
    if "boxes" not in given and "shared" not in given:
        given["shared"] = in_memory(large)
    return find_faults(WGMMA, large[0], large[1], target="H100", **given)


def test_right_descriptors_have_no_fault(large):
    report = check(large)
    assert report.verdict == "right" and report.operands == {"a": True, "b": True}
    assert not report.faults and not report.notes


def each(step):
    return [step * s for s in range(LONG)]


DESCRIPTORS = {
    "MN-major B advanced like a K-major one": (
        {"descriptor_b": words(B_AT, each(32))}, "wrong step along k", "b",
        "steps along k 2048 bytes apart instead of 32: as an MN-major tile lies, 32 is the step of "
        "a K-major tile",
    ),
    "MN-major B advanced by one block": (
        {"descriptor_b": words(B_AT, each(1024))}, "wrong step along k", "b",
        "2048 bytes apart instead of 1024: as an MN-major tile lies",
    ),
    "A advanced past its line": (
        {"descriptor_a": words(A_AT, each(32))}, "wrong step along k", "a",
        "32, 32, 32, 8096, 32, 32, 32 bytes apart instead of 32: as a K-major tile lies, blocks of "
        "the next rows first",
    ),
    "A advanced by elements": (
        {"descriptor_a": words(A_AT, [x // 2 for x in A_STEPS])}, "wrong step along k", "a",
        "instead of 16, 16, 16, 4048, 16, 16, 16",
    ),
    "B a tile too far": (
        {"descriptor_b": words(B_AT + 16384, B_STEPS)}, "wrong start address", "b",
        "start address -16384 bytes off (1 × the 16384 bytes of a tile)",
    ),
    "A two steps too far": (
        {"descriptor_a": words(A_AT - 64, A_STEPS)}, "wrong start address", "a",
        "start address +64 bytes off (2 × the 32 bytes of a step of k)",
    ),
    "B somewhere else": (
        {"descriptor_b": words(B_AT - 0x4810, B_STEPS)}, "wrong start address", "b",
        "start address +18448 bytes off",
    ),
    "the swizzle": (
        {"descriptor_b": words(B_AT, B_STEPS) ^ np.uint64(3 << 62)}, "wrong swizzle", "b", "128B",
    ),
}  # fmt: skip


@pytest.mark.parametrize("planted", DESCRIPTORS)
def test_descriptors_of_every_step(large, planted):
    passed, mistake, operand, detail = DESCRIPTORS[planted]
    fault = best(report := check(large, **passed))
    assert (fault.mistake, fault.operand) == (mistake, operand), str(report)
    assert detail in fault.detail and len(report.faults) == 1
    other = "a" if operand == "b" else "b"
    assert report.operands == {operand: False, other: True}


@pytest.mark.parametrize(("stride", "also"), [(272, ", 16 of them padding,"), (256, "")])
def test_a_tile_in_rows_that_no_descriptor_reads(large, stride, also):
    memory = in_memory(large)
    store(large[0], stride, start=A_AT, into=memory)
    fault = best(check(large, shared=memory))
    assert (fault.mistake, fault.operand) == ("tile stored in another layout", "a")
    assert fault.detail == (
        f"A stored in rows of {stride} bytes{also} with no swizzle from 0x1000 on; the descriptor "
        "reads blocks of 8 lines of 128 bytes"
    )


@pytest.mark.slow
def test_the_step_of_an_mn_major_b_from_d_alone(large):
    """In the canonical layout, which the finder then takes for granted."""
    a, b = large[0][:, :64], large[1][:64]
    ins, given = WGMMA, {"target": "H100", "imm_trans_b": 1}
    memory = in_memory(large)
    d = np.zeros((128, 32), "u4")
    for step in range(4):
        d = execute(ins, words(A_AT, A_STEPS)[step], words(B_AT, each(32))[step], d,
                    shared=memory, imm_trans_b=1, target="H100")  # fmt: skip
    report = find_faults(ins, a, b, d=d, **given)
    fault = best(report)
    assert fault.mistake == "wrong step along k" and fault.operand == "b"
    assert "32 bytes apart instead of 2048: the step of a K-major tile" in fault.detail
    asked = [x for x in report.notes if "shared= with descriptor_b= of every step along k" in x]
    assert len(asked) == 1
    right = find_faults(ins, a, b, d=gemm(a, b, instruction=ins, target="H100"), **given)
    assert right.verdict == "right" and not any("shared=" in x for x in right.notes)


def test_one_descriptor_is_enough(large):
    """What is not said of A lies behind the memory that is given, which starts with B."""
    memory = store(large[1], 128, swizzle_128, 1024)
    a, b = large[0][:, :64], large[1][:64]
    d = gemm(a, b, instruction=WGMMA, target="H100")
    for steps, verdict in ((B_STEPS[:4], "right"), (each(32)[:4], "found")):
        given = {"shared": memory, "descriptor_b": words(1024, steps), "imm_trans_b": 1}
        report = find_faults(WGMMA, a, b, target="H100", d=d, **given)
        assert report.verdict == verdict and report.operands == {"b": verdict == "right"}


# --- tensor copies --------------------------------------------------------------------------------


def maps(large, swizzle="128B", **other):
    of_a = {"box": (64, 64), "swizzle": swizzle} | other
    return (TensorMap.tiled(large[2], **of_a),
            TensorMap.tiled(large[3], box=(64, 128), swizzle="128B"))  # fmt: skip


def copies(large, *, a=((128, 64), (192, 64)), b=(64, 128), to_a=(A_AT, A_AT + HALF), to_b=B_AT,
           **other):  # fmt: skip
    """The copies of a kernel: two boxes of A, side by side along k, and one of B."""
    of_a, of_b = maps(large, **other)
    return [*((of_a, at, to) for at, to in zip(a, to_a, strict=True)), (of_b, b, to_b)]


def test_right_copies_have_no_fault(large):
    report = check(large, boxes=copies(large))
    assert report.verdict == "right" and not report.faults and not report.notes
    # They write what is stored by hand, and leave what was there.
    before = np.full(1 << 16, 5, np.uint8)
    filled_ = filled(before, as_boxes(copies(large)))
    tiles = in_memory(large)
    assert np.array_equal(filled_[A_AT : A_AT + 2 * HALF], tiles[A_AT : A_AT + 2 * HALF])
    assert (filled_[:A_AT] == 5).all() and (before == 5).all()


COPIES = {
    "coordinates exchanged": (
        {"b": (128, 64)}, "coordinates of a tensor copy", "b",
        "tensor copy 2 at (128, 64): coordinates exchanged, the innermost dimension comes first",
    ),
    "coordinates exchanged in both": (
        {"a": ((64, 128), (64, 192))}, "coordinates of a tensor copy", "a",
        "tensor copies 0, 1: coordinates exchanged",
    ),
    "rows counted in boxes": (
        {"a": ((128, 1), (192, 1))}, "coordinates of a tensor copy", "a",
        "tensor copies 0, 1: coordinate 1 counts elements, not boxes of 64",
    ),
    "columns counted in bytes": (
        {"b": (128, 128)}, "coordinates of a tensor copy", "b",
        "tensor copy 2 at (128, 128): coordinate 0 counts elements, not bytes",
    ),
    "not advanced": (
        {"a": ((128, 64), (128, 64))}, "coordinates of a tensor copy", "a",
        "coordinate 0 one box of 64 further than in the copy before: not advanced",
    ),
    "a box too far": (
        {"a": ((192, 64), (256, 64))}, "coordinates of a tensor copy", "a",
        "tensor copies 0, 1: coordinate 0 -64 (1 × the 64 of a box)",
    ),
    "one of two": (
        {"a": ((128, 64), (192, 0))}, "coordinates of a tensor copy", "a",
        "tensor copy 1 at (192, 0): coordinate 1 +64 (1 × the 64 of a box)",
    ),
    "no swizzle in the map": (
        {"swizzle": "none"}, "tensor map", "a",
        "tensor copies 0, 1: swizzle 128B in the map instead of none",
    ),
    "strides in elements": (
        {"strides": (256,)}, "tensor map", "a",
        "strides (512,) of the array instead of (256,)",
    ),
    "both to the same place": (
        {"to_a": (A_AT, A_AT)}, "destination of a tensor copy", "a",
        "tensor copies 0, 1: each copy goes 8192 bytes behind the one before",
    ),
    "the second too far": (
        {"to_a": (A_AT, A_AT + HALF + 1024)}, "destination of a tensor copy", "a",
        "tensor copies 0, 1: each copy goes 8192 bytes behind the one before",
    ),
}  # fmt: skip


@pytest.mark.parametrize("planted", COPIES)
def test_tensor_copies(large, planted):
    change, mistake, operand, detail = COPIES[planted]
    fault = best(report := check(large, boxes=copies(large, **change)))
    assert (fault.mistake, fault.operand) == (mistake, operand), str(report)
    assert detail in fault.detail and len(report.faults) == 1


@pytest.mark.slow
def test_a_box_with_its_sizes_exchanged(large):
    """Core matrices without a swizzle: boxes of 8 columns and 64 rows."""
    of_a = maps(large, swizzle="none", box=(8, 64))[0]
    memory = in_memory(large)
    right = [(of_a, (128 + 8 * i, 64), A_AT + 1024 * i) for i in range(16)]
    word = np.array([64 << 16 | 8 << 32 | A_AT + 2048 * s >> 4 for s in range(LONG)], np.uint64)
    assert check(large, boxes=right, shared=memory, descriptor_a=word).verdict == "right"
    turned = TensorMap.tiled(large[2], box=(64, 8))
    wrong = [(turned, at, to) for _, at, to in right]
    fault = best(check(large, boxes=wrong, shared=memory, descriptor_a=word))
    assert fault.mistake == "tensor map"
    assert "box (8, 64) instead of (64, 8), the innermost dimension comes first" in fault.detail


def test_copies_and_ldmatrix(large):
    """What a copy has swizzled is read without: the addresses are named, or the map."""
    a, b = large[0][:16, :64], large[1][:64, :8]
    box = TensorMap.tiled(large[2], box=(64, 64), swizzle="128B"), (128, 64), START
    given = {"target": "sm_90a", "boxes": [box]}
    right = find_faults(DENSE, a, b, addresses_a=of_a(128, swizzle_128), **given)
    assert right.verdict == "right" and not right.faults
    fault = best(find_faults(DENSE, a, b, addresses_a=of_a(128), **given))
    assert fault.mistake == "swizzle of ldmatrix"
    assert any("swizzle none in the map instead of 128B" in x for x in fault.same_as)


def test_every_mistake_with_copies_is_planted():
    named = {mistake for _, mistake, _, _ in COPIES.values()}
    assert {x.name for x in tensor_copies.MISTAKES} == named


@pytest.mark.parametrize(
    ("change", "words_"),
    [
        (lambda m: [(m, (0, 0))], r"each \(tensor map, coordinates, shared address\)"),
        (lambda m: [("map", (0, 0), 0)], "are tensor copies"),
        (lambda m: [(m, (0, 0), 64)], "to a multiple of 128 of shared memory; got 0x40"),
        (lambda m: [(m, (4, 0), 0)], "a copy starts at a multiple of 16 bytes"),
        (lambda m: [(m, (0, 0, 0), 0)], "coordinates of a tensor copy must have 2 entries"),
        (lambda m: [(m, (0.5, 0), 0)], "coordinates of a tensor copy must be an integer; got 0.5"),
        (lambda m: [(m, None, 0)], "must be a sequence of integers; got None"),
        (lambda m: [(m, (0, 0), "x")], "the shared address of a tensor copy must be an integer"),
        (lambda m: m, "boxes= is a list of tensor copies"),
        (lambda m: [(replace(m, backing=None), (0, 0), 0)], "of tiled maps of arrays"),
    ],
)
def test_copies_that_cannot_be_used(large, change, words_):
    with pytest.raises(OperandError, match=words_):
        check(large, boxes=change(maps(large)[0]))


def test_a_copy_out_of_memory(large):
    with pytest.raises(UndefinedError, match="65536"):
        check(large, boxes=copies(large, to_b=1 << 16), shared=np.zeros(1 << 16, np.uint8))
