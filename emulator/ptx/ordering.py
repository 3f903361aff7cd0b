"""The ordering rules of wgmma (PTX ISA 9.7.15.7): who may touch which register when.

A wgmma runs asynchronously. Its registers may be touched again only after a ``wgmma.wait_group``
that covers it, and a wgmma may use registers that the threads touched only after a
``wgmma.fence``. Chained wgmmas of one shape on the same accumulator need neither.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from emulator.errors import UndefinedError


@dataclass(frozen=True)
class _InFlight:
    shape: str
    accumulator: tuple[str, ...]
    inputs: tuple[str, ...]
    where: str


@dataclass
class WgmmaOrder:
    """What has been issued, committed and fenced so far in one warpgroup."""

    uncommitted: list[_InFlight] = field(default_factory=list)
    groups: list[list[_InFlight]] = field(default_factory=list)
    #: registers that ordinary statements touched since the last fence
    touched: set[str] = field(default_factory=set)
    fenced: bool = False

    def copy(self) -> WgmmaOrder:
        groups = [list(g) for g in self.groups]
        return WgmmaOrder(list(self.uncommitted), groups, set(self.touched), self.fenced)

    def _in_flight(self) -> list[_InFlight]:
        return [op for group in self.groups for op in group] + self.uncommitted

    def fence(self) -> None:
        self.fenced = True
        self.touched.clear()

    def commit(self) -> None:
        self.groups.append(self.uncommitted)
        self.uncommitted = []

    def wait(self, pending: int) -> None:
        """All but the `pending` most recent groups are complete."""
        self.groups = self.groups[len(self.groups) - pending :] if pending else []

    def check_read(self, names: Iterable[str], where: str) -> None:
        """Raises UndefinedError where a pending wgmma still writes one of the registers."""
        for op in self._in_flight():
            for name in names:
                if name in op.accumulator:
                    raise UndefinedError(
                        f"{where}register {name!r} is read while the wgmma of {op.where} may still "
                        "be writing it; wgmma.commit_group and a wgmma.wait_group that covers it "
                        "must come first"
                    )

    def read(self, names: Iterable[str], where: str) -> None:
        """An ordinary statement reads registers."""
        names = tuple(names)
        self.check_read(names, where)
        self.touched.update(names)

    def write(self, names: Iterable[str], where: str) -> None:
        """An ordinary statement writes registers."""
        names = tuple(names)
        for op in self._in_flight():
            for name in names:
                if name in op.accumulator or name in op.inputs:
                    raise UndefinedError(
                        f"{where}register {name!r} is written while the wgmma of {op.where} may "
                        "still be using it; wait for it with wgmma.wait_group first"
                    )
        self.touched.update(names)

    def issue(
        self, shape: str, accumulator: tuple[str, ...], inputs: tuple[str, ...], where: str
    ) -> None:
        """A wgmma: its accumulator is read and written, its inputs are read, later."""
        if not self.fenced:
            raise UndefinedError(f"{where}wgmma.fence must come before the first wgmma.mma_async")
        stale = [name for name in (*accumulator, *inputs) if name in self.touched]
        if stale:
            raise UndefinedError(
                f"{where}register {stale[0]!r} was touched since the last wgmma.fence; a "
                "wgmma.fence must come between that and a wgmma that uses it"
            )
        for op in self._in_flight():
            chained = op.shape == shape and op.accumulator == accumulator
            if not chained and set(op.accumulator) & {*accumulator, *inputs}:
                raise UndefinedError(
                    f"{where}the wgmma of {op.where} may still be writing registers that this one "
                    "uses; only wgmmas of one shape on the same accumulator follow each other "
                    "without a wait"
                )
            if set(op.inputs) & set(accumulator):
                raise UndefinedError(
                    f"{where}the wgmma of {op.where} may still be reading registers that this one "
                    "writes"
                )
        self.uncommitted.append(_InFlight(shape, accumulator, inputs, where.rstrip(": ")))
