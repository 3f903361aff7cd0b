"""Recordings of ordinary instructions on an H200: tests/golden/scalar, whose .json says whence."""

import json
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from paths import GOLDEN

FOLDER = GOLDEN / "scalar"


class Form(NamedTuple):
    """One instruction: sources and results as `execute` takes and gives them."""

    opcode: str
    sources: list[Any]
    results: list[np.ndarray]
    options: dict[str, str]

    @property
    def cases(self):
        return self.results[0].size


def _array(data, kind, start, shape):
    count = int(np.prod(shape))
    size = np.dtype(kind).itemsize * count
    return np.frombuffer(data[start : start + size], kind).reshape(shape)


@cache
def forms(name="h200"):
    """Every recorded form; "h200_sweep" has those that no compiler was seen to write, few cases."""
    with np.load(FOLDER / f"{name}.npz") as file:
        index, data = json.loads(file["index"].tobytes()), file["data"].tobytes()
    arrays = [_array(data, *row) for row in index["arrays"]]
    return [
        Form(
            opcode,
            [x if isinstance(x, int) else arrays[int(x[1:])] for x in sources],
            [arrays[i] for i in results],
            options,
        )
        for opcode, sources, results, options in index["forms"]
    ]


class Update(NamedTuple):
    """What an atomic operation or a bulk reduction made of memory locations."""

    opcode: str
    #: the old values, and the operands
    sources: list[np.ndarray]
    new: np.ndarray
    space: str


@cache
def updates():
    """Every recorded atomic operation, reduction and bulk reduction."""
    with np.load(FOLDER / "h200.npz") as file:
        index, data = json.loads(file["index"].tobytes()), file["data"].tobytes()
    arrays = [_array(data, *row) for row in index["arrays"]]
    found = [
        Update(opcode, [arrays[i] for i in sources], arrays[new], space)
        for opcode, sources, new, space in index["updates"]
    ]
    with np.load(FOLDER / "h200_noftz.npz") as file:  # all three gave the same words
        return found + [
            Update(f"{name}.add.noftz.f32", [file["old"], file["operand"]], file["new"], space)
            for name, space in (
                ("atom.global", "global"), ("red.global", "global"), ("atom.shared", "shared"),
            )
        ]  # fmt: skip


@cache
def special_forms():
    """The approximate functions."""
    with np.load(FOLDER / "h200_special.npz") as file:
        index, data = json.loads(file["index"].tobytes()), file["data"].tobytes()
    return [
        Form(name.split()[0], [_array(data, *x) for x in sources], [_array(data, *result)], {})
        for name, sources, result in index
    ]
