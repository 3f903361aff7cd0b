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

#: Known differences that remain: (who takes it, what the statement looks like, why).
KNOWN = (
    ("ptxas", r"^(wg)?mma\S*\.(?!sp)\S*\.sp\b", "sp is part of the name; ptxas takes it anywhere"),
    ("ptxas", r"red\.async\S* \[[^]]*\], [^,[]*;", "red.async without its mbarrier"),
    (
        "ptxas",
        r"^((ld|st|mov)matrix|(wg)?mma|cvt)\b.*%pred",
        "predicates where bits of matrices go",
    ),
    ("ptxas", r"\.pred .*%f16x2", "f16x2 for a predicate"),
    ("ptxas", r"^(tcgen05\.\w+|cvt)\b.*%f16x2", "f16x2 in the place of other 32 bits"),
    ("ptxas", r"^tcgen05\.ld\.red\S* .*%[fus]32", "registers of another type than the minimum's"),
    ("ptxas", r"^mov\.\S*f(32|64) .*\{", "vectors of floats in integers"),
    ("ptxas", r"^fence\.proxy\S* \[%", "any register for the address of a fence"),
    ("ptxas", r"[ ,](0f3F800000|1\.5)[,;]", "a float for an address, of copies of tensors"),
    ("ptxas", r"^(sub|add|fma|mul)\.\S*e\dm\d.*\{", "packed bytes in braces"),
    (
        "we",
        r"\[%[bus](8|16|32)_",
        "narrow addresses: ptxas crashes, or takes 32 bits for a mistake",
    ),
    (
        "ptxas",
        r"^(st\.async|su(ld|st))(?!\S*\.v[24])\S* (\{|.*\], \{)",
        "vectors without .v2 or .v4",
    ),
    ("ptxas", r"^sust\S*\.v[24]\S* .*\], -?\d", "a constant for all elements of a vector"),
    ("ptxas", r"^su(ld|st|red)\S*[12]d\b.*, \{[^}]*,[^}]*\}\]", "coordinates that are not needed"),
    ("ptxas", r"^red\.\S* _,", "red of no address"),
    ("we", r"^ld\S*\.param::func.*\[(%|pp)", "param::func of other addresses"),
    ("we", r"^prefetch\.tensormap \[pp\]", "the parameter of a kernel without .param"),
    ("we", r"^v(add|sub)4\.u32\.u32\.u32\.add.*%f16x2_\d;", "its sum is made by dp4a"),
    # Words that belong to other instructions, which ptxas ignores.
    ("ptxas", r"^rcp\b(?=\S*\.ftz)\S*\.f64", "rcp of f64 in a rounding, with .ftz"),
    ("ptxas", r"^(ld|st)matrix\S*\.(row|col)\b", "ldmatrix and stmatrix with .row"),
    ("ptxas", r"^tcgen05\.(ld|st)\S*\.(row|col)\b", "tcgen05.ld and tcgen05.st with .row"),
    ("ptxas", r"^tensormap\.cp_fenceproxy", "fields of tensormap.replace in cp_fenceproxy"),
    ("ptxas", r"^fence\.proxy\S*\.(acquire|release)", "a space in a fence of proxies"),
    ("ptxas", r"^fence\.\S*sync_restrict\S*\.(mbarrier_init|async)", "words of other fences"),
    ("ptxas", r"^mma\b(\S*?\.(u?[esbf]\d|bf|tf)\w*){5} ", "a fifth type of mma"),
    ("ptxas", r"^cp\.\S*scatter4\S* .*\], %", "a register for the address of tile::scatter4"),
    ("we", r"^spdecompress\b.*, (-?\d+|0f\w+)[,;]", "a constant for an operand of spdecompress"),
    ("we", r"%b128_", "the register type b128 before PTX 8.3, and for isspacep"),
    ("we", r"^(ld|ldu|spcompress|mma|tex|tld4)\b.*[ ,]_,", "dropped results of these"),
    ("ptxas", r"^(tex|txq)\S*\.level\b.*\], \{", "a level in braces, of which the first counts"),
    ("ptxas", r"^tex\S*\.uni\b", "tex with .uni"),
    ("ptxas", r"^mma\.sp\b.*\}, \{[^}]+,[^}]+\}, \d", "metadata in braces: the first counts"),
    ("ptxas", r"^wmma\S*\.v[24]\b", "wmma with a number of registers"),
    ("ptxas", r"^bar(rier)?\S* [^,]+, (0|-\d+)[,;]", "a barrier of no threads, or of fewer"),
    ("we", r"^(min|max)\S* ([^,]*,){3}", "three operands before PTX 8.8"),
    ("we", r"^(tcgen05\.st)\S* \S+ \d+;", "an integer for a vector of one register"),
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
    assert "32 … 4294967264 in steps of 32" in ours(Spelling("", "", text, "sm_100f", NEWEST))
