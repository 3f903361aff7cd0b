"""``selftest``: the packaged recordings of real hardware, replayed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, cast, get_args

from emulator import recordings
from emulator.arith import Engine
from emulator.errors import EmulatorError, OperandError, nearest
from emulator.tools.report import Answer

if TYPE_CHECKING:
    from argparse import ArgumentParser


def selftest_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--engine", default="auto", help="auto, reference, vector or compiled")


def selftest_command(engine: str = "auto") -> Answer:
    """Replays every group with `engine`; exit code 1 where a bit differs from the hardware's.

    Raises OperandError for an unknown engine, EmulatorError where no recordings are installed.
    """
    engines = get_args(Engine)
    if engine not in engines:
        raise OperandError(
            f"no engine {engine!r}; there are {', '.join(engines)}; nearest is "
            f"{nearest(engine, engines)[0]!r}"
        )
    try:
        summaries = recordings.selftest(cast(Engine, engine))
    except FileNotFoundError as error:
        raise EmulatorError(str(error)) from None
    if not summaries:
        raise EmulatorError(f"there are no recordings in {recordings.golden_folder()}")
    code = 0 if all(summary.ok for summary in summaries) else 1
    data = [{**asdict(summary), "ok": summary.ok} for summary in summaries]
    return Answer(_lines(summaries), data, code)


def _lines(summaries: Sequence[recordings.Summary]) -> Iterator[str]:
    for summary in summaries:
        yield str(summary)
        yield from (f"  {problem}" for problem in summary.problems)
