"""``TensorMatrixInstruction``: a tcgen05.mma with its instruction descriptor, on matrices.

The opcode leaves types and shape to the descriptor, a word that a program makes at run time. Both
together say what a `MatrixInstruction` says, and go wherever one goes that no lanes are asked of.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from emulator.errors import OperandError, ParseError, UnsupportedError, quoted, shown
from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.matrix_forms import MatrixForm
from emulator.isa.signature import Signature
from emulator.isa.tcgen05 import parse
from emulator.layout.fragment import Fragment
from emulator.layout.instruction_descriptor import TARGETED, InstructionDescriptor
from emulator.layout.mma_kinds import KINDS
from emulator.layout.tensor_memory import TensorLayout, tensor_layout
from emulator.targets import Target

NAME = "tcgen05.mma"
_DECOMPRESS = "decompress::lut::b"


@dataclass(frozen=True, repr=False)
class TensorMatrixInstruction(MatrixInstruction):
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
        return self.descriptor.chunk

    @property
    def scale_chunks(self) -> int:
        """Scales of a row of A and of a column of B; 0 without block scaling."""
        return self.stored_k // self.scale_width if self.scale_width else 0

    @property
    def is_wgmma(self) -> bool:
        return False

    @property
    def negated(self) -> tuple[bool, bool]:
        """For A and for B, True if all signs are flipped."""
        return self.descriptor.negate_a, self.descriptor.negate_b

    @cached_property
    def layout(self) -> TensorLayout:
        """The places of its matrices in tensor memory."""
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


def settle(
    opcode: object, descriptor: InstructionDescriptor | int | None
) -> TensorMatrixInstruction:
    """A tcgen05.mma and its instruction descriptor, or the word of one, as one instruction.

    Raises ParseError for another opcode, UnsupportedError for one that PTX or this package lacks,
    OperandError for a descriptor that does not fit the opcode.
    """
    if isinstance(opcode, TensorMatrixInstruction) and descriptor is None:
        return opcode
    given = isinstance(opcode, (str, Instruction))
    text = str(opcode).strip() if given else shown(opcode)
    if text != NAME and not text.startswith(f"{NAME}."):
        raise ParseError(f"idesc= goes with a tcgen05.mma; got {quoted(text)}")
    ins = parse(text)
    words, kind = ins.modifiers, ins.modifiers.get("kind", "").removeprefix("kind::")
    if words.get(_DECOMPRESS):
        raise UnsupportedError(
            f"{quoted(text)} is for kernels: the product of matrices is that of the opcode without "
            f".{_DECOMPRESS} and the B that the tables make"
        )
    if descriptor is None:
        raise OperandError(
            f"{text} needs idesc=, an InstructionDescriptor or its word: the opcode alone says "
            "neither types nor shape"
        )
    if not isinstance(descriptor, InstructionDescriptor):
        descriptor = InstructionDescriptor.decode(descriptor, kind)
    if descriptor.kind != kind:
        raise OperandError(f"{text} is of kind {kind}; the descriptor is of {descriptor.kind}")
    if descriptor.not_modelled:
        raise UnsupportedError(f"{text}: {descriptor.not_modelled}: not modelled here")
    stationary, sparse = ".ws" in ins.family, bool(words.get("sp"))
    if descriptor.sparse != sparse:
        stands = "has" if sparse else "has no"
        raise OperandError(f"{text} {stands} .sp; sparse of the descriptor is {descriptor.sparse}")
    for finding in descriptor.findings(ins.cta_group, weight_stationary=stationary):
        if finding.level == "error":
            raise OperandError(f"{text}: {finding.message}; legal: {finding.legal}")
    vectors = KINDS[kind].vectors
    vector = words.get("scale_vec") or next(iter(vectors), "")
    if descriptor.scale not in (None, "ue8m0") and vectors[vector] != 16:
        raise OperandError(
            f"{text}: scales of {descriptor.scale} go with .scale_vec::4X or .block16"
        )
    return TensorMatrixInstruction(
        _form(ins, descriptor),
        descriptor.m,
        descriptor.n,
        descriptor.k,
        descriptor.d,
        descriptor.a,
        descriptor.b,
        descriptor.d,
        satfinite=descriptor.saturate,
        scale_vec=vector,
        scale_type=descriptor.scale or "",
        opcode=text,
        descriptor=descriptor,
        cta_group=ins.cta_group,
        weight_stationary=stationary,
        scale_width=vectors.get(vector, 0),
    )


def _form(ins: Instruction, descriptor: InstructionDescriptor) -> MatrixForm:
    """The row that a table would have for the opcode with the descriptor."""
    sparse = descriptor.sparse
    return MatrixForm(
        "tcgen05.mma.sp" if sparse else "tcgen05.mma",
        f"m{descriptor.m}n{descriptor.n}k{descriptor.k}",
        descriptor.a,
        descriptor.b,
        f"{descriptor.d}.{descriptor.d}",
        tuple(name for name in ins.targets if _has(name, descriptor)),
        kind=descriptor.kind,
        metadata="tensor memory" if sparse else "",
        pipe="tcgen05",
        scope="thread",
    )


def _has(target: str, descriptor: InstructionDescriptor) -> bool:
    """True if a target has what the descriptor asks for."""
    found = descriptor.findings(target=target)
    return not any(x.level == "error" and x.field in TARGETED for x in found)
