"""``run``: PTX text on a simulated warp or warpgroup, registers from and to .npz files.

An .npz file has one array of words per register, ``(lanes,)``, under its name without ``%``, and
may have the bytes of shared memory under ``shared``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from dtypes import Array
from emulator.errors import OperandError, quoted
from emulator.isa.kinds import is_of_warpgroup
from emulator.machine.shared.registers import Register
from emulator.machine.warp import Warp, Warpgroup
from emulator.ptx.statements import instructions, target_of
from emulator.tools.files import check_outputs, read_npz, read_text, write_npz
from emulator.tools.report import WIDTH, Answer, in_width, render

SHARED = "shared"


#: arguments of `run` and what they mean
RUN_HELP = {
    "file": "PTX statements; - reads from standard input",
    "--target": "sm_80, H100, ... (default: the .target of the file)",
    "--registers IN.npz": "register words to start with, by name without %%: uint32 or uint64 "
    "(lanes,); `shared`: uint8 bytes",
    "-o --output OUT.npz": "where to write all registers",
    "--show NAMES": "registers to show: r0,f1 (default: written)",
}


def run_command(
    file: str,
    target: str | None = None,
    registers: str | None = None,
    output: str | None = None,
    show: str | None = None,
) -> Answer:
    """Runs a PTX file ("-": standard input) and answers with the registers that it wrote.

    It runs on `target`, or on the one that the file names. `registers` and `output` are .npz files,
    `show` names registers, with commas between them, to answer with instead. Raises OperandError
    for files that cannot be used and unknown registers, and whatever `Warp.run` raises.
    """
    check_outputs([output], [file, registers])
    text = read_text(file)
    start = {} if registers is None else read_npz(registers)
    memory = start.pop(SHARED, None)
    machine = _machine(text, _target(file, text, target), memory)

    # Values go in between the declarations and the first statement.
    program = machine.bind(text)
    for key, words in start.items():
        machine.registers[_name(machine, key)].words = words
    before = {name: register.words for name, register in machine.registers.items()}
    shared_before = machine.shared.copy()
    machine.run(program)

    # Every write makes a new array of words.
    written = [x.name for x in machine.registers.values() if x.words is not before[x.name]]
    wrote = np.flatnonzero(shared_before != machine.shared)
    names = written if output is None else []
    if show is not None:
        names = [_name(machine, key.strip()) for key in show.split(",")]
    if output is not None:
        with_memory = memory is not None or bool(machine.shared.any())
        write_npz(output, _arrays(machine, with_memory))
    shown = [machine.registers[name] for name in names]
    data = {
        "target": str(machine.target), "lanes": machine.lanes,
        "written": [_key(machine, name) for name in written],
        "changed": [_key(machine, x) for x in written if (before[x] != machine[x]).any()],
        "shared_bytes_changed": int(wrote.size),
        "registers": {_key(machine, x.name): _register_data(x) for x in shown},
    }  # fmt: skip
    lines = list(_lines(machine, shown, wrote)) if output is None or show is not None else []
    if output is not None:
        count = len(machine.registers)
        lines.append(f"wrote {output}: {count} register{'' if count == 1 else 's'}")
    return Answer(lines, data)


def _target(file: str, text: str, asked: str | None) -> str:
    if asked is not None:
        return asked  # the machine refuses a text that is made for another
    if (own := target_of(text)) is None:
        raise OperandError(
            f"{quoted(file)} has no .target line: say which chip is meant, such as --target sm_90a"
        )
    return own


def _machine(text: str, target: str, memory: Array | None) -> Warp:
    """A warp, or a warpgroup where `text` has a wgmma statement."""
    group = any(is_of_warpgroup(x.opcode) for x in instructions(text))
    kind = Warpgroup if group else Warp
    if memory is None:
        return kind(target)
    if memory.dtype != np.uint8 or memory.ndim != 1:
        raise OperandError(
            f"{SHARED!r} is the bytes of shared memory, uint8 (bytes,); got {memory.dtype} "
            f"{memory.shape}"
        )
    machine = kind(target, shared_bytes=len(memory))
    machine.shared[:] = memory
    return machine


def _name(machine: Warp, key: str) -> str:
    """The register that `key` means: itself, or with ``%`` before it."""
    declared = set(machine.registers)
    with_sign = key not in declared and f"%{key}" in declared
    return machine.registers.known(f"%{key}" if with_sign else key)


def _key(machine: Warp, name: str) -> str:
    """The name without ``%``, unless that means something else."""
    key = name.removeprefix("%")
    return name if key != name and key in {SHARED, *machine.registers} else key


def _arrays(machine: Warp, with_memory: bool) -> dict[str, Array]:
    """Arrays of the machine that an .npz file keeps."""
    # Words that results of a wgmma in flight will replace are refused, those never set are zeros.
    arrays = {
        _key(machine, x.name): machine[x.name] if x.written else x.words
        for x in machine.registers.values()
    }
    if not with_memory:
        return arrays
    if SHARED in arrays:
        raise OperandError(f"a register has the name {SHARED!r}, which means memory in .npz files")
    return arrays | {SHARED: machine.shared}


# --- what is shown --------------------------------------------------------------------------------


def _lines(machine: Warp, shown: list[Register], wrote: Array) -> Iterator[str]:
    of = f"{len(shown)} of {len(machine.registers)} registers"
    yield f"{machine.target}, {machine.lanes} lanes, {of}"
    if not shown and not wrote.size:
        yield "no register was written, and shared memory holds what it held before"
    if wrote.size:
        yield f"shared memory: {wrote.size} bytes changed, between byte {wrote[0]} and {wrote[-1]}"
    columns = [("lane", *map(str, range(machine.lanes)))]
    for register in shown:
        name, cells = f"{register.name} .{register.type}", _cells(register)
        if (register.words == register.words[:1]).all():
            yield f"{name}  {cells[0]}  in all lanes"
        else:
            columns.append((name, *cells))
    header, *rows = zip(*columns, strict=True)
    for table in in_width(header, rows, WIDTH):
        yield ""
        yield from render(table.header, table.rows)


def _words(register: Register) -> list[str]:
    return [f"{int(word):0{max(1, register.bits // 4)}x}" for word in register.words]


def _values(register: Register) -> Array | None:
    """Values of a signed or floating-point register, ``(lanes,)`` or halves ``(lanes, 2)``; None
    for plain bits."""
    values = register.values
    return values if values.dtype.kind in "if" else None


def _cells(register: Register) -> list[str]:
    """The word of each lane in hex and, where its type says more, as a value."""
    words, values = _words(register), _values(register)
    if values is None:
        return words
    texts = [" ".join(map(str, np.atleast_1d(x))) for x in values]
    return [f"{word} {text}" for word, text in zip(words, texts, strict=True)]


def _register_data(register: Register) -> dict[str, object]:
    data: dict[str, object] = {"type": register.type}
    data["words"] = [f"0x{word}" for word in _words(register)]
    values = _values(register)
    return data if values is None else data | {"values": _numbers(values.tolist())}


def _numbers(values: object) -> object:
    """Nested lists of numbers as JSON takes them: infinities and NaNs as text."""
    if isinstance(values, list):
        return [_numbers(x) for x in values]
    return str(values) if isinstance(values, float) and not math.isfinite(values) else values
