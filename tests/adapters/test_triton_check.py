"""The comparison with Triton on a GPU, without one: it finds what is planted in its results.

Skipped without Triton and torch.
"""

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from paths import GOLDEN
from triton_kernels import torch  # first: it has Triton interpret what is defined from here on

triton_cases = pytest.importorskip("hardware.triton_cases")
triton_check = pytest.importorskip("hardware.triton_check")

NAN, OTHER_NAN = 0x7FFFFFFF, 0xFFC00000
ONE, NEXT = 0x3F800000, 0x3F800001
INFINITY = 0x7F800000

DOT = triton_cases.Case("f16", "f16", "f32", (64, 64, 64), 4)
FUSED = replace(DOT, style=1)
FP8 = replace(FUSED, a="e4m3", b="e4m3")


def results(*codes):
    """As of `run`: the codes in the last row of the second regime, ones elsewhere."""
    words = np.full((2, 3, 4), ONE, np.uint32)
    words[1, 2, : len(codes)] = codes
    return words.view(np.float32)


def compared(case, got, want, target="sm_90a"):
    outcome = triton_check.Outcome(case, "mma")
    triton_check.compare(outcome, results(*got), results(*want), target)
    return outcome


def counts(outcome):
    return outcome.results, outcome.differing, outcome.nan_codes


def test_equal_results():
    outcome = compared(DOT, (NAN, 0), (NAN, 0))
    assert counts(outcome) == (24, 0, 0)
    assert triton_check.finding(outcome) == ""


@pytest.mark.parametrize("case", [DOT, FP8])
def test_one_bit_is_a_difference(case):
    outcome = compared(case, (ONE, NEXT), (ONE, ONE))
    assert counts(outcome) == (24, 1, 0)
    assert outcome.first == "window, row 2, column 1: GPU 0x3f800001, emulator 0x3f800000"
    line = triton_check.finding(outcome)
    assert line.startswith("DIFFERS ") and "1 of 24 results" in line and outcome.first in line


def test_the_sign_of_zero_is_a_difference():
    assert counts(compared(FP8, (0,), (1 << 31,))) == (24, 1, 0)


def test_nan_codes_are_allowed_where_numpy_adds_alone():
    got, want = (NAN, NAN, ONE), (OTHER_NAN, OTHER_NAN, NEXT)
    assert counts(compared(FP8, got, want)) == (24, 1, 2)
    bounded = replace(FP8, imprecise=32)
    assert counts(compared(bounded, got, want)) == (24, 1, 2)
    for case in (DOT, FUSED, replace(FP8, style=0), replace(FP8, imprecise=0)):
        assert counts(compared(case, got, want)) == (24, 3, 0)
    assert counts(compared(FP8, got, want, "sm_89")) == (24, 3, 0), "Ada fuses the addition"
    assert counts(compared(FP8, (NAN,), (INFINITY,))) == (24, 1, 0)


def test_rows_and_sums(capsys):
    good, bad = compared(DOT, (ONE,), (ONE,)), compared(DOT, (ONE,), (NEXT,))
    good.instruction = "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"
    bad.instruction = "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16"
    codes = compared(FP8, (NAN,), (OTHER_NAN,))
    failed = triton_check.Outcome(FP8, error="GPU: lost")
    refused = triton_check.Outcome(FP8, refused="no tcgen05")
    rows = triton_check.tabulate([good, bad, codes, failed, refused])
    assert [row["instruction"] for row in rows] == [
        "wgmma.mma_async.sync.aligned.m64nNk16.f32.f16.f16", "mma", "",
    ]  # fmt: skip
    assert [[row[x] for x in triton_check.COUNTED] for row in rows] == [
        [2, 48, 1, 0, 0, 0], [1, 24, 0, 1, 0, 0], [2, 0, 0, 0, 1, 1],
    ]  # fmt: skip
    sums = triton_check.print_table(rows)
    assert list(sums.values()) == [5, 72, 1, 1, 1, 1]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:4] == ["cases", "results", "differing", "nan_codes"]
    assert lines[4].split() == [*["5", "72", "1", "1", "1", "1"], "together"]
    assert "nan_codes: NaN on both sides" in lines[5]
    assert triton_check.finding(failed).endswith("GPU: lost")
    assert triton_check.finding(refused).startswith("REFUSED ")


# --- both sides, in small ---


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(triton_cases, "M", 16)
    monkeypatch.setattr(triton_cases, "N", 16)
    monkeypatch.setattr(triton_cases, "K", 32)
    return replace(DOT, tile=(16, 16, 32), warps=1)


def test_interpreted_kernel_with_a_planted_error(small):
    outcome, want = triton_check.interpreted(small, 0, "sm_90a")
    assert (outcome.error, outcome.refused) == ("", "")
    assert outcome.instruction == "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    again = triton_check.interpreted(small, 0, "sm_90a")[1]
    triton_check.compare(outcome, again, want, "sm_90a")
    assert counts(outcome) == (12 * 16 * 16, 0, 0)
    again.view(np.uint32)[4, 3, 2] ^= 1 << 9
    triton_check.compare(outcome, again, want, "sm_90a")
    assert counts(outcome) == (12 * 16 * 16, 1, 0)
    assert outcome.first.startswith("cancel, row 3, column 2: GPU 0x")
    assert not np.array_equal(triton_check.interpreted(small, 1, "sm_90a")[1], want)


def test_refusals_and_failures_are_told_apart(small, monkeypatch):
    refused, nothing = triton_check.interpreted(small, 0, "sm_70")
    assert "starts at sm_75" in refused.refused and nothing is None and refused.error == ""
    monkeypatch.delattr(triton_check, "run")
    failed, nothing = triton_check.interpreted(small, 0, "sm_90a")
    assert failed.error.startswith("interpreter: NameError") and nothing is None


def test_cases_are_many_and_different():
    names = [case.name for case in triton_cases.cases()]
    assert len(names) == len(set(names)) > 100
    kinds = Counter((case.a, case.b, case.d) for case in triton_cases.cases())
    assert {("e4m3", "e5m2", "f32"), ("f16", "f16", "f16"), ("s8", "s8", "s32")} <= set(kinds)


def test_the_result_file_is_of_these_cases_and_without_differences():
    path = GOLDEN / "compared" / "triton_h200.json"
    result = json.loads(path.read_text(encoding="utf-8"))
    assert "H200" in result["provenance"]["gpu"]
    kernels = Counter()
    for row in result["rows"]:
        assert row["differing"] == row["refused"] == row["failed"] == 0
        assert row["results"] == row["cases"] * 12 * 128 * 128
        kernels[row["a"], row["b"], row["d"], row["kernel"], row["options"]] += row["cases"]
    assert kernels == Counter(
        (c.a, c.b, c.d, triton_cases.STYLES[c.style], c.options) for c in triton_cases.cases()
    )


def test_operands_depend_on_seed_and_regime(small):
    def of(regime, seed):
        return [x.view(torch.int16 if x.element_size() == 2 else torch.int32)
                for x in triton_cases.operands(small, regime, seed)]  # fmt: skip

    first, again, other, seeded = of("bits", 0), of("bits", 0), of("normal", 0), of("bits", 1)
    assert [tuple(x.shape) for x in first] == [(16, 32), (32, 16), (16, 16)]
    assert all(map(torch.equal, first, again))
    assert not any(map(torch.equal, first, other))
    assert not any(map(torch.equal, first, seeded))


# --- the command ---


def test_wrong_arguments(capsys):
    for arguments, words in ((["--jobs", "0"], "--jobs"), (["--match", "fp12"], "no kernel has")):
        with pytest.raises(SystemExit, match="2"):
            triton_check.main(arguments)
        assert words in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_gpu_the_exit_code_is_4(capsys):
    assert triton_check.main([]) == 4
    assert "needs an NVIDIA GPU" in capsys.readouterr().err
