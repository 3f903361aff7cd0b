"""Compares Triton kernels on this machine's GPU with the same kernels interpreted.

    python tests/hardware/triton_check.py [--match TEXT] [-o RESULT.json]

Each kernel (`triton_cases`) multiplies the same matrices twice: compiled, on the GPU, and under
TRITON_INTERPRET=1 inside `tensor_core_dot`, in other processes. All bits of both are compared.
Needs torch and Triton, and NumPy before 2.4 for Triton up to 3.6. Exit codes as of capture.py.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
import triton

_TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(x) for x in (_TESTS.parent, _TESTS, _TESTS / "oracle")]

from dtypes import Array  # noqa: E402
from emulator import UnsupportedError  # noqa: E402
from emulator.adapters.triton_interpreter import tensor_core_dot  # noqa: E402
from hardware.capture import provenance, say, target_of  # noqa: E402
from hardware.driver import Gpu, NoGpuError, needs_gpu  # noqa: E402
from hardware.operands import REGIMES  # noqa: E402
from hardware.triton_cases import STYLES, Case, cases, run  # noqa: E402

INTERPRET = "TRITON_INTERPRET"
#: numbers of a row of the table
COUNTED = ("cases", "results", "differing", "nan_codes", "refused", "failed")
#: what is said under the table
NAN_CODES = """\
nan_codes: NaN on both sides, of another code, where the kernel itself adds a finished fp8 dot. The
interpreter does that addition with NumPy, which makes other NaNs. Elsewhere it is a difference."""


@dataclass
class Outcome:
    """What one case gave."""

    case: Case
    instruction: str = ""
    results: int = 0
    differing: int = 0
    #: NaNs of the interpreter's own additions (`Case.adds_itself`) whose code alone is another
    nan_codes: int = 0
    #: where the first difference is
    first: str = ""
    #: why the emulator does not have what Triton takes
    refused: str = ""
    error: str = ""


def interpreted(case: Case, seed: int, target: str) -> tuple[Outcome, Array | None]:
    """An outcome, not yet compared, and the results as the emulator computes them."""
    outcome = Outcome(case)
    try:
        with tensor_core_dot(target, num_warps=case.warps) as used, np.errstate(all="ignore"):
            results = run(case, seed, "cpu")
    except UnsupportedError as error:
        outcome.refused = str(error)
    except Exception as error:
        outcome.error = f"interpreter: {type(error).__name__}: {error}"
    else:
        outcome.instruction = " and ".join(sorted(used))
        return outcome, results
    return outcome, None


def compare(outcome: Outcome, got: Array, want: Array, target: str) -> None:
    """Counts where the GPU's results are not the emulator's; both are as of `run`."""
    theirs, ours = (x.view(f"u{x.itemsize}") for x in (got, want))
    unlike = theirs != ours
    outcome.results = got.size
    if outcome.case.adds_itself(target):
        only_codes = unlike & np.isnan(got) & np.isnan(want)
        outcome.nan_codes = int(only_codes.sum())
        unlike &= ~only_codes
    outcome.differing = int(unlike.sum())
    if outcome.differing:
        regime, row, column = at = tuple(np.argwhere(unlike)[0].tolist())
        outcome.first = f"{REGIMES[regime]}, row {row}, column {column}: GPU {int(theirs[at]):#x}"
        outcome.first += f", emulator {int(ours[at]):#x}"


def check(chosen: Sequence[Case], seed: int, target: str, jobs: int) -> Iterator[Outcome]:
    """Runs each case on both sides and compares."""
    os.environ[INTERPRET] = "1"  # for the processes, which import this file and Triton anew
    try:
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            emulated = list(pool.map(partial(interpreted, seed=seed, target=target), chosen))
    finally:
        del os.environ[INTERPRET]
    for outcome, want in emulated:
        if want is not None:
            try:
                compare(outcome, run(outcome.case, seed, "cuda"), want, target)
            except Exception as error:
                outcome.error = f"GPU: {type(error).__name__}: {error}"
        yield outcome


def finding(outcome: Outcome) -> str:
    """A line where a case failed, differs or was refused; else nothing."""
    name = outcome.case.name
    if outcome.error:
        return f"FAILED {name}: {outcome.error}"
    if outcome.refused:
        return f"REFUSED {name}: {outcome.refused}"
    if outcome.differing:
        counted = f"{outcome.differing} of {outcome.results} results; first: {outcome.first}"
        return f"DIFFERS {name} ({outcome.instruction}): {counted}"
    return ""


def tabulate(outcomes: Sequence[Outcome]) -> list[dict[str, str | int]]:
    """A row for the cases of the same types, style, options and instruction, of any N of wgmma."""
    rows: dict[str, dict] = {}
    for o in outcomes:
        c = o.case
        row = {"a": c.a, "b": c.b, "d": c.d, "kernel": STYLES[c.style], "options": c.options,
               "instruction": re.sub(r"\.m64n\d+k", ".m64nNk", o.instruction)}  # fmt: skip
        row = rows.setdefault(json.dumps(row), row | dict.fromkeys(COUNTED, 0))
        found = (1, o.results, o.differing, o.nan_codes, bool(o.refused), bool(o.error))
        for name, number in zip(COUNTED, found, strict=True):
            row[name] += number
    return list(rows.values())


def print_table(rows: Sequence[dict]) -> dict[str, int]:
    """Returns the sums."""
    say("".join(f"{name:>10s}" for name in COUNTED) + "  of kernel, instruction")
    sums = {name: sum(row[name] for row in rows) for name in COUNTED}
    together = dict.fromkeys(rows[0], "") | {"kernel": "together"} | sums
    for row in [*rows, together]:
        types = row["a"] and f"{row['a']} × {row['b']} into {row['d']}"
        words = filter(None, (types, row["kernel"], row["options"], row["instruction"]))
        say("".join(f"{row[name]:10d}" for name in COUNTED) + "  " + ", ".join(words))
    say(NAN_CODES)
    return sums


@needs_gpu
def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--match", default="", help="only kernels whose name holds this text")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=min(12, os.cpu_count() or 1))
    parser.add_argument("-o", dest="out", type=Path, help="where to write the result, RESULT.json")
    given = parser.parse_args(argv)
    if given.jobs < 1:
        parser.error("--jobs must be 1 or more")
    chosen = [case for case in cases() if given.match in case.name]
    if not chosen:
        parser.error(f"no kernel has {given.match!r} in its name, as in {next(cases()).name!r}")
    gpu = Gpu()
    target = target_of(gpu.capability)
    if not torch.cuda.is_available():
        raise NoGpuError(f"torch {torch.__version__} does not see it")
    if os.environ.get(INTERPRET):
        parser.error(f"{INTERPRET} is set; this process is to compile its kernels for the GPU")
    about = provenance(gpu, target, given.seed) | {
        "assembler": f"ptxas of Triton {triton.__version__}",
        "interpreter": f"Triton {triton.__version__}, NumPy {np.__version__}",
        "source": "tests/hardware/triton_check.py",
    }
    say(", ".join(f"{key} {value}" for key, value in about.items() if key != "licence"))
    say(f"{len(chosen)} kernels, first interpreted by {given.jobs} processes, then compiled")
    outcomes = []
    for outcome in check(chosen, given.seed, target, given.jobs):
        outcomes.append(outcome)
        if line := finding(outcome):
            say(line)
    rows = tabulate(outcomes)
    sums = print_table(rows)
    if given.out is not None:
        lines = ",\n ".join(json.dumps(row, ensure_ascii=False) for row in rows)
        text = f'{{"provenance": {json.dumps(about)},\n"rows": [\n {lines}\n]}}\n'
        given.out.write_text(text, encoding="utf-8")
    return 1 if sums["differing"] or sums["failed"] or not sums["results"] else 0


if __name__ == "__main__":
    sys.exit(main())
