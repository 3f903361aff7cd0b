"""``trace``: a small launch as one self-contained page.

Left the source, with heat and findings; right the warps over time, mbarriers below; under both what
the chosen statement's registers, matrices and banks of shared memory hold.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from emulator.errors import whole
from emulator.machine.checks.counters import file_and_line
from emulator.machine.debugger.locations import PTX, Locations
from emulator.machine.module import Kernel
from emulator.machine.report import KernelError
from emulator.machine.report import Report as LaunchReport
from emulator.report import Report
from emulator.tools.document import document
from emulator.tools.orders import SavedArrays
from emulator.tools.tracing.recorder import KINDS, TraceRecorder, kind_of

_LIMIT = 20_000


@dataclass(frozen=True, repr=False)
class Trace(Report):
    """What each warp of a launch executed; `html()` is the page, `data` what it holds."""

    kernel: str
    target: str
    recorder: TraceRecorder
    locations: Locations
    #: the error that ended the launch, "" for none
    error: str = ""
    #: what the checks found
    checked: LaunchReport | None = None

    @property
    def title(self) -> str:
        return f"{self.kernel} on {self.target}"

    @property
    def code(self) -> int:  # type: ignore[override]
        """1 where the launch has failed, or the checks have found something."""
        return int(bool(self.error) or bool(self.checked and self.checked.findings))

    def lines(self) -> Iterator[str]:
        recorder, warps = self.recorder, self.recorder.warps
        steps = max((x.clock for x in warps.values()), default=0)
        count = f"{recorder.count:,} statements of {len(warps)} warps"
        yield f"{self.title}: {count} in {steps:,} steps"
        if recorder.count > recorder.limit:
            yield f"the first {recorder.limit:,} statements are recorded; limit=N records more"
        if self.error:
            yield self.error
        if self.checked is not None:
            yield from self.checked.finding_lines()

    @property
    def data(self) -> dict[str, object]:
        recorder = self.recorder
        executed = Counter(pc for warp in recorder.warps.values() for pc in warp.pcs)
        blocks = {number: warp.block for (number, _), warp in recorder.warps.items()}
        return {
            "kinds": list(KINDS), "registers": recorder.registers, "tiles": recorder.tiles,
            "pictures": recorder.pictures,
            "warps": [warp.data for _, warp in sorted(recorder.warps.items())],
            "mbarriers": [
                {"block": blocks[block], "name": name, "changes": changes}
                for (block, _), (name, changes) in sorted(recorder.mbarriers.items())
            ],
            "statements": [self._statement(x.pc) for x in self.locations.program.statements],
            "files": self._files(executed),
        }  # fmt: skip

    def _statement(self, pc: int) -> dict[str, object]:
        places = [self.locations.ptx_line(pc), *self.locations.source_lines(pc)]
        return {
            "text": self.locations.statement(pc),
            "kind": KINDS.index(kind_of(self.locations.program.statements[pc])),
            "lines": [[x.file, x.number] for x in places],
        }

    def _files(self, executed: Mapping[int, int]) -> dict[str, object]:
        """Source files that can be read, and the PTX: lines, statements executed, findings."""
        heat: dict[str, Counter[int]] = {PTX: Counter()}
        for pc, count in executed.items():
            for line in {self.locations.ptx_line(pc), *self.locations.source_lines(pc)}:
                heat.setdefault(line.file, Counter())[line.number] += count
        found: dict[str, dict[int, str]] = {}
        for finding in self.checked.findings if self.checked else ():
            for party in (finding.party, finding.earlier):
                if party is not None:
                    found.setdefault(PTX, {})[party.place.line] = str(finding)
                    for place in party.place.source:
                        name, number = file_and_line(place)
                        found.setdefault(name, {})[number] = str(finding)
        texts = {name: list(self.locations.lines_of(name)) for name in heat}
        names = sorted((x for x in heat if x != PTX), key=lambda x: -sum(heat[x].values()))
        return {
            name: {"lines": texts[name], "heat": heat[name], "findings": found.get(name, {})}
            for name in (*names, PTX)
            if texts[name]
        }

    def html(self) -> str:
        summary = "".join(f"<p>{escape(x)}</p>" for x in self.lines())
        legend = "".join(f'<span class="k{i}">{name}</span>' for i, name in enumerate(KINDS))
        body = f"""<header><h1>{escape(self.title)}</h1>
<details><summary>{escape(next(self.lines()).partition(": ")[2])}</summary>{summary}</details>
<div class="tools"><label>file <select id="file"></select></label>
<span role="group" aria-label="zoom"><button type="button" id="out">−</button>
<button type="button" id="in">+</button></span>
<div class="legend">{legend}<span class="waits">waits</span><span class="group">group</span></div>
</div></header>
<main><section id="source" tabindex="0" aria-label="source"></section>
<section id="time" aria-label="timeline"><div id="scroll" tabindex="0"><div id="wide">
<canvas id="canvas"></canvas></div></div></section>
<section id="moment" aria-label="the chosen statement" aria-live="polite"></section></main>"""
        return document(self.title, body, "emulator.tools.tracing", "trace", self.data)


def trace(
    kernel: Kernel,
    grid: Sequence[int] | int,
    block: Sequence[int] | int,
    args: Sequence[object] | Mapping[str, object] = (),
    *,
    check: bool | LaunchReport = False,
    limit: int = _LIMIT,
    source: str | os.PathLike[str] | None = None,
    **launch: Any,
) -> Trace:
    """Launches a kernel and records what each warp does, for a page: ``trace(…).html()``.

    Arguments are those of `Kernel.launch`, and arrays hold afterwards what the kernel has written.
    With `check` it runs once more before, with the checks; a report of such a launch is taken as it
    is. `limit` bounds the statements of warps that are recorded, `source` is a folder with the
    source files. A launch that fails is a trace, too, up to its error. Raises what `Kernel.prepare`
    raises.
    """
    limit = whole("limit=", limit, 1)
    checked = check if isinstance(check, LaunchReport) else None
    if check is True:
        state = SavedArrays(kernel, args, launch.get("memory"), variables=False)
        try:
            checked = kernel.launch(grid, block, args, check=True, **launch)
        except KernelError as error:
            checked = LaunchReport(kernel.name, list(error.findings))
        state.restore()
    prepared, failed = kernel.prepare(grid, block, args, **launch), ""
    recorder = TraceRecorder(limit)
    prepared.observe = recorder.observe
    try:
        prepared.run("reference")
    except KernelError as error:
        failed = str(error)
    recorder.finish()
    folder = source if source is None else os.fspath(source)
    locations = Locations(prepared.program, prepared.kernel, folder)
    return Trace(kernel.name, str(kernel.module.target), recorder, locations, failed, checked)
