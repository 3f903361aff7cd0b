"""The targets sm_70 … sm_121a, their generations, and the names people use for them.

The names are those that ptxas of CUDA 13.5 lists, with sm_70 and sm_72, which older ones took.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from emulator.errors import UnsupportedError, hint, listing, quoted, shown

#: Chips of one generation share the arithmetic of their tensor cores.
Generation = Literal["volta", "turing", "ampere", "ada", "hopper", "blackwell", "rtx_blackwell"]


@dataclass(frozen=True)
class Target:
    """One `.target` of PTX."""

    name: str
    generation: Generation
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


_GENERATIONS: tuple[tuple[Generation, str], ...] = (
    ("volta", "70 72"),
    ("turing", "75"),
    ("ampere", "80 86 87 88"),
    ("ada", "89"),
    ("hopper", "90 90a"),
    ("blackwell", "100 100a 100f 103 103a 103f 107 107a 107f 110 110a 110f"),
    ("rtx_blackwell", "120 120a 120f 121 121a 121f"),
)

#: KiB of shared memory that a block can have (CUDA C++ Programming Guide, compute capabilities);
#: of sm_107 nothing is published, and it has what sm_103 has
_SHARED_KIB = {
    "70": 96, "72": 96, "75": 64, "80": 163, "86": 99, "87": 163, "88": 99, "89": 99, "90": 227,
    "100": 227, "103": 227, "107": 227, "110": 227, "120": 99, "121": 99,
}  # fmt: skip
#: columns of tensor memory (PTX ISA 9.4, table of tcgen05.alloc)
_TENSOR_COLUMNS = {"100": 512, "103": 512, "107": 576, "110": 512}
#: bits of addresses in shared-memory descriptors of tcgen05 (PTX ISA 9.4), where not 14
_DESCRIPTOR_BITS = {"107": 15}
#: generations whose blocks start with 1 KiB of the system's
_RESERVING = ("hopper", "blackwell", "rtx_blackwell")
#: first PTX version -> targets, as ptxas has it
_VERSIONS = {
    (6, 0): "70", (6, 1): "72", (6, 3): "75", (7, 0): "80", (7, 1): "86", (7, 4): "87",
    (7, 8): "89 90", (8, 0): "90a", (8, 6): "100 100a", (8, 7): "120 120a",
    (8, 8): "100f 103 103a 103f 120f 121 121a 121f", (9, 0): "88 110 110a 110f",
    (9, 4): "107 107a 107f",
}  # fmt: skip
#: chips of one family: what is made for the family (f) of one runs on it and the later ones
_FAMILIES = ((100, 103), (107,), (110,), (120, 121))


def _row(number: str, generation: Generation) -> Target:
    plain = number.rstrip("af")
    reserved = 1024 if generation in _RESERVING else 0
    version = next((v for v, numbers in _VERSIONS.items() if number in numbers.split()), (1, 0))
    family = next((chips for chips in _FAMILIES if int(plain) in chips), ())
    return Target(
        f"sm_{number}", generation, _SHARED_KIB[plain] << 10, reserved,
        _TENSOR_COLUMNS.get(plain, 0), _DESCRIPTOR_BITS.get(plain, 14), version,
        tuple(chip for chip in family if chip >= int(plain)),
    )  # fmt: skip


TARGETS: dict[str, Target] = {
    f"sm_{number}": _row(number, generation)
    for generation, numbers in _GENERATIONS
    for number in numbers.split()
}

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


def select(*, since: int = 0, specific: bool = False, only: str = "") -> tuple[str, ...]:
    """Names of the targets from number `since` on, of those with a suffix if `specific`, or of
    exactly those named in `only`. The tables say with it where a form is legal."""

    def chosen() -> Iterator[str]:
        for target in TARGETS.values():
            if only:
                if target.name.removeprefix("sm_") in only.split():
                    yield target.name
            elif target.number >= since and (target.specific or not specific):
                yield target.name

    return tuple(chosen())
