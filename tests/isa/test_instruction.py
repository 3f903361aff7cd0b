"""Opcodes: printing, parsing in any order, refusals, and answers to whatever else is given."""

import random
from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from emulator import EmulatorError, Instruction, ParseError, UnsupportedError
from emulator.isa.matrix_opcodes import expand as instructions

pytestmark = pytest.mark.sampled(2)

ALL = list(instructions())
N = "wgmma.mma_async.sync.aligned.m64n%dk16.f32.f16.f16"
F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
TYPES = {
    "f64", "f32", "tf32", "bf16", "f16", "e5m2", "e4m3", "e3m2", "e2m3", "e2m1", "ue8m0", "ue4m3",
    "s32", "s8", "u8", "s4", "u4", "b1",
}  # fmt: skip


# --- there and back ---


def test_every_instruction_prints_and_parses_to_itself():
    assert len({str(ins) for ins in ALL}) == len(ALL) > 1000
    for ins in ALL:
        assert Instruction.parse(str(ins)) == ins
        assert str(Instruction.parse(str(ins))) == str(ins)
        assert eval(repr(ins), {"Instruction": Instruction}) == ins


def shuffled(ins, rng):
    """Another spelling that ptxas takes: modifiers in any order; types keep theirs, as do layouts
    and the bit operation with its .popc. (.sp moves in opcodes with a .kind only.)"""
    words = str(ins).split(".")
    head = [words.pop(0)]
    if head == ["wgmma"]:
        head.append(words.pop(0))
    if words[0].startswith("sp") and "kind::" not in str(ins):
        head.append(words.pop(0))
    ordered = {"type": [], "layout": [], "bits": []}
    slots = []
    for word in words:
        is_bits = word in ("xor", "and", "popc")
        tag = "type" if word in TYPES else "layout" if word in ("row", "col") else None
        tag = "bits" if is_bits else tag
        if tag:
            ordered[tag].append(word)
        slots.append(tag or word)
    rng.shuffle(slots)
    return ".".join(head + [ordered[x].pop(0) if x in ordered else x for x in slots])


def test_modifiers_stand_in_any_order():
    rng, spellings = random.Random(5), set()
    for ins in rng.sample(ALL, 400):
        text = shuffled(ins, rng)
        assert Instruction.parse(text) == ins, text
        spellings.add(text)
    assert len(spellings - {str(ins) for ins in ALL}) > 300


@pytest.mark.parametrize(
    ("spelling", "canonical"),
    [
        # as CUTLASS writes it
        (
            "mma.sync.aligned.kind::f8f6f4.m16n8k32.row.col.f32.e4m3.e2m1.f32",
            "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e4m3.e2m1.f32",
        ),
        (
            "mma.sync.aligned.kind::mxf4.sp::ordered_metadata.block_scale.scale_vec::2X.m16n8k128"
            ".row.col.f32.e2m1.e2m1.f32.ue8m0",
            "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.kind::mxf4.block_scale"
            ".scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0",
        ),
        # the scale_vec that is meant when none is written
        (
            "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0",
            "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X"
            ".f32.e2m1.e2m1.f32.ue8m0",
        ),
        # .rn is the default; it may follow the types
        (
            "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64.rn",
            "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64",
        ),
        # .satfinite after the types, as the examples of the manual have it
        (
            "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.u8.satfinite",
            "wgmma.mma_async.sync.aligned.m64n8k32.satfinite.s32.s8.u8",
        ),
        (f"  {F16}\n", F16),
        (F16.replace(".sync", ".sync.sync"), F16),
    ],
)
def test_other_spellings(spelling, canonical):
    assert str(Instruction.parse(spelling)) == canonical


# --- refusals ---


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("", ParseError, "is no instruction"),
        ("mna.sync", ParseError, "nearest to 'mna' is 'mma'"),
        ("foo.sync", ParseError, "mma, wgmma.mma_async, .*, cvt, "),
        ("tcgen05.mma.cta_group::1", UnsupportedError, r"nearest is 'tcgen05.mma.*kind::f16'"),
        ("cp.async.bulk", UnsupportedError, "nearest is 'cp.async.bulk.commit_group'"),
        ("wgmma.fence.aligned", UnsupportedError, "nearest is 'wgmma.fence.sync.aligned'"),
        (F16.replace("aligned", "xyz"), ParseError, "'.xyz' in '[^']*'$"),
        (F16.replace(".sync.aligned", ""), ParseError, r".sync and .aligned are .*" + F16),
        (N % 100, UnsupportedError, "N '100'.* legal here: 8-256 by 8; .*" + N % 96),
        (N % 255, UnsupportedError, "nearest is " + N % 256),
        (F16.replace("k16", "k9"), UnsupportedError, F16.replace("k16", "k8") + "$"),
        ("wgmma.sync.aligned.m64n8k16.f32.f16.f16", ParseError, "wgmma.mma_async"),
        (F16.replace("m16", "m１6"), ParseError, "unknown modifier"),
        ((N % 8).replace("n8", "n٨"), ParseError, "unknown modifier"),
        ("m１6n8k16.f32.f16.f16.f32", ParseError, "is no instruction"),
        ("m16n8k64.f32.e2m1.e2m1.f32.ue8m0.block３2", UnsupportedError, "no dense mma"),
        ("SM８0_16x8x16_F32F16F16F32_TN", ParseError, r"no CuTe atom|is no instruction"),
        ("wgmma.mma_async2.sync", ParseError, "instruction is 'wgmma.mma_async2'; names"),
        (F16[:-3] + "f23", ParseError, "'.f23'.*nearest is '.f32'"),
        (F16.replace("row", "rwo"), ParseError, "'.rwo'.*nearest is '.row'"),
        (F16.replace("aligned", "alinged"), ParseError, "nearest is '.aligned'"),
        (F16 + ";", ParseError, "'.f32;'.*nearest is '.f32'"),
        (F16.replace(".f32.", "..f32."), ParseError, "unknown modifier '.'"),
        (F16.replace(".sync", ""), ParseError, r"\.sync is missing"),
        (F16.replace(".aligned", ""), ParseError, r"\.aligned is missing"),
        (F16.replace(".m16n8k16", ""), ParseError, "a shape such as .m16n8k16 is missing"),
        (F16.replace(".row", ".m16n8k8.row"), ParseError, "two .* its shape: .* .m16n8k8"),
        (F16.replace(".aligned", ".aligned.aligned"), ParseError, "aligned is written twice"),
        ("mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor", ParseError, r"needs \.popc"),
        ("mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.popc", ParseError, "must follow .*xor"),
        ("mma.sync.aligned.sp.m16n8k32.row.col.f32.f16.f16.f32", ParseError, "mma.sp"),
        (F16[:-4], UnsupportedError, "3 types; 4 are needed: D, A, B, C"),
        (F16.replace("k16", "k9"), UnsupportedError, "shape 'm16n8k9'.*legal.*m16n8k8"),
        (F16.replace("f16.f16", "f16.bf16"), UnsupportedError, "types 'f32.f16.bf16.f32'"),
        (F16[:-3] + "f16", UnsupportedError, "types 'f32.f16.f16.f16'"),
        (F16.replace("row.col", "col.row"), UnsupportedError, "layout 'col.row'.*row.col"),
        (F16.replace(".row.col", ""), UnsupportedError, "layout 'none'"),
        (F16.replace("col", "col.satfinite"), UnsupportedError, "'.satfinite'"),
        (F16 + ".rz", UnsupportedError, "rounding 'rz'"),
        (F16.replace("col", "col.kind::f8f6f4"), UnsupportedError, "kind 'f8f6f4'.*none"),
        (F16 + ".xor.popc", UnsupportedError, "bit operation 'xor'"),
        (
            "wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.xor.popc", UnsupportedError,
            "bit operation 'xor'.*and",
        ),
        (
            "mma.sync.aligned.m16n8k32.row.col.f32.e2m1.e4m3.f32", UnsupportedError,
            "kind 'none'.*f8f6f4",
        ),
        (
            "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.f32.e2m1.e2m1.f32.ue8m0",
            UnsupportedError, "scale_vec::none with ue8m0.*2X with ue8m0",
        ),
        (
            "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X"
            ".f32.e2m1.e2m1.f32.ue5m3", ParseError, "unknown modifier '.ue5m3'",
        ),
        (
            "mma.sp.sync.aligned.m16n8k64.row.col.kind::f8f6f4.f32.e4m3.e2m1.f32",
            UnsupportedError, "sp::ordered_metadata",
        ),
        (
            "wgmma.mma_async.sp::ordered_metadata.sync.aligned.m64n8k32.f32.f16.f16",
            UnsupportedError, "'sp::ordered_metadata'.*sp",
        ),
    ],
)  # fmt: skip
def test_refusals_say_what_is_legal(text, error, message):
    with pytest.raises(error, match=message):
        Instruction.parse(text)


@pytest.mark.parametrize("given", [None, 8, b"mma.sync", ["mma"]], ids=repr)
def test_only_strings_are_parsed(given):
    with pytest.raises(ParseError, match=type(given).__name__):
        Instruction.parse(given)


def test_the_nearest_instruction_is_one():
    for text in (F16 + ".rz", F16.replace("k16", "k9"), F16.replace("f16.f16", "f16.bf16")):
        with pytest.raises(UnsupportedError) as caught:
            Instruction.parse(text)
        nearest = str(caught.value).rsplit("nearest is ", 1)[1]
        assert Instruction.parse(nearest) in ALL


@pytest.mark.parametrize(
    "text",
    [
        "wgmma.mma_async.sync.aligned.m064n08k032.s32.s8.s8",  # leading zeros
        "wgmma.mma_async.sync.aligned.m64n８k32.s32.s8.s8",  # a full-width digit
        "wgmma.mma_async.sync.aligned.m64n" + "8" * 5000 + "k32.s32.s8.s8",
        "wgmma.sync.mma_async.aligned.m64n8k32.s32.s8.s8",
        "wgmma.sync.aligned.m64n8k32.s32.s8.s8.mma_async",
    ],
    ids=["zeros", "wide digit", "5000 digits", "mma_async third", "mma_async last"],
)
def test_refused_by_ptxas_and_here(text):
    with pytest.raises(EmulatorError):
        Instruction.parse(text)


# --- whatever else is given ---

WORDS = sorted({word for ins in ALL for word in str(ins).split(".")})


def content(text):
    """The words of an opcode, less what may be repeated or left out."""
    words = Counter(text.strip().split("."))
    words.update({"sync": 1, "satfinite": 1, "aligned": 1})
    for word in ("sync", "satfinite", "aligned"):
        words[word] = 1
    return {w: n for w, n in words.items() if w != "rn" and not w.startswith("scale_vec::")}


#: what UTF-8 has; that Hypothesis finds out itself, by trying each of them, takes seconds
CHARACTERS = st.characters(exclude_categories=["Cs"])


@st.composite
def mutated_opcodes(draw):
    words = str(draw(st.sampled_from(ALL))).split(".")
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(words) - 1))
        change = draw(st.sampled_from(["drop", "duplicate", "swap", "replace", "text", "letter"]))
        if change == "drop" and len(words) > 1:
            del words[at]
        elif change == "duplicate":
            words.insert(draw(st.integers(0, len(words))), words[at])
        elif change == "swap":
            other = draw(st.integers(0, len(words) - 1))
            words[at], words[other] = words[other], words[at]
        elif change == "replace":
            words[at] = draw(st.sampled_from(WORDS))
        elif change == "text":
            words[at] = draw(st.text(CHARACTERS, max_size=8))
        else:
            cut = draw(st.integers(0, len(words[at])))
            words[at] = words[at][:cut] + draw(st.sampled_from("0189_: ;xX")) + words[at][cut:]
    return ".".join(words)


def answers_or_refuses(text):
    try:
        ins = Instruction.parse(text)
    except EmulatorError as error:
        assert isinstance(error, ParseError | UnsupportedError)
        assert 10 < len(str(error)) < 3000
        return
    assert Instruction.parse(str(ins)) == ins
    # Whoever answers has read every word.
    satfinite = "satfinite" in str(ins)
    assert content(text) == content(str(ins)) and ("satfinite" in text) == satfinite


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(mutated_opcodes())
def test_mutated_opcodes_answer_or_raise(text):
    answers_or_refuses(text)


@pytest.mark.slow
@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(mutated_opcodes())
def test_many_mutated_opcodes_answer_or_raise(text):
    answers_or_refuses(text)


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(st.text(CHARACTERS))
@example("mma")
@example(".")
@example("\0")
@example("wgmma.mma_async")
@example("mma.sync.aligned.m8n8k16\u00b2.row.col.s32.s8.s8.s32")
def test_any_text_answers_or_raises(text):
    answers_or_refuses(text)


@pytest.mark.parametrize(
    "text",
    [
        "m" * 100_000,
        "mma." + "x" * 100_000,
        "mma" + ".sync" * 20_000,
        F16 + ".f32" * 20_000,
        F16.replace("k16", "k" + "9" * 4000),
        F16.replace("k16", "k" + "9" * 100_000),
    ],
    ids=["name", "word", "words", "types", "size", "huge size"],
)
def test_huge_opcodes_get_a_short_answer(text):
    answers_or_refuses(text)


def test_content_can_fail():
    assert content(F16) == content(F16.replace(".sync", ".sync.sync"))
    assert content(F16) != content(F16 + ".f32")
    assert content(F16) != content(F16.replace("m16", "m016"))
