"""Spellings near to those of the tables, by the ptxas of CUDA 13.5 where it is: what it takes we
take, what it refuses we refuse, on every target and in every PTX version. See `spellings`.
"""

import random
import re
from collections import defaultdict

import pytest
from assembler import file_of, find_ptxas, is_verdict, refusals
from spellings import NEWEST, Spelling, pools, spelling

from emulator import EmulatorError, Module

PTXAS = find_ptxas()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PTXAS or "cu13" not in PTXAS, reason="ptxas 13.5 is not here"),
]
#: a call needs a function, brx.idx a list of labels
FAMILIES = sorted(set(pools()) - {"call", "brx"})

#: What ptxas alone takes: (who, what the statement looks like, what its code does).
KNOWN = (
    # What the recordings of 13.0 refuse, too: they gave such opcodes the operands of dense ones.
    ("ptxas", r"^mma\S*\.(?!sp)\S*\.sp\b", "sp is part of the name; ptxas takes it anywhere"),
    (
        "ptxas",
        r"^(st|red)\.async\S* \[[^]]*\], [^[]*;|^red\S* _,",
        "no code is made without an mbarrier or an address",
    ),
    ("ptxas", r"^red\.async\S*\.release", "an add is made of every operation"),
    (
        "ptxas",
        r"^((ld|st|mov)matrix|(wg)?mma)\b.*%pred|\.pred .*%f16x2",
        "predicates and other registers in each other's place: where the result is used, ptxas "
        "crashes",
    ),
    (
        "ptxas",
        r"^(mov\.v|st\.async)\S* .*[ ,](-?\d+|1\.5)[,;]|^sust\S*\.v[24]\S* .*\], [^{]",
        "one constant is cut to many: bytes of it, then of ptxas's own memory",
    ),
    (
        "ptxas",
        r"^(fence\.proxy|cp\.(reduce\.)?async\.bulk)\S* ([-\d]|.*\[(%f|%b128|\d))"
        r"|^fabric\S* (.*, )?%\w+_7\b"
        r"|^cp\.(reduce\.)?async\.bulk\S*bytes\S* .*\], (\S+, -?\d+|1\.5);",
        "a number or a float is rounded to an address, and it or a register one without brackets",
    ),
    ("ptxas", r"^su(ld|st)(?!\S*\.v[24])\S* (\{|.*\], \{)", "one value is copied to all, or kept"),
    # Words that belong to other instructions: the code is the same without them.
    (
        "ptxas",
        r"^movmatrix\S*\.(bf16|tf32|b1)\b|^mma\b(\S*?\.(u?[esbf]\d|bf|tf)\w*){5}|^w?mma\S*\.v[24]\b"
        r"|^mma(?!\S*block_scale)\S*\.kind::mx|^fence\.|^tcgen05\.(ld|st)(?!\S*compress)\S*\.b2\b",
        "one type more, numbers of registers, kinds of scaled products, words of other fences",
    ),
    (
        "ptxas",
        r"^(tex|tld4)\S* (\{[^}]*\}, %|.*\], .*, \S+;)|^atom\S*\.(and|x?or|exch)\.b32 .*\], .*,",
        "a register before the texture, behind the depth, or as that of cas, does not count",
    ),
)


def ours(asked):
    """The message that refuses a statement; "" where it is taken."""
    try:
        problems = Module(file_of([asked.text], asked.target, asked.version)).problems
    except EmulatorError as error:
        return str(error)
    text = str(problems[0]) if problems else ""
    return "" if "not modelled here" in text else text


def is_known(asked, we_take):
    statement = asked.text.rpartition("; ")[2].lstrip()
    who = "we" if we_take else "ptxas"
    return any(who == taker and re.search(pattern, statement) for taker, pattern, _ in KNOWN)


def differences(given):
    """(statement, our message, that of ptxas) where the two differ, but what is known."""
    files = defaultdict(list)
    for asked in given:
        files[asked.file].append(asked)
    out = []
    for (target, version), group in files.items():
        refused = refusals(PTXAS, [asked.text for asked in group], target, version)
        for number, asked in enumerate(group):
            here, there = ours(asked), refused.get(number, "")
            if bool(here) != bool(there) and not is_known(asked, not here):
                # Beside others ptxas may judge otherwise than of the statement alone.
                there = refusals(PTXAS, [asked.text], target, version).get(0, "")
                if bool(here) != bool(there) and is_verdict(there):
                    out.append((asked.text, asked.file, here, there))
    return out


@pytest.mark.parametrize("seed", range(4))
def test_ptxas_judges_alike(seed):
    rng = random.Random(seed)
    asked = [spelling(rng, family) for family in FAMILIES for _ in range(4)]
    found = differences(asked)
    assert not found, "\n".join(map(str, found))
    assert len(asked) > 500


def test_a_wrong_verdict_shows():
    good = ".reg .b32 %r<4>; add.s32 %r1, %r2, %r3;"
    bad = ".reg .b32 %r<4>; add.s32 %r1, %r2, %r3, %r3;"
    asked = [Spelling("add", "none", text, "sm_90a", NEWEST) for text in (good, bad)]
    assert differences(asked) == []
    assert set(refusals(PTXAS, [good, bad], "sm_90a", NEWEST)) == {1}
    assert not ours(asked[0]) and "one operand too many" in ours(asked[1])


def test_a_range_of_billions_is_told_by_its_ends():
    opcode = "tcgen05.alloc.exclusive.cta_group::1.sync.aligned.shared::cta.b32"
    text = f".reg .b64 %a; {opcode} [%a], -3;"
    assert "32 or more in steps of 32" in ours(Spelling("", "", text, "sm_100f", NEWEST))
