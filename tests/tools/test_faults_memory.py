"""The fault finder on shared memory: ldmatrix addresses, descriptors of every step, tensor copies.

Tiles are stored and addressed here by hand, from the manual's text.
"""

import numpy as np
import pytest
from planted import DENSE, LANE, best

from emulator import Instruction, OperandError
from emulator.tools.faults import rows
from emulator.tools.faults.finder import find_faults

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
        "the 128-byte swizzle instead of no swizzle, as A is stored",
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
    assert {x.name for x in rows.MISTAKES} <= named


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


def test_ldmatrix_loads_no_doubles():
    ins = Instruction.parse("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64")
    with pytest.raises(OperandError, match="registers of 32 bits; operand a has 1 of 64"):
        find_faults(ins, np.ones((8, 4)), np.ones((4, 8)), target="sm_80",
                    shared=np.zeros(4096, np.uint8), addresses_a=LANE * 16)  # fmt: skip
