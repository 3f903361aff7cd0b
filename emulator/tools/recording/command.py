"""``record``: a script that runs a kernel, or an instruction, on the GPU of another machine."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dtypes import Array
from emulator.errors import OperandError, UnsupportedError, quoted, whole
from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.machine.arguments import packed as packed_parameter
from emulator.machine.compiling import SUFFIXES
from emulator.machine.module import Kernel, Module
from emulator.machine.sizes import BLOCKS, THREADS, along_axes
from emulator.tools.files import check_outputs, replacing
from emulator.tools.launching import LAUNCH, LaunchWords
from emulator.tools.recording.instruction import inputs_of, kernel_of
from emulator.tools.recording.script import packed
from emulator.tools.report import Answer

#: an address for arrays that only the script gives places; as aligned as cudaMalloc's
_SOMEWHERE = 1 << 20


#: arguments of `record` and what they mean
RECORD_HELP = LAUNCH | {
    "-o --output OUT.py": "the script to write",
    "--cases": "of an instruction (its opcode in place of a file): how many products of random "
    "operands",
}
RECORD_WORDS = LaunchWords


def record_command(file: str, output: str = "record.py", cases: int = 64, **words: Any) -> Answer:
    """Writes a script that launches a kernel on the GPU of the machine that it runs on.

    `file` is PTX or CUDA C++, or the opcode of an mma. Raises OperandError for files and words that
    cannot be used, UnsupportedError for instructions that need a kernel around them.
    """
    check_outputs([output], [file])
    if file != "-" and Path(file).suffix not in (".ptx", *SUFFIXES):
        job = _job_of_instruction(file, cases, words.get("target"), words.get("seed"))
    else:
        command = LaunchWords(file, **words)
        command.prepare()
        grid, block, values = command.sizes
        job = job_of(command.chosen, grid, block, values, command.dynamic_shared)
    job["name"] = Path(output).stem
    template = Path(__file__).with_name("script.py").read_text(encoding="utf-8")
    line = re.search(r"^JOB: .*$", template, re.MULTILINE)
    assert line is not None
    # JSON without true, false and null is Python.
    text = template.replace(line[0], line[0].replace("{}", json.dumps(job, indent=1)))
    with replacing(output) as out:
        out.write(text.encode())
    lines = [
        f"wrote {output}: {job['kernel']}, {len(job['arrays'])} arrays",
        f"on a machine with a GPU: python {output} {job['name']}.json",
        f"then here: python -m emulator selftest {job['name']}.json",
    ]
    return Answer(lines, {"script": output, "kernel": job["kernel"]})


def job_of(
    kernel: Kernel, grid: Any, block: Any, values: Sequence[object], shared: int
) -> dict[str, Any]:
    """A launch as the script and the golden file hold it."""
    arrays: list[Array] = []
    parameters, about = [], []
    if len(values) != len(kernel.parameters):
        wanted = ", ".join(f".{p.type} {p.name}" for p in kernel.parameters)
        raise OperandError(
            f"{kernel.name} takes {len(kernel.parameters)} arguments ({wanted}); {len(values)} are "
            "given"
        )
    for parameter, value in zip(kernel.parameters, values, strict=True):
        held = getattr(value, "array", value)
        at = -1
        addresses = {}
        if isinstance(held, np.ndarray):
            at = len(arrays)
            arrays.append(held)
            addresses = {held.ctypes.data: _SOMEWHERE}
            about.append(_described(parameter.name, held))
        raw = packed_parameter(parameter, parameter.name, value, addresses)
        parameters.append({"data": packed(raw), "array": at})
    return {
        "kernel": kernel.name, "ptx": kernel.module.text, "contract": kernel.module.contract,
        "grid": along_axes("grid", grid, BLOCKS), "block": along_axes("block", block, THREADS),
        "dynamic_shared": shared, "parameters": parameters, "arrays": about,
    }  # fmt: skip


def _described(name: str, array: Array) -> dict[str, Any]:
    data = packed(np.ascontiguousarray(array).tobytes())
    return {"name": name, "dtype": array.dtype.name, "shape": array.shape, "data": data}


def _job_of_instruction(
    opcode: str, cases: int, target: str | None, seed: int | None
) -> dict[str, Any]:
    """The job of an instruction on random operands."""
    ins = Instruction.parse(opcode)
    if (
        not isinstance(ins, MatrixInstruction)
        or ins.is_wgmma
        or ins.is_sparse
        or (ins.is_block_scaled)
    ):
        raise UnsupportedError(
            f"{quoted(opcode)}: `record` makes a kernel of a dense mma; write one around other "
            "instructions, and record that"
        )
    operands = inputs_of(ins, whole("--cases", cases, 1, 65535), seed or 0)
    kernel = Module(kernel_of(ins, target or str(ins.targets[0])))["run"]
    return job_of(kernel, cases, ins.lanes, operands, 0)
