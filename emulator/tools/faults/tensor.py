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
from emulator.layout.lanemap import WARP
from emulator.layout.mma_kinds import KINDS, MmaKind
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
        return _READERS[plan.reader](self, self._left(replace(plan, reader="right")))

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
    """Every warp names lane 0; what the hardware gives the other warps then is not known."""
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


#: ways to read D
_READERS: dict[str, Callable[[MeantProduct, Seen], Seen]] = {
    "right": _rightly, "lanes": _by_lanes, "quarter": _first_quarter, "packed": _as_packed,
    "registers": _rows_of_registers,
}  # fmt: skip


# --- mistakes -------------------------------------------------------------------------------------


class Way(NamedTuple):
    """One way to make a mistake."""

    operand: str
    detail: str
    plan: KernelSteps


Ways = Callable[[MeantProduct], Iterator[Way]]


class Mistake(NamedTuple):
    """One row of `MISTAKES`; the explanation may name the layout of D and its lanes."""

    name: str
    explanation: str
    ways: Ways


def _changed(
    operand: str,
    detail: str,
    of: Callable[[MeantProduct], bool] = lambda problem: True,
    **fields: Any,
) -> Ways:
    """Other steps of the kernel, of the products that `of` holds for."""

    def ways(problem: MeantProduct) -> Iterator[Way]:
        if of(problem):
            yield Way(operand, detail, replace(problem.plan(), **fields))

    return ways


def _swizzles(problem: MeantProduct) -> Iterator[Way]:
    right = problem.plan()
    for i, operand in enumerate("ab"):
        for width in set(SWIZZLES) - {right.read[i]}:
            detail = (
                f"the tile is stored with {right.stored[i]} bytes of swizzle and read with "
                f"{width or 'none'}"
            )
            read = (width, right.read[1]) if operand == "a" else (right.read[0], width)
            yield Way(operand, detail, replace(right, read=read))


def _exchanged_offsets(problem: MeantProduct) -> Iterator[Way]:
    for operand in "ab":
        detail = "the two offsets stand in each other's place"
        yield Way(operand, detail, replace(problem.plan(), exchanged=operand))


def _starts(problem: MeantProduct) -> Iterator[Way]:
    for operand in "ab":
        for offset in (16, 32, 64, 128, block_bytes(128)):
            off = (offset, 0) if operand == "a" else (0, offset)
            detail = f"the descriptor starts {offset} bytes further"
            yield Way(operand, detail, replace(problem.plan(), off=off))


def _described(problem: MeantProduct, operand: str, field: str, value: object, detail: str) -> Way:
    """Another value in a field of the instruction descriptor."""
    right = problem.plan()
    return Way(
        operand, detail, replace(right, instruction=right.instruction.replace(**{field: value}))
    )


def _flipped(bit: str, has: Callable[[MmaKind], bool]) -> Ways:
    """A bit of the instruction descriptor, of the kinds that have it."""

    def ways(problem: MeantProduct) -> Iterator[Way]:
        x = problem.ins.descriptor
        for operand in "ab" if has(KINDS[x.kind]) else "":
            field = f"{bit}_{operand}"
            value = not getattr(x, field)
            detail = f"{field} is {value} in the instruction descriptor"
            yield _described(problem, operand, field, value, detail)

    return ways


def _types(problem: MeantProduct) -> Iterator[Way]:
    x = problem.ins.descriptor
    for operand in "ab":
        own = getattr(x, operand)
        for other in KINDS[x.kind].types:
            same = FORMATS[other].bits == FORMATS[own].bits and other != own
            if same and not (x.d == "f16" and other == "bf16"):
                detail = f"the instruction descriptor says {other}"
                yield _described(problem, operand, operand, other, detail)


def _ids(problem: MeantProduct) -> Iterator[Way]:
    x = problem.ins.descriptor
    for name in ("scale_a", "scale_b") if problem.scale_a is not None else ():
        field = f"{name}_id"
        for other in range(0, 4, 1 if x.kind == "mxf8f6f4" else 2):
            if other != getattr(x, field) and other + problem.ins.scale_chunks <= 4:
                detail = f"{field} of the instruction descriptor is {other}"
                yield _described(problem, name, field, other, detail)


def _has_steps(problem: MeantProduct) -> bool:
    return problem.steps > 1


def _have_one_shape(problem: MeantProduct) -> bool:
    a, b = problem.scale_a, problem.scale_b
    return a is not None and b is not None and a.shape == b.shape


def _quarters(problem: MeantProduct) -> Iterator[Way]:
    for quarters in (1, 2) if problem.scale_a is not None else ():
        detail = f"{quarters} of the four quarters of the lanes hold the scales"
        yield Way("scale_a", detail, replace(problem.plan(), quarters=quarters))


_LANES = (
    "A warp reads the lanes from 32 * (warp % 4) on, and the address must name them: taddr + "
    "(32 * (warp % 4) << 16). D, of layout {layout}, lies in {lanes}."
)
MISTAKES = (
    Mistake("rows of D in other lanes", _LANES,
            _changed("d", "row m is read from lane m, and column n from column n", reader="lanes")),
    Mistake("lane of the warp left out", _LANES,
            _changed("d", "all four warps read lanes 0-31", reader="quarter")),
    Mistake("f16 accumulator taken as packed", "An f16 D has a column for each element, in the low "
            "half of the word: load it with .pack::16b.",
            _changed("d", "two f16 are taken from each word of D",
                     lambda problem: problem.ins.descriptor.d == "f16", reader="packed")),
    Mistake("registers of 16x256b not regrouped", "Of 16x256b, bit 1 of the register number is the "
            "row + 8 and bit 0 the column.",
            _changed("d", "registers 4i + 1 and 4i + 2 are exchanged", reader="registers")),
    Mistake("wrong swizzle", "Bits 63:61 of a tcgen05 descriptor: 2 = 128B, 4 = 64B, 6 = 32B, 1 = "
            "128B with 32-byte atoms; wgmma has other codes in bits 63:62.", _swizzles),
    Mistake("LBO and SBO exchanged", "K-major: SBO leads to the next 8 rows. MN-major: SBO is the "
            "next 16 bytes of rows without a swizzle, the next 8 columns with one.",
            _exchanged_offsets),
    Mistake("wrong start address", "One step along k inside of a swizzled line is 32 bytes: + 2 in "
            "the field.", _starts),
    Mistake("wrong sign", "Bits 13 and 14 of the instruction descriptor negate A and B.",
            _flipped("negate", lambda kind: kind.can_negate)),
    Mistake("wrong major", "Bits 15 and 16 of the instruction descriptor: 1 is MN-major.",
            _flipped("transpose", lambda kind: kind.transposable)),
    Mistake("wrong type", "Bits 9:7 and 12:10 of the instruction descriptor are the types of A and "
            "B.", _types),
    Mistake("accumulator", "enable-input-d is false in the first step, or should be.", _changed(
            "c", "the first step does not read the old D (C counts as zero)",
            accumulates="without")),
    Mistake("issued by a whole warp", "Every thread that reaches tcgen05.mma issues one: elect a "
            "thread.", _changed("", f"{WARP} threads issue each instruction",
                                lambda x: x.scale_a is None and x.nibbles is None, issues=WARP)),
    Mistake("accumulator", "enable-input-d must be true from the second step on.",
            _changed("c", "every step starts from zero", _has_steps, accumulates="never")),
    Mistake("loop over k", "Each step along k adds its bytes / 16 to the start field.",
            _changed("", "the descriptors do not move along k", _has_steps, advances=False)),
    Mistake("wrong data id", "The id is the byte of the scale words that an instruction starts "
            "with: it advances with every step along k.", _ids),
    Mistake("scales exchanged", "The operands are [scale-A], [scale-B], in this order.",
            _changed("scale_a", "those of A and of B stand in each other's place",
                     _have_one_shape, scales_exchanged=True)),
    Mistake("scales not in all quarters", "Scales are repeated in all four quarters: "
            "tcgen05.cp.32x128b.warpx4 does it.", _quarters),
)  # fmt: skip


# --- the search -----------------------------------------------------------------------------------


def tensor_faults(
    ins: TensorMatrixInstruction, target: Target, given: Mapping[str, object], d: object, limit: int
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
    layout = {"layout": ins.layout.rows.letter, "lanes": shown_places(ins.layout.d)}
    for mistake in MISTAKES if wrong.any() else ():
        for way in mistake.ways(problem):
            try:
                seen = problem.run(way.plan)
            except EmulatorError:
                continue  # such a kernel does not run
            tried += 1
            if seen.known.all() and (seen.codes == right).all():
                invisible += 1
                continue
            equal, left = (seen.codes == observed) | ~seen.known, wrong[~seen.known]
            why = mistake.explanation.format(**layout)
            fault = Fault.of(mistake.name, way.operand, way.detail, why, equal, wrong)
            # What a mistake leaves open should be wrong, too.
            if fault.explained * 2 >= fault.wrong and (not left.size or left.mean() > 0.5):
                faults.append(fault)
    faults.sort(key=lambda x: (not x.exact, -x.explained))
    counts = int(wrong.sum()), observed.size, tried, invisible
    return FaultReport(
        *(str(ins), str(target), tuple(faults[:limit]), ("D",), *counts),
        kinds=len({x.name for x in MISTAKES for _ in x.ways(problem)}),
        where=_where(wrong, faults),
        notes=("A and B are taken to be in the canonical layout, with 128 bytes of swizzle",),
    )


def _problem(
    ins: TensorMatrixInstruction, target: Target, given: Mapping[str, object]
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


def _codes(
    given: Mapping[str, object], name: str, type_: str, shape: tuple[int | None, ...]
) -> Array:
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
