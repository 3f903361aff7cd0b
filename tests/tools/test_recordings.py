"""The emulator against recordings of real GPUs: the same bits in, the same bits out."""

import json
import zlib
from dataclasses import replace

import numpy as np
import pytest
from recorded import RECORDED
from sweeps import swept

from emulator import EmulatorError
from emulator.tools import recordings
from emulator.tools.recordings import Recording, save
from emulator.tools.replay import replay, replay_all

pytestmark = pytest.mark.sampled(12)


def is_long(variant):
    """Whether one case takes the reference engine more than about 50 ms."""
    return variant.kind == "registers" and variant.expected[0].size > 128 * 8


def each(variants):
    return swept(variants, 10, ids=lambda v: f"{v.group}: {v.name}")


def of_group(group):
    return next(v for v in RECORDED if v.group == group)


@each(RECORDED)
def test_vector_engine_equals_hardware(variant):
    assert replay(variant, "vector") == (0, variant.cases)


@pytest.mark.sampled(12, covered_by="test_reference_engine_equals_hardware")
@each([v for v in RECORDED if not is_long(v)])
def test_reference_engine_equals_hardware_on_first_cases(variant):
    few = variant.head(64 if "cvt" in variant.opcode else 8 if variant.kind == "dot" else 1)
    assert replay(few, "reference") == (0, few.cases)


@pytest.mark.slow
@each(RECORDED)
def test_reference_engine_equals_hardware(variant):
    """A third of the cases, which its name chooses; the vector engine equals hardware in all."""
    first = zlib.crc32(variant.name.encode()) % min(3, variant.cases)
    part = variant.part(slice(first, None, 3))
    assert replay(part, "reference") == (0, part.cases)


# --- a comparison that can fail ---


def flip(variant, case, bit):
    """The recording with one bit of the first expected word of `case` inverted."""
    planted = variant.expected.copy()
    planted.reshape(variant.cases, -1)[case, 0] ^= planted.dtype.type(1 << bit)
    return replace(variant, expected=planted)


@pytest.mark.parametrize("group", ["h200_dense", "h200_wgmma", "published_dots"])
@pytest.mark.parametrize("engine", ["vector", "reference"])
def test_one_flipped_bit_is_one_differing_case(group, engine):
    variant = of_group(group).head(3)
    last = variant.cases - 1
    assert replay(flip(variant, last, 0), engine) == (1, variant.cases)
    assert replay(variant, engine) == (0, variant.cases)


def test_two_flipped_bits_of_one_case_count_once():
    variant = of_group("h200_sparse")
    assert replay(flip(flip(variant, 1, 0), 1, 31), "vector") == (1, variant.cases)


def test_flipped_bit_of_memory_after_a_store():
    variant = next(v for v in RECORDED if v.kind == "memory")
    before = variant.options["shared"].copy()
    assert replay(flip(variant, 2, 7), "vector") == (1, variant.cases)
    assert np.array_equal(variant.options["shared"], before)


def test_result_of_another_size_differs_in_every_case():
    variant = of_group("h200_dense")
    assert replay(replace(variant, expected=variant.expected[..., :-1])) == (5, 5)


# --- the summary ---


def test_selftest_replays_every_group():
    summaries = {summary.group: summary for summary in replay_all()}
    assert {name: s.variants for name, s in summaries.items()} == {
        "h200_cvt": 15,
        "h200_dense": 94,
        "h200_move": 13,
        "h200_probes": 124,
        "h200_sparse": 152,
        "h200_wgmma": 81,
        "h200_wild": 52,
        "h200_wmma": 38,
        "published_dots": 48,
    }
    for summary in summaries.values():
        assert summary.ok and summary.differing == 0, summary.problems
    assert summaries["h200_dense"].cases == 470
    assert len(summaries["published_dots"].hardware) == 8
    assert "470 of 470 cases bit-identical to NVIDIA H200" in str(summaries["h200_dense"])


def test_selftest_reports_differing_and_unknown_and_refused_variants(tmp_path):
    good = of_group("h200_dense")
    bad = flip(good, 0, 3)
    unknown = replace(good, opcode="tcgen05.mma.cta_group::1.kind::f16")
    elsewhere = next(v for v in RECORDED if "wgmma" in v.opcode and v.kind == "registers")
    refused = replace(elsewhere, target="sm_80")
    save(tmp_path / "planted", good.provenance, [good, bad, unknown, refused])
    (summary,) = replay_all(folder=tmp_path)
    assert not summary.ok
    refusals = good.cases + refused.cases
    assert (summary.variants, summary.cases) == (4, good.cases * 2 + refusals)
    assert summary.differing == 1 + refusals
    assert summary.problems[0].endswith("1 of 5 cases differ")
    assert "UnsupportedError" in summary.problems[1] and "tcgen05" in summary.problems[1]
    assert "UnsupportedError" in summary.problems[2]
    save(tmp_path / "planted", good.provenance, [unknown])
    (summary,) = replay_all(folder=tmp_path)
    assert not summary.ok and summary.differing == good.cases


def test_unknown_group_is_named():
    with pytest.raises(EmulatorError, match=r"no recordings 'h100'.*groups are h200_cvt"):
        list(recordings.recordings("h100"))


# --- the files ---


def test_save_and_load_return_the_same(tmp_path):
    variant = next(v for v in RECORDED if v.group == "h200_wgmma")
    dot = replace(of_group("published_dots"), provenance={"gpu": "another"})
    save(tmp_path / "again", variant.provenance, [variant, dot])
    one, two = recordings.recordings("again", tmp_path)
    assert (one.name, one.kind, one.provenance) == (variant.name, "registers", variant.provenance)
    assert two.provenance == variant.provenance | {"gpu": "another"}
    for got, want in ((one, variant), (two, dot)):
        assert np.array_equal(got.expected, want.expected)
        assert got.options.keys() == want.options.keys()
        for x, y in zip(got.operands, want.operands, strict=True):
            assert np.array_equal(x, y) and x.dtype == y.dtype


def test_recurring_array_is_stored_once(tmp_path):
    x = np.arange(6, dtype=np.uint32)
    same = Recording("g", "cvt.rn.f16x2.f32", "sm_90a", (x, x.copy()), {}, x.copy())
    save(tmp_path / "g", {}, [same])
    with np.load(tmp_path / "g.npz") as file:
        assert file.files == ["0.expected"] or file.files == ["0.0"]


@pytest.mark.parametrize("group", recordings.groups())
def test_variants_have_names_of_their_own_and_provenance(group):
    variants = [v for v in RECORDED if v.group == group]
    assert len({v.name for v in variants}) == len(variants)
    for variant in variants:
        about = variant.provenance
        assert all(
            about[key] for key in ("gpu", "driver", "assembler", "date", "source", "licence")
        )


def test_published_dots_name_their_licence():
    folder = recordings.golden_folder()
    assert "Khattak and Mantas Mikaitis" in (folder / "LICENCE.dots").read_text()
    text = (folder / "published_dots.json").read_text()
    assert "BSD-2-Clause" in json.loads(text)["provenance"]["licence"]


def test_recorded_f32_results_hold_every_class():
    words = np.concatenate(
        [v.expected.reshape(-1) for v in RECORDED if ".row.col.f32.tf32.tf32" in v.opcode]
    )
    body = words & 0x7FFFFFFF
    assert (body > 0x7F800000).any()  # NaN
    assert (words == 0x7F800000).any() and (words == 0xFF800000).any()
    assert ((body > 0) & (body < 0x00800000)).any()  # subnormal
    assert (words == 0).any() and (body == 0x7F7FFFFF).any()
