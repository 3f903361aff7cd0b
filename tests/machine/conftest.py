"""Fixtures that several files of this folder share."""

import pytest


@pytest.fixture
def four_threads(monkeypatch):
    """Native code has four threads for any work."""
    from emulator.arith.fast import threads
    from emulator.machine.compiled import loop

    monkeypatch.setattr(threads, "processors", lambda: 4)
    monkeypatch.setattr(loop, "WORTH_A_THREAD", 1)
