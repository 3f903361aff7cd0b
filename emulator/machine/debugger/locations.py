"""Debugger: places where a launch may stop, as people name them, lines, functions, opcodes,
labels."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from emulator.errors import EmulatorError, OperandError, hint, listing, quoted
from emulator.machine.debugger.variables import Variable, variables_of
from emulator.machine.launch import LaunchedKernel
from emulator.ptx.program import Program, Statement
from emulator.reading import read_bytes

#: the name of the PTX text beside those of source files
PTX = "ptx"
_LINE = re.compile(r"(?:(.+):)?(\d{1,9})")


class Line(NamedTuple):
    """A line of a file; the file `PTX` is the text of the module."""

    file: str
    number: int

    def __str__(self) -> str:
        return f"{self.file}:{self.number}"


class Locations:
    """Statements of a program by the places that have names."""

    def __init__(
        self, program: Program, kernel: LaunchedKernel, folder: str | Path | None = None
    ) -> None:
        self.program, self._source = program, kernel.module._bound.source
        self._folder = None if folder is None else Path(folder)
        #: the last part of the name of each source file -> the name that the PTX has
        self.files = {
            file.name.rpartition("/")[2]: file.name for file in kernel.module._bound.parsed.files
        }
        self._numbers = {
            file.number: file.name.rpartition("/")[2] for file in kernel.module._bound.parsed.files
        }
        self._texts: dict[str, Sequence[str]] = {PTX: self._source.text.splitlines()}

    # --- from statements to lines ---

    def ptx_line(self, pc: int) -> Line:
        return Line(PTX, self._source.position(self.program.statements[pc].at).line)

    def source_lines(self, pc: int) -> tuple[Line, ...]:
        """The lines of the source, the innermost of inlined functions first; () without any."""
        location, out = self.program.statements[pc].location, []
        while location is not None:
            if location.line:
                out.append(Line(self._numbers.get(location.file, "?"), location.line))
            location = location.inlined_at
        return tuple(out)

    def line(self, pc: int) -> Line:
        """The line of the source, or of the PTX where it names none."""
        return next(iter(self.source_lines(pc)), self.ptx_line(pc))

    def statement(self, pc: int) -> str:
        """The statement as it was written, with its guard."""
        statement = self.program.statements[pc]
        text: str = self._source.statement(statement.at)
        if statement.guard is not None:
            name = self.program.function_at(pc).registers[statement.guard.index].name
            text = f"@{'!' * statement.guard.negated}{name} {text}"
        return text

    def lines_of(self, file: str) -> Sequence[str]:
        """The lines of a source file; none where it cannot be read."""
        if file not in self._texts:
            self._texts[file] = self._read(file)
        return self._texts[file]

    def path(self, file: str) -> Path | None:
        """Where a source file is, if it is there."""
        name = self.files.get(file, file)
        tried = [Path(name)]
        if self._folder is not None:
            tried = [self._folder / file, self._folder / name, *tried]
        return next((path for path in tried if path.is_file()), None)

    def _read(self, file: str) -> Sequence[str]:
        path = self.path(file)
        try:
            return read_bytes(path).decode("utf-8", "replace").splitlines() if path else ()
        except EmulatorError:
            return ()

    def variables(self, pc: int) -> dict[str, Variable]:
        """The variables of the source that have a place at a statement, the innermost by name."""
        out: dict[str, Variable] = {}
        for variable in self._variables:
            if variable.first <= pc < variable.last:
                held = out.get(variable.name)
                if held is None or variable.last - variable.first <= held.last - held.first:
                    out[variable.name] = variable
        return out

    @cached_property
    def _variables(self) -> tuple[Variable, ...]:
        return variables_of(self._source.text, self.program)

    # --- from names to statements ---

    @cached_property
    def _by_line(self) -> Mapping[str, Mapping[int, Sequence[int]]]:
        """file -> line -> the statements that begin it: where one stops."""
        out: dict[str, dict[int, list[int]]] = {PTX: {}}
        before: set[Line] = set()
        targets = {target for x in self.program.statements for target in x.targets}
        for statement in self.program.statements:
            pc = statement.pc
            lines = {self.ptx_line(pc), *self.source_lines(pc)}
            for line in lines:
                if line not in before or pc in targets:
                    out.setdefault(line.file, {}).setdefault(line.number, []).append(pc)
            before = lines
        return out

    @property
    def main_file(self) -> str:
        """The file that a number alone is a line of: the source's, or the PTX."""
        firsts = (self.line(pc).file for pc in range(len(self.program.statements)))
        return next((file for file in firsts if file != PTX), PTX)

    def find(self, text: str, file: str = "") -> tuple[frozenset[int], str]:
        """The statements that a place means, and the place in words.

        A place is ``12`` or ``kernel.cu:12`` or ``ptx:30``, a function, an opcode or its first
        words, or a label. Raises OperandError for none of these.
        """
        text = text.strip()
        if match := _LINE.fullmatch(text):
            return self._at_line(match[1] or file or self.main_file, int(match[2]))
        if text in self.program.functions:
            return frozenset([self.program.functions[text].first]), text
        alike = [name for name in self.program.functions if text and text in name]
        by_opcode = [x.pc for x in self.program.statements if _begins(x, text)]
        if by_opcode:
            many = f"{len(by_opcode)} statement{'s' * (len(by_opcode) > 1)}"
            return frozenset(by_opcode), f"{text}, {many}"
        if len(alike) == 1:
            return frozenset([self.program.functions[alike[0]].first]), alike[0]
        names = {*self.program.functions, *(str(x.instruction) for x in self.program.statements)}
        raise OperandError(
            f"no place {quoted(text)}: a place is a line such as 12, kernel.cu:12 or ptx:30, a "
            f"function ({listing(self.program.functions, 5)}), or an opcode or its first words"
            f"{hint(text, names)}"
        )

    def _at_line(self, file: str, number: int) -> tuple[frozenset[int], str]:
        known = {Path(name).name: name for name in self._by_line}
        name = known.get(Path(file).name)
        if name is None:
            raise OperandError(
                f"no statement comes from a file {quoted(file)}; files are "
                f"{listing(self._by_line)}{hint(file, self._by_line)}"
            )
        numbers = sorted(self._by_line[name])
        at = bisect_left(numbers, number)
        if at == len(numbers):
            last = f"; the last line with statements is {numbers[-1]}" if numbers else ""
            raise OperandError(f"no statement at or behind line {number} of {name}{last}")
        line = Line(name, numbers[at])
        return frozenset(self._by_line[name][line.number]), str(line)

    def names(self) -> Iterator[str]:
        """Names of places, for completion."""
        yield from self.program.functions
        yield from sorted({str(x.instruction) for x in self.program.statements})
        for file, lines in self._by_line.items():
            yield from (f"{file}:{number}" for number in sorted(lines))


def _begins(statement: Statement, text: str) -> bool:
    """True if an opcode begins with these words."""
    opcode = str(statement.instruction)
    return bool(text) and (opcode == text or opcode.startswith(text + "."))
