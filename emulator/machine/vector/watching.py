"""Vector engine: Protocols of what watches it, the checks of a launch and of its waves, which it
calls where a launch brings some, and watchers around its steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from dtypes import Array
from emulator.machine.shared.arrivals import MeetingWatch
from emulator.machine.shared.issuing import TensorCoreWatch, Watch
from emulator.machine.vector.strand import Frame, Lanes, Strand
from emulator.memory.space import Space
from emulator.ptx.program import Bound

if TYPE_CHECKING:
    from emulator.ptx.program import Function, Statement

#: a step, or the end of a block, which returns the pc where the strand goes on
StepOrEnd = Callable[[Strand], int | None]
#: puts something around a step or an end, which it calls
Watcher = Callable[[StepOrEnd, "Statement", "Function"], StepOrEnd]
#: positions of the lanes of an access in their strand; None: all of them
Which = Lanes | None


class SyncWatch(MeetingWatch, Protocol):
    """Checks of barriers, mbarriers and phases."""

    def phases_over(self, places: Lanes) -> None: ...
    def waited(self, lanes: Lanes, places: Lanes) -> None: ...


class IssueWatch(TensorCoreWatch, Protocol):
    """Checks of tcgen05, which are told which threads issue an operation."""

    def issued(self, lanes: Lanes) -> None: ...


class WaveWatch(Watch, Protocol):
    """Checks of a wave, which its steps tell what happens."""

    @property
    def sync(self) -> SyncWatch: ...
    @property
    def tensor_cores(self) -> IssueWatch: ...

    # Calls and registers.
    def entered(self, s: Strand, frame: Frame, arguments: tuple[Bound, ...]) -> None: ...
    def returned(self, s: Strand, frame: Frame, results: tuple[int, ...]) -> None: ...
    def written(self, s: Strand, results: tuple[int, ...]) -> None: ...

    # Accesses: the memory as an array of words or bytes, and the places of the lanes in it.
    def loaded(self, s: Strand, view: Array, places: Lanes, size: int, which: Which) -> None: ...
    def updated(self, s: Strand, view: Array, places: Lanes, size: int, which: Which) -> None: ...
    def store(self, lanes: Lanes, view: Array, places: Lanes, words: Array) -> None: ...
    def rows(self, lanes: Lanes, places: Lanes, size: int, *, write: bool) -> None: ...
    def touched(self, lanes: Lanes, held: Array, places: Lanes, size: int, write: bool) -> None: ...
    def space(self, held: Array, lanes: Lanes) -> Space: ...
    def wgmma_reads(self, addresses: Lanes, lanes: Lanes) -> None: ...

    # Ends.
    def cluster_arrive(self, lanes: Lanes) -> None: ...
    def ended(self, lanes: Lanes) -> None: ...
    def finish(self) -> None: ...


class GridWatch(Protocol):
    """Checks of a launch."""

    # Of `Finding`, which an engine does not know.
    @property
    def findings(self) -> Iterable[Any]: ...
    @property
    def warnings(self) -> Iterable[Any]: ...

    def bytes_of_block(self, shared_bytes: int) -> int:
        """Bytes that the checks of a thread block take."""
