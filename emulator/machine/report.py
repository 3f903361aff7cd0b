"""Where a statement stands, and the error of a kernel that cannot go on there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from emulator.errors import EmulatorError

Index = tuple[int, int, int]


@dataclass(frozen=True)
class Place:
    """Where in a kernel and in its sources a statement stands."""

    kernel: str
    #: line and column of the PTX text, and the statement
    line: int
    column: int
    statement: str
    #: "kernel.cu:12", and behind it where it was inlined; empty where the file does not say
    source: tuple[str, ...] = ()

    def __str__(self) -> str:
        source = f" ({', inlined at '.join(self.source)})" if self.source else ""
        return f"{self.kernel}, PTX line {self.line}{source}: {self.statement}"


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
            who = f"block {_index(self.block)}"
            if self.threads:
                more = f" and {len(self.threads) - 1} others" if len(self.threads) > 1 else ""
                who += f", thread {_index(self.threads[0])}{more}"
            parts.append(f"  in {who}")
        if self.place is not None:
            parts.append(f"  at {self.place}")
        return "\n".join(parts)


def _index(index: Index) -> str:
    return f"({', '.join(map(str, index))})"
