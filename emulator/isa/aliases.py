"""Other names of instructions: CuTe's atoms and MMA-Sim's short qualifiers.

Both are derived from the tables. `cute_name` spells an instruction as CUTLASS (4.x,
include/cute/arch) does, and parsing looks a name up among the spellings of all instructions; so an
instruction that the table gains has its alias at once. What CUTLASS passes as a template argument
and PTX as an operand (major-ness and sign of a GMMA, the sparse selector) is read and left out:
it belongs to ``execute`` (``imm_trans_a=``, ``imm_scale_a=``, ``selector=``).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NoReturn

from emulator.errors import ParseError, UnsupportedError, listing, nearest, quoted
from emulator.isa import matrix_opcodes, movement
from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.matrix_opcodes import TYPES
from emulator.isa.movement import Movement

#: layout as PTX writes it -> BLAS's letters, A's then B's: T is K-major
_LETTERS = {"row.col": "TN", "row.row": "TT", "col.row": "NT", "col.col": "NN"}
#: C++ types that templates of SM120 atoms name
_CPP_TYPES = {"float": "f32", "half_t": "f16"}
_CUTE_TYPES = {"b1": "U1"}
_GMMA_ARGUMENT = re.compile(r"(GMMA::)?(Major::(K|MN)|ScaleIn::(One|Neg)|SparseSel::(Zero|One))")
#: atoms of CUTLASS without an instruction in this package
_OUTSIDE = {
    r"\d_G?C64": "multiplies complex numbers: CUTLASS makes it of several f64 instructions; "
    "name one of them, such as 'SM80_8x8x4_F64F64F64F64_TN'",
    r"^MMA_[A-Z]": "is a tcgen05.mma: give its opcode, such as "
    "'tcgen05.mma.cta_group::1.kind::f16', with an instruction descriptor (idesc=)",
}

_CUTE = re.compile(r"(cute::|SM\d|G?MMA_)")
_NAMESPACES = re.compile(r"(?:cute::)?(?:SM([0-9]+)(?:(?:::GMMA)?(?:::SPARSE)?::|_))?")


def cute_name(ins: Instruction) -> str | None:
    """CuTe's name for `ins`, without architecture; None where CUTLASS has no scheme for it.

    >>> cute_name(Instruction.parse("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"))
    '16x8x16_F32F16F16F32_TN'
    """
    if isinstance(ins, Movement):
        return _copy_name(ins)
    if not isinstance(ins, MatrixInstruction) or ins.rounding != "rn":
        return None
    if ins.form.kind:
        return _template_name(ins)
    if ins.is_sparse and not ins.is_wgmma:
        return None
    types = [ins.d_type, ins.a_type, ins.b_type] + ([] if ins.is_wgmma else [ins.c_type])
    words = [f"{ins.m}x{ins.n}x{ins.k}", "".join(_CUTE_TYPES.get(t, t.upper()) for t in types)]
    if ins.is_wgmma:
        words.insert(0, "GMMA" if ins.is_sparse else "MMA")
    else:
        words.append(_LETTERS[".".join(ins.layouts)])
    words += ["SATURATE"] if ins.satfinite else []
    words += [f"{ins.form.bit_operation.upper()}POPC"] if ins.form.bit_operation else []
    return "_".join(words)


def _template_name(ins: MatrixInstruction) -> str | None:
    """SM120's atoms name their types, and the elements of a scale, as template arguments."""
    if ins.form.kind == "mxf4" or (ins.is_sparse and not ins.ordered_metadata):
        return None  # CUTLASS spells the first mxf4nvf4, which computes the same
    name = f"{'SPARSE_' * ins.is_sparse}{ins.m}x{ins.n}x{ins.k}_TN{'_VS' * ins.is_block_scaled}"
    arguments = [ins.a_type, ins.b_type, ins.d_type]
    if ins.is_block_scaled:
        arguments += [ins.scale_type, str(ins.k // ins.scale_chunks)]
    return f"{name}<{','.join(arguments)}>"


def _copy_name(ins: Movement) -> str | None:
    """LDSM, STSM, MOVM: what a lane holds, in 32-bit words or, transposed, in elements."""
    verb = {"ldmatrix": "LDSM", "stmatrix": "STSM", "movmatrix": "MOVM"}[ins.family]
    fragment = ins.fragment("r" if ins.family == "stmatrix" else "d")
    held, letter = f"U32x{fragment.registers}", "T" if ins.trans else "N"
    if ins.source:
        if ins.trans:
            return None
        held = f"S{ins.source.partition('x')[0].replace('b', 'U')}_DU8x16_x{ins.count}"
    elif ins.trans and ins.family != "movmatrix":
        bits = fragment.fmt.bits
        held = f"U{bits}x{fragment.registers * 32 // bits}"
    return f"{held}_{verb}_{letter}"


@lru_cache(maxsize=1)
def _atoms() -> dict[str, Instruction]:
    """CuTe's name of every instruction that it has one for."""
    every: list[Instruction] = [*matrix_opcodes.expand(), *movement.expand()]
    return {name: ins for ins in every if (name := cute_name(ins))}


def parse(text: str) -> Instruction:
    """The instruction that an alias names.

    Raises ParseError for a name of such a form which is none, UnsupportedError where the
    architecture in the name lacks the instruction or a short qualifier means several.
    """
    return _parse_cute(text) if _CUTE.match(text) else _parse_short(text)


def _parse_cute(text: str) -> Instruction:
    match = _NAMESPACES.match(text)
    assert match
    name = _normalised(text[match.end() :], text)
    # Up to CUTLASS 3.4, and for f64 in newer ones, an architecture or MMA_ stands in front.
    found = _atoms().get(name) or _atoms().get("MMA_" + name)
    found = found or _atoms().get(name.removeprefix("MMA_"))
    if found is None:
        for pattern, reason in _OUTSIDE.items():
            if re.search(pattern, name):
                raise UnsupportedError(f"{quoted(text)} {reason}")
        raise ParseError(f"no CuTe atom is {quoted(text)}; nearest are {_nearest_atoms(name)}")
    number = match[1]
    if number and not any(re.sub(r"\D", "", t) == number for t in found.targets):
        raise UnsupportedError(
            f"{quoted(text)} is {found}, which sm_{number} has not; "
            f"its targets are {listing(found.targets)}"
        )
    return found


def _normalised(name: str, text: str) -> str:
    """`name` with PTX's types as template arguments and without what PTX passes as operands."""
    head, bracket, rest = name.partition("<")
    if bracket:
        if not rest.endswith(">"):
            raise ParseError(f"{quoted(text)} lacks its closing '>'")
        arguments = [_argument(part.strip()) for part in rest[:-1].split(",")]
        kept = [part for part in arguments if not _GMMA_ARGUMENT.fullmatch(part)]
        head += f"<{','.join(kept)}>" if kept else ""
    if re.match(r"G?MMA_\d|64x", head):
        head = re.sub(r"_(SS|RS)(?=_|$)", "", head)
        head = re.sub(r"_TN(?=_|$)", "", head) if _is_gmma(head) else head
    return head


def _argument(part: str) -> str:
    part = re.sub(r"^(cute|cutlass)::", "", part)
    if small := re.fullmatch(r"float_(\w+)_t", part):
        return small[1]
    return _CPP_TYPES.get(part, part.removeprefix("SM90::"))


def _is_gmma(head: str) -> bool:
    return bool(re.match(r"(G?MMA_)?64x", head))


def _nearest_atoms(name: str) -> str:
    """The atoms most alike, first those of the same shape."""
    shape = re.search(r"\d+x\d+x\d+", name)
    same = [atom for atom in _atoms() if shape and shape[0] in atom]
    close = nearest(name[:100], same or _atoms(), 3)
    return listing(repr(_with_architecture(atom)) for atom in close)


def _with_architecture(atom: str) -> str:
    first = re.sub(r"\D", "", _atoms()[atom].targets[0])
    return f"SM{first}::GMMA::{atom}_SS" if "MMA_" in atom else f"SM{first}_{atom}"


def _parse_short(text: str) -> Instruction:
    """``m16n8k16.f32.f16.f16.f32``: the plainest dense opcode of these types with these words."""
    words = text.split(".")
    k = int(words[0].rpartition("k")[2])
    for place, word in enumerate(words):
        if block := re.fullmatch(r"block([1-9][0-9]{0,3})", word):
            # MMA-Sim counts the elements that share a scale, PTX the scales of an instruction.
            words[place] = f"scale_vec::{k // int(block[1])}X"
    others = [word for word in words if word not in TYPES]
    if len(set(others)) < len(others):
        _refuse_short(text)
    found: dict[int, list[Instruction]] = {}
    for ins in matrix_opcodes.expand():
        spelled = str(ins).split(".")
        if not ins.is_sparse and set(words) <= set(spelled) and _types(words) == _types(spelled):
            found.setdefault(len(spelled), []).append(ins)
    if not found:
        _refuse_short(text)
    plainest = found[min(found)]
    if len(plainest) > 1:
        raise UnsupportedError(
            f"{quoted(text)} names {len(plainest)} instructions; write one of {listing(plainest)}"
        )
    return plainest[0]


def _types(words: list[str]) -> list[str]:
    return [word for word in words if word in TYPES]


def _refuse_short(text: str) -> NoReturn:
    shape = text.partition(".")[0]
    known = [str(ins) for ins in matrix_opcodes.expand() if not ins.is_sparse]
    same = [opcode for opcode in known if f".{shape}." in opcode]
    close = nearest(text[:100], same or known)[0]
    raise UnsupportedError(
        f"no dense mma or wgmma has the shape, types (D, A, B, and C of an mma) and words of "
        f"{quoted(text)}; nearest is {close}"
    )
