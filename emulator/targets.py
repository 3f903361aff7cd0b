"""The targets sm_70 … sm_121a, their generations, and the names people use for them.

The names are those that ptxas of CUDA 13.5 lists, with sm_70 and sm_72, which older ones took.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from emulator.errors import UnsupportedError, hint, listing, quoted, shown

#: Chips of one generation share the arithmetic of their tensor cores.
Generation = Literal["volta", "turing", "ampere", "ada", "hopper", "blackwell", "rtx_blackwell"]


@dataclass(frozen=True)
class Target:
    """One `.target` of PTX."""

    name: str
    generation: Generation
    #: what it has, of `FEATURES` and as sm_N what PTX gives to "sm_N or higher"; none unless named
    features: frozenset[str] = frozenset()
    #: bytes of shared memory that a block can have, and those that the system keeps below them
    shared_limit: int = 0
    reserved_shared: int = 0
    #: columns of the tensor memory of a block; 0 without any
    tensor_columns: int = 0
    #: bits of an address of shared memory, in units of 16 bytes, in the descriptors of tcgen05
    descriptor_bits: int = 14
    #: the first PTX version with the target: (9, 4)
    version: tuple[int, int] = (1, 0)
    #: numbers of the chips that run what is made for the family of this one (sm_100f)
    family: tuple[int, ...] = ()

    @cached_property
    def number(self) -> int:
        """80 for sm_80; what "sm_80 and later" compares."""
        return int(re.sub(r"\D", "", self.name))

    @property
    def specific(self) -> bool:
        """sm_90a, sm_120f: the target has features that later numbers need not have."""
        return not self.name[-1].isdigit()

    def __str__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return hash(self.name)  # every call looks targets up


#: the numbers N for which PTX says "sm_N or higher"
LAYERS = (70, 72, 75, 80, 86, 89, 90, 100)

#: Features beyond these layers, and the instructions that need them.
FEATURES = {
    "bulk.relaxed": "relaxed bulk copies from global memory to shared memory of the cluster",
    "wgmma": "wgmma.mma_async, its fences and its groups",
    "setmaxnreg": "setmaxnreg: registers moved between warps",
    "tensormap.replace": "tensor maps edited by a kernel",
    "tensormap.swizzle_atomicity": "the field swizzle_atomicity of tensor maps",
    "multicast::cluster::all": "try_cancel with its result in every block of a cluster",
    "ldmatrix.s8": "ldmatrix of s4 elements as s8",
    "ldmatrix.b8": "ldmatrix and stmatrix of bytes; elements of 6 and 4 bits as bytes",
    "mma.called": "mma of fp8, which ptxas compiles to a function call",
    "mma.fp8_kind": "mma of two fp8 types with .kind::f8f6f4",
    "mma.fp4": "mma of fp6 and fp4, and block scales",
    "mma.sp.fp4": "mma.sp of fp4 with block scales",
    "f32x2": "arithmetic on f32x2 in hardware; without it ptxas uses two instructions",
    "add.u8x4": "arithmetic on u8x4 and s8x4, and saturated on u16x2 and s16x2",
    "add.e4m3x4": "arithmetic on four fp8, fp6 or fp4 elements",
    "redux.f32": "redux.sync of f32",
    "spcompress": "register vectors to their sparse form and back",
    "multimem.e4m3": "multimem statements of fp8",
    "fabric.e4m3": "reductions of the fabric on fp8, and with wider sums",
    "cvt.e2m1x2": "conversions of fp6, fp4 and ue8m0",
    "cvt.s2f6x2": "conversions of s2f6",
    "cvt.rz.s2f6x2": "conversions to s2f6 with .rz",
    "cvt.rs": "stochastic rounding",
    "cvt.pzo": "conversions of ue5m3, with .pzo, or with one block scale",
    "tcgen05": "tensor memory, its matrix instructions, and pairs of blocks",
    "tcgen05.scale_vec": ".scale_vec::NX, tcgen05.shift, and sparse products with fp4",
    "tcgen05.i8": "tcgen05.mma of .kind::i8",
    "tcgen05.ti16": ".kind::ti16, collectors of B, and commits with .sync_restrict",
    "tcgen05.scale_input_d": "tcgen05.mma that divides the old D by a power of two",
    "tcgen05.ld.red": "tcgen05.ld that also returns the least or greatest element",
    "tcgen05.ld.spcompress": "tcgen05.ld that keeps the greater half of the elements",
}
_SPECIFIC_90 = "setmaxnreg tensormap.replace ldmatrix.s8"
_SPECIFIC_100 = (
    f"{_SPECIFIC_90} tensormap.swizzle_atomicity multicast::cluster::all ldmatrix.b8 "
    "mma.fp8_kind cvt.e2m1x2 fabric.e4m3"
)
_TENSOR_MEMORY = f"{_SPECIFIC_100} bulk.relaxed multimem.e4m3 tcgen05"
_RTX = f"{_SPECIFIC_100} mma.fp4 add.u8x4"
_EXACT_RTX = "mma.sp.fp4 cvt.s2f6x2 multimem.e4m3"


def _chip(
    number: int,
    generation: Generation,
    layer: int,
    shared: int,
    *,
    plain: tuple[int, int],
    exact: tuple[int, int] | None = None,
    family: tuple[int, int] | None = None,
    reserved: int = 0,
    columns: int = 0,
    descriptor_bits: int = 14,
    runs_family: tuple[int, ...] = (),
    has: str = "",
    has_suffixed: str = "",
    has_exact: str = "",
) -> Iterator[Target]:
    """The targets of one chip: sm_N, sm_Na and sm_Nf.

    They have PTX's features of sm_M and higher for each M up to `layer`, those in `has`, with a
    suffix those in `has_suffixed`, and sm_Na those in `has_exact`. `plain`, `exact` and `family`
    are the first PTX versions with each, None without one.
    """
    layers = " ".join(f"sm_{n}" for n in LAYERS if n <= layer)
    for suffix, version, more in (
        ("", plain, ""),
        ("a", exact, f"{has_suffixed} {has_exact}"),
        ("f", family, has_suffixed),
    ):
        if version:
            yield Target(
                f"sm_{number}{suffix}",
                generation,
                frozenset(f"{layers} {has} {more}".split()),
                shared << 10,
                reserved << 10,
                columns,
                descriptor_bits,
                version,
                runs_family,
            )


# KiB of shared memory that a block can have: CUDA C++ Programming Guide, compute capabilities (of
# sm_107 nothing is published, and it has what sm_103 has). Columns of tensor memory and bits of
# descriptors: PTX ISA 9.4, tcgen05.alloc. Versions: as ptxas has them.
TARGETS: dict[str, Target] = {
    target.name: target
    for chip in (
        _chip(70, "volta", 70, 96, plain=(6, 0)),
        _chip(72, "volta", 72, 96, plain=(6, 1)),
        _chip(75, "turing", 75, 64, plain=(6, 3)),
        _chip(80, "ampere", 80, 163, plain=(7, 0)),
        _chip(86, "ampere", 86, 99, plain=(7, 1)),
        _chip(87, "ampere", 86, 163, plain=(7, 4)),
        _chip(88, "ampere", 86, 99, plain=(9, 0)),
        _chip(89, "ada", 89, 99, plain=(7, 8)),
        _chip(90, "hopper", 90, 227, plain=(7, 8), exact=(8, 0), reserved=1, has="mma.called",
              has_exact=f"{_SPECIFIC_90} wgmma bulk.relaxed"),
        _chip(100, "blackwell", 100, 227, plain=(8, 6), exact=(8, 6), family=(8, 8), reserved=1,
              columns=512, runs_family=(100, 103), has="mma.called f32x2",
              has_suffixed=f"{_TENSOR_MEMORY} redux.f32 tcgen05.scale_input_d",
              has_exact="add.e4m3x4 cvt.s2f6x2 cvt.rs tcgen05.scale_vec tcgen05.i8"),
        _chip(103, "blackwell", 100, 227, plain=(8, 8), exact=(8, 8), family=(8, 8), reserved=1,
              columns=512, runs_family=(103,), has="mma.called f32x2",
              has_suffixed=f"{_TENSOR_MEMORY} redux.f32 tcgen05.scale_input_d tcgen05.ld.red",
              has_exact="add.e4m3x4 cvt.s2f6x2 cvt.rs tcgen05.scale_vec"),
        _chip(107, "blackwell", 100, 227, plain=(9, 4), exact=(9, 4), family=(9, 4), reserved=1,
              columns=576, descriptor_bits=15, runs_family=(107,), has="mma.called f32x2",
              has_suffixed=f"{_TENSOR_MEMORY} add.u8x4 cvt.pzo tcgen05.ti16 tcgen05.scale_input_d "
              "tcgen05.ld.red redux.f32",
              has_exact="spcompress cvt.s2f6x2 cvt.rz.s2f6x2 cvt.rs tcgen05.scale_vec "
              "tcgen05.ld.spcompress"),
        _chip(110, "blackwell", 100, 227, plain=(9, 0), exact=(9, 0), family=(9, 0), reserved=1,
              columns=512, runs_family=(110,), has="mma.called f32x2",
              has_suffixed=f"{_TENSOR_MEMORY} tcgen05.ld.red",
              has_exact="cvt.s2f6x2 tcgen05.scale_vec tcgen05.i8"),
        _chip(120, "rtx_blackwell", 100, 99, plain=(8, 7), exact=(8, 7), family=(8, 8), reserved=1,
              runs_family=(120, 121), has_suffixed=_RTX, has_exact=_EXACT_RTX),
        _chip(121, "rtx_blackwell", 100, 99, plain=(8, 8), exact=(8, 8), family=(8, 8), reserved=1,
              runs_family=(121,), has_suffixed=_RTX, has_exact=_EXACT_RTX),
    )
    for target in chip
}  # fmt: skip

#: Products and generations, in lower case, to the target that a kernel for them is built for.
ALIASES: dict[str, str] = {
    "volta": "sm_70", "v100": "sm_70", "titanv": "sm_70", "xavier": "sm_72",
    "turing": "sm_75", "t4": "sm_75", "rtx2080": "sm_75",
    "ampere": "sm_80", "a100": "sm_80", "a800": "sm_80", "a30": "sm_80",
    "a2": "sm_86", "a10": "sm_86", "a40": "sm_86", "rtx3090": "sm_86",
    "orin": "sm_87", "jetsonorin": "sm_87",
    "ada": "sm_89", "l4": "sm_89", "l40": "sm_89", "l40s": "sm_89", "rtx4090": "sm_89",
    "hopper": "sm_90a", "h20": "sm_90a", "h100": "sm_90a", "h200": "sm_90a", "h800": "sm_90a",
    "gh200": "sm_90a",
    "blackwell": "sm_100a", "b100": "sm_100a", "b200": "sm_100a", "gb200": "sm_100a",
    "b300": "sm_103a", "gb300": "sm_103a", "thor": "sm_110a", "jetsonthor": "sm_110a",
    "rtx5090": "sm_120a", "rtxpro6000": "sm_120a",
    "spark": "sm_121a", "dgxspark": "sm_121a", "gb10": "sm_121a",
}  # fmt: skip
#: Products and generations without tensor cores.
_TOO_OLD = re.compile(
    r"kepler|maxwell|pascal|k[248]0|m[46]0|p4|p40|p100|gtx[5-9]\d0(ti)?|gtx10\d0(ti)?|titanxp?|"
    r"(sm_?|compute_?)?[1-6]\d"
)


def find_target(name: str | Target) -> Target:
    """The target of that name or alias, in any case; raises UnsupportedError for any other.

    ``90a``, ``sm90a`` and ``compute_90a`` are sm_90a, too.

    >>> find_target("H100").name
    'sm_90a'
    """
    if isinstance(name, Target):
        return name
    if not isinstance(name, str):
        raise UnsupportedError(f"target must be a name such as 'sm_90a'; got {shown(name)}")
    if name in TARGETS:
        return TARGETS[name]
    key = re.sub(r"[\s-]", "", name.lower())
    number = re.fullmatch(r"(?:sm_?|compute_?)?([0-9]{1,4}[af]?)", key)
    if target := TARGETS.get(f"sm_{number[1]}" if number else ALIASES.get(key, key)):
        return target
    if _TOO_OLD.fullmatch(key):
        raise UnsupportedError(
            f"no target {quoted(name)}: too old, without tensor cores; the first with them is sm_70"
        )
    if number and number[1].isdigit():
        # What is built for an older chip runs on a newer one.
        older = [t.name for t in TARGETS.values() if t.number < int(number[1]) and not t.specific]
        close = f"; nearest is {older[-1]!r}" if older else ""
    else:
        close = hint(key, [*TARGETS, *ALIASES])
    close = close.replace("nearest", "the nearest")
    raise UnsupportedError(
        f"no target {quoted(name, 80)}{close}; targets are {listing(TARGETS, 40)}"
    )


class Board(NamedTuple):
    """Sizes of a GPU as sold, from its data sheet."""

    processors: int
    memory_gib: int
    clock_khz: int
    #: bits
    memory_bus: int
    l2_mib: int


#: by the name of the chip
BOARDS = {
    "V100": Board(80, 16, 1_530_000, 4096, 6), "T4": Board(40, 16, 1_590_000, 256, 4),
    "A100": Board(108, 40, 1_410_000, 5120, 40), "A10": Board(72, 24, 1_695_000, 384, 6),
    "L4": Board(58, 24, 2_040_000, 192, 48), "L40": Board(142, 48, 2_490_000, 384, 96),
    "H100": Board(132, 80, 1_980_000, 5120, 50), "H200": Board(132, 141, 1_980_000, 6144, 50),
    "B200": Board(148, 180, 1_965_000, 8192, 126),
}  # fmt: skip
_OTHER_BOARD = Board(132, 16, 1_500_000, 4096, 32)


class Processor(NamedTuple):
    """One multiprocessor (CUDA C++ Programming Guide, compute capabilities)."""

    shared_kib: int
    threads: int
    blocks: int
    #: how many f32 operations it does in the time of one of f64
    double_ratio: int


#: by number of the target
PROCESSORS = {
    70: Processor(96, 2048, 32, 2), 72: Processor(96, 2048, 32, 32),
    75: Processor(64, 1024, 16, 32), 80: Processor(164, 2048, 32, 2),
    86: Processor(100, 1536, 16, 64), 87: Processor(164, 1536, 16, 64),
    88: Processor(100, 1536, 16, 64), 89: Processor(100, 1536, 24, 64),
    90: Processor(228, 2048, 32, 2), 100: Processor(228, 2048, 32, 2),
    103: Processor(228, 2048, 32, 64), 110: Processor(228, 1536, 24, 64),
    120: Processor(100, 1536, 24, 64), 121: Processor(100, 1536, 24, 64),
}  # fmt: skip


class Chip(NamedTuple):
    """A GPU, or any that runs PTX for a target."""

    #: "H200", or the name of a target: any chip of that number
    name: str
    #: the target with every feature of the chip, which libraries are built for
    target: Target

    @property
    def board(self) -> Board:
        """The sizes of the GPU; those of none in particular for a chip that is not in `BOARDS`."""
        return BOARDS.get(self.name, _OTHER_BOARD)

    @property
    def processor(self) -> Processor:
        """A multiprocessor of the GPU."""
        return PROCESSORS[max(n for n in PROCESSORS if n <= self.target.number)]


def find_chip(name: str | Target) -> Chip:
    """The chip of that name or target; raises UnsupportedError for any other.

    >>> find_chip("h200").name, find_chip("sm_90").target.name
    ('H200', 'sm_90a')
    """
    target = find_target(name)
    key = re.sub(r"[\s-]", "", name.lower()) if isinstance(name, str) else ""
    own = TARGETS.get(f"sm_{target.number}a", target)
    return Chip(key.upper() if key in ALIASES else target.name, own)


def runs_on(made_for: Target, chip: Target) -> bool:
    """Whether PTX for one target can be compiled for a chip: a later one, unless features of that
    chip (a) or family (f) alone are meant."""
    if made_for.name.endswith("a"):
        return chip.name == made_for.name
    if made_for.name.endswith("f"):
        return chip.number in made_for.family
    return chip.number >= made_for.number


def is_before_tensor_cores(name: str) -> bool:
    """Whether `name` is that of a chip which is too old to be simulated."""
    return re.fullmatch(r"sm_[1-6]\d", name) is not None


def check_made_for(name: str, chip: Target) -> None:
    """Raises UnsupportedError where PTX whose ``.target`` is `name` cannot be compiled for `chip`.

    PTX for chips without tensor cores runs on all that are known.
    """
    if is_before_tensor_cores(name):
        return
    own = find_target(name)
    if not runs_on(own, chip):
        why = f", which uses features of {own} alone" if own.specific else ", a later chip"
        raise UnsupportedError(f"the text is made for {own} (.target){why}: {chip} cannot run it")


def having(*features: str) -> tuple[str, ...]:
    """Names of the targets that have all these features: of `FEATURES`, or ``sm_80`` for what PTX
    gives to "sm_80 or higher". The tables say with it where a form is legal."""
    known = {*FEATURES, *(f"sm_{n}" for n in LAYERS)}
    assert known.issuperset(features), features
    return tuple(name for name, target in TARGETS.items() if target.features.issuperset(features))
