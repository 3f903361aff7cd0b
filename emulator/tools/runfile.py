"""``run``: PTX text on a simulated warp or warpgroup, registers from and to .npz files.

An .npz file has one array of words per register, ``(lanes,)``, under its name without ``%``, and
may have the bytes of shared memory under ``shared``.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from dtypes import Array
from emulator.errors import OperandError
from emulator.ptx.machine import Warp, Warpgroup
from emulator.ptx.registers import Register
from emulator.ptx.syntax import Call, parse
from emulator.tools.answer import Answer, render
from emulator.tools.arrays import read_npz

SHARED = "shared"
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DECLARATION = re.compile(r"(?<![\w$%.])\.reg\b[^;]*;")
_LINE_WIDTH = 100


def run_file(
    file: str,
    target: str = "sm_90a",
    registers: str | None = None,
    output: str | None = None,
    show: str | None = None,
) -> Answer:
    """Runs a PTX file ("-": standard input) and answers with the registers that it wrote.

    `registers` and `output` are .npz files, `show` names registers, with commas between them, to
    answer with instead. Raises OperandError for files that cannot be used and unknown registers,
    and whatever `Warp.run` raises.
    """
    text = _read_text(file)
    start = {} if registers is None else read_npz(registers)
    memory = start.pop(SHARED, None)
    machine = _machine(text, target, memory)

    # Values go in between the declarations and the first statement.
    declarations, statements = _split(text)
    machine.run(declarations)
    for key, words in start.items():
        machine.registers[_name(machine, key)].words = words
    before = {name: register.words for name, register in machine.registers.items()}
    shared_before = machine.shared.copy()
    machine.run(statements)

    # Every write makes a new array of words.
    written = [x.name for x in machine.registers.values() if x.words is not before[x.name]]
    changed = [name for name in written if (before[name] != machine.words[name]).any()]
    wrote = np.flatnonzero(shared_before != machine.shared)
    if output is not None:
        _write_npz(output, machine, memory is not None or bool(machine.shared.any()))
    names = written
    if show is not None:
        names = [_name(machine, key.strip()) for key in show.split(",")]
    elif output is not None:
        names = []
    shown = [machine.registers[name] for name in names]
    data = {
        "target": str(machine.target), "lanes": machine.lanes,
        "written": [_key(machine, name) for name in written],
        "changed": [_key(machine, name) for name in changed],
        "shared_bytes_changed": int(wrote.size),
        "registers": {_key(machine, x.name): _register_data(x) for x in shown},
    }  # fmt: skip
    silent = output is not None and show is None
    lines = [] if silent else list(_lines(machine, shown, wrote))
    if output is not None:
        count = len(machine.registers)
        lines.append(f"wrote {output}: {count} register{'' if count == 1 else 's'}")
    return Answer(lines, data)


def _machine(text: str, target: str, memory: Array | None) -> Warp:
    """A warp, or a warpgroup where `text` has a wgmma statement."""
    calls = [x.opcode for x in parse(text) if isinstance(x, Call)]
    kind = Warpgroup if any(opcode.startswith("wgmma.") for opcode in calls) else Warp
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


def _split(text: str) -> tuple[str, str]:
    """The declarations and the other statements, each where it was: the rest is blank."""
    bare = _COMMENT.sub(_blank, text)
    statements = _DECLARATION.sub(_blank, bare)
    declarations = "".join(
        x if y != x or x == "\n" else " " for x, y in zip(bare, statements, strict=True)
    )
    return declarations, statements


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match.group())


# --- names and files ------------------------------------------------------------------------------


def _name(machine: Warp, key: str) -> str:
    """The register that `key` means: itself, or with ``%`` before it."""
    declared = set(machine.registers)
    with_sign = key not in declared and f"%{key}" in declared
    return machine.registers.known(f"%{key}" if with_sign else key)


def _key(machine: Warp, name: str) -> str:
    """The name without ``%``, unless that means something else."""
    key = name.removeprefix("%")
    return name if key != name and key in {SHARED, *machine.registers} else key


def _read_text(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise OperandError(f"cannot read {file!r}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise OperandError(f"{file!r} is not text; run takes PTX, not a cubin") from None


def _write_npz(file: str, machine: Warp, with_memory: bool) -> None:
    arrays = {
        _key(machine, x.name): machine.words[x.name] if x.written else x.words
        for x in machine.registers.values()
    }
    if with_memory:
        if SHARED in arrays:
            raise OperandError(
                f"a register has the name {SHARED!r}, which means memory in .npz files"
            )
        arrays[SHARED] = machine.shared
    try:
        with Path(file).open("wb") as out:  # a file, or NumPy would add .npz to the name
            np.savez_compressed(out, allow_pickle=False, **arrays)
    except OSError as error:
        raise OperandError(f"cannot write {file!r}: {error.strerror}") from None


# --- what is shown --------------------------------------------------------------------------------


def _lines(machine: Warp, shown: list[Register], wrote: Array) -> Iterator[str]:
    of = f"{len(shown)} of {len(machine.registers)} registers"
    yield f"{machine.target}, {machine.lanes} lanes, {of}"
    if not shown and not wrote.size:
        yield "no register was written, and shared memory holds what it held before"
    if wrote.size:
        yield f"shared memory: {wrote.size} bytes changed, between byte {wrote[0]} and {wrote[-1]}"
    for register in (x for x in shown if _is_uniform(x)):
        yield f"{register.name} .{register.type}  {_cells(register)[0]}  in all lanes"
    rest = [x for x in shown if not _is_uniform(x)]
    for block in _blocks([(f"{x.name} .{x.type}", *_cells(x)) for x in rest]):
        yield ""
        lanes = ["lane", *map(str, range(machine.lanes))]
        header, *rows = zip(lanes, *block, strict=True)
        yield from render(header, rows, "text")


def _is_uniform(register: Register) -> bool:
    return bool((register.words == register.words[:1]).all())


def _blocks(columns: Iterable[tuple[str, ...]]) -> Iterator[list[tuple[str, ...]]]:
    """The columns in as many blocks as lines of a terminal need."""
    block: list[tuple[str, ...]] = []
    width = first = len("lane")
    for column in columns:
        wide = 2 + max(map(len, column))
        if block and width + wide > _LINE_WIDTH:
            yield block
            block, width = [], first
        block.append(column)
        width += wide
    if block:
        yield block


def _cells(register: Register) -> list[str]:
    """The word of each lane in hex and, where its type says more, as a value."""
    digits = max(1, register.bits // 4)
    words = [f"{int(word):0{digits}x}" for word in register.words]
    values = _values(register)
    if values is None:
        return words
    texts = [" ".join(map(str, np.atleast_1d(x))) for x in values]
    return [f"{word} {text}" for word, text in zip(words, texts, strict=True)]


def _values(register: Register) -> Array | None:
    """Values of a signed or floating-point register, ``(lanes,)`` or halves ``(lanes, 2)``; None
    for plain bits."""
    values = register.values
    return values if values.dtype.kind in "if" else None


def _register_data(register: Register) -> dict[str, object]:
    digits = max(1, register.bits // 4)
    words = [f"0x{int(word):0{digits}x}" for word in register.words]
    values = _values(register)
    if values is None:
        return {"type": register.type, "words": words}
    return {"type": register.type, "words": words, "values": _numbers(values.tolist())}


def _numbers(values: object) -> object:
    """Nested lists of numbers as JSON takes them: infinities and NaNs as text."""
    if isinstance(values, list):
        return [_numbers(x) for x in values]
    return values if isinstance(values, int) or math.isfinite(values) else str(values)  # type: ignore[arg-type]
