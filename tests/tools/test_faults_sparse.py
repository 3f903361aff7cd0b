"""The fault finder names faults planted by hand in an mma.sp and in a block-scaled mma."""

import numpy as np
import pytest
from planted import LANE, G, T, best, c_registers, halves, packed, text

from emulator import Instruction, Warp
from emulator.tools.faults.finder import find_faults

pytestmark = pytest.mark.sampled(3)

SPARSE = Instruction.parse("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32")
SCALED = Instruction.parse(
    "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X"
    ".f32.e4m3.e4m3.f32.ue8m0"
)


@pytest.fixture(scope="module")
def sparse():
    """A, B, C; stored elements ``(16, 16)`` and kept columns ``(16, 8, 2)`` of A."""
    rng = np.random.default_rng(3)
    kept = np.sort(np.argsort(rng.random((16, 8, 4)), -1)[..., :2], -1)
    stored = rng.standard_normal((16, 8, 2)).astype("f2")
    a = np.zeros((16, 8, 4), "f2")
    np.put_along_axis(a, kept, stored, -1)
    b, c = rng.standard_normal((32, 8)).astype("f2"), rng.standard_normal((16, 8)).astype("f4")
    return (a.reshape(16, 32), b, c), stored.reshape(16, 16), kept


def metadata_by_hand(kept):
    """Nibbles ``(16, 8)``, and words: lanes t = 0, 1 of a group hold four chunks of rows g, g + 8.

    The lanes that selector 0 does not read hold other metadata, of the next tile.
    """
    nibbles = (kept[..., 0] | kept[..., 1] << 2).astype(np.uint32)
    e = np.full(32, 0x4E9C8D4E, np.uint32)
    for lane in range(32):
        g, t = lane // 4, lane % 4
        if t < 2:
            word = 0
            for i in range(4):
                word |= int(nibbles[g, 4 * t + i]) << 4 * i
                word |= int(nibbles[g + 8, 4 * t + i]) << 16 + 4 * i
            e[lane] = word
    return nibbles, e


def run_sparse(matrices, stored, e, *edits):
    _, b, c = matrices
    warp = Warp(target="sm_80", undefined="hardware")
    head, tail = text("fault_sparse", *edits)
    warp.run(head)
    warp.write("%a", packed(stored))
    raw = b.view("u2")
    for i in range(4):
        warp[f"%b{i}"] = halves(raw[i * 8 + 2 * T, G], raw[i * 8 + 2 * T + 1, G])
        warp.words[f"%c{i}"] = c_registers(c)[i]
    warp["%e"] = e
    warp.run(tail)
    return warp.read("%d", 4)


def test_right_sparse_kernel_has_no_fault(sparse):
    matrices, stored, kept = sparse
    _, e = metadata_by_hand(kept)
    d = run_sparse(matrices, stored, e)
    report = find_faults(SPARSE, *matrices, target="sm_80", d=d, e=e)
    assert report.verdict == "right" and not report.faults, str(report)


SPARSE_FAULTS = {
    "index pairs in the wrong order": (
        lambda e: (e & 0x33333333) << 2 | e >> 2 & 0x33333333, (),
        ("metadata order", "e", "the two indices of every nibble exchanged"),
    ),
    "the default metadata": (
        lambda e: np.full_like(e, 0x44444444), (),
        ("default metadata", "e", "0x44444444"),
    ),
    "rows g and g + 8 exchanged": (
        lambda e: e >> 16 | e << 16, (),
        ("metadata in other lanes", "e", "rows of the upper and lower half exchanged"),
    ),
    "metadata from the next lane": (
        lambda e: e[LANE ^ 1], (),
        ("lanes permuted", "e", "lane L ^ 1"),
    ),
    "b1 and b2 exchanged": (
        lambda e: e, [("{%b0, %b1, %b2, %b3}", "{%b0, %b2, %b1, %b3}")],
        ("registers exchanged", "b", "b1 and b2 exchanged"),
    ),
    "b3 forgotten": (
        lambda e: e, [("{%b0, %b1, %b2, %b3}", "{%b0, %b1, %b2, %b2}")],
        ("register used twice", "b", "b2 stands where b3 belongs"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("planted", SPARSE_FAULTS)
def test_faults_of_mma_sp(sparse, planted):
    matrices, stored, kept = sparse
    change, edits, (mistake, operand, detail) = SPARSE_FAULTS[planted]
    _nibbles, e = metadata_by_hand(kept)
    d = run_sparse(matrices, stored, change(e), *edits)
    fault = best(find_faults(SPARSE, *matrices, target="sm_80", d=d))
    assert (fault.mistake, fault.operand) == (mistake, operand)
    assert detail in fault.detail


def test_wrong_selector(sparse):
    matrices, stored, kept = sparse
    _, e = metadata_by_hand(kept)
    d = run_sparse(matrices, stored, e, ("0x0;", "0x1;"))
    # What the other lanes hold must be known to tell this from D.
    fault = best(find_faults(SPARSE, *matrices, target="sm_80", d=d, e=e, selector=0))
    assert (fault.mistake, fault.detail) == ("wrong selector", "selector 1 instead of 0")
    # With the selector that was passed, e alone shows it.
    fault = best(find_faults(SPARSE, *matrices, target="sm_80", e=e, selector=1))
    assert (fault.mistake, fault.detail) == ("wrong selector", "selector 0 instead of 1")
    assert fault.direction == "repair"


def test_uncompressed_a(sparse):
    matrices, _, kept = sparse
    _, e = metadata_by_hand(kept)
    d = run_sparse(matrices, np.ascontiguousarray(matrices[0][:, :16]), e)
    assert best(find_faults(SPARSE, *matrices, target="sm_80", d=d)).detail.startswith(
        "A is not compressed: the first half of its columns"
    )


# --- block scales ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scaled():
    """Codes of A and B, C, and scales ``(16,)`` and ``(8,)``."""
    rng = np.random.default_rng(5)
    a, b = (rng.integers(0x28, 0x48, shape).astype(np.uint8) for shape in ((16, 32), (32, 8)))
    c = rng.standard_normal((16, 8)).astype("f4")
    scales = [rng.permutation(np.arange(120, 120 + n)).astype(np.uint32) for n in (16, 8)]
    return a, b, c, *scales


def scale_words(scales):
    """Scales of step 2 in byte 2, of others in bytes 0, 1, 3; all four lanes hold something.

    Thread-id 1 of A: lanes t = 2, 3 hold rows g, g + 8; thread-id 3 of B: lane t = 3 column g.
    """
    a, b = scales
    rng = np.random.default_rng(6)
    sa, sb = rng.integers(0x78, 0x84, (2, 32, 4), np.uint8).view(np.uint32)[..., 0]
    held = np.where(T == 2, a[G], a[(G + 8) % 16])
    sa[T >= 2] = (sa & 0xFF00FFFF | held << 16)[T >= 2]
    sb[T == 3] = (sb & 0xFF00FFFF | b[G] << 16)[T == 3]
    return sa, sb


def run_scaled(scaled, *edits, words=None):
    a, b, c, *scales = scaled
    sa, sb = scale_words(scales) if words is None else words
    warp = Warp(target="sm_120a")
    head, tail = text("fault_block_scale", *edits)
    warp.run(head)
    for i in range(4):
        row, col = G + i % 2 * 8, T * 4 + i // 2 * 16
        warp[f"%a{i}"] = sum(a[row, col + j].astype(np.uint32) << 8 * j for j in range(4))
        warp.words[f"%c{i}"] = c_registers(c)[i]
    for i in range(2):
        k = T * 4 + i * 16
        warp[f"%b{i}"] = sum(b[k + j, G].astype(np.uint32) << 8 * j for j in range(4))
    warp["%sa"], warp["%sb"] = sa, sb
    warp.run(tail)
    return warp.read("%d", 4)


IDS = {"byte_id_a": 2, "thread_id_a": 1, "byte_id_b": 2, "thread_id_b": 3, "target": "sm_120a"}


def meant(scaled):
    """The arguments of the finder: matrices of scales, and the words of a right kernel."""
    a, b, c, *scales = scaled
    sa, sb = scale_words(scales)
    return (a, b, c), dict(
        IDS, scale_a=scales[0].astype(np.uint8)[:, None], scale_b=scales[1].astype(np.uint8)[None],
        registers_scale_a=sa, registers_scale_b=sb,
    )  # fmt: skip


def test_right_block_scaled_kernel_has_no_fault(scaled):
    matrices, known = meant(scaled)
    report = find_faults(SCALED, *matrices, d=run_scaled(scaled), **known)
    assert report.verdict == "right" and not report.faults, str(report)


SCALED_FAULTS = {
    "byte-id of A": ([("%sa, {2, 1}", "%sa, {0, 1}")], "wrong byte-id or thread-id", "{0, 1}"),
    "byte-id of B": ([("%sb, {2, 3}", "%sb, {3, 3}")], "wrong byte-id or thread-id", "{3, 3}"),
    "thread-id of A": ([("%sa, {2, 1}", "%sa, {2, 0}")], "wrong byte-id or thread-id", "{2, 0}"),
    "thread-id of B": ([("%sb, {2, 3}", "%sb, {2, 1}")], "wrong byte-id or thread-id", "{2, 1}"),
    "scales exchanged": ([("%sa, {", "%x, {"), ("%sb, {", "%sa, {"), ("%x, {", "%sb, {")],
                         "A and B exchanged", "scale_a and scale_b exchanged"),
    "e5m2 in the opcode": ([("f32.e4m3.e4m3", "f32.e5m2.e4m3")], "wrong type or modifier",
                           "type of A e5m2 instead of e4m3"),
}  # fmt: skip


@pytest.mark.parametrize("planted", SCALED_FAULTS)
def test_faults_of_block_scales(scaled, planted):
    edits, mistake, detail = SCALED_FAULTS[planted]
    matrices, known = meant(scaled)
    d = run_scaled(scaled, *edits)
    known = {**known, "scale_a": None, "scale_b": None}  # the words say what is meant
    fault = best(find_faults(SCALED, *matrices, d=d, **known))
    assert fault.mistake == mistake and detail in fault.detail


@pytest.mark.parametrize(
    ("change", "mistake", "detail"),
    [
        (lambda a, b: (a[[*range(8, 16), *range(8)]], b), "scales misplaced", "i + 8 at i"),
        (lambda a, b: (np.full_like(a, 127), b), "scales misplaced", "scale_a: all 1.0"),
        (lambda a, b: (a, b[::-1]), "scales misplaced", "scale_b: those of the rows (columns)"),
        (lambda a, b: (a, b - 1), "scales misplaced", "exponents under by one"),
    ],
)
def test_misplaced_scales(scaled, change, mistake, detail):
    _a, _b, _c, *scales = scaled
    matrices, known = meant(scaled)
    words = scale_words(change(*scales))
    unknown = {"registers_scale_a": None, "registers_scale_b": None}
    d = run_scaled(scaled, words=words)
    fault = best(find_faults(SCALED, *matrices, d=d, **(known | unknown)))
    assert fault.mistake == mistake and detail in fault.detail
    # From the words alone.
    known |= {"registers_scale_a": words[0], "registers_scale_b": words[1]}
    fault = best(find_faults(SCALED, *matrices, **known))
    assert fault.mistake == mistake and detail in fault.detail
