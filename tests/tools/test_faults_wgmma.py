"""The fault finder names faults planted by hand in a wgmma kernel."""

import numpy as np
import pytest
from planted import best, text

from emulator import Instruction, Warpgroup
from emulator.tools.faults.finder import find_faults

pytestmark = pytest.mark.sampled(5)

WGMMA = Instruction.parse("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16")


# --- wgmma ----------------------------------------------------------------------------------------

A_AT, B_AT = 1024, 16384


@pytest.fixture(scope="module")
def tiles():
    rng = np.random.default_rng(4)
    return rng.standard_normal((64, 64)).astype("f2"), rng.standard_normal((64, 16)).astype("f2")


def store_swizzled(memory, start, rows, xor=lambda row: row % 8):
    """Rows of 128 bytes, their 16-byte units permuted; `rows` is ``(n, 64)`` f16."""
    bytes_ = rows.view(np.uint8).reshape(-1, 8, 16)
    for row in range(len(rows)):
        for unit in range(8):
            at = start + row * 128 + (unit ^ xor(row)) * 16
            memory[at : at + 16] = bytes_[row, unit]


def descriptor(address, lbo=1, sbo=64, mode=1, base=0, shift=4):
    return (address & 0x3FFFF) >> shift | lbo << 16 | sbo << 32 | base << 49 | mode << 62


def run_wgmma(tiles, *edits, a=None, b=None, xor_b=None, b_at=B_AT):
    """D, memory and descriptors; `a`, `b`: the descriptor of a step."""
    machine = Warpgroup(target="sm_90a", shared_bytes=64 * 1024)
    head, tail = text("fault_wgmma", *edits)
    machine.run(head)
    store_swizzled(machine.shared, A_AT, tiles[0])
    by_column = np.ascontiguousarray(tiles[1].T)
    store_swizzled(machine.shared, b_at, by_column, **({"xor": xor_b} if xor_b else {}))
    a = a or (lambda step: descriptor(A_AT + 32 * step))
    b = b or (lambda step: descriptor(b_at + 32 * step))
    words = [[make(step) for step in range(4)] for make in (a, b)]
    for step in range(4):
        machine[f"%a{step}"], machine[f"%b{step}"] = words[0][step], words[1][step]
    machine.run(tail)
    passed = {"shared": machine.shared, "descriptor_a": np.array(words[0], np.uint64),
                  "descriptor_b": np.array(words[1], np.uint64)}  # fmt: skip
    return machine.read("%d", 8), passed


def test_right_wgmma_kernel_has_no_fault(tiles):
    d, passed = run_wgmma(tiles)
    for known in ({}, passed):
        report = find_faults(WGMMA, *tiles, target="H100", scale_d=False, d=d, **known)
        assert report.verdict == "right" and not report.faults, str(report)


WGMMA_FAULTS = {
    "LBO and SBO exchanged": (
        {"b": lambda step: descriptor(B_AT + 32 * step, lbo=64, sbo=1)},
        ("LBO and SBO exchanged", "b", "LBO and SBO are exchanged"),
    ),
    "64-byte swizzle in the descriptor": (
        {"b": lambda step: descriptor(B_AT + 32 * step, mode=2)},
        ("wrong swizzle", "b", "64B"),
    ),
    "no swizzle in the descriptor": (
        {"a": lambda step: descriptor(A_AT + 32 * step, mode=0)},
        ("wrong swizzle", "a", "none"),
    ),
    "the tile stored without swizzle": (
        {"xor_b": lambda row: 0},
        ("tile stored in another layout", "b", "plain matrix, row by row"),
    ),
    "descriptor not advanced along k": (
        {"a": lambda step: descriptor(A_AT)},
        ("loop over k", "a", "first step"),
    ),
    "start address not divided by 16": (
        {"a": lambda step: descriptor(A_AT + 32 * step, shift=0)},
        (
            "descriptor not in units of 16 bytes",
            "a",
            "start address: it is in bytes, not divided by 16",
        ),
    ),
    "advanced by elements, not bytes": (
        {"b": lambda step: descriptor(B_AT + 16 * step)},
        ("wrong step along k", "b", "16 bytes apart instead of 32: half as far"),
    ),
    "imm-trans-b": (
        {"edits": [(", 1, 1, 0, 0;", ", 1, 1, 0, 1;")]},
        ("wrong major", "b", "imm-trans-b is 1 instead of 0"),
    ),
    "imm-scale-b": (
        {"edits": [(", 1, 1, 0, 0;", ", 1, -1, 0, 0;")]},
        ("wrong sign", "", "-1 instead of 1"),
    ),
    "scale-d 0 in every step": (
        {"edits": [("%q, 1, 1", "%p, 1, 1")]},
        ("accumulator", "c", "not carried"),
    ),
}


@pytest.mark.parametrize("planted", WGMMA_FAULTS)
def test_faults_of_wgmma(tiles, planted):
    change, (mistake, operand, detail) = WGMMA_FAULTS[planted]
    change = dict(change)
    d, passed = run_wgmma(tiles, *change.pop("edits", ()), **change)
    options = {"target": "H100", "scale_d": False}
    right = run_wgmma(tiles)[1]  # the memory as it should be, in which D alone shows the fault
    fault = best(find_faults(WGMMA, *tiles, d=d, **right, **options))
    assert fault.mistake == mistake and detail in fault.detail
    assert not operand or fault.operand == operand
    if mistake in ("wrong major", "wrong sign", "accumulator"):
        return
    # What was passed shows it without D, as the change that repairs it.
    fault = best(find_faults(WGMMA, *tiles, **passed, **options))
    assert fault.operand == operand and fault.direction == "repair"


def test_missing_base_offset(tiles):
    """A tile 128 bytes past its pattern, swizzled from its first row as a kernel does."""
    at = B_AT + 128
    make = {"b_at": at}
    right, _ = run_wgmma(tiles, b=lambda step: descriptor(at + 32 * step, base=1), **make)
    assert find_faults(WGMMA, *tiles, target="H100", scale_d=False, d=right).verdict == "right"
    _, passed = run_wgmma(tiles, **make)
    fault = best(find_faults(WGMMA, *tiles, target="H100", scale_d=False, **passed))
    assert fault.mistake == "wrong base offset" and "base offset 1 instead of 0" in fault.detail
