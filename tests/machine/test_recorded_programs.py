"""Programs that showed what ptxas or the chip does: all buffers end with the H200's bytes."""

import json

import numpy as np
import pytest
from paths import GOLDEN

from emulator import Module

with np.load(GOLDEN / "programs" / "h200.npz") as _file:
    RECORDED = {name: _file[name] for name in _file.files}
PROGRAMS = {program["name"]: program for program in json.loads(RECORDED["meta"].tobytes())}


def launched(program, engine):
    """The buffers after a launch."""
    name = program["name"]
    buffers = [RECORDED[f"{name}.in{i}"].copy() for i in range(program["nbufs"])]
    args = [
        buffers[value] if kind == "buf" else np.dtype(kind).type(value)
        for kind, value in program["args"]
    ]
    contract = "none" if program["flags"] in ("nofma", "O0") else "ptxas"
    module = Module(RECORDED[f"ptx.{name}"].tobytes().decode(), target=program["target"])
    module[program["entry"]].launch(
        program["grid"], program["block"], args, program["shared"], engine=engine,
        contract=contract,
    )  # fmt: skip
    return buffers


@pytest.mark.parametrize("engine", ["auto", pytest.param("compiled", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_ends_with_the_bytes_of_an_h200(name, engine):
    for i, found in enumerate(launched(PROGRAMS[name], engine)):
        before = RECORDED[f"{name}.in{i}"]
        expected = RECORDED.get(f"{name}.out{i}", before)
        assert np.array_equal(found.view(np.uint8), expected.view(np.uint8)), (name, i)
