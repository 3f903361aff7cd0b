"""One dot product and its explanation; for the tests of ``explain``."""

import numpy as np

from dtypes import FORMATS, code_type, encode
from emulator import Instruction
from emulator.tools.explanations.explanation import explain

F16 = Instruction.parse("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")


def dot(ins, pairs, c=0, *, target, row=0, col=0, **more):
    """The explanation of one dot product; integers are codes, other numbers values."""

    def code(fmt, x):
        return x if isinstance(x, int) else int(encode(fmt, [x])[0])

    fmt_a, fmt_b, fmt_c = (FORMATS[x] for x in (ins.a_type, ins.b_type, ins.c_type))
    a, b = (np.zeros(s, code_type(f.bits))
            for f, s in ((fmt_a, (ins.m, ins.k)), (fmt_b, (ins.k, ins.n))))  # fmt: skip
    for k, (p, q) in enumerate(pairs):
        a[row, k], b[k, col] = code(fmt_a, p), code(fmt_b, q)
    c_matrix = np.zeros((ins.m, ins.n), code_type(fmt_c.bits))
    c_matrix[row, col] = code(fmt_c, c)
    return explain(ins, a, b, c_matrix, row=row, col=col, target=target, codes=True, **more)


def lines_of(explanation):
    """Lines with runs of spaces made one."""
    return [" ".join(line.split()) for line in explanation.text().splitlines()]
