"""Spellings of ordinary instructions against an H200: golden/h200_values.json.gz is a sixth of what
hardware/values_record.py recorded, and all that was once wrong here."""

import gzip
import json
import re
from functools import cache

import numpy as np
import pytest
from assembler import file_of
from paths import GOLDEN
from sweeps import swept
from value_kernels import STATEMENTS, digest, kernels, run, statements

from emulator import Module, execute

#: what ptxas 13.0 makes of these is not what PTX says
MISCOMPILED = (
    ("h1 of d gets the upper half of the result; ptxas 13.5 is right", r"v\w+\.\S+ %r0\.h1,"),
    ("the constant is cut to 16 bits", r"sh[lr]\.b16 .* 0x[1-9a-f]\w{7};"),
    ("a NaN that is subtracted changes its sign", r"sub\.\S*f64 .* 0d[7F]FF\w+;"),
)


@cache
def recorded():
    return json.loads(gzip.decompress((GOLDEN / "h200_values.json.gz").read_bytes()))["digests"]


KERNELS = kernels(list(recorded()))


def differing(names):
    """The statements that leave something else here."""
    given = statements(names)
    pairs = zip(names, given, run(given), strict=True)
    return [one.statement for name, one, part in pairs if digest(part) != recorded()[name]]


def check(names):
    left = differing(names)
    for _, pattern in MISCOMPILED:
        left = [statement for statement in left if not re.match(pattern, statement)]
    assert not left


def test_some_values():
    check(KERNELS[0][:30])


def test_what_was_wrong():
    check(
        ["fns.b32 0", "vmad.u32.u32.s32.sat 0", "vmad.u32.s32.u32.po.sat.shr15 0", "mad.rp.f64 1"]
    )


@pytest.mark.parametrize(
    ("opcode", "codes", "result"),
    [
        ("fma.rz.bf16", (0x41E0, 0xC0F0, 0x8002), 0xC740),
        ("fma.rm.bf16", (0xBF80, 0x41A8, 0x0002), 0xC54E),
        ("fma.rm.bf16", (0xC124, 0x8000, 0x8000), 0x8000),
        ("fma.rp.relu.bf16", (0x67D4, 0x4B00, 0x8399), 0x76DA),
    ],
)
def test_undocumented_roundings_of_bf16(opcode, codes, result):
    """Codes that an H200 gave among 65,536 for each opcode; all of them were compared."""
    words = [np.full((32, 1), code, np.uint16) for code in codes]
    assert set(execute(opcode, *words, target="sm_90a").ravel().tolist()) == {result}


def test_part_of_a_destination_needs_the_rest():
    """ptxas: "Video selector is not allowed on destination"."""
    text = file_of(
        [".reg .b32 %r<4>; vadd.u32.u32.u32 %r0.h1, %r1, %r2;"], "sm_90a", (9, 0)
    )  # fmt: skip
    (problem,) = Module(text).problems
    assert problem.reason.endswith("lacks operand c: it has what a part of d leaves out")


def test_a_test_of_nothing_is_false():
    words = np.arange(32, dtype=np.uint32)[:, None] << 27
    assert not execute("testp.f32", words, target="sm_90a").any()


@pytest.mark.slow
@swept(KERNELS, size=4, ids=lambda names: names[0])
def test_values(names):
    check(names)


def test_the_recording_is_large():
    assert len(recorded()) > 5000 and len(KERNELS[0]) == STATEMENTS


@pytest.mark.slow
def test_known_miscompilations_differ():
    """A row that no statement meets any more is to be taken out."""
    names = [name for name in recorded() if re.match(r"v|sh[lr]\.b16|sub\.rp\.f64", name)]
    left = [
        statement
        for some in kernels([name for name in names if not name.endswith(" 0")])
        for statement in differing(some)
    ]
    assert all(any(re.match(pattern, x) for x in left) for _, pattern in MISCOMPILED)


def test_another_value_shows(monkeypatch):
    name = next(iter(recorded()))
    assert not differing([name])
    monkeypatch.setitem(recorded(), name, "0" * 12)
    assert differing([name])
