"""Processes that share one GPU, each with a context of its own.

A kernel that faults takes the whole process's use of the GPU with it, and one that hangs never
returns. Either costs one instruction: its process is ended and another takes over.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import queue
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection

from emulator import Instruction
from hardware.driver import Gpu
from hardware.measure import Outcome, Report, Settings, measure

#: seconds that one instruction may take
PATIENCE = 120

_SPAWN = multiprocessing.get_context("spawn")  # a forked process cannot use CUDA


def serve(connection: Connection, settings: Settings) -> None:
    """The life of a worker process: opcodes in, reports out, until None comes."""
    gpu = Gpu()
    while (opcode := connection.recv()) is not None:
        ins = Instruction.parse(opcode)
        try:
            report = measure(gpu, ins, settings)
        except Exception as error:  # a mistake in this tool must not end the whole run
            report = _failed(ins, f"{type(error).__name__}: {error}")
        connection.send(report)
        if report.is_fatal:
            return


def measure_all(
    opcodes: list[str], settings: Settings, jobs: int, seconds: float
) -> Iterator[Report]:
    """Reports in the order in which they come; after `seconds` no further opcode is started."""
    todo: queue.Queue[str] = queue.Queue()
    for opcode in opcodes:
        todo.put(opcode)
    done: queue.Queue[Report | None] = queue.Queue()
    end = time.monotonic() + seconds
    threads = [
        threading.Thread(target=_attend, args=(todo, done, settings, end), daemon=True)
        for _ in range(jobs)
    ]
    for thread in threads:
        thread.start()
    running = jobs
    while running:
        report = done.get()
        if report is None:
            running -= 1
        else:
            yield report


def _attend(
    todo: queue.Queue[str], done: queue.Queue[Report | None], settings: Settings, end: float
) -> None:
    """A thread beside each process: hands it opcodes, and replaces it when it is lost."""
    worker: Worker | None = None
    try:
        while time.monotonic() < end:
            opcode = todo.get_nowait()
            worker = worker or Worker(settings)
            report = worker.ask(opcode)
            done.put(report)
            if report.is_fatal:
                worker.stop()
                worker = None
    except queue.Empty:
        pass
    finally:
        if worker:
            worker.stop()
        done.put(None)


class Worker:
    """One process, and the pipe to it."""

    def __init__(self, settings: Settings) -> None:
        self.connection, theirs = _SPAWN.Pipe()
        self.process = _SPAWN.Process(target=serve, args=(theirs, settings), daemon=True)
        self.process.start()
        theirs.close()

    def ask(self, opcode: str) -> Report:
        try:
            self.connection.send(opcode)
            if self.connection.poll(PATIENCE):
                report: Report = self.connection.recv()
                return report
            why = f"no answer after {PATIENCE} s"
        except (EOFError, OSError):
            why = "the process that ran it died"
        return _failed(Instruction.parse(opcode), why, is_fatal=True)

    def stop(self) -> None:
        """Ends the process, kindly where it still listens."""
        with contextlib.suppress(OSError):
            self.connection.send(None)
        self.process.join(5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.connection.close()


def _failed(ins: Instruction, why: str, is_fatal: bool = False) -> Report:
    return Report(str(ins), ins.family, [Outcome(str(ins), error=why)], is_fatal=is_fatal)
