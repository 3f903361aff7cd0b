"""What a launch reports: that it failed, and where; what it counted; what it printed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from emulator import report
from emulator.errors import EmulatorError
from emulator.machine.checks.finding import Finding
from emulator.machine.place import Index, Place, shown


class KernelError(EmulatorError):
    """A kernel cannot go on: what happened, at which statement, in which block and threads."""

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
        super().__init__(self._text())

    @property
    def line(self) -> int | None:
        """Line of the PTX text."""
        return self.place.line if self.place else None

    @property
    def source(self) -> str | None:
        """File and line of the CUDA or Python source."""
        return self.place.source[0] if self.place and self.place.source else None

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
    """What a launch did."""

    kernel: str
    #: what the checks found
    findings: list[Finding] = field(default_factory=list)
    #: what was counted, by name
    counters: dict[str, int] = field(default_factory=dict)
    #: what the kernel printed, one entry for each call
    printed: list[str] = field(default_factory=list)

    @property
    def title(self) -> str:
        counted = ", ".join(f"{count:,} {name}" for name, count in self.counters.items())
        return f"{self.kernel}: {counted.replace('_', ' ')}"

    @property
    def data(self) -> dict[str, Any]:
        return {
            "kernel": self.kernel, "findings": [str(finding) for finding in self.findings],
            "counters": dict(self.counters), "printed": list(self.printed),
        }  # fmt: skip

    def lines(self) -> Iterator[str]:
        yield self.title
        for finding in self.findings:
            yield from str(finding).splitlines()
        yield from "".join(self.printed).splitlines()
