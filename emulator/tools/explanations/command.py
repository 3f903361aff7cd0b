"""``explain`` and ``compare`` from a shell: operands from files, text or a seed; pages to files."""

from __future__ import annotations

from pathlib import Path

from emulator.errors import OperandError
from emulator.isa.instruction import Instruction
from emulator.tools.answer import Answer
from emulator.tools.explanations.comparison import compare
from emulator.tools.explanations.explanation import explain, explain_registers
from emulator.tools.explanations.feeds import multiplying
from emulator.tools.explanations.inputs import operands, registers_from_file
from emulator.tools.report import Report


def explain_command(
    opcode: str,
    target: str,
    row: int = 0,
    col: int = 0,
    input: str | None = None,
    registers: str | None = None,
    a: str | None = None,
    b: str | None = None,
    c: str | None = None,
    seed: int | None = None,
    inputs: str | None = None,
    computation: int = 0,
    batch: str = "",
    html: bool = False,
    output: str | None = None,
) -> Answer:
    """Explains D[row][col]; operands as `inputs.operands` takes them, or lane registers in a file.

    Raises an EmulatorError for all that cannot be used.
    """
    ins, which = multiplying(Instruction.parse(opcode)), _batch(batch)
    if registers is not None:
        if any(x is not None for x in (input, a, b, c, seed, inputs)):
            raise OperandError("operands come from one place; --registers holds them all")
        words, options = registers_from_file(ins, registers)
        given = explain_registers(
            ins, *words, row=row, col=col, target=target, computation=computation, batch=which,
            **options,
        )  # fmt: skip
    else:
        matrices = operands(ins, input, a, b, c, seed, inputs, (row, col))
        given = explain(
            ins, matrices.pop("A"), matrices.pop("B"), matrices.pop("C", None), row=row, col=col,
            target=target, codes=True, computation=computation, batch=which, **matrices,
        )  # fmt: skip
    return report_answer(given, html, output)


def compare_command(
    opcodes: list[str],
    targets: str | None = None,
    limit: int = 12,
    same: bool = False,
    input: str | None = None,
    a: str | None = None,
    b: str | None = None,
    c: str | None = None,
    seed: int | None = None,
    inputs: str | None = None,
    html: bool = False,
    output: str | None = None,
) -> Answer:
    """Compares instructions on targets; operands as in `explain_command`.

    The exit code is 0, also where results differ; with `same` it is 1 then. Of several instructions
    the one with the longest k says what is generated.
    """
    instructions = [multiplying(Instruction.parse(opcode)) for opcode in opcodes]
    longest = max(instructions, key=lambda ins: ins.k)
    matrices = operands(longest, input, a, b, c, seed, inputs, (0, 0))
    report = compare(
        instructions, matrices.pop("A"), matrices.pop("B"), matrices.pop("C", None), codes=True,
        targets=None if targets is None else [x for x in targets.split(",") if x.strip()],
        limit=limit, **matrices,
    )  # fmt: skip
    return report_answer(report, html, output, int(same and report.differs))


def report_answer(report: Report, html: bool, output: str | None, code: int = 0) -> Answer:
    """A report as text, or as a page, on standard output or in a file."""
    if output is None:
        lines = [report.html().rstrip()] if html else report.text().splitlines()
        return Answer(lines, report.data, code)
    page = html or output.lower().endswith((".html", ".htm"))
    try:
        Path(output).write_text(report.html() if page else report.text() + "\n", encoding="utf-8")
    except OSError as error:
        raise OperandError(f"cannot write {output!r}: {error.strerror}") from None
    return Answer([f"wrote {output}"], report.data, code)


def _batch(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(",") if word.strip())
    except ValueError:
        raise OperandError(f"--batch is an index such as 0 or 0,2; got {text!r:.80}") from None
