"""All engines: the ordering rules of wgmma (PTX ISA 9.7.15.7), who may touch which register when.

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


#: what a `WgmmaOrder` holds; of `touched` also how many there were
Saved = tuple[tuple[_InFlight, ...], tuple[tuple[_InFlight, ...], ...], dict[str, None], int, bool]


@dataclass
class WgmmaOrder:
    """The products that one warpgroup has issued, committed and fenced so far."""

    uncommitted: tuple[_InFlight, ...] = ()
    groups: tuple[tuple[_InFlight, ...], ...] = ()
    #: registers that ordinary statements touched since the last fence, in that order
    touched: dict[str, None] = field(default_factory=dict)
    fenced: bool = False

    def saved(self) -> Saved:
        """The state that `restore` comes back to."""
        return self.uncommitted, self.groups, self.touched, len(self.touched), self.fenced

    def restore(self, saved: Saved) -> None:
        """Forgets what has happened since."""
        self.uncommitted, self.groups, self.touched, count, self.fenced = saved
        while len(self.touched) > count:
            self.touched.popitem()

    def _in_flight(self) -> list[_InFlight]:
        return [op for group in (*self.groups, self.uncommitted) for op in group]

    def fence(self) -> None:
        self.fenced = True
        self.touched = {}

    def commit(self) -> None:
        self.groups, self.uncommitted = (*self.groups, self.uncommitted), ()

    def wait(self, pending: int) -> None:
        """All but the `pending` most recent groups are complete."""
        self.groups = self.groups[max(0, len(self.groups) - pending) :]

    def check_read(self, names: Iterable[str]) -> None:
        """Raises UndefinedError where a pending wgmma still writes one of the registers."""
        for op in self._in_flight():
            for name in names:
                if name in op.accumulator:
                    raise UndefinedError(
                        f"register {name!r:.100} is read while the wgmma of {op.where} may "
                        "still be writing it; wgmma.commit_group and a wgmma.wait_group that "
                        "covers it must come first"
                    )

    def check_write(self, names: Iterable[str]) -> None:
        """Raises UndefinedError where a pending wgmma uses one of the registers."""
        for op in self._in_flight():
            for name in names:
                if name in op.accumulator or name in op.inputs:
                    raise UndefinedError(
                        f"register {name!r:.100} is written while the wgmma of {op.where} "
                        "may still be using it; wait for it with wgmma.wait_group first"
                    )

    def touch(self, names: Iterable[str]) -> None:
        """Ordinary statements, or the caller, have read or written registers."""
        self.touched.update(dict.fromkeys(names))

    def issue(
        self, shape: str, accumulator: tuple[str, ...], inputs: tuple[str, ...], where: str
    ) -> None:
        """A wgmma at a place in the text: its accumulator is read and written, its inputs are read,
        later. Raises UndefinedError where they may not be."""
        if not self.fenced:
            raise UndefinedError("wgmma.fence must come before the first wgmma.mma_async")
        stale = [name for name in (*accumulator, *inputs) if name in self.touched]
        if stale:
            raise UndefinedError(
                f"register {stale[0]!r:.100} was touched since the last wgmma.fence; a "
                "wgmma.fence must come between that and a wgmma that uses it"
            )
        for op in self._in_flight():
            chained = op.shape == shape and op.accumulator == accumulator
            uses = inputs if chained else (*accumulator, *inputs)
            if set(op.accumulator) & set(uses):
                raise UndefinedError(
                    f"the wgmma of {op.where} may still be writing registers that this one "
                    "uses; only wgmmas of one shape on the same accumulator follow each other "
                    "without a wait"
                )
            if set(op.inputs) & set(accumulator):
                raise UndefinedError(
                    f"the wgmma of {op.where} may still be reading registers that this one writes"
                )
        issued = _InFlight(shape, accumulator, inputs, where)
        self.uncommitted = (*self.uncommitted, issued)
