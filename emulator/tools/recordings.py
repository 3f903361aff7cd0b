"""Recordings of real hardware: the bits of inputs, and the bits that came out.

A group is two files beside each other: ``NAME.npz`` holds the arrays, ``NAME.json`` the provenance
and a list of variants, each naming its opcode, its options and its arrays. The first axis of every
array counts cases. The groups are in ``tests/golden``, which an installed package carries as
``emulator/golden``; the project's capture tool writes files of the same format.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from emulator.errors import EmulatorError
from emulator.isa.kinds import is_of_warpgroup

Array = NDArray[np.generic]
Provenance = dict[str, str]
#: What was recorded: the registers that an instruction returned, the memory that stmatrix left,
#: the memory of D after wmma.load, mma and store, or single dot products, each fed to one element
#: of a matrix multiplication.
Kind = Literal["registers", "memory", "wmma", "dot"]


@dataclass(frozen=True)
class Recording:
    """One instruction with fixed immediates, run on hardware for a number of cases."""

    group: str
    opcode: str
    target: str
    #: operands of `execute` in order; of a "dot" the codes a ``(cases, k)``, b ``(cases, k)``, c;
    #: of a "wmma" the memories ``(cases, bytes)`` of A, B, C and of D before
    operands: tuple[Array, ...]
    #: options of `execute`; those that are arrays have one entry for each case. Of a "wmma" the
    #: opcodes that load "a", "b", "c" and store "d"
    options: dict[str, Any]
    #: what the hardware returned, ``(cases, …)``
    expected: Array
    kind: Kind = "registers"
    #: origin, from the .json file: gpu, driver, date, source, licence …
    provenance: Provenance = field(default_factory=dict, repr=False)

    @property
    def cases(self) -> int:
        return len(self.expected)

    @property
    def name(self) -> str:
        """Opcode and options, which tell it from the others of its group."""
        words = [self.opcode]
        for option, value in self.options.items():
            if not isinstance(value, np.ndarray):
                words.append(value if self.kind == "wmma" else f"{option}={value}")
        if is_of_warpgroup(self.opcode) and self.kind == "registers":
            words.append("A from shared" if self.operands[0].dtype == np.uint64 else "A from lanes")
        if self.kind == "dot":
            words.append(f"on {self.provenance.get('gpu', self.target)}")
        return " ".join(words)

    def head(self, count: int) -> Recording:
        """The first `count` cases of it."""
        return self.part(slice(count))

    def part(self, cases: slice) -> Recording:
        """These of its cases."""
        cut = {k: v[cases] if isinstance(v, np.ndarray) else v for k, v in self.options.items()}
        operands = tuple(x[cases] for x in self.operands)
        return replace(self, operands=operands, options=cut, expected=self.expected[cases])


# --- files ---


def golden_folder() -> Path:
    """The folder of recordings, of an installed package or of a checkout.

    Raises FileNotFoundError where neither is there.
    """
    package = Path(__file__).parent.parent
    places = (package / "golden", package.parent / "tests" / "golden")
    for folder in places:
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"no recordings: neither {places[0]} nor {places[1]} exists")


def groups(folder: Path | None = None) -> tuple[str, ...]:
    """Names of the groups in `folder`, in alphabetical order."""
    return tuple(sorted(path.stem for path in (folder or golden_folder()).glob("*.json")))


def recordings(group: str = "", folder: Path | None = None) -> Iterator[Recording]:
    """The recorded variants of one group, or of all; raises EmulatorError for an unknown group."""
    folder = folder or golden_folder()
    known = groups(folder)
    if group and group not in known:
        raise EmulatorError(f"no recordings {group!r} in {folder}; groups are {', '.join(known)}")
    for name in [group] if group else known:
        yield from _load(folder / name)


def _load(path: Path) -> Iterator[Recording]:
    about = json.loads(path.with_suffix(".json").read_text())
    with np.load(path.with_suffix(".npz")) as file:
        arrays = {key: file[key] for key in file.files}
    for row in about["variants"]:
        options = row.get("options", {}) | {k: arrays[v] for k, v in row.get("arrays", {}).items()}
        operands = tuple(arrays[key] for key in row["operands"])
        given = operands, options, arrays[row["expected"]], row.get("kind", "registers")
        provenance = about["provenance"] | row.get("provenance", {})
        yield Recording(path.stem, row["opcode"], row["target"], *given, provenance)


def save(path: Path, provenance: Provenance, variants: Iterable[Recording]) -> None:
    """Writes one group, as ``path.npz`` and ``path.json``; an array that recurs is written once.

    `provenance` is that of the group; what a variant has besides goes with the variant.
    """
    arrays: dict[str, Array] = {}
    keys: dict[tuple[bytes, str, tuple[int, ...]], str] = {}

    def key(name: str, array: Array) -> str:
        content = (array.tobytes(), array.dtype.str, array.shape)
        if content not in keys:
            keys[content] = name
            arrays[name] = array
        return keys[content]

    rows = []
    for i, variant in enumerate(variants):
        names = [key(f"{i}.{j}", x) for j, x in enumerate(variant.operands)]
        row: dict[str, object] = {"opcode": variant.opcode, "target": variant.target}
        row |= {"operands": names, "expected": key(f"{i}.expected", variant.expected)}
        if variant.kind != "registers":
            row["kind"] = variant.kind
        if own := {k: v for k, v in variant.provenance.items() if provenance.get(k) != v}:
            row["provenance"] = own
        is_array = {k: isinstance(v, np.ndarray) for k, v in variant.options.items()}
        if plain := {k: v for k, v in variant.options.items() if not is_array[k]}:
            row["options"] = plain
        if held := {k: key(f"{i}.{k}", v) for k, v in variant.options.items() if is_array[k]}:
            row["arrays"] = held
        rows.append(json.dumps(row))
    listed = ",\n  ".join(rows)
    head = json.dumps(provenance, indent=1)
    path.with_suffix(".json").write_text(
        f'{{"provenance": {head},\n "variants": [\n  {listed}\n]}}\n'
    )
    np.savez_compressed(path.with_suffix(".npz"), **arrays)  # type: ignore[arg-type]
