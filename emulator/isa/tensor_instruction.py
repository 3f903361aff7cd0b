"""``TensorInstruction``: a tcgen05.mma with its instruction descriptor, on matrices.

The opcode leaves types and shape to the descriptor, a word that a program makes at run time. Both
together say what a `MatrixInstruction` says, and go wherever one goes that no lanes are asked of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from emulator.errors import OperandError, ParseError, UnsupportedError, hint, listing, quoted, shown
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.matrix_forms import MatrixForm
from emulator.isa.signature import Signature
from emulator.layout.fragment import Fragment
from emulator.layout.instruction_descriptor import InstructionDescriptor
from emulator.layout.mma_kinds import KINDS
from emulator.layout.tensor_memory import CHUNK, TensorLayout, tensor_layout
from emulator.targets import Target, select

NAME = "tcgen05.mma"
#: words that change no value
_COLLECTORS = tuple(
    f"collector::{operand}::{how}"
    for operand in ("a", "b", "b0", "b1", "b2", "b3")
    for how in ("fill", "use", "lastuse", "discard")
)
_WORDS = ("ws", "sp", "cta_group::1", "cta_group::2", "block_scale", "ashift", *_COLLECTORS)
_ALL, _EXACT = "100a 100f 103a 103f 107a 107f 110a 110f", "100a 103a 107a 110a"


@dataclass(frozen=True, repr=False)
class TensorInstruction(MatrixInstruction):
    """One tcgen05.mma on matrices: A is m × k, B is k × n, C and D are m × n."""

    opcode: str = ""
    descriptor: InstructionDescriptor = field(default_factory=InstructionDescriptor)
    cta_group: int = 1
    weight_stationary: bool = False
    #: logical elements of k that share a scale when A is dense; 0 without scales
    scale_width: int = 0

    def __hash__(self) -> int:
        return hash((self.opcode, self.descriptor))

    def __str__(self) -> str:
        return f"{self.opcode} (idesc {self.descriptor.encode():#010x})"

    def __repr__(self) -> str:
        return f"{self}: {self.shape} {self.d_type}.{self.a_type}.{self.b_type}"

    @property
    def name(self) -> str:
        return NAME

    @property
    def chunk(self) -> int:
        """Columns of A that one metadata nibble describes."""
        return CHUNK[KINDS[self.descriptor.kind].width(self.a_type)]

    @property
    def scale_chunks(self) -> int:
        """Scales of a row of A and of a column of B; 0 without block scaling."""
        return self.stored_k // self.scale_width if self.scale_width else 0

    @property
    def is_wgmma(self) -> bool:
        return False

    @property
    def negated(self) -> tuple[bool, bool]:
        """Whether the signs of A and of B are flipped."""
        return self.descriptor.negate_a, self.descriptor.negate_b

    @cached_property
    def layout(self) -> TensorLayout:
        """Where its matrices lie in tensor memory."""
        return tensor_layout(
            self.descriptor, self.cta_group, self.weight_stationary, self.scale_chunks
        )

    # --- operands ---

    @cached_property
    def fragments(self) -> dict[str, Fragment]:
        """None: its matrices are in shared and in tensor memory."""
        return {}

    def fragment(self, operand: str) -> Fragment:
        raise OperandError(
            f"{self.opcode} has no fragment {shown(operand)}: its matrices lie in shared memory "
            "and in tensor memory (`view` and `descriptor` of the command line show where)"
        )

    def signatures(self, target: str | Target | None = None) -> tuple[Signature, ...]:
        raise OperandError(
            f"{self.opcode} with a descriptor is for matrices; the operands of the opcode alone "
            "are those of its Instruction"
        )


def settle(opcode: object, descriptor: InstructionDescriptor | int | None) -> TensorInstruction:
    """A tcgen05.mma and its instruction descriptor, or the word of one, as one instruction.

    Raises ParseError for another opcode, UnsupportedError for one that PTX lacks, OperandError for
    a descriptor that does not fit the opcode.
    """
    if isinstance(opcode, TensorInstruction) and descriptor is None:
        return opcode
    text = opcode.strip() if isinstance(opcode, str) else str(opcode)
    words = _words(text)
    if descriptor is None:
        raise OperandError(
            f"{text} needs idesc=, an InstructionDescriptor or its word: the opcode alone says "
            "neither types nor shape"
        )
    kind = next((w for w in words if w.startswith("kind::")), "kind::").removeprefix("kind::")
    if not isinstance(descriptor, InstructionDescriptor):
        descriptor = InstructionDescriptor.decode(descriptor, kind)
    if descriptor.kind != kind:
        raise OperandError(f"{text} is of kind {kind}; the descriptor is of {descriptor.kind}")
    if descriptor.sparse != ("sp" in words):
        stands = "has" if "sp" in words else "has no"
        raise OperandError(f"{text} {stands} .sp; sparse of the descriptor is {descriptor.sparse}")
    group = 2 if "cta_group::2" in words else 1
    for finding in descriptor.findings(group, weight_stationary="ws" in words):
        if finding.level == "error":
            raise OperandError(f"{text}: {finding.message}; legal: {finding.legal}")
    vector = _vector(text, words, descriptor)
    form = MatrixForm(
        "tcgen05.mma.sp" if descriptor.sparse else "tcgen05.mma",
        f"m{descriptor.m}n{descriptor.n}k{descriptor.k}",
        descriptor.a, descriptor.b, f"{descriptor.d}.{descriptor.d}",
        _targets(kind, vector, descriptor),
        kind=kind, metadata="tensor memory" if descriptor.sparse else "", pipe="tcgen05",
        scope="thread",
    )  # fmt: skip
    return TensorInstruction(
        form, descriptor.m, descriptor.n, descriptor.k, descriptor.d, descriptor.a, descriptor.b,
        descriptor.d, satfinite=descriptor.saturate, scale_vec=vector,
        scale_type=descriptor.scale or "", opcode=text, descriptor=descriptor, cta_group=group,
        weight_stationary="ws" in words, scale_width=KINDS[kind].vectors.get(vector, 0),
    )  # fmt: skip


def _words(text: str) -> Sequence[str]:
    """The words behind the name of a tcgen05.mma, checked."""
    if text != NAME and not text.startswith(f"{NAME}."):
        raise ParseError(f"idesc= goes with a tcgen05.mma; got {quoted(text)}")
    words = text.split(".")[2:]
    kinds = [f"kind::{kind}" for kind in KINDS]
    vectors = dict.fromkeys(word for kind in KINDS.values() for word in kind.vectors)
    legal = [*_WORDS, *kinds, *vectors]
    for word in words:
        if word not in legal:
            raise UnsupportedError(f"{quoted(text)}: no word .{word:.80}{hint(word, legal, '.')}")
    for what, some in (("cta_group", ("cta_group::1", "cta_group::2")), ("kind", kinds)):
        if sum(word in some for word in words) != 1:
            raise ParseError(f"{quoted(text)} needs one .{what}: {listing(some)}")
    if "ws" in words and "cta_group::2" in words:
        raise UnsupportedError(f"{quoted(text)}: .ws is for .cta_group::1 alone")
    return words


def _vector(text: str, words: Sequence[str], descriptor: InstructionDescriptor) -> str:
    """The scale vector of an opcode, or what stands for none."""
    kind = KINDS[descriptor.kind]
    if ("block_scale" in words) != kind.is_block_scaled:
        state = "needs" if kind.is_block_scaled else "takes no"
        raise UnsupportedError(f"{quoted(text)}: kind {kind.name} {state} .block_scale")
    found = [word for word in words if any(word in one.vectors for one in KINDS.values())]
    if not kind.is_block_scaled or len(found) > 1:
        if found:
            raise UnsupportedError(f"{quoted(text)}: .{found[-1]} is one word too many")
        return ""
    if found and found[0] not in kind.vectors:
        raise UnsupportedError(
            f"{quoted(text)}: kind {kind.name} has no .{found[0]}; it has {listing(kind.vectors)}"
        )
    if not found and len(set(kind.vectors.values())) > 1:
        raise UnsupportedError(f"{quoted(text)} needs one of {listing(kind.vectors)}")
    vector = found[0] if found else next(iter(kind.vectors))
    if descriptor.scale == "ue4m3" and kind.vectors[vector] != 16:
        raise OperandError(f"{text}: scales of ue4m3 go with .scale_vec::4X or .block16")
    return vector if found else "block32"


def _targets(kind: str, vector: str, descriptor: InstructionDescriptor) -> tuple[str, ...]:
    """Targets that have the kind, and what the descriptor asks for."""
    numbers = _ALL
    if kind == "i8":
        numbers = "100a 110a"
    elif vector.startswith("scale_vec") or (descriptor.sparse and kind.startswith("mxf4")):
        numbers = _EXACT
    there = select(only=numbers)
    return tuple(
        name for name in there
        if not any(x.level == "error" and x.field in ("k", "sparsity_version", "scale_a_rows")
                   for x in descriptor.findings(target=name))
    )  # fmt: skip
