"""Vector engine: who can go on where all threads wait, and the error where nobody can."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from emulator.machine.shared.deadlock import PhaseLack, Row, reason
from emulator.machine.shared.failure import Failure
from emulator.machine.shared.waiting import BEHIND
from emulator.machine.vector import mbarriers
from emulator.machine.vector.strand import Strand
from emulator.ptx.program import Statement

if TYPE_CHECKING:
    from emulator.machine.vector.wave import Wave


def resume(wave: Wave) -> bool:
    """Lets strands of a wave go on that wait for what time alone brings; False if there are none.

    First what was issued and is under way takes effect; then every try_wait gives up, as it may.
    """
    return wave.pending.finish() or mbarriers.time_out(wave)


def deadlock(waves: list[Wave]) -> Exception:
    """The error that says who waits where, and for what."""
    failure = Failure("deadlock", reason([row for wave in waves for row in _rows(wave)]))
    first = min((*waves[0].waiting, *waves[0].ready), key=lambda s: int(s.lanes[0]))
    return waves[0].grid.placed(failure, first, _statement(first))


def _statement(strand: Strand) -> Statement:
    """The statement that a strand waits at."""
    statements: tuple[Statement, ...] = strand.wave.grid.program.statements
    return statements[strand.pc - (strand.state in BEHIND)]


def _rows(wave: Wave) -> Iterator[Row]:
    """A row for each strand that waits and each block that it has threads in."""
    for strand in wave.waiting:
        rows = wave.row(strand)
        for block in np.unique(rows).tolist():
            mask = rows == block
            wait = strand.wait
            if isinstance(wait, mbarriers.Waiting):
                wait = _lack(wave, wait.part(mask))
            yield Row(wave, block, strand.lanes[mask], _statement(strand), strand.state, wait)


def _lack(wave: Wave, wait: mbarriers.Waiting) -> PhaseLack:
    """The phase that the first lane waits for."""
    place, given = int(wait.places[0]), int(np.atleast_1d(wait.phases.given)[0])
    word, history = int(mbarriers.words_of(wave)[place]), int(wave.ledger[place])
    return PhaseLack(place, wait.phases.test, given, word, history)
