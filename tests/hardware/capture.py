"""Runs the matrix instructions on an NVIDIA GPU and compares or records what it computes.

    python tests/hardware/capture.py compare            # GPU against emulator, bit for bit
    python tests/hardware/capture.py compare --every-n -o RESULT.json   # and say so in a file
    python tests/hardware/capture.py record -o OUT.npz  # in the format of tests/golden
    python tests/hardware/capture.py record --probes -o OUT.npz

Every instruction of the table that the GPU's target has is run, on random cases, or on the probes
of tests/oracle/probes.py, which show each constant of its recipe. Needs the driver alone: no CUDA
toolkit, no further Python package. Exit codes: 0 all bits equal, 1 differences or failures, 2 wrong
arguments, 4 no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

_TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(x) for x in (_TESTS.parent, _TESTS, _TESTS / "oracle")]

from emulator import TARGETS, Instruction  # noqa: E402
from emulator.isa.matrix import MatrixInstruction  # noqa: E402
from emulator.isa.matrix_opcodes import expand as instructions  # noqa: E402
from emulator.tools.recordings import Provenance, Recording, save  # noqa: E402
from hardware.driver import Gpu, NoGpuError, needs_gpu  # noqa: E402
from hardware.kernels import ptx_version  # noqa: E402
from hardware.measure import Report, Settings  # noqa: E402
from hardware.workers import measure_all  # noqa: E402

#: values of N that stand for all: odd and even multiples of 8, powers of two, the largest
SAMPLE_N = (8, 16, 24, 32, 64, 72, 128, 176, 192, 256)
#: one value of N shows every constant of wgmma's arithmetic, with as many probes in a case
PROBE_N = (64,)
#: seconds between lines of progress
PROGRESS = 5


@dataclass
class Tally:
    """A line of the final table."""

    instructions: int = 0
    variants: int = 0
    cases: int = 0
    words: int = 0
    differing: int = 0
    failed: int = 0

    def add(self, report: Report) -> None:
        self.instructions += 1
        self.variants += len({outcome.name for outcome in report.outcomes})
        for outcome in report.outcomes:
            self.cases += outcome.cases
            self.words += outcome.words
            self.differing += outcome.differing_words
            self.failed += bool(outcome.error)


def say(text: str) -> None:
    print(text, flush=True)


def choose(
    target: str, match: str, every_n: bool, sample: Sequence[int] = SAMPLE_N
) -> list[Instruction]:
    """The instructions of `target` with `match` in their opcode; of wgmma those of a sample."""
    return [
        ins
        for ins in instructions()
        if target in ins.targets
        and match in str(ins)
        and (every_n or not ins.is_wgmma or ins.n in sample)
    ]


def target_of(capability: tuple[int, int]) -> str:
    """The target with all features of a GPU: sm_90a for compute capability (9, 0)."""
    plain = f"sm_{capability[0]}{capability[1]}"
    found = [name for name in (f"{plain}a", plain) if name in TARGETS]
    if not found:
        raise NoGpuError(f"the GPU is {plain}; the emulator has {', '.join(TARGETS)}")
    return found[0]


def provenance(gpu: Gpu, target: str, seed: int) -> Provenance:
    cuda = f"CUDA {gpu.cuda // 1000}.{gpu.cuda % 1000 // 10}"
    return {
        "gpu": gpu.name,
        "target": target,
        "compute capability": ".".join(map(str, gpu.capability)),
        "driver": gpu.driver,
        "assembler": f"PTX compiler of the driver, {cuda}",
        "date": date.today().isoformat(),
        "seed": str(seed),
        "source": "tests/hardware/capture.py",
        "licence": "as the project's own files",
    }


def findings(report: Report) -> list[str]:
    """A line for each outcome that failed or differs."""
    out = []
    for outcome in report.outcomes:
        if outcome.error:
            out.append(f"FAILED {outcome.name}: {outcome.error}")
        elif outcome.differing_words:
            out.append(
                f"DIFFERS {outcome.name}: {outcome.differing_words} of {outcome.words} registers "
                f"in {outcome.differing_cases} of {outcome.cases} cases; first: {outcome.first}"
            )
    return out


def write_result(path: Path, about: Provenance, reports: list[Report]) -> None:
    """A small file, evidence for tests/golden/compared: totals by family, types and shape."""
    rows: dict[tuple[str, str, str, str], dict[str, int]] = {}
    for report in reports:
        ins = Instruction.parse(report.opcode)
        assert isinstance(ins, MatrixInstruction)
        shape = re.sub(r"(m64n)\d+", r"\1N", ins.shape)
        row = rows.setdefault((ins.form.family, ins.a_type, ins.d_type, shape), {})
        tally = Tally()
        tally.add(report)
        for name, number in vars(tally).items():
            key = "registers" if name == "words" else name
            row[key] = row.get(key, 0) + number
    facts = [
        {"family": family, "a": a, "d": d, "shape": shape, **row}
        for (family, a, d, shape), row in sorted(rows.items())
    ]
    text = json.dumps({"provenance": about, "rows": facts}, indent=1)
    # One row, one line: such a file is read by people.
    text = re.sub(
        r"\{\s+(\"family\"[^}]*?)\s+\}", lambda m: "{" + " ".join(m[1].split()) + "}", text
    )
    path.write_text(text + "\n", encoding="utf-8")


def print_table(tallies: dict[str, Tally]) -> None:
    head = ("family", "instructions", "variants", "cases", "registers", "differing", "failed")
    say(f"{head[0]:24s}" + "".join(f"{word:>14s}" for word in head[1:]))
    total = Tally()
    for family, tally in [*sorted(tallies.items()), ("all", total)]:
        say(f"{family:24s}" + "".join(f"{number:14d}" for number in vars(tally).values()))
        for name, number in vars(tally).items():
            setattr(total, name, getattr(total, name) + number)


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("compare", "record"))
    parser.add_argument("--match", default="", help="only opcodes that hold this text")
    parser.add_argument(
        "--cases",
        type=int,
        help="per variant of mma, an eighth of it for wgmma; default 120, or 24",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every-n", action="store_true", help="of wgmma, not only a sample")
    parser.add_argument("--probes", action="store_true", help="instead of random cases")
    parser.add_argument("--jobs", type=int, default=min(12, os.cpu_count() or 1))
    parser.add_argument("--seconds", type=float, default=1e9, help="start nothing after these")
    parser.add_argument("--show", type=int, default=40, help="lines of findings at most")
    parser.add_argument(
        "-o", dest="out", type=Path, help="OUT.npz of record, RESULT.json of compare"
    )
    given = parser.parse_args(argv)
    if given.what == "record" and given.out is None:
        parser.error("record needs -o OUT.npz")
    if given.cases is None:
        given.cases = 120 if given.what == "compare" else 24
    if given.cases < 1 or given.jobs < 1:
        parser.error("--cases and --jobs must be 1 or more")
    return given


@needs_gpu
def main(argv: list[str] | None = None) -> int:
    given = arguments(argv)
    gpu = Gpu()
    target = target_of(gpu.capability)
    about = provenance(gpu, target, given.seed)
    say(", ".join(f"{key} {value}" for key, value in about.items() if key != "licence"))
    sample = PROBE_N if given.probes else SAMPLE_N
    chosen = choose(target, given.match, given.every_n, sample)
    if not chosen:
        say(f"no instruction of {target} has {given.match!r} in its opcode")
        return 1
    record = given.what == "record"
    version = ptx_version(gpu.cuda)
    settings = Settings(target, version, given.cases, given.seed, record, given.probes)
    reports = measure_all([str(ins) for ins in chosen], settings, given.jobs, given.seconds)

    start = shown = time.monotonic()
    tallies: dict[str, Tally] = {}
    recordings: list[Recording] = []
    done: list[Report] = []
    count = shown_lines = 0
    for count, report in enumerate(reports, 1):
        tallies.setdefault(report.family, Tally()).add(report)
        recordings += report.recordings
        report.recordings = []
        done.append(report)
        for line in findings(report):
            shown_lines += 1
            if shown_lines <= given.show:
                say(line)
        if time.monotonic() - shown > PROGRESS:
            shown = time.monotonic()
            say(f"{count} of {len(chosen)} instructions after {shown - start:.0f} s")
    if shown_lines > given.show:
        say(f"{shown_lines - given.show} findings are not shown; --show takes their number")
    print_table(tallies)
    say(f"{count} of {len(chosen)} instructions in {time.monotonic() - start:.0f} s")
    if record:
        save(given.out, about, sorted(recordings, key=lambda r: r.name))
        say(f"{len(recordings)} recordings in {given.out}")
    elif given.out is not None:
        write_result(given.out, about, done)
        say(f"results in {given.out}")
    wrong = any(tally.differing or tally.failed for tally in tallies.values())
    return 1 if wrong or count < len(chosen) else 0


if __name__ == "__main__":
    sys.exit(main())
