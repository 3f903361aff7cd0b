"""Golden files of a user's GPU: read, and compared with what a kernel computes here."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from dtypes import Array
from emulator.errors import OperandError, quoted
from emulator.machine.module import Kernel, Module
from emulator.memory.tensor_map import TensorMap
from emulator.memory.tensor_map_arguments import Backing
from emulator.reading import read_bytes
from emulator.targets import find_chip
from emulator.tools.testing.difference import find_differences

#: bytes of the parameters of a kernel, and of an array
_PARAMETER, _LARGEST = 32764, 1 << 33


@dataclass(frozen=True)
class Golden:
    """A kernel, what it was given, and what a GPU made of it."""

    path: Path
    job: dict[str, Any]
    provenance: dict[str, str]
    #: the arrays after the launch
    outputs: tuple[Array, ...]

    @property
    def chip(self) -> str:
        return f"{self.provenance['gpu']}, driver {self.provenance['driver']}"

    @property
    def target(self) -> str:
        """The target of the GPU, with all its features."""
        number = self.provenance["compute capability"].replace(".", "")
        return str(find_chip(f"sm_{number}").target)

    def problems(self, kernel: Kernel | None = None) -> Iterator[str]:
        """Runs the kernel, or another one with the same parameters, and yields what differs."""
        job = self.job
        kernel = kernel or Module(job["ptx"], self.target)[job["kernel"]]
        arrays = [_array(array) for array in job["arrays"]]
        values = [_value(parameter, arrays) for parameter in job["parameters"]]
        kernel.launch(
            job["grid"],
            job["block"],
            values,
            dynamic_shared=job["dynamic_shared"],
            contract=job["contract"],
        )
        for i, (here, there) in enumerate(zip(arrays, self.outputs, strict=True)):
            name = job["arrays"][i]["name"]
            found = find_differences(here, there, name=f"{name} (actual: here, expected: the GPU)")
            if found is not None:
                yield str(found)


def _array(about: dict[str, Any], data: str | None = None) -> Array:
    """An array of a file; `data` in place of what it held at first."""
    import ml_dtypes

    dtype = np.dtype(getattr(ml_dtypes, about["dtype"], about["dtype"]))
    size = prod(about["shape"]) * dtype.itemsize
    raw = _bytes(about["data"] if data is None else data, size)
    if len(raw) != size:
        raise ValueError
    return np.frombuffer(bytearray(raw), dtype).reshape(about["shape"])


def _bytes(text: str, most: int) -> bytes:
    """What `script.packed` packed; of a file that holds more than it should, one byte more."""
    return zlib.decompressobj().decompress(base64.b64decode(text), min(most, _LARGEST) + 1)


def _value(parameter: dict[str, Any], arrays: list[Array]) -> Any:
    """A parameter as a launch takes it."""
    raw = _bytes(parameter["data"], _PARAMETER)
    if parameter["array"] < 0:
        return raw
    array = arrays[parameter["array"]]
    if len(raw) == 8:
        return array
    return replace(TensorMap.decode(raw), address=None, backing=Backing(array))


def read_golden(path: str | Path) -> Golden:
    """Reads a golden file; raises OperandError for a file that is none."""
    try:
        held = json.loads(read_bytes(Path(path)))
        if held["format"] != 1:
            raise ValueError
        pairs = zip(held["job"]["arrays"], held["outputs"], strict=True)
        outputs = tuple(_array(about, data) for about, data in pairs)
        provenance = {str(key): str(value) for key, value in held["provenance"].items()}
        return Golden(Path(path), held["job"], provenance, outputs)
    except (ValueError, KeyError, TypeError, AttributeError, zlib.error) as error:
        raise OperandError(
            f"{quoted(str(path))} is no golden file, as the script of `record` writes it"
        ) from error
