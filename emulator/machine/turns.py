"""Launches of several Python threads take turns where they share memory: the variables of a Module,
or a `Memory`. Each launch copies these in and out, so two at a time would lose updates. Arrays that
are given to several of them have no turns; but who may put back bytes of an array, as they were
before, must be `alone`."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from emulator.machine.shared.failure import Failure


class Turn:
    """A lock that one launch at a time may hold. Copies and pickles of it are free."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __reduce__(self) -> tuple[type[Turn], tuple[()]]:
        return Turn, ()


class _UnderWay:
    """The Python threads that have launches under way, one for each of these."""

    def __init__(self) -> None:
        # A signal's handler may launch in the thread that is alone.
        self.lock = threading.RLock()
        self.threads: list[int] = []

    def forget_others(self) -> None:
        """A forked child has the launch that forks, if any, and none of other threads."""
        self.lock, mine = threading.RLock(), threading.get_ident()
        self.threads = [x for x in self.threads if x == mine]


_under_way = _UnderWay()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_under_way.forget_others)


@contextmanager
def launching() -> Iterator[None]:
    """A launch, which begins when nobody is `alone` any more."""
    with _under_way.lock:
        _under_way.threads.append(threading.get_ident())
    try:
        yield
    finally:
        with _under_way.lock:
            _under_way.threads.remove(threading.get_ident())


@contextmanager
def alone() -> Iterator[bool]:
    """Whether no other launch is under way; if so, none begins meanwhile."""
    with ExitStack() as stack:
        lock = _under_way.lock
        # If not, another is alone, begins or ends.
        is_alone = lock.acquire(blocking=False)
        if is_alone:
            stack.callback(lock.release)
            is_alone = len(_under_way.threads) <= 1
        if not is_alone:
            stack.close()  # others may begin
        yield is_alone


class _Thread(threading.local):
    """Turns that the launches of a Python thread hold."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []


_thread = _Thread()


@contextmanager
def taken(turns: Mapping[str, Turn]) -> Iterator[None]:
    """Waits until no other launch has the turns, by name, and keeps them.

    All launches take them in one order, and so never wait for each other in a circle. A launch
    within a launch, which a callback makes, could: it does not wait, but raises Failure.
    """
    nested = bool(_thread.turns)
    with ExitStack() as stack:
        for name, turn in turns.items():
            if not turn.lock.acquire(blocking=not nested):
                raise Failure("launch", _refusal(name, mine=turn in _thread.turns))
            stack.callback(turn.lock.release)
            _thread.turns.append(turn)
            stack.callback(_thread.turns.remove, turn)
        yield


def _refusal(name: str, *, mine: bool) -> str:
    if mine:
        return (
            f"{name} is in use by the launch that made this call; wait until that launch has "
            "ended, or give this one memory of its own"
        )
    return (
        f"{name} is in use by a launch of another Python thread, and a launch within a launch "
        "does not wait; make this launch outside of the callback"
    )
