"""Report of a launch: that it failed, and where; what the checks found, what was counted, what
the kernel printed; as text, as data, and as a page with the source beside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import islice
from pathlib import Path
from typing import Any

from emulator import report
from emulator.errors import EmulatorError, OperandError
from emulator.machine.checks.banks import STYLE as PICTURES
from emulator.machine.checks.counters import (
    Column,
    Counts,
    Numbers,
    file_and_line,
    numbers_data,
    used_columns,
)
from emulator.machine.checks.finding import Finding, Party
from emulator.machine.shared.failure import Failure
from emulator.machine.shared.place import Index, Place, shown
from emulator.memory.arena import AccessError
from emulator.reading import read_bytes

#: lines of a source file that a page shows before and behind those that it speaks of
_AROUND = 2
#: names of counters whose singular is not that without an s
_ONE = {"matrices": "matrix"}
#: the source of line 0
_NO_LINE = "(statements that the compiler has made of no line of the source)"
#: lines of the table that the text shows; the page and the data have all
_ROWS = 25
_STYLE = f"""
.emulator-report {{ max-width: none; }}
.emulator-report pre {{ white-space: pre-wrap; overflow-wrap: anywhere; }}
.emulator-report th.number, .emulator-report td.number {{ text-align: right; }}
.emulator-report th.number {{ white-space: normal; vertical-align: bottom; }}
.emulator-report table {{ width: 100%; }}
.emulator-report td.text {{ width: 99%; min-width: 20em; white-space: pre-wrap;
  overflow-wrap: anywhere; }}
.emulator-report td details {{ margin: 0; overflow-x: auto; }}
.emulator-report summary {{ cursor: pointer; }}
.emulator-report tr.here {{ background: #fc32; font-weight: 600; }}
.emulator-report .finding {{ border-left: 3px solid #c22; padding-left: .8em; margin: 1em 0; }}
@media (max-width: 700px) {{  /* the numbers of a line, then its text */
.emulator-report .counts, .counts > thead, .counts > tbody {{ display: block; }}
.emulator-report .counts > * > tr {{ display: flex; flex-wrap: wrap; }}
.emulator-report .counts .number {{ width: 5.6em; padding: .1em .4em .1em 0; }}
.emulator-report .counts .number:first-child {{ width: 3em; }}
.emulator-report .counts .text {{ width: auto; min-width: 0; flex: 1 0 70%; }}
.emulator-report .counts tr.quiet .number:not(:first-child) {{ display: none; }}
}}
{PICTURES}"""


#: `kind` of a KernelError -> its meaning
KINDS = {
    "address space": "an address leads into another state space than the statement needs",
    "assertion": "the kernel's assert failed",
    "barrier": "a barrier is used in a way that PTX leaves undefined",
    "bulk copy": "the size of a bulk copy is illegal",
    "bulk reduction": "the size of a bulk reduction is illegal",
    "cluster": "a thread names a block that its cluster does not have",
    "cluster barrier": "barrier.cluster.arrive and .wait do not alternate",
    "cp.async": "the source of an asynchronous copy is larger than the copy",
    "cta pair": ".cta_group::2 is used in a cluster that has no pairs of blocks",
    "deadlock": "every thread waits for something that no thread will do",
    "endless loop": "a loop runs without an effect on anything",
    "free": "free was called on an address that malloc did not return, or twice",
    "heap": "malloc was asked for more memory than a launch may have",
    "infinity": "a statement made an infinity of finite operands (stop_at)",
    "lanes missing": "lanes that a statement needs do not execute it",
    "launch": "a launch from a kernel is illegal, or memory is in use by another launch",
    "mbarrier": "an mbarrier is used in a way that PTX leaves undefined",
    "membermask": "a lane executes a statement whose membermask lacks it",
    "misaligned": "an address is no multiple of the bytes of the access",
    "multicast": "a multicast names a block that its cluster does not have",
    "NaN": "a statement made a NaN of operands that are none (stop_at)",
    "operand": "an operand has a value that the statement cannot take",
    "out of bounds": "an access leaves every allocation",
    "read-only": "a store goes to memory that is read-only",
    "st.bulk": "the size of a bulk store is illegal",
    "stack overflow": "more than 2,048 calls within calls, or 512 KiB of local memory in a thread",
    "step limit": "the launch has executed more statements than step_limit",
    "surface": "a handle names no surface, or one that the statement cannot use",
    "target": "a branch or a call leads to no legal place",
    "tensor copy": "the coordinates or the box of a tensor copy are illegal",
    "tensor map": "a tensor map does not fit the copy that names it",
    "texture": "a handle names no texture, or one that the statement cannot read",
    "trap": "the kernel executed trap",
    "undefined": "PTX leaves the result of the statement undefined",
    "unsupported": "the statement asks for something that is not modelled",
    "use after free": "an access goes to memory that was freed",
}


def failure_of(error: Exception) -> Failure | None:
    """An error in executing a statement as a failure; None if the kernel did not cause it."""
    if isinstance(error, AccessError):
        return Failure(error.fault.kind, error.fault.reason, error.fault.index)
    if isinstance(error, EmulatorError) and not isinstance(error, KernelError):
        return Failure(type(error).__name__.removesuffix("Error").lower(), str(error))
    return error if isinstance(error, Failure) else None


class KernelError(EmulatorError, RuntimeError):
    """A kernel cannot go on: what happened, at which statement, in which block and threads.

    `kind` is one of `KINDS`. Errors with the same contents are equal.
    """

    def __init__(
        self,
        kind: str,
        reason: str,
        place: Place | None = None,
        block: Index | None = None,
        threads: Sequence[Index] = (),
    ) -> None:
        self.kind, self.reason, self.place = kind, reason, place
        self.block, self.threads = block, tuple(threads)
        #: findings of the checks up to the error
        self.findings: list[Finding] = []
        #: makes `state`; None for a launch that cannot be run again
        self.failed: Callable[[], object] | None = None
        self._state: object = None
        super().__init__(self._text())

    @classmethod
    def at(
        cls, failure: Failure, place: Place, where: Iterable[tuple[Index, Index]]
    ) -> KernelError:
        """A failure of threads, each given as block and thread; names those of the first block."""
        found = [*islice(where, 1024)]
        block = found[0][0] if found else None
        threads = [thread for cta, thread in found if cta == block]
        return cls(failure.kind, failure.reason, place, block, threads)

    def _contents(self) -> tuple[object, ...]:
        return self.kind, self.reason, self.place, self.block, self.threads

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self._contents(), {"findings": self.findings}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, KernelError):
            return NotImplemented
        return (self._contents(), self.findings) == (other._contents(), other.findings)

    def __hash__(self) -> int:
        return hash(self._contents())

    @property
    def state(self) -> Any:
        """The launch under the debugger, stopped where it failed: a `Debugger`, with registers,
        memory and steps backward. The launch runs again on the reference engine when it is first
        asked for. Raises OperandError where an array has changed since, or the error came from
        elsewhere than from `Kernel.launch` in this process.
        """
        if self._state is None:
            if self.failed is None:
                raise OperandError("this error keeps no launch: launch with kernel.debug(...)")
            self._state = self.failed()
        return self._state

    @property
    def line(self) -> int | None:
        """Line of the PTX text."""
        return self.place.line if self.place else None

    @property
    def source(self) -> str | None:
        """File and line of the CUDA or Python source."""
        return self.place.source[0] if self.place and self.place.source else None

    def __str__(self) -> str:
        text = self._text()
        if self.findings:
            text += f"\nChecks had found before ({len(self.findings)} in all):\n{self.findings[0]}"
        return text

    def _text(self) -> str:
        parts = [f"{self.kind}: {self.reason}"]
        if self.block is not None:
            who = f"block {shown(self.block)}"
            if self.threads:
                more = f" and {len(self.threads) - 1} others" if len(self.threads) > 1 else ""
                who += f", thread {shown(self.threads[0])}{more}"
            parts.append(f"  in {who}")
        if self.place is not None:
            parts.append(f"  at {self.place}")
        return "\n".join(parts)


@dataclass(repr=False)
class Report(report.Report):
    """Report of a launch.

    `html(source=…)` is a page with the lines of CUDA, Python or PTX beside findings and counts;
    source files are looked for where the PTX says they are, and in the folder `source`.
    """

    kernel: str
    #: findings of the checks
    findings: list[Finding] = field(default_factory=list)
    #: counts by name
    counters: dict[str, int] = field(default_factory=dict)
    #: output of printf, one entry for each call
    printed: list[str] = field(default_factory=list)
    #: counts at each statement, if the launch had counters=True
    counts: Counts = field(default_factory=Counts)
    #: different mistakes that were found and are not listed
    left_out: int = 0
    #: where the source files are that the PTX names, by the last part of their names
    files: Mapping[str, str] = field(default_factory=dict)
    #: the PTX
    text_of_module: str = field(default="", repr=False)
    #: statements that ptxas is known to compile wrongly; the kernel is not to blame
    warnings: list[Finding] = field(default_factory=list)

    @property
    def code(self) -> int:  # type: ignore[override]
        """1 where the checks have found something."""
        return 1 if self.findings else 0

    @property
    def title(self) -> str:
        counted = ", ".join(
            f"{count:,} {_ONE.get(name, name.removesuffix('s')) if count == 1 else name}"
            for name, count in self.counters.items()
            if count
        )
        count = len(self.findings)
        found = f"{count} finding{'s' * (count > 1)}; " if count else ""
        return f"{self.kernel}: {found}{counted.replace('_', ' ')}"

    @property
    def data(self) -> dict[str, object]:
        data: dict[str, object] = {
            "kernel": self.kernel, "findings": [finding.data for finding in self.findings],
            "counters": dict(self.counters), "printed": list(self.printed),
        }  # fmt: skip
        if self.warnings:
            data["warnings"] = [finding.data for finding in self.warnings]
        if self.left_out:
            data["left_out"] = self.left_out
        if self.counts:
            data["statements"] = [count.data for count in self.counts]
            for name, rows in (("lines", self.counts.by_line), ("opcodes", self.counts.by_opcode)):
                data[name] = {key: numbers_data(numbers) for key, numbers in rows.items()}
        return data

    def lines(self) -> Iterator[str]:
        yield self.title
        yield from self.finding_lines()
        yield from self.count_lines()
        yield from "".join(self.printed).splitlines()

    def finding_lines(self) -> Iterator[str]:
        """The findings and the warnings, as text."""
        for finding in self.findings:
            yield from str(finding).splitlines()
        if self.left_out:
            yield f"and {self.left_out:,} more, unlike these"
        for finding in self.warnings:
            yield from f"warning: {finding}".splitlines()

    def count_lines(self) -> Iterator[str]:
        """The table of what was counted by source line: those with accesses, matrix instructions
        and divided warps first, then those that warps executed most."""
        rows = self.counts.by_line
        if not rows:
            return
        yield from _as_text("line", rows)
        if len(rows) > _ROWS:
            yield f"and {len(rows) - _ROWS:,} lines more"

    # --- the page ---

    def html(self, source: str | Path | None = None) -> str:
        """One self-contained page; `source` is a folder with the source files."""
        page = Report(**{**vars(self), "files": self._found_in(source)}) if source else self
        return super(Report, page).html()

    def _found_in(self, source: str | Path) -> dict[str, str]:
        """The source files with those of a folder in place of others with their names."""
        found = dict(self.files)
        for name in {*self.files, *(place.rpartition(":")[0] for place in self._places())}:
            path = Path(source) / name
            if path.is_file():
                found[name] = str(path)
        return found

    def _places(self) -> Iterator[str]:
        """``kernel.cu:12`` of all that the report speaks of."""
        for finding in (*self.findings, *self.warnings):
            for party in (finding.party, finding.earlier):
                yield from party.place.source if party is not None else ()
        for count in self.counts:
            yield from count.place.source

    def _body(self) -> str:
        sources = _Sources(self.files, self.text_of_module)
        name, _, counted = self.title.partition(": ")
        parts = [f"<style>{_STYLE}</style>", f"<h2>{escape(name)}</h2>"]
        parts += [f"<p>{escape(counted)}</p>"] if counted else []
        if self.findings:
            parts.append("<h3>Findings</h3>")
            parts += [_finding_html(finding, sources) for finding in self.findings]
        if self.left_out:
            parts.append(f"<p>And {self.left_out:,} more, unlike these.</p>")
        if self.warnings:
            parts.append("<h3>Warnings</h3>")
            parts += [_finding_html(finding, sources) for finding in self.warnings]
        if self.counts:
            parts.append("<h3>Counts by source line</h3>")
            parts += _counts_html(self.counts, sources)
            parts.append("<h3>Counts by opcode</h3>")
            parts.append(_table_html("opcode", self.counts.by_opcode))
        if self.printed:
            parts.append(f"<h3>Printed</h3><pre>{escape(''.join(self.printed))}</pre>")
        return "\n".join(parts)


# --- source files ---------------------------------------------------------------------------------


class _Sources:
    """The lines of source files, as far as they can be read, and of the PTX."""

    def __init__(self, files: Mapping[str, str], ptx: str) -> None:
        self._files = files
        self._lines: dict[str, Sequence[str]] = {"": ptx.splitlines()}

    def lines(self, name: str) -> Sequence[str]:
        """The lines of a file; "" is the PTX. None where it cannot be read."""
        if name not in self._lines:
            try:
                text = read_bytes(self._files[name]).decode("utf-8", "replace")
            except (KeyError, EmulatorError):
                text = ""
            self._lines[name] = text.splitlines()
        return self._lines[name]


# --- text and HTML --------------------------------------------------------------------------------


def _as_text(heading: str, rows: Mapping[str, Numbers]) -> Iterator[str]:
    """The rows that tell most, in their order, as an aligned table."""
    most = sorted(rows, key=lambda name: (not rows[name].is_special, -rows[name].warps))[:_ROWS]
    chosen = {name: rows[name] for name in rows if name in set(most)}
    columns = used_columns(chosen.values())
    cells = [[heading, *(column.heading for column in columns)]]
    cells += [[name, *(column.show(x) for column in columns)] for name, x in chosen.items()]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for first, *others in cells:
        padded = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        yield "  ".join([first.ljust(widths[0]), *padded]).rstrip()


def _finding_html(finding: Finding, sources: _Sources) -> str:
    excerpts = [_excerpt(party, sources) for party in (finding.party, finding.earlier) if party]
    # Both accesses may stand in one line.
    shown_once = "".join(dict.fromkeys(excerpts))
    return f"<div class=finding><pre>{escape(str(finding))}</pre>{shown_once}</div>"


def _excerpt(party: Party, sources: _Sources) -> str:
    """The lines around an access: of the source where it can be read, else of the PTX."""
    places = [file_and_line(line) for line in party.place.source]
    name, number = next((x for x in places if sources.lines(x[0])), ("", party.place.line))
    lines = sources.lines(name)
    first = max(1, number - _AROUND)
    rows = "\n".join(
        f"<tr{' class=here' if i == number else ''}><td class=number>{i}</td>"
        f"<td class=text>{escape(lines[i - 1])}</td></tr>"
        for i in range(first, min(len(lines), number + _AROUND) + 1)
    )
    if not rows:
        return ""
    caption = f"{name}:{number}" if name else f"PTX line {number}"
    return f'<div class="wide">{escape(caption)}<table><tbody>\n{rows}\n</tbody></table></div>'


def _counts_html(counts: Counts, sources: _Sources) -> Iterator[str]:
    """A table for each source file, with its lines from the first to the last that was executed."""
    by_file: dict[str, dict[int, Numbers]] = {}
    for line, numbers in counts.by_line.items():
        name, number = file_and_line(line)
        by_file.setdefault(name, {})[number] = numbers
    for name, numbered in by_file.items():
        lines, columns = sources.lines(name), used_columns(numbered.values())
        listed: Sequence[int] = sorted(numbered)
        if lines:
            last = min(len(lines), listed[-1] + _AROUND)
            listed = range(max(0, listed[0] - _AROUND), max(listed[-1], last) + 1)
        yield f"<h4>{escape(name or 'PTX')}</h4>"
        most = max(x.warps for x in numbered.values())
        rows = []
        for number in listed:
            text = lines[number - 1] if 0 < number <= len(lines) else ""
            text = _NO_LINE if not number and number in numbered else text
            if number or number in numbered:
                rows.append(_row([str(number)], numbered.get(number), columns, text, most))
        yield _table(["line", *(x.heading for x in columns), "source"], rows)


def _table_html(heading: str, named: Mapping[str, Numbers]) -> str:
    columns = used_columns(named.values())
    most = max((x.warps for x in named.values()), default=1)
    rows = [_row([], numbers, columns, name, most) for name, numbers in named.items()]
    return _table([*(x.heading for x in columns), heading], rows)


def _row(
    first: Sequence[str], numbers: Numbers | None, columns: Sequence[Column], text: str, most: int
) -> str:
    """A row of a table, the warmer the more warps have executed it; `most` is the warmest."""
    shown = [column.show(numbers) if numbers else "" for column in columns]
    cells = "".join(f"<td class=number>{escape(cell)}</td>" for cell in (*first, *shown))
    picture = numbers.picture if numbers else None
    beside = ""
    if picture is not None:
        opened = " open" * (picture.conflicts > 0)
        summary = f"<summary>{escape(picture.summary)}</summary>"
        beside = f"<details{opened}>{summary}{picture.html()}</details>"
    heat = 0.05 + 0.45 * math.log1p(numbers.warps) / math.log1p(most) if numbers else 0
    style = f' style="background: rgba(224, 110, 30, {heat:.2f})"' if heat else ""
    style += "" if numbers else " class=quiet"
    return f"<tr{style}>{cells}<td class=text>{escape(text)}{beside}</td></tr>"


def _table(headings: Sequence[str], rows: Sequence[str]) -> str:
    """Numbers stand to the right, the last column, which is text, to the left."""
    *numbers, last = headings
    head = "".join(f"<th class=number>{escape(name)}</th>" for name in numbers)
    body = "\n".join(rows)
    return (
        f'<div class="wide"><table class=counts><thead><tr>{head}<th class=text>{escape(last)}</th>'
        "</tr></thead><tbody>\n"
        f"{body}\n</tbody></table></div>"
    )
