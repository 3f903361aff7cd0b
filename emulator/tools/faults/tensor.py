"""The usual mistakes with tcgen05.mma: what came out of a kernel, and which of them makes it so.

A right kernel is laid out in simulated memory: A and B in shared memory behind descriptors, scales,
metadata and D in tensor memory, one tile of D and one instruction after the other along k. A
mistake is a change of its `KernelSteps`; those are found whose D is the one observed, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtypes import FORMATS, Array, Place, code_type
from emulator.arith import matmul
from emulator.errors import EmulatorError, OperandError, runs
from emulator.isa.tensor_matrix import TensorMatrixInstruction
from emulator.layout.addressing import SWIZZLES
from emulator.layout.instruction_descriptor import InstructionDescriptor
from emulator.layout.mma_kinds import KINDS
from emulator.layout.shared_descriptor import SharedMemoryDescriptor, operand_tile
from emulator.layout.tensor_memory import LANES, QUARTER, shown_places
from emulator.layout.tile import TileShape, block_bytes
from emulator.matrices.operands import operand_codes, signed
from emulator.memory.descriptors import store_operand
from emulator.memory.tensor_memory import TensorMemory, load_codes, store_codes
from emulator.targets import Target
from emulator.tools.faults.report import Fault, FaultReport
from emulator.tools.operands import as_codes
from emulator.warp.sparse import metadata
from emulator.warp.tensor_mma import Operands, TensorMma
from emulator.warp.tensor_multiply import TensorProduct

Bool = NDArray[np.bool_]
#: bytes of the shared memory of one CTA, and where B starts in it
_SHARED, _B_START = 1 << 18, 1 << 17
#: columns of tensor memory where scales and metadata lie, behind D
_SCALE_A, _SCALE_B, _METADATA, _COLUMNS = 256, 320, 384, 512
_WARP = 32


@dataclass(frozen=True)
class KernelSteps:
    """The steps of a kernel; the defaults are right."""

    #: what the descriptor of the kernel says
    instruction: InstructionDescriptor
    #: swizzles that A and B are stored with, and those of their descriptors
    stored: tuple[int, int] = (128, 128)
    read: tuple[int, int] = (128, 128)
    #: operands whose descriptors have LBO and SBO in each other's place
    exchanged: str = ""
    #: bytes that the descriptors' starts are off
    off: tuple[int, int] = (0, 0)
    #: the descriptors move along k
    advances: bool = True
    #: "once": D starts from C; "never": every step starts anew; "without": C is not read
    accumulates: str = "once"
    #: threads that issue each instruction, of dense ones without scales
    issues: int = 1
    scales_exchanged: bool = False
    #: lane quarters that the scales are copied to
    quarters: int = 4
    #: how D is read back
    reader: str = "right"


class Seen(NamedTuple):
    """D as the kernel hands it on, and which of its elements follow from what is known."""

    codes: Array
    known: Bool


@dataclass
class MeantProduct:
    """The matrices that are meant, as codes."""

    ins: TensorMatrixInstruction
    target: Target
    a: Array
    b: Array
    c: Array
    scale_a: Array | None
    scale_b: Array | None
    nibbles: Array | None
    #: what kernels left, by their plans
    done: dict[KernelSteps, Seen] = field(default_factory=dict)
    descriptors: dict[tuple[str, int, int], SharedMemoryDescriptor] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        return self.b.shape[0] // self.ins.k

    def plan(self) -> KernelSteps:
        return KernelSteps(self.ins.descriptor)

    # --- one kernel ---

    def run(self, plan: KernelSteps) -> Seen:
        """Runs a kernel and returns its D. Raises an EmulatorError where it cannot run."""
        return READERS[plan.reader].read(self, self._left(replace(plan, reader="right")))

    def _left(self, plan: KernelSteps) -> Seen:
        """D as the last instruction leaves it."""
        if plan not in self.done:
            self.done[plan] = self._issued(plan) if plan.issues > 1 else self._executed(plan)
        return self.done[plan]

    def _issued(self, plan: KernelSteps) -> Seen:
        """All steps in one chain of products, each of them `issues` times over."""
        k, (a, b) = self.ins.k, signed(self.ins, self.a, self.b)
        steps = np.arange(self.steps * k).reshape(self.steps, 1, k)
        order = np.broadcast_to(steps, (self.steps, plan.issues, k)).reshape(-1)
        arithmetic = self.ins.arithmetic(self.target)
        d = matmul(arithmetic, a[:, order], b[order].T, self.c, k=k)
        return Seen(d, np.ones(d.shape, np.bool_))

    def _executed(self, plan: KernelSteps) -> Seen:
        group = self.ins.cta_group
        memories = [TensorMemory(_COLUMNS) for _ in range(group)]
        for memory in memories:
            memory.allocate(_COLUMNS)
        shared = [np.zeros(_SHARED, np.uint8) for _ in range(group)]
        for operand in "ab":
            self._store(shared, operand, plan.stored["ab".index(operand)])
        product = TensorProduct(plan.instruction, self.target, self.ins.scale_vec)
        mma = TensorMma(product, group, self.ins.weight_stationary)
        where = Place(32, 0, FORMATS[self.ins.d_type].bits)
        store_codes(memories, 0, self.ins.layout.d, self.c, where, "D")
        for step in range(self.steps):
            self._store_small(memories, plan, step)
            enable = plan.accumulates == "once" or (plan.accumulates == "without" and step > 0)
            mma.run(memories, shared, self._operands(plan, step, enable))
        d = load_codes(memories, 0, self.ins.layout.d, where, "D").words
        known = np.ones(d.shape, np.bool_)
        if self.scale_a is not None and plan.quarters < 4:
            known = self.ins.layout.d.lane < QUARTER * plan.quarters
        return Seen(d, known)

    def _store(self, shared: list[Array], operand: str, swizzle: int) -> None:
        x, group = self.ins.descriptor, self.ins.cta_group
        codes = self.a if operand == "a" else self.b.T
        for step in range(self.steps):
            descriptor = self._descriptor(operand, swizzle, step)
            width = codes.shape[1] // self.steps
            part = codes[:, step * width : (step + 1) * width]
            for memory, rows in zip(shared, np.split(part, group), strict=True):
                store_operand(memory, descriptor, rows, x, operand, group)

    def _descriptor(self, operand: str, swizzle: int, step: int) -> SharedMemoryDescriptor:
        """The descriptor of one step in the canonical layout of all of k."""
        key = operand, swizzle, step
        if key not in self.descriptors:
            self.descriptors[key] = self._made(*key)
        return self.descriptors[key]

    def _made(self, operand: str, swizzle: int, step: int) -> SharedMemoryDescriptor:
        x, group = self.ins.descriptor, self.ins.cta_group
        one = operand_tile(x, operand, group)
        start = 0 if operand == "a" else _B_START
        whole = TileShape(one.rows, one.k * self.steps, one.element_bytes, one.major)
        if (one.major, one.element_bytes) == ("mn", 4):
            built, _ = SharedMemoryDescriptor.for_operand(
                x, operand, cta_group=group, swizzle_bytes=128, start_address=start
            )
            assert isinstance(built, SharedMemoryDescriptor)
            at = start + step * one.k // 4 * built.stride_byte_offset
            return replace(built, start_address=at)
        plain: SharedMemoryDescriptor = SharedMemoryDescriptor(
            start, swizzle_bytes=swizzle
        ).with_blocks(whole)
        if one.major == "k":
            width, at = swizzle or 16, step * one.line_bytes
            offset = at // width * plain.leading_byte_offset + at % width
        else:
            names = one.strides(swizzle)
            offset = step * one.k // 8 * int(getattr(plain, names["k"]))
        return replace(plain, start_address=start + offset)

    def _operands(self, plan: KernelSteps, step: int, enable: bool) -> Operands:
        words = []
        for i, operand in enumerate("ab"):
            made = self._descriptor(operand, plan.read[i], step if plan.advances else 0)
            if operand in plan.exchanged:
                made = replace(
                    made,
                    leading_byte_offset=made.stride_byte_offset,
                    stride_byte_offset=made.leading_byte_offset,
                )
            words.append(
                int(replace(made, start_address=made.start_address + plan.off[i]).encode())
            )
        scaled = self.scale_a is not None
        return Operands(
            0,
            words[0],
            words[1],
            enable=enable,
            metadata=_METADATA if self.nibbles is not None else None,
            scale_a=_SCALE_A if scaled else None,
            scale_b=_SCALE_B if scaled else None,
        )

    def _store_small(self, memories: list[TensorMemory], plan: KernelSteps, step: int) -> None:
        """Scales and metadata of one step."""
        layout = self.ins.layout
        if self.nibbles is not None:
            width = self.nibbles.shape[1] // self.steps
            part = self.nibbles[:, step * width : (step + 1) * width]
            store_codes(memories, _METADATA, layout.metadata, part, Place(4, 0, 4), "metadata")
        if self.scale_a is None or self.scale_b is None:
            return
        v, bits = self.ins.scale_chunks, FORMATS[self.ins.scale_type].bits
        parts = [x[:, step * v : (step + 1) * v] for x in (self.scale_a, self.scale_b)]
        if plan.scales_exchanged:
            parts.reverse()
        for at, places, part in zip(
            (_SCALE_A, _SCALE_B), (layout.scale_a, layout.scale_b), parts, strict=True
        ):
            used = places._replace(
                lane=np.where(places.lane < QUARTER * plan.quarters, places.lane, -1)
            )
            store_codes(memories, at, used, part, Place(8, 0, bits), "scales")


# --- how D is read back ---------------------------------------------------------------------------


class Reader(NamedTuple):
    """A way to read D, and what to say of it where it is wrong."""

    read: Callable[[MeantProduct, Seen], Seen]
    detail: str = ""


def _rightly(problem: MeantProduct, seen: Seen) -> Seen:
    return seen


def _by_lanes(problem: MeantProduct, seen: Seen) -> Seen:
    """Row m in lane m, column n in column n: right for 128 rows for each CTA."""
    places = problem.ins.layout.d
    held = np.full((problem.ins.cta_group, LANES, _COLUMNS), -1, np.int64)
    m, n = seen.codes.shape
    held[places.cta, places.lane, places.column] = np.arange(m * n).reshape(m, n)
    rows = problem.ins.layout.rows_per_cta
    i, j = np.ogrid[:m, :n]
    index = held[i // rows, i % rows, j]
    codes = np.where(index >= 0, seen.codes.reshape(-1)[index], 0)
    return Seen(codes.astype(seen.codes.dtype), (index >= 0) & seen.known.reshape(-1)[index])


def _first_quarter(problem: MeantProduct, seen: Seen) -> Seen:
    """Every warp names lane 0; what hardware makes of that for the other warps is their guess."""
    lane, rows = problem.ins.layout.d.lane[:, 0], np.arange(len(seen.codes))
    quarter = lane // QUARTER
    first = np.array([np.flatnonzero(lane == x % QUARTER)[:1].tolist() or [-1] for x in lane])[:, 0]
    source = np.where(quarter > 0, first, rows)
    return Seen(seen.codes[source], seen.known[source] & (source >= 0)[:, None])


def _as_packed(problem: MeantProduct, seen: Seen) -> Seen:
    """Two f16 taken from each word: the upper half of it is 0."""
    codes = np.zeros_like(seen.codes)
    codes[:, ::2] = seen.codes[:, : (seen.codes.shape[1] + 1) // 2]
    return Seen(codes, seen.known)


def _rows_of_registers(problem: MeantProduct, seen: Seen) -> Seen:
    """16x256b: registers 1 and 2 of each four in each other's place, as those of mma are not."""
    rows, columns = np.indices(seen.codes.shape)
    block, r = rows // 16 * 16, rows % 16
    low, high = columns % 2, r // 8
    source = (block + r % 8 + 8 * low, columns - low + high)
    return Seen(seen.codes[source], seen.known[source])


READERS: dict[str, Reader] = {
    "right": Reader(_rightly),
    "lanes": Reader(_by_lanes, "row m is read from lane m, and column n from column n"),
    "quarter": Reader(_first_quarter, "all four warps read lanes 0-31"),
    "packed": Reader(_as_packed, "two f16 are taken from each word of D"),
    "registers": Reader(_rows_of_registers, "registers 4i + 1 and 4i + 2 are exchanged"),
}


# --- mistakes -------------------------------------------------------------------------------------


class Way(NamedTuple):
    """One way to make a mistake."""

    mistake: str
    operand: str
    detail: str
    explanation: str
    plan: KernelSteps


_LANES = (
    "A warp reads the lanes from 32 * (warp % 4) on, and the address must name them: taddr + "
    "(32 * (warp % 4) << 16). D, of layout {}, lies in {}."
)
_READ = {
    "lanes": "rows of D in other lanes",
    "quarter": "lane of the warp left out",
    "packed": "f16 accumulator taken as packed",
    "registers": "registers of 16x256b not regrouped",
}
_WHY = {
    "packed": "An f16 D has a column for each element, in the low half of the word: load it with "
    ".pack::16b.",
    "registers": "Of 16x256b, bit 1 of the register number is the row + 8 and bit 0 the column.",
}


def _ways(problem: MeantProduct) -> Iterator[Way]:
    right, x = problem.plan(), problem.ins.descriptor
    layout = problem.ins.layout
    lanes = _LANES.format(layout.rows.letter, shown_places(layout.d))
    for reader, name in _READ.items():
        if reader == "packed" and x.d != "f16":
            continue
        why, plan = _WHY.get(reader, lanes), replace(right, reader=reader)
        yield Way(name, "d", READERS[reader].detail, why, plan)
    for i, operand in enumerate("ab"):
        yield from _of_descriptor(right, i, operand)
        yield from _of_bits(right, operand)
    yield from _of_loop(problem, right)
    yield from _of_scales(problem, right)


def _of_bits(right: KernelSteps, operand: str) -> Iterator[Way]:
    """Wrong bits of the instruction descriptor."""
    x, kind = right.instruction, KINDS[right.instruction.kind]

    def changed(name: str, value: Any) -> KernelSteps:
        return replace(right, instruction=x.replace(**{name: value}))

    sign, major = f"negate_{operand}", f"transpose_{operand}"
    if kind.can_negate:
        flipped = not getattr(x, sign)
        yield Way(
            "wrong sign",
            operand,
            f"{sign} is {flipped} in the instruction descriptor",
            "Bits 13 and 14 of the instruction descriptor negate A and B.",
            changed(sign, flipped),
        )
    if kind.transposable:
        flipped = not getattr(x, major)
        yield Way(
            "wrong major",
            operand,
            f"{major} is {flipped} in the instruction descriptor",
            "Bits 15 and 16 of the instruction descriptor: 1 is MN-major.",
            changed(major, flipped),
        )
    own = getattr(x, operand)
    for other in kind.types:
        same = FORMATS[other].bits == FORMATS[own].bits and other != own
        if same and not (x.d == "f16" and other == "bf16"):
            yield Way(
                "wrong type",
                operand,
                f"the instruction descriptor says {other}",
                "Bits 9:7 and 12:10 of the instruction descriptor are the types of A and B.",
                changed(operand, other),
            )


def _of_descriptor(right: KernelSteps, i: int, operand: str) -> Iterator[Way]:
    for width in SWIZZLES:
        if width != right.read[i]:
            read = tuple(width if j == i else old for j, old in enumerate(right.read))
            yield Way(
                "wrong swizzle",
                operand,
                f"the tile is stored with {right.stored[i]} bytes of "
                f"swizzle and read with {width or 'none'}",
                "Bits 63:61 of a tcgen05 descriptor: 2 = 128B, 4 = 64B, 6 = 32B, 1 = 128B with "
                "32-byte atoms; wgmma has other codes in bits 63:62.",
                replace(right, read=read),  # type: ignore[arg-type]
            )
    yield Way(
        "LBO and SBO exchanged",
        operand,
        "the two offsets stand in each other's place",
        "K-major: SBO leads to the next 8 rows. MN-major: SBO is the next 16 bytes of rows "
        "without a swizzle, the next 8 columns with one.",
        replace(right, exchanged=operand),
    )
    for offset in (16, 32, 64, 128, block_bytes(128)):
        off = (offset, 0) if i == 0 else (0, offset)
        yield Way(
            "wrong start address",
            operand,
            f"the descriptor starts {offset} bytes further",
            "One step along k inside of a swizzled line is 32 bytes: + 2 in the field.",
            replace(right, off=off),
        )


def _of_loop(problem: MeantProduct, right: KernelSteps) -> Iterator[Way]:
    yield Way(
        "accumulator",
        "c",
        "the first step does not read the old D (C counts as zero)",
        "enable-input-d is false in the first step, or should be.",
        replace(right, accumulates="without"),
    )
    if problem.scale_a is None and problem.nibbles is None:
        yield Way(
            "issued by a whole warp",
            "",
            "32 threads issue each instruction",
            "Every thread that reaches tcgen05.mma issues one: elect a thread.",
            replace(right, issues=_WARP),
        )
    if problem.steps > 1:
        yield Way(
            "accumulator",
            "c",
            "every step starts from zero",
            "enable-input-d must be true from the second step on.",
            replace(right, accumulates="never"),
        )
        yield Way(
            "loop over k",
            "",
            "the descriptors do not move along k",
            "Each step along k adds its bytes / 16 to the start field.",
            replace(right, advances=False),
        )


def _of_scales(problem: MeantProduct, right: KernelSteps) -> Iterator[Way]:
    if problem.scale_a is None or problem.scale_b is None:
        return
    x, count = right.instruction, problem.ins.scale_chunks
    for name in ("scale_a", "scale_b"):
        for other in range(0, 4, 1 if x.kind == "mxf8f6f4" else 2):
            if other != getattr(x, f"{name}_id") and other + count <= 4:
                yield Way(
                    "wrong data id",
                    name,
                    f"{name}_id of the instruction descriptor is {other}",
                    "The id is the byte of the scale words that an instruction starts with: it "
                    "advances with every step along k.",
                    replace(right, instruction=x.replace(**{f"{name}_id": other})),
                )
    if problem.scale_a.shape == problem.scale_b.shape:
        yield Way(
            "scales exchanged",
            "scale_a",
            "those of A and of B stand in each other's place",
            "The operands are [scale-A], [scale-B], in this order.",
            replace(right, scales_exchanged=True),
        )
    for quarters in (1, 2):
        yield Way(
            "scales not in all quarters",
            "scale_a",
            f"{quarters} of the four quarters of the lanes hold the scales",
            "Scales are repeated in all four quarters: tcgen05.cp.32x128b.warpx4 does it.",
            replace(right, quarters=quarters),
        )


# --- the search -----------------------------------------------------------------------------------


def tensor_faults(
    ins: TensorMatrixInstruction, target: Target, given: Mapping[str, Any], d: Any, limit: int
) -> FaultReport:
    """The mistakes that give the D that came out of a kernel; see `find_faults`.

    `given` are a ``(m, K)``, b ``(K, n)``, c ``(m, n)`` or None, and of block-scaled instructions
    scale_a ``(m, v)`` and scale_b ``(v, n)``, for all steps along k.
    """
    problem = _problem(ins, target, given)
    observed = as_codes("d", FORMATS[ins.d_type], d)
    if observed.shape != (ins.m, ins.n):
        raise OperandError(f"d is D {(ins.m, ins.n)}; got {observed.shape}")
    right = problem.run(problem.plan()).codes
    wrong = right != observed
    faults, tried, invisible = [], 0, 0
    for way in _ways(problem) if wrong.any() else ():
        try:
            seen = problem.run(way.plan)
        except EmulatorError:
            continue  # such a kernel does not run
        tried += 1
        if seen.known.all() and (seen.codes == right).all():
            invisible += 1
            continue
        equal = (seen.codes == observed) | ~seen.known
        explained = int((equal & wrong).sum())
        # What a mistake leaves open should be wrong, too.
        open_ = wrong[~seen.known]
        if explained * 2 >= int(wrong.sum()) and (open_.mean() > 0.5 if open_.size else True):
            faults.append(
                Fault(
                    way.mistake,
                    way.operand,
                    way.detail,
                    way.explanation,
                    int(equal.sum()),
                    observed.size,
                    explained,
                    int(wrong.sum()),
                )
            )
    faults.sort(key=lambda x: (not x.exact, -x.explained))
    kinds = len({way.mistake for way in _ways(problem)})
    return FaultReport(
        str(ins),
        str(target),
        tuple(faults[:limit]),
        ("D",),
        int(wrong.sum()),
        observed.size,
        tried,
        invisible,
        kinds=kinds,
        where=_where(wrong, faults),
        notes=("A and B are taken to be in the canonical layout, with 128 bytes of swizzle",),
    )


def _problem(
    ins: TensorMatrixInstruction, target: Target, given: Mapping[str, Any]
) -> MeantProduct:
    """The matrices as codes, checked."""
    read = partial(_codes, given)
    a, b = read("a", ins.a_type, (ins.m, None)), read("b", ins.b_type, (None, ins.n))
    k = b.shape[0]
    if a.shape[1] != k or k % ins.k or not k:
        raise OperandError(
            f"A is (m, K) and B (K, n), K a multiple of {ins.k}; got {a.shape} and {b.shape}"
        )
    c = np.zeros((ins.m, ins.n), code_type(FORMATS[ins.d_type].bits))
    if given.get("c") is not None:
        c = read("c", ins.d_type, (ins.m, ins.n))
    nibbles = None
    if ins.is_sparse:
        a, nibbles = metadata(ins, a)
    scales: list[Array | None] = [None, None]
    if ins.is_block_scaled:
        v = k // ins.k * ins.scale_chunks
        scales = [read("scale_a", ins.scale_type, (ins.m, v)),
                  read("scale_b", ins.scale_type, (v, ins.n)).T]  # fmt: skip
    return MeantProduct(ins, target, a, b, c, scales[0], scales[1], nibbles)


def _codes(given: Mapping[str, Any], name: str, type_: str, shape: tuple[int | None, ...]) -> Array:
    if given.get(name) is None:
        raise OperandError(f"{name}= is needed: the matrix that is meant")
    fmt = FORMATS[type_]
    return operand_codes(name, as_codes(name, fmt, given[name]), fmt, shape, codes=True)


def _where(wrong: Bool, faults: list[Fault]) -> tuple[str, ...]:
    """Names the wrong rows and columns, where no mistake explains them."""
    if not wrong.any() or any(x.exact for x in faults):
        return ()
    rows, columns = (np.flatnonzero(wrong.any(axis)) for axis in (1, 0))
    return (f"rows {runs(rows.tolist())}", f"columns {runs(columns.tolist())}")
