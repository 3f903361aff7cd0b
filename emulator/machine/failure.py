"""What stops a kernel, told by whoever notices it to whoever knows where it happened."""

from __future__ import annotations


class Failure(Exception):
    """A statement cannot be executed: `kind` in a word or two, `reason` in a sentence.

    `index` is the lane of the strand, or the thread, that it happened to, if it was one.
    """

    def __init__(self, kind: str, reason: str, index: int | None = None) -> None:
        super().__init__(reason)
        self.kind, self.reason, self.index = kind, reason, index
