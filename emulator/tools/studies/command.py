"""``error`` and ``probe`` from a shell."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from emulator.errors import OperandError, shown
from emulator.report import Report
from emulator.tools.files import write_text
from emulator.tools.report import Answer
from emulator.tools.studies.error import DISTRIBUTIONS, MEASURES, ErrorStudy, error_study
from emulator.tools.words import IDESC, instruction_word, separated

#: arguments of `error` and what they mean
ERROR_HELP = {
    "opcode": "several are compared, each on those targets that have it",
    "--idesc WORD": IDESC,
    "--targets NAMES": "H100,B200,L40S (default: each different arithmetic)",
    "--k LENGTHS": "256,4096, or 16..16384: doubled each time (default 16..16384)",
    "--distribution NAMES": f"{', '.join(DISTRIBUTIONS)} (default normal; several with commas)",
    "--order NAMES": "chain, reversed, promote:128, split:4, sliced:4",
    "--measure": f"shown first: {', '.join(MEASURES)}",
    "--rows": "of A (default 32)",
    "--columns": "of B (default 32)",
    "--seed": "",
    "--csv": "comma-separated values instead of text",
    "--table": "one table, for a page or a paper",
    "-o --output FILE": "write there: .svg a chart, .html a page, .csv, .md and .tex a table",
}


#: arguments of `probe` and what they mean
PROBE_HELP = {"opcode": "", "--idesc WORD": IDESC, "--target": "sm_90a, H100, ..."}


def probe_command(opcode: str, target: str, idesc: str | None = None) -> Report:
    """The accumulation by experiment; raises what `probe` raises."""
    from emulator.tools.studies.probe import probe

    return probe(opcode, target=target, idesc=instruction_word(idesc))


def error_command(
    opcode: Sequence[str],
    idesc: str | None = None,
    targets: str | None = None,
    k: str = "16..16384",
    distribution: str = "normal",
    order: str = "chain",
    measure: str = "rms",
    rows: int = 32,
    columns: int = 32,
    seed: int = 0,
    csv: bool = False,
    table: Literal["markdown", "latex"] | None = None,
    output: str | None = None,
) -> Report:
    """The errors of instructions over k; raises what `error_study` raises."""
    study = error_study(
        opcode[0] if len(opcode) == 1 else opcode,
        idesc=instruction_word(idesc),
        k=lengths(k),
        targets=None if targets is None else separated(targets),
        distributions=separated(distribution),
        orders=separated(order),
        measure=measure,
        rows=rows,
        columns=columns,
        seed=seed,
    )
    if output is not None:
        write_text(output, _as_file(study, output))
        return Answer([f"wrote {output}"], study.data)
    if csv or table:
        text = study.csv() if table is None else study.table(table)
        return Answer(text.splitlines(), study.data)
    return study


def _as_file(study: ErrorStudy, name: str) -> str:
    kind = name.lower().rpartition(".")[2]
    made: dict[str, Callable[[], str]] = {
        "svg": study.svg, "html": study.html, "htm": study.html, "csv": study.csv,
        "md": study.table, "tex": partial(study.table, "latex"),
    }  # fmt: skip
    text = made.get(kind, study.text)()
    return text if text.endswith("\n") else f"{text}\n"


def lengths(text: str) -> list[int]:
    """Lengths in words.

    >>> lengths("16..128"), lengths("100,300")
    ([16, 32, 64, 128], [100, 300])
    """
    out = []
    for word in separated(text):
        match = re.fullmatch(r"(\d{1,9})(?:\.\.(\d{1,9}))?", word)
        if match is None:
            raise OperandError(f"--k is lengths such as 256,4096 or 16..16384; got {shown(word)}")
        first, last = int(match[1]), int(match[2] or match[1])
        if not 0 < first <= last:
            raise OperandError(f"--k {shown(word)} has no lengths: the first is 1 … the last")
        while first <= last:
            out.append(first)
            first *= 2
    return out
