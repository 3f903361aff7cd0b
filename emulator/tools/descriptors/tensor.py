"""What the descriptors of tcgen05 say and what is wrong with them: those of shared memory, 64 bits,
and those of the instruction, 32 bits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from emulator.errors import OperandError, listing, quoted
from emulator.isa.tensor_matrix import TensorMatrixInstruction, settle
from emulator.layout import instruction_descriptor, shared_descriptor
from emulator.layout.descriptor import Finding, both_bases
from emulator.layout.instruction_descriptor import InstructionDescriptor
from emulator.layout.shared_descriptor import SharedMemoryDescriptor, SwizzleMode, operand_tile
from emulator.layout.tensor_memory import shown_places
from emulator.layout.tile import WINDOW, TileShape
from emulator.tools.descriptors.description import DescribedWord, FieldValue
from emulator.tools.report import Answer, together
from emulator.tools.words import swizzle_width, whole_number


@dataclass(frozen=True, repr=False)
class TensorDescription(DescribedWord):
    """A descriptor of tcgen05, with what it means for the opcode, line by line."""

    bits: int
    meaning: tuple[str, ...]

    @property
    def hex(self) -> str:
        return f"{self.word:#0{2 + self.bits // 4}x}"

    @property
    def title(self) -> str:
        return f"{'instruction' if self.bits == 32 else 'shared-memory'} descriptor {self.hex}"

    def lines(self) -> Iterator[str]:
        yield f"{self.title} of tcgen05"
        yield from self.meaning
        yield from self.details()
        if not self.findings:
            yield "nothing is wrong with it"

    @property
    def data(self) -> dict[str, object]:
        fields = [{k: v for k, v in x._asdict().items() if k != "value"} for x in self.fields]
        return super().data | {"fields": fields, "meaning": list(self.meaning)}


def _field(name: str, low: int, width: int, word: int, meaning: str) -> FieldValue:
    raw = word >> low & (1 << width) - 1
    return FieldValue(name, low + width - 1, low, raw, raw, meaning)


# --- of the instruction ---------------------------------------------------------------------------


def describe_instruction(descriptor: InstructionDescriptor | int, opcode: str) -> TensorDescription:
    """What an instruction descriptor, or its word, says of a tcgen05.mma, and where D lies then.

    Raises ParseError or UnsupportedError for another opcode, OperandError for a word that means
    nothing.
    """
    words = opcode.split(".")
    kind = next((w for w in words if w.startswith("kind::")), "kind::").removeprefix("kind::")
    if not isinstance(descriptor, InstructionDescriptor):
        descriptor = InstructionDescriptor.decode(descriptor, kind)
    word = descriptor.encode()
    group, ws = (2 if "cta_group::2" in words else 1), "ws" in words
    findings = descriptor.findings(group, weight_stationary=ws)
    meaning = [f"{descriptor.m} × {descriptor.n} × {descriptor.k}, D {descriptor.d} = "
               f"A {descriptor.a} · B {descriptor.b}"]  # fmt: skip
    if all(x.level != "error" for x in findings):
        layout = settle(opcode, descriptor).layout
        places = "of each CTA of the pair" if group == 2 else "of tensor memory"
        meaning.append(f"D takes {shown_places(layout.d)} {places} (layout {layout.rows.letter})")
    fields = [
        _field(name, x.low, x.width, word, _instruction_meaning(descriptor, name))
        for name, x in sorted(instruction_descriptor.FIELDS[kind].items(), key=lambda x: x[1])
    ]
    return TensorDescription(word, tuple(fields), findings, 32, tuple(meaning))


def _instruction_meaning(descriptor: InstructionDescriptor, name: str) -> str:
    if name == "k_high":
        return "with the bit k"
    value = getattr(descriptor, name)
    if name in ("m", "n", "k"):
        return f"{name.upper()} = {value}"
    if isinstance(value, bool):
        texts = {
            "transpose_a": ("A is K-major", "A is MN-major"),
            "transpose_b": ("B is K-major", "B is MN-major"),
            "negate_a": ("", "A is negated"), "negate_b": ("", "B is negated"),
            "sparse": ("dense", "A is sparse"), "saturate": ("wraps", "D is clamped"),
        }  # fmt: skip
        return texts.get(name, ("", "set"))[value]
    return str(value)


# --- of shared memory -----------------------------------------------------------------------------


def describe_shared(
    word: int,
    instruction: TensorMatrixInstruction | None = None,
    operand: str = "b",
    shared_size: int = WINDOW,
    target: str | None = None,
) -> TensorDescription:
    """What a shared-memory descriptor says to a target (None: to any before sm_107), and what is
    wrong with it as an operand.

    Raises OperandError for a word that means nothing, such as one of wgmma.
    """
    descriptor = SharedMemoryDescriptor.decode(word, target)
    tile, meaning = None, []
    findings: tuple[Finding, ...] = descriptor.findings(memory_bytes=shared_size)
    if instruction is not None:
        tile = operand_tile(instruction.descriptor, operand, instruction.cta_group)
        findings = descriptor.findings(tile, shared_size)
        meaning.append(_tile_line(instruction, operand, tile))
        if not any(x.level == "error" for x in findings):
            addresses = descriptor.addresses(tile)
            last = int(addresses.max()) + tile.element_bytes - 1
            meaning.append(f"it reads bytes {int(addresses.min()):#x}-{last:#x} of shared memory")
        findings = (*findings, *_exchanged(descriptor, tile, findings))
    places = shared_descriptor.fields_of(target)
    fields = [
        _field(name, *place, word, _shared_meaning(descriptor, name))
        for name, place in sorted(places.items(), key=lambda x: x[1])
    ]
    findings = (*findings, *_longer_addresses(word, places))
    return TensorDescription(word, tuple(fields), findings, 64, tuple(meaning))


def _longer_addresses(word: int, places: Mapping[str, tuple[int, int]]) -> Iterator[Finding]:
    for name, (low, width) in shared_descriptor.FIELDS.items():
        if word >> low + places[name][1] & (1 << width - places[name][1]) - 1:
            bit = low + width - 1
            yield Finding(
                "warning",
                name,
                f"bit {bit} is set: it belongs to {name} on sm_107 alone",
                f"bit {bit} is 0: {word & ~(1 << bit):#018x}; or give --target sm_107a",
            )


def _tile_line(instruction: TensorMatrixInstruction, operand: str, tile: TileShape) -> str:
    descriptor = instruction.descriptor
    type_ = descriptor.a if operand == "a" else descriptor.b
    packed = descriptor.width(operand)
    columns = tile.k * 8 // packed if packed < 8 else tile.k
    what = "rows of A" if operand == "a" else "columns of B"
    whose = "each CTA of the pair reads" if instruction.cta_group == 2 else "it is read for"
    return f"{whose} {tile.rows} {what}, {columns} {type_} along k, {tile.major.upper()}-major"


def _exchanged(
    descriptor: SharedMemoryDescriptor, tile: TileShape, found: tuple[Finding, ...]
) -> Iterator[Finding]:
    """LBO and SBO in each other's place, where that makes the errors go away."""
    strides = descriptor.leading_byte_offset, descriptor.stride_byte_offset
    if strides[0] == strides[1] or not any(x.level == "error" for x in found):
        return
    other = replace(descriptor, leading_byte_offset=strides[1], stride_byte_offset=strides[0])
    if not any(x.level == "error" for x in other.findings(tile)):
        yield Finding(
            "warning",
            "leading_byte_offset",
            "LBO and SBO look exchanged",
            f"leading_byte_offset {strides[1]}, stride_byte_offset {strides[0]}, with which "
            "nothing is wrong",
        )


def _shared_meaning(descriptor: SharedMemoryDescriptor, name: str) -> str:
    if name == "constant":
        return "0b001, the mark of tcgen05"
    if name == "swizzle":
        return str(SwizzleMode(descriptor.swizzle_bytes, descriptor.atom_bytes))
    value = getattr(descriptor, name)
    if name == "start_address":
        return f"byte {both_bases(value)} of shared memory"
    if name == "leading_is_address":
        return "LBO is an address" if value else "LBO is an offset"
    if name == "second_half":
        return "the second 24 of 48 bytes" if value else ""
    return f"{value} bytes" if name.endswith("offset") and name != "base_offset" else str(value)


# --- the command ----------------------------------------------------------------------------------

#: what --build makes a shared-memory descriptor of; all else are fields of the instruction's
_OF_TILES = ("swizzle", "start", "order")


class Question(NamedTuple):
    """What is asked about the descriptors of a tcgen05.mma."""

    opcode: str
    #: of the instruction, with which those of shared memory are checked as `operand`
    idesc: int | None
    operand: str
    #: bytes of shared memory
    memory: int
    target: str | None

    def about(self, word: int, is_shared: bool) -> TensorDescription:
        if not is_shared:
            return describe_instruction(word, self.opcode)
        ins = None if self.idesc is None else settle(self.opcode, self.idesc)
        return describe_shared(word, ins, self.operand, self.memory, self.target)


def tensor_answer(asked: Question, words: list[int], build: Mapping[str, str] | None) -> Answer:
    """Words below 2**32 are instruction descriptors, others of shared memory. `build` makes a word
    of either sort."""
    if build is not None:
        return together([_built(asked, build)])
    if not words and asked.idesc is not None:
        words = [asked.idesc]
    return together([asked.about(word, word >= 1 << 32) for word in words])


def _built(asked: Question, build: Mapping[str, str]) -> TensorDescription:
    if not any(key in _OF_TILES for key in build):
        return describe_instruction(_from_fields(asked.opcode, build), asked.opcode)
    if asked.idesc is None:
        raise OperandError("the tile of an operand follows from the instruction: give --idesc, too")
    if wrong := [key for key in build if key not in _OF_TILES]:
        raise OperandError(f"{listing(wrong)}: a tile of tcgen05 is built of {listing(_OF_TILES)}")
    ins = settle(asked.opcode, asked.idesc)
    placed = SharedMemoryDescriptor.for_operand(
        ins.descriptor,
        asked.operand,
        cta_group=ins.cta_group,
        swizzle_bytes=swizzle_width(build.get("swizzle", "128B")),
        start_address=whole_number("start", build.get("start", "0")),
        order=build.get("order", "rows"),
    )
    return asked.about(int(placed.descriptor.encode()), is_shared=True)


def _from_fields(opcode: str, build: Mapping[str, str]) -> InstructionDescriptor:
    """The descriptor with fields such as ``a=bf16,m=128,transpose_b=1``."""
    kind = next((w for w in opcode.split(".") if w.startswith("kind::")), "kind::")
    values: dict[str, Any] = {"sparse": ".sp" in opcode}
    legal = [name for name in vars(InstructionDescriptor()) if name != "kind"]
    for name, text in build.items():
        if name not in legal:
            raise OperandError(
                f"an instruction descriptor has no field {quoted(name, 80)}; it has "
                f"{listing(legal, 20)}"
            )
        values[name] = text if name in ("a", "b", "d", "scale") else whole_number(name, text)
    return InstructionDescriptor(kind.removeprefix("kind::"), **values)
