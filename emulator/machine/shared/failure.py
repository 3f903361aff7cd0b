"""All engines: failures of a kernel, raised where they are noticed and placed by the engine."""

from __future__ import annotations

#: statements that may be executed without any effect on memory or on other threads, and those of
#: loops that look at memory which others may change
VAIN_STATEMENTS, VAIN_POLLS = 1 << 21, 1 << 18


class Failure(Exception):
    """A statement cannot be executed: `kind` in a word or two, `reason` in a sentence.

    `index` is the lane of the strand, or the thread, that it happened to, if it was one; where it
    `concerns` several lanes that execute the statement together, it is the first of these.
    """

    def __init__(
        self, kind: str, reason: str, index: int | None = None, *, concerns: int = 1
    ) -> None:
        super().__init__(reason)
        self.kind, self.reason, self.index, self.concerns = kind, reason, index, concerns


def over_limit(executed: int, limit: int) -> Failure:
    """The failure of a launch that has executed more statements than its step_limit."""
    return Failure("step limit", f"{executed:,} statements were executed; step_limit={limit:,}")


def in_vain(statements: int) -> Failure:
    """Threads go round without end and without effect."""
    reason = (
        f"{statements:,} statements were executed without an effect on memory or on other threads; "
        "step_limit=N lets a launch execute N"
    )
    return Failure("endless loop", reason)


def polls_in_vain() -> Failure:
    """A loop looks at memory for ever."""
    reason = "the loop waits for a change of memory that no thread will ever make"
    return Failure("deadlock", reason)
