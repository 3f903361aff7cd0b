"""Where in a kernel and in its sources something happens, and which blocks and threads it was."""

from __future__ import annotations

from dataclasses import dataclass

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


def shown(index: Index) -> str:
    """``(1, 0, 0)``."""
    return f"({', '.join(map(str, index))})"
