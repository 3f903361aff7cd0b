"""``explain`` and ``compare`` from a shell: operands from files, text or a seed; pages to files."""

from __future__ import annotations

from typing import Any

from emulator.errors import OperandError, shown
from emulator.isa.kinds import is_tensor_product
from emulator.report import Report
from emulator.tools.explanations.comparison import compare
from emulator.tools.explanations.explanation import explain, explain_registers
from emulator.tools.explanations.inputs import operands, registers_from_file
from emulator.tools.files import check_outputs, write_text
from emulator.tools.operands import as_multiplication
from emulator.tools.report import Answer
from emulator.tools.words import IDESC, instruction_word, separated

#: help of what says the operands, and where the answer goes
_OPERANDS = {
    "--input FILE.npz": "matrices A, B, and C, scale_a, scale_b, nibbles: values, or as unsigned "
    "integers element codes",
    "--a NUMBERS": 'row of A: "1.5,0x3c00,nan", the rest 0',
    "--b NUMBERS": "column of B",
    "--c NUMBER": "element of C (default 0)",
    "--seed": "of generated operands, the default (0)",
    "--inputs KIND": "of generated operands: wide (default), normal, edges, any",
    "--html": "a page instead of text",
    "-o --output FILE": "write there; .html: a page",
}


def _written(report: Report, html: bool, output: str | None, code: int = 0) -> Answer:
    """A report as text, or as a page, on standard output or in a file."""
    if output is None:
        lines = [report.html().rstrip()] if html else list(report.lines())
        return Answer(lines, report.data, code)
    page = html or output.lower().endswith((".html", ".htm"))
    write_text(output, report.html() if page else report.text() + "\n")
    return Answer([f"wrote {output}"], report.data, code)


#: arguments of `explain` and what they mean
EXPLAIN_HELP = {
    "opcode": "",
    "--target": "sm_90a, H100, ...",
    "--idesc WORD": IDESC,
    "--row": "of D (default 0)",
    "--col": "of D (default 0)",
    **_OPERANDS,
    "--registers FILE.npz": "lane registers by the names that `execute` gives its operands and "
    "options: a, b, c, e, selector, descriptor_b, shared, ...",
    "--computation": "of m8n8k4.f16, 0 to 3",
    "--batch INDEX": "which of a batch: 0 or 0,2",
}


def explain_command(
    opcode: str,
    target: str,
    row: int = 0,
    col: int = 0,
    idesc: str | None = None,
    registers: str | None = None,
    computation: int = 0,
    batch: str = "",
    html: bool = False,
    output: str | None = None,
    **given: Any,
) -> Answer:
    """Explains D[row][col]; `given` are operands as `inputs.operands` takes them, or lane registers
    come from a file. Raises an EmulatorError for all that cannot be used."""
    check_outputs([output], [given.get("input"), registers])
    ins = as_multiplication(opcode, instruction_word(idesc))
    try:
        index = tuple(int(word) for word in batch.split(",") if word.strip())
    except ValueError:
        raise OperandError(f"--batch is an index such as 0 or 0,2; got {shown(batch)}") from None
    asked: dict[str, Any] = {
        "row": row, "col": col, "target": target, "computation": computation, "batch": index,
    }  # fmt: skip
    if registers is not None:
        if any(x is not None for x in given.values()):
            raise OperandError("operands come from one place; --registers holds them all")
        words, options = registers_from_file(ins, registers)
        if wrong := sorted(asked.keys() & options):
            raise OperandError(f"arrays cannot be {', '.join(wrong)}: options of the shell say it")
        return _written(explain_registers(ins, *words, **asked, **options), html, output)
    matrices: dict[str, Any] = dict(operands(ins, (row, col), **given))
    a, b, c = (matrices.pop(name, None) for name in "ABC")
    return _written(explain(ins, a, b, c, codes=True, **asked, **matrices), html, output)


#: arguments of `compare` and what they mean
COMPARE_HELP = {
    "opcodes opcode": "",
    "--idesc WORD": IDESC,
    "--targets NAMES": "sm_80,sm_90a,B200 (default: all)",
    **_OPERANDS,
    "--limit": "elements shown (default 12)",
    "--same": "exit with 1 where any bit differs",
}
EXPLAIN_WORDS = COMPARE_WORDS = operands


def compare_command(
    opcodes: list[str],
    targets: str | None = None,
    idesc: str | None = None,
    limit: int = 12,
    same: bool = False,
    html: bool = False,
    output: str | None = None,
    **given: Any,
) -> Answer:
    """Compares instructions on targets; operands as in `explain_command`.

    The exit code is 0, also where results differ; with `same` it is 1 then. Of several instructions
    the one with the longest k says what is generated.
    """
    check_outputs([output], [given.get("input")])
    word = instruction_word(idesc)
    instructions = [
        as_multiplication(opcode, word if is_tensor_product(opcode) else None) for opcode in opcodes
    ]
    longest = max(instructions, key=lambda ins: ins.k)
    matrices: dict[str, Any] = dict(operands(longest, (0, 0), **given))
    a, b, c = (matrices.pop(name, None) for name in "ABC")
    names = None if targets is None else separated(targets)
    report = compare(instructions, a, b, c, codes=True, targets=names, limit=limit, **matrices)
    return _written(report, html, output, int(same and report.differs))
