"""What ``exec`` tells the program's processes, through their environment: the GPU, the checks, the
log."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from emulator.targets import Chip, find_chip

#: the environment variables
GPU, CHECK, LOG, RECOVER, STEPS = (
    f"EMULATOR_CUDA_{name}" for name in ("GPU", "CHECK", "LOG", "RECOVER", "STEPS")
)


@dataclass
class Settings:
    """Settings of the simulation in this process."""

    chip: Chip
    check: bool = False
    #: file for a line of JSON on each launch, and on what is not there
    log: str = ""
    #: an error of a kernel is reported once, and the context goes on
    recover: bool = False
    step_limit: int | None = None
    _missing: set[str] = field(default_factory=set)

    def write(self, **row: Any) -> None:
        if self.log:
            line = json.dumps({"process": os.getpid(), **row}) + "\n"
            # One write at the end of the file: processes share it.
            log = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            try:
                os.write(log, line.encode())
            finally:
                os.close(log)

    def missing(self, name: str) -> None:
        """Notes a function that is not there, once."""
        if name not in self._missing:
            self._missing.add(name)
            self.write(missing=name)
            os.write(2, f"emulator: {name} is not there; the program gets an error\n".encode())


@cache
def settings() -> Settings:
    """The settings of this process."""
    steps = os.environ.get(STEPS, "")
    return Settings(
        find_chip(os.environ.get(GPU, "H100")),
        bool(os.environ.get(CHECK)),
        os.environ.get(LOG, ""),
        bool(os.environ.get(RECOVER)),
        int(steps) if steps else None,
    )
