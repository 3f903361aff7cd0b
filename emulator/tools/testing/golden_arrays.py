"""Golden files of a test: named arrays and where they came from, in one .npz without pickles.

Arrays of NumPy's own types are stored as they are, those of ml_dtypes as their bits, with the name
of their type beside the provenance.
"""

from __future__ import annotations

import json
import platform
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dtypes import Array
from emulator.errors import OperandError, shown
from emulator.isa.instruction import Instruction, as_instruction
from emulator.layout.fragment import Fragment
from emulator.tools.files import read_npz, write_npz
from emulator.tools.testing.difference import find_differences
from emulator.tools.testing.difference_kinds import Nan, SignedZero

#: the entry of the .npz that holds the types and the provenance as JSON
ABOUT = "about.json"


class Golden(NamedTuple):
    """The content of one file."""

    arrays: dict[str, Array]
    provenance: dict[str, str]


def read_golden(path: Path) -> Golden:
    """The arrays and provenance of a file; raises OperandError where it is damaged."""
    again = "--update-golden writes a new one"
    try:
        arrays = read_npz(path)
    except OperandError as error:
        raise OperandError(f"{error}; {again}") from None
    try:
        about = json.loads(str(arrays.pop(ABOUT)))
        types = {name: _type(spelled) for name, spelled in about["types"].items()}
        typed = {name: x.view(types.get(name, x.dtype)) for name, x in arrays.items()}
        return Golden(typed, about["provenance"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise OperandError(f"{path} is no golden file, or a damaged one; {again}") from error


def _type(name: str) -> np.dtype[Any]:
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name))


def write_golden(path: Path, arrays: dict[str, Array], provenance: dict[str, str]) -> bool:
    """Writes a file whole or not at all; False where it already holds the same bits.

    Raises OperandError for arrays that only a pickle could hold, and where it cannot be written.
    """
    for name, array in arrays.items():
        if not name.isidentifier():
            raise OperandError(f"the name of an array is a Python name; got {shown(name)}")
        if array.dtype.kind not in "biufc" and not _is_foreign(array):
            raise OperandError(
                f"array {shown(name)} has elements of type {array.dtype}; golden files hold numbers"
            )
    if path.exists() and _same_bits(path, arrays):
        return False
    types = {name: x.dtype.name for name, x in arrays.items() if _is_foreign(x)}
    about = {"provenance": provenance | _origin(), "types": types}
    bits = {
        name: x.view(f"u{x.dtype.itemsize}") if name in types else x for name, x in arrays.items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_npz(path, {ABOUT: np.array(json.dumps(about))} | bits)
    return True


def _is_foreign(array: Array) -> bool:
    """A type of another library, which NumPy's file format does not know."""
    return array.dtype.isbuiltin == 2


def _same_bits(path: Path, arrays: dict[str, Array]) -> bool:
    try:
        known = read_golden(path).arrays
    except OperandError:
        return False
    return known.keys() == arrays.keys() and all(
        (x.dtype, x.shape, x.tobytes()) == (arrays[k].dtype, arrays[k].shape, arrays[k].tobytes())
        for k, x in known.items()
    )


def _origin() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    try:
        own = version("ptx-mma-emulator")
    except PackageNotFoundError:  # a checkout that is not installed
        own = "source checkout"
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    return {
        "emulator": own, "numpy": np.__version__, "python": platform.python_version(), "date": now,
    }  # fmt: skip


def golden_problem(
    path: Path,
    arrays: dict[str, Array],
    fragment: Fragment | Instruction | str | None = None,
    nan: Nan = "payload",
    signed_zero: SignedZero = "differ",
) -> str:
    """Describes differences between `arrays` and a file; "" where there are none.

    `fragment` names lanes and registers of those arrays that have the shape of its registers.
    Raises OperandError for a damaged file.
    """
    golden = read_golden(path)
    lost, new = (sorted(x) for x in (golden.arrays.keys() - arrays, arrays - golden.arrays.keys()))
    problems = [f"{name!r} is in the file, the test did not give it" for name in lost]
    problems += [f"{name!r} is not in the file" for name in new]
    if isinstance(fragment, Instruction | str):
        fragment = as_instruction(fragment).fragment("d")
    for name in (name for name in arrays if name in golden.arrays):
        got, want = arrays[name], golden.arrays[name]
        held = fragment is not None and got.shape[-2:] == (fragment.lanes, fragment.registers)
        try:
            found = find_differences(
                got,
                want,
                fragment=fragment if held else None,
                nan=nan,
                signed_zero=signed_zero,
                name=name,
            )
            problems += [str(found)] if found is not None else []
        except AssertionError as error:  # of unlike shape or type
            problems.append(str(error))
    if problems:
        known = [f"{key} {value}" for key, value in golden.provenance.items()]
        problems.append(f"recorded with {', '.join(known)}")
    return "\n".join(problems)
