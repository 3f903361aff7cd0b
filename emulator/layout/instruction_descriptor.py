"""``InstructionDescriptor``: the 32-bit word that tells a tcgen05.mma its types and its shape.

PTX ISA 9.7.16.4.2 (instruction descriptor); the words that CUTLASS makes agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from dtypes import FORMATS
from emulator.errors import OperandError, flag, listing, one_of, runs, shown, whole
from emulator.layout.descriptor import Finding, mistake, warning
from emulator.layout.mma_kinds import D_CODES, KINDS, MmaKind, find_shapes
from emulator.targets import Target, find_target


class BitField(NamedTuple):
    """Neighbouring bits of the word."""

    low: int
    width: int = 1

    @property
    def mask(self) -> int:
        return (1 << self.width) - 1 << self.low

    def get(self, word: int) -> int:
        return (word & self.mask) >> self.low


#: fields that the words of all kinds have at the same place
_COMMON = {
    "sparse": BitField(2),
    "a": BitField(7, 3),
    "negate_a": BitField(13),
    "negate_b": BitField(14),
    "n": BitField(17, 6),
}
_TRANSPOSED = {"transpose_a": BitField(15), "transpose_b": BitField(16)}
_PLAIN = {
    **_COMMON, **_TRANSPOSED,
    "selector": BitField(0, 2), "saturate": BitField(3), "d": BitField(4, 2),
    "b": BitField(10, 3), "m": BitField(24, 5), "max_shift": BitField(30, 2),
}  # fmt: skip
_SCALED = {
    **_COMMON, "scale_b_id": BitField(4, 2), "scale_a_rows": BitField(26), "m": BitField(27, 2),
    "scale_a_id": BitField(29, 2),
}  # fmt: skip
_FP4 = {
    **_SCALED, "b": BitField(10, 2), "sparsity_version": BitField(12), "scale": BitField(23, 2),
    "k_high": BitField(3), "k": BitField(31),
}  # fmt: skip
#: kind -> the fields of its words; all other bits are 0
FIELDS: dict[str, dict[str, BitField]] = {
    "f16": _PLAIN,
    "tf32": _PLAIN,
    "f8f6f4": {**_PLAIN, "k": BitField(29)},
    "i8": _PLAIN,
    "ti16": _PLAIN,
    "mxf8f6f4": {
        **_SCALED, **_TRANSPOSED, "b": BitField(10, 3), "scale": BitField(23), "k": BitField(31),
    },
    "mxf4": _FP4,
    "mxf4nvf4": _FP4,
}  # fmt: skip
#: columns of B that .ws may be shifted by -> code of the field max_shift
MAX_SHIFTS = {0: 0, 8: 1, 16: 2, 32: 3}
#: units of N and M
_N_UNIT, _M_UNIT, _SCALED_M_UNIT = 8, 16, 128
#: numbers of the chips that have K = 96 of mxf4, and those that have what PTX 9.4 added
_WITH_K96, _WITH_PTX_94 = (103, 107), (107,)
_FLAGS = ("transpose_a", "transpose_b", "negate_a", "negate_b", "sparse", "saturate")
#: fields that not all kinds have, and bits that they can take
_NUMBERS = {"selector": 2, "scale_a_id": 2, "scale_b_id": 2, "max_shift": 6, "sparsity_version": 1}


@dataclass(frozen=True)
class InstructionDescriptor:
    """An instruction descriptor of tcgen05.mma; sizes in elements.

    Raises OperandError for what the word of its kind cannot say. Whether an instruction of a
    ``.cta_group`` has the shape, `findings` tells.

    >>> hex(InstructionDescriptor(kind="f16", a="f16", b="f16", m=128, n=256).encode())
    '0x8400010'
    """

    #: "f16", "tf32", "f8f6f4", "i8", "ti16" (sm_107a), "mxf8f6f4", "mxf4" or "mxf4nvf4"
    kind: str = "f16"
    #: types of A and B; "": the only one that the kind has, of f16 bf16
    a: str = ""
    b: str = ""
    #: type of D; "": f32, or s32 for i8 and ti16
    d: str = ""
    m: int = 128
    n: int = 256
    #: A or B is MN-major in shared memory
    transpose_a: bool = False
    transpose_b: bool = False
    #: the sign of every element of A or B is flipped
    negate_a: bool = False
    negate_b: bool = False
    sparse: bool = False
    #: of i8: the result is clamped to s32
    saturate: bool = False
    #: type of the block scales: "ue8m0", or of mxf4nvf4 "ue4m3" (None: that) or "ue5m3" (sm_107a)
    scale: str | None = None
    #: 0: what the kind has everywhere; others are for sm_103a (96) and sm_107a
    k: int = 0
    #: sparsity selector: which of two columns holds the metadata (tf32 and f16)
    selector: int = 0
    #: data ids of the block scales: the first byte of their words
    scale_a_id: int = 0
    scale_b_id: int = 0
    #: most columns that a zero-column mask of .ws shifts B by while it is kept: 0, 8, 16 or 32
    max_shift: int = 0
    #: 0; of mxf4 and mxf4nvf4 on sm_107a 1: a sparse A keeps 2 of 4 elements, not 2 of 4 pairs
    sparsity_version: int = 0
    #: of sm_107a: scales of A lie in 128 lanes instead of 32
    scale_a_rows: bool = False

    def __post_init__(self) -> None:
        kind = KINDS[one_of("the kind of an InstructionDescriptor", self.kind, KINDS)]
        settled: dict[str, Any] = {
            "a": _type("a", self.a, kind),
            "b": _type("b", self.b, kind),
            "d": one_of(f"d of kind {kind.name}", _or_default(self.d, kind.d), kind.d),
            "scale": self._settled_scale(kind),
        }
        for name in (*_FLAGS, "scale_a_rows"):
            settled[name] = flag(f"{name} of an InstructionDescriptor", getattr(self, name))
        for name, unit in (("m", self._m_unit), ("n", _N_UNIT)):
            settled[name] = size = self._number(name, FIELDS[kind.name][name].width, unit)
            if size % unit or not size:
                raise OperandError(
                    f"{name} of kind {kind.name} is a multiple of {unit}; got {size}"
                )
        for name, width in _NUMBERS.items():
            settled[name] = self._number(name, width)
        for name, value in settled.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "k", self._settled_k(kind))
        self._check_together(kind)

    def _number(self, name: str, width: int, unit: int = 1) -> int:
        """A field of so many bits, which counts units."""
        return whole(
            f"{name} of an InstructionDescriptor", getattr(self, name), 0, ((1 << width) - 1) * unit
        )

    def _check_together(self, kind: MmaKind) -> None:
        """Raises OperandError for what the word of the kind has no bits for."""
        if self.max_shift not in MAX_SHIFTS:
            raise OperandError(f"max_shift is one of {listing(MAX_SHIFTS)}; got {self.max_shift}")
        for name in (*_NUMBERS, "scale_a_rows"):
            if getattr(self, name) and name not in FIELDS[kind.name]:
                able = listing([x for x, fields in FIELDS.items() if name in fields])
                raise OperandError(
                    f"the descriptors of kind {kind.name} have no {name}; those of {able} do"
                )
        if (self.transpose_a or self.transpose_b) and not kind.transposable:
            able = listing([x.name for x in KINDS.values() if x.transposable])
            raise OperandError(
                f"matrices of kind {kind.name} cannot be transposed; those of {able} can"
            )
        if (self.negate_a or self.negate_b) and not kind.can_negate:
            able = listing([x.name for x in KINDS.values() if x.can_negate])
            raise OperandError(
                f"matrices of kind {kind.name} cannot be negated; those of {able} can"
            )
        if self.saturate and not kind.can_saturate:
            raise OperandError(f"saturate is for kind i8; got kind {kind.name}")
        if self.d == "f16" and "bf16" in (self.a, self.b):
            raise OperandError("an f16 D takes f16 A and B; bf16 needs d='f32'")

    @property
    def _m_unit(self) -> int:
        return _SCALED_M_UNIT if KINDS[self.kind].is_block_scaled else _M_UNIT

    def _settled_k(self, kind: MmaKind) -> int:
        legal = _sizes_of_k(kind, self.sparse)
        if self.k is None or not whole("k of an InstructionDescriptor", self.k):
            return legal[0]
        if self.k not in legal:
            state = "sparse" if self.sparse else "dense"
            raise OperandError(
                f"k of {state} kind {kind.name} is {listing(legal)}; got {shown(self.k)}"
            )
        return int(self.k)

    def _settled_scale(self, kind: MmaKind) -> str | None:
        if not kind.scales:
            if self.scale is not None:
                raise OperandError(f"kind {kind.name} has no block scales; got {shown(self.scale)}")
            return None
        return one_of(
            f"scale of kind {kind.name}", _or_default(self.scale, kind.scales), kind.scales
        )

    def width(self, operand: str) -> int:
        """Bits that an element of operand "a" or "b" takes in memory."""
        name = one_of("an operand that lies in memory", operand, ("a", "b"))
        kind, type_ = KINDS[self.kind], getattr(self, name)
        dense = self.k // (2 if self.sparse else 1)
        container = 0 if dense == kind.packed_k else kind.container
        return max(container, FORMATS[type_].bits)

    @property
    def has_selector(self) -> bool:
        """True if two lanes share the metadata of two rows, in one of two columns."""
        return self.width("a") >= 16

    @property
    def chunk(self) -> int:
        """Columns of a sparse A that one metadata nibble describes."""
        return KINDS[self.kind].chunks[self.sparsity_version]

    # --- the word ---

    def encode(self) -> int:
        """The 32-bit word."""
        word, kind = 0, KINDS[self.kind]
        k_code = _sizes_of_k(kind, self.sparse).index(self.k)
        codes = {
            "a": kind.types[self.a], "b": kind.types[self.b], "d": D_CODES[self.d],
            "m": self.m // self._m_unit, "n": self.n // _N_UNIT,
            "k": k_code & 1, "k_high": k_code >> 1, "max_shift": MAX_SHIFTS[self.max_shift],
            "scale": kind.scales.get(self.scale or "", 0),
        }  # fmt: skip
        for name, field in FIELDS[self.kind].items():
            code = codes[name] if name in codes else getattr(self, name)
            word |= int(code) << field.low
        return word

    @classmethod
    def decode(cls, word: int, kind: str) -> InstructionDescriptor:
        """The descriptor that a 32-bit word holds; the kind is that of the opcode.

        Raises OperandError for codes that mean nothing and for bits set that belong to no field.
        """
        facts = KINDS[one_of("the kind of an instruction descriptor", kind, KINDS)]
        word = whole("an instruction descriptor of 32 bits", word, 0, (1 << 32) - 1)
        fields = FIELDS[kind]
        left = word & ~sum(field.mask for field in fields.values())
        if left:
            bits = [bit for bit in range(32) if left >> bit & 1]
            raise OperandError(
                f"instruction descriptor {word:#010x} of kind {kind}: bits {runs(bits)} are set, "
                "which belong to no field and must be 0"
            )
        codes = {name: field.get(word) for name, field in fields.items()}
        named = {
            "a": _named("A type", codes["a"], facts.types, word),
            "b": _named("B type", codes["b"], facts.types, word),
            "k": _named(
                "K", codes.pop("k", 0) | codes.pop("k_high", 0) << 1,
                {k: code for code, k in enumerate(_sizes_of_k(facts, bool(codes["sparse"])))}, word,
            ),
        }  # fmt: skip
        if "d" in codes:
            named["d"] = _named("D type", codes["d"], D_CODES, word)
        if "scale" in codes:
            named["scale"] = _named("scale type", codes["scale"], facts.scales, word)
        if "max_shift" in codes:
            named["max_shift"] = _named("maximum shift", codes["max_shift"], MAX_SHIFTS, word)
        unit = _SCALED_M_UNIT if facts.is_block_scaled else _M_UNIT
        sizes = {"m": codes["m"] * unit, "n": codes["n"] * _N_UNIT}
        return cls(kind, **{**codes, **named, **sizes})

    @property
    def not_modelled(self) -> str:
        """The part of it that this package does not model, in words; "" where it models all."""
        for operand in "ab":
            packed = self.width(operand) < 8
            # A dense one is an error.
            if self.sparse and packed and getattr(self, f"transpose_{operand}"):
                return (
                    f"an MN-major {operand.upper()} of {getattr(self, operand)} without padding "
                    f"(K = {self.k}): no source says where its elements lie"
                )
        return ""

    # --- what is wrong with it ---

    def findings(
        self,
        cta_group: int = 1,
        *,
        weight_stationary: bool = False,
        target: str | Target | None = None,
    ) -> tuple[Finding, ...]:
        """Mistakes of an instruction of that ``.cta_group`` (``.ws``) and descriptor, errors
        first. `target` None: on all that have tcgen05.
        """
        whole("cta_group", cta_group, 1, 2)
        chip = None if target is None else find_target(target)
        weight_stationary = flag("weight_stationary", weight_stationary)
        found = [*_shape(self, cta_group, weight_stationary), *_types(self), *_ids(self)]
        if chip is not None:
            found += _not_on(self, chip)
        if self.max_shift and not weight_stationary:
            found.append(
                mistake("max_shift", "a maximum shift is for tcgen05.mma.ws", "max_shift 0")
            )
        return tuple(sorted(found, key=lambda x: x.level))

    def validate(
        self,
        cta_group: int = 1,
        *,
        weight_stationary: bool = False,
        target: str | Target | None = None,
    ) -> list[str]:
        """`findings` in plain words; [] if nothing is wrong."""
        found = self.findings(cta_group, weight_stationary=weight_stationary, target=target)
        return [f"{x.message}; legal: {x.legal}" for x in found]

    def replace(self, **fields: Any) -> InstructionDescriptor:
        """With some fields changed; a K that no longer fits `sparse` becomes the usual one."""
        if fields.get("sparse", self.sparse) != self.sparse and "k" not in fields:
            fields["k"] = 0
        return replace(self, **fields)


def _is_left_out(given: object) -> bool:
    return given is None or (isinstance(given, str) and not given)


def _or_default(given: object, legal: Iterable[str]) -> object:
    """`given`, or the first legal word where it is left out."""
    return next(iter(legal)) if _is_left_out(given) else given


def _type(name: str, given: str | None, kind: MmaKind) -> str:
    left_out = _is_left_out(given)
    if left_out and (len(kind.types) == 1 or kind.name == "f16"):
        return list(kind.types)[-1]
    if left_out:
        raise OperandError(
            f"{name} of an InstructionDescriptor of kind {kind.name} is needed: "
            f"{listing(kind.types)}"
        )
    return one_of(f"{name} of kind {kind.name}", given, kind.types)


def _sizes_of_k(kind: MmaKind, sparse: bool) -> tuple[int, ...]:
    """K by its code in the word."""
    return kind.sparse_k if sparse else kind.dense_k


def _named(what: str, code: int, codes: dict[Any, int], word: int) -> Any:
    for name, own in codes.items():
        if own == code:
            return name
    legal = listing(f"{own} {name}" for name, own in codes.items())
    raise OperandError(
        f"instruction descriptor {word:#010x}: {what} has code {code}, which means nothing; "
        f"codes are {legal}"
    )


def _shape(
    descriptor: InstructionDescriptor, cta_group: int, weight_stationary: bool
) -> Iterator[Finding]:
    kind, m, n = descriptor.kind, descriptor.m, descriptor.n
    who = f"kind {kind} of .cta_group::{cta_group}" + (" with .ws" if weight_stationary else "")
    shapes = find_shapes(kind, cta_group, descriptor.sparse, weight_stationary)
    if not shapes:
        yield mistake("kind", f"there is no tcgen05.mma of {who}", "another .cta_group")
        return
    sizes_of_m = tuple(x for row in shapes for x in row.m)
    sizes_of_n = next((row.n for row in shapes if m in row.m), shapes[0].n)
    for name, size, legal in (("m", m, sizes_of_m), ("n", n, sizes_of_n)):
        if size not in legal:
            best = min(legal, key=lambda x, size=size: abs(x - size))  # type: ignore[misc]
            state = "sparse " if descriptor.sparse else ""
            yield mistake(
                name,
                f"{name} = {size}: {state}{who} has no such {name.upper()}",
                f"{name} {runs(legal)}: nearest is {best}",
            )
    step = 16 * cta_group
    if descriptor.transpose_b and descriptor.width("b") == 8 and n % step:
        yield mistake(
            "n",
            f"n = {n} with a transposed B of 8-bit elements",
            f"a multiple of {step}: nearest is {max(step, round(n / step) * step)}",
        )
    if (descriptor.k, cta_group, m) == (96, 2, 128):
        yield warning(
            "m", "m = 128 with K = 96: the manual lists 256 alone, CUTLASS takes it", "m 256"
        )


def _types(descriptor: InstructionDescriptor) -> Iterator[Finding]:
    """Checks fields that only some types of a kind can have."""
    kind = KINDS[descriptor.kind]
    for operand in "ab":
        type_ = getattr(descriptor, operand)
        small, packed = FORMATS[type_].bits < 8, descriptor.width(operand) < 8
        if packed and getattr(descriptor, f"transpose_{operand}") and not descriptor.sparse:
            yield mistake(
                f"transpose_{operand}",
                f"{operand.upper()} of {type_} is MN-major: with k {descriptor.k} elements below 8 "
                "bits are K-major",
                f"transpose_{operand} 0",
            )
        if (
            small
            and kind.name == "f8f6f4"
            and descriptor.k != _sizes_of_k(kind, descriptor.sparse)[0]
        ):
            yield mistake(
                "k",
                f"k {descriptor.k} of kind f8f6f4 with {operand.upper()} of {type_}",
                "types e4m3 and e5m2",
            )


def _ids(descriptor: InstructionDescriptor) -> Iterator[Finding]:
    """Selectors and data ids: which of them a kind has."""
    if descriptor.selector and not (descriptor.sparse and descriptor.has_selector):
        yield mistake(
            "selector",
            f"selector {descriptor.selector}: only sparse instructions of kinds f16, tf32 and ti16 "
            "have one",
            "selector 0",
        )
    elif descriptor.selector > 1:
        yield mistake(
            "selector",
            f"selector {descriptor.selector}: the metadata lies in one of two columns",
            "selector 0 or 1",
        )
    if descriptor.kind in ("mxf4", "mxf4nvf4"):
        for name in ("scale_a_id", "scale_b_id"):
            if getattr(descriptor, name) % 2:
                yield mistake(
                    name,
                    f"{name} {getattr(descriptor, name)}: scales of kind "
                    f"{descriptor.kind} start with the low or the high half of a word",
                    f"{name} 0 or 2",
                )


#: what takes the place of what later chips added, but for K
_USUAL = {"sparsity_version": 0, "scale_a_rows": 0, "scale": "ue4m3"}
#: fields that not all targets have in full
TARGETED = ("k", "sparsity_version", "scale_a_rows", "scale")


def _not_on(descriptor: InstructionDescriptor, chip: Target) -> Iterator[Finding]:
    """Finds features that were added by chips later than `chip`."""
    dense = descriptor.k // (2 if descriptor.sparse else 1)
    usual = KINDS[descriptor.kind].dense_k[0]
    added = {
        "k": dense not in (usual, 96), "sparsity_version": descriptor.sparsity_version != 0,
        "scale_a_rows": descriptor.scale_a_rows, "scale": descriptor.scale == "ue5m3",
    }  # fmt: skip
    for name, used in added.items():
        if used and chip.number not in _WITH_PTX_94:
            yield mistake(
                name,
                f"{name} {getattr(descriptor, name)} is for sm_107a; the target is {chip}",
                f"{name} {_USUAL.get(name, usual)}",
            )
    versions = len(KINDS[descriptor.kind].chunks) > 1 and descriptor.sparse
    if versions and not descriptor.sparsity_version and chip.number in _WITH_PTX_94:
        yield mistake(
            "sparsity_version",
            f"sparsity_version 0 of kind {descriptor.kind}, which {chip} does not have",
            "sparsity_version 1",
        )
    if dense == 96 and chip.number not in _WITH_K96:
        yield mistake(
            "k",
            f"k {descriptor.k} is for sm_103a and sm_107a; the target is {chip}",
            f"k {descriptor.k // 96 * usual}",
        )
