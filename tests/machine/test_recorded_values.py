"""Spellings of ordinary instructions against an H200: golden/h200_values.json.gz, of
hardware/values_record.py."""

import gzip
import json
from functools import cache

import pytest
from paths import GOLDEN
from value_kernels import digest, kernels, run, statements

#: what ptxas 13.0 makes of these is not what PTX says
MISCOMPILED = (
    ("a part of d that is .h1 gets the upper half; ptxas 13.5 is right", r"^v\w+\.\S+ %r0\.h1,"),
    ("ptxas cuts a constant to 16 bits", r"^sh[lr]\.b16 \S+ \S+ 0x(?!0000)\w{8};"),
    ("ptxas changes the sign of a NaN that it subtracts", r"^sub\.\S*f64 \S+ \S+ 0d[7F]FF\w+;"),
)


@cache
def recorded():
    return json.loads(gzip.decompress((GOLDEN / "h200_values.json.gz").read_bytes()))


def differing(names):
    """The names of the statements that leave something else here."""
    found = []
    for some in kernels(names):
        held = run(statements(some))
        found += [n for n, part in zip(some, held, strict=True) if digest(part) != recorded()["digests"][n]]
    return found
