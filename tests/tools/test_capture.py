"""The capture tool without a GPU: kernels assemble, cases are legal, its comparison fails."""

import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from assembler import joined
from hardware import capture, cases, kernels, measure, operands, workers
from hardware.driver import CudaError, Gpu, NoGpuError
from stand_ins import StandIn, settings

from dtypes import FORMATS
from emulator import Instruction, execute
from emulator.isa.matrix_opcodes import expand as instructions
from emulator.layout.addressing import addresses
from emulator.layout.descriptor import TileShape, decode_descriptor
from emulator.tools.recordings import recordings, save
from emulator.tools.replay import replay

pytestmark = pytest.mark.sampled(4)

PTXAS = shutil.which("ptxas")
needs_ptxas = pytest.mark.skipif(PTXAS is None, reason="no ptxas on the path")

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
QUAD = "mma.sync.aligned.m8n8k4.col.row.f32.f16.f16.f16"
F64 = "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64.rz"
B1 = "mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc"
SPARSE = "mma.sp.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32"
ORDERED = "mma.sp::ordered_metadata.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
WGMMA = "wgmma.mma_async.sync.aligned.m64n24k16.f16.f16.f16"
WGMMA_INT = "wgmma.mma_async.sync.aligned.m64n8k32.satfinite.s32.u8.s8"
WGMMA_B1 = "wgmma.mma_async.sync.aligned.m64n16k256.s32.b1.b1.and.popc"
WGMMA_SPARSE = "wgmma.mma_async.sp.sync.aligned.m64n16k16.f32.tf32.tf32"
SCALED = (
    "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X"
    ".f32.e2m1.e2m1.f32.ue4m3"
)
A_FEW = (MMA, QUAD, F64, B1, SPARSE, ORDERED, WGMMA, WGMMA_INT, WGMMA_B1, WGMMA_SPARSE)


def rng():
    return np.random.default_rng(5)


# --- kernels ---


def assemble(texts, target, folder):
    """ptxas on every module, many in one file: the first complaint with the file, or nothing."""

    def complaint(first):
        source = folder / f"{first}.ptx"
        source.write_text(joined(texts[first : first + 30]))
        command = [PTXAS, f"-arch={target}", "-O1", source, "-o", folder / f"{first}.cubin"]
        done = subprocess.run(command, capture_output=True, text=True)
        return f"{done.stderr}\n{source.read_text()}" if done.returncode else ""

    with ThreadPoolExecutor() as pool:
        return next(filter(None, pool.map(complaint, range(0, len(texts), 30))), "")


def modules(ins, target):
    return [kernels.module(v, target, "8.8") for v in kernels.variants(ins, rng())]


@needs_ptxas
@pytest.mark.parametrize("opcode", A_FEW)
def test_kernels_assemble(opcode, tmp_path):
    assert assemble(modules(Instruction.parse(opcode), "sm_90a"), "sm_90a", tmp_path) == ""


@needs_ptxas
def test_a_wrong_kernel_does_not_assemble(tmp_path):
    (text,) = modules(Instruction.parse(MMA), "sm_90a")
    wrong = text.replace("{b0, b1}", "{b0}")
    assert wrong != text
    assert "vector size mismatch" in assemble([wrong], "sm_90a", tmp_path)


@needs_ptxas
def test_block_scaled_kernel_assembles(tmp_path):
    assert assemble(modules(Instruction.parse(SCALED), "sm_120a"), "sm_120a", tmp_path) == ""


FAMILIES = ("mma", "mma.sp", "wgmma", "wgmma.sp")


@pytest.mark.slow
@needs_ptxas
@pytest.mark.parametrize("target, family", [("sm_80", "mma"), ("sm_89", "mma"),
    *[("sm_90a", f) for f in FAMILIES], ("sm_120a", "mma"), ("sm_120a", "mma.sp")])  # fmt: skip
def test_all_kernels_assemble(target, family, tmp_path):
    chosen = [i for i in instructions(family) if target in i.targets and i.ptx_version <= (8, 8)]
    assert chosen
    texts = [text for ins in chosen for text in modules(ins, target)]
    assert assemble(texts, target, tmp_path) == ""


@pytest.mark.parametrize(
    "cuda, version",
    [(13000, "9.0"), (13020, "9.0"), (12090, "8.8"), (12060, "8.5"), (11080, "7.0")],
)
def test_ptx_version_is_not_newer_than_the_driver(cuda, version):
    assert kernels.ptx_version(cuda) == version


def test_variants_have_every_selector_and_both_sources_of_a():
    names = [v.name for v in kernels.variants(Instruction.parse(WGMMA_SPARSE), rng())]
    assert len(names) == len(set(names)) == 4
    assert sum("A from shared" in name for name in names) == 2
    assert [n for v in kernels.variants(Instruction.parse(ORDERED), rng())
            for n in v.options.values()] == [0, 1, 2, 3]  # fmt: skip


# --- operands ---


@pytest.mark.parametrize("name", ["f32", "tf32", "f16", "bf16", "e4m3", "e5m2", "e2m1", "ue8m0"])
def test_floats_stay_finite_and_within_their_exponents(name):
    fmt = FORMATS[name]
    magnitude, ignored = fmt.code_mask & ~fmt.sign_mask, fmt.ignored_bits

    def fields(low, high):
        codes = operands.floats(fmt, rng(), (9000,), low, high).astype(int) & magnitude
        assert codes.max() >> ignored <= fmt.max_finite >> ignored
        return set((codes >> (ignored + fmt.mantissa_bits)).tolist())

    finite = (fmt.max_finite >> (ignored + fmt.mantissa_bits)) + 1
    assert fields(-1000, 1000) == set(range(finite))
    assert fields(0, 0) == {fmt.bias}
    assert not fmt.has_zero or fields(-1000, fmt.emin - 1) == {0}


def test_regimes_reach_their_corners():
    ins = Instruction.parse(SPARSE.replace("mma.sp", "mma").replace("k32", "k16"))
    batch = cases.draw(next(kernels.variants(ins, rng())), rng(), 240)
    d = execute(ins, *batch.operands(), target="sm_90a").reshape(240, -1) & 0x7FFFFFFF

    def of(regime):
        return d[np.array(batch.regimes) == regime]

    assert {regime: batch.regimes.count(regime) for regime in operands.REGIMES} == dict.fromkeys(
        operands.REGIMES, 20
    )
    special = of("special")
    assert (special > 0x7F800000).mean() > 0.1 and (special == 0x7F800000).mean() > 0.1
    tiny = of("tiny")
    assert ((tiny > 0) & (tiny < 0x00800000)).mean() > 0.5
    overflow = of("overflow")
    assert 0.02 < (overflow == 0x7F800000).mean() < 0.98
    assert 0.1 < (of("cancel") == 0).mean() < 0.9
    assert (of("normal") < 0x7F800000).all()


@pytest.mark.parametrize("major, size, rows, k", [
    ("k", 2, 256, 16), ("mn", 2, 256, 32), ("k", 4, 8, 8), ("k", 1, 64, 64), ("mn", 2, 8, 16),
])  # fmt: skip
def test_tiles_lie_inside_the_image(major, size, rows, k):
    random = rng()
    tile = TileShape(rows, k, size, major)
    words = []
    for _ in range(100):
        word, places = cases.random_descriptor(random, tile)
        assert places.min() >= 0 and places.max() + size <= 48 * 1024
        assert np.array_equal(places, addresses(decode_descriptor(np.array(word)), tile))
        words.append(word)
    fields = decode_descriptor(np.array(words, np.uint64))
    assert set(fields.swizzle.tolist()) == {0, 1, 2, 3}
    assert len(set(fields.base_offset.tolist())) == 8
    assert len(set(fields.start_address.tolist())) > 50
    assert len(set(fields.stride_byte_offset.tolist())) > 20


# --- measuring ---


@pytest.mark.parametrize("opcode", A_FEW)
def test_compare_through_the_kernel_text(opcode):
    ins = Instruction.parse(opcode)
    report = measure.measure(StandIn(), ins, settings())
    assert not report.is_fatal and report.outcomes
    for outcome in report.outcomes:
        assert (outcome.error, outcome.differing_words, outcome.first) == ("", 0, "")
        assert outcome.words == outcome.cases * ins.lanes * ins.fragment("d").registers
    assert any("any metadata" in outcome.name for outcome in report.outcomes) == ins.is_sparse


def test_compare_of_a_block_scaled_instruction():
    ins = Instruction.parse(SCALED)
    report = measure.measure(StandIn(target="sm_120a"), ins, settings(target="sm_120a"))
    assert [(o.error, o.differing_words) for o in report.outcomes] == [("", 0)]


@pytest.mark.parametrize("opcode, digits", [(MMA, 8), (F64, 16)])
def test_one_flipped_bit_is_found(opcode, digits):
    report = measure.measure(StandIn((3, 17, 1, 5)), Instruction.parse(opcode), settings())
    (outcome,) = report.outcomes
    assert (outcome.differing_words, outcome.differing_cases) == (1, 1)
    where, gpu, ours = re.fullmatch(
        r"(case 3 \([a-z ]+\), lane 17, register 1): GPU 0x(\w+), emulator 0x(\w+)", outcome.first
    ).groups()
    assert where and len(gpu) == len(ours) == digits
    assert int(gpu, 16) ^ int(ours, 16) == 1 << 5


def test_cases_depend_on_seed_and_instruction_alone():
    def results(seed):
        report = measure.measure(
            StandIn(), Instruction.parse(MMA), settings(record=True, seed=seed)
        )
        return report.recordings[0].expected

    assert np.array_equal(results(1), results(1))
    assert not np.array_equal(results(1), results(2))


def test_recordings_replay_and_show_a_planted_error(tmp_path):
    found = []
    for opcode in (MMA, SPARSE, WGMMA, WGMMA_SPARSE):
        report = measure.measure(StandIn(), Instruction.parse(opcode), settings(record=True))
        found += report.recordings
    bad = measure.measure(StandIn((0, 0, 0, 0)), Instruction.parse(F64), settings(record=True))
    save(tmp_path / "capture.npz", {"gpu": "stand-in"}, found + bad.recordings)
    outcomes = [replay(variant) for variant in recordings("capture", tmp_path)]
    assert [o.differing for o in outcomes] == [0] * len(found) + [1]


class Failing:
    """A GPU whose every call fails with one error code."""

    def __init__(self, code):
        self.code = code

    def run(self, *arguments):
        raise CudaError(f"cuLaunchKernel: error {self.code}", self.code)


def test_a_refused_kernel_fails_its_variant_alone():
    report = measure.measure(Failing(218), Instruction.parse(SPARSE), settings())
    assert [o.error for o in report.outcomes] == ["cuLaunchKernel: error 218"] * 2
    assert not report.is_fatal


def test_a_fault_ends_the_process():
    report = measure.measure(Failing(700), Instruction.parse(SPARSE), settings())
    assert len(report.outcomes) == 1 and report.is_fatal


def test_what_the_emulator_refuses_is_a_failure():
    ins = Instruction.parse(MMA)
    batch = cases.draw(next(kernels.variants(ins, rng())), rng(), 2)
    outcome = measure.compare(batch, ins.fragment("d").zeros(2), "sm_75")
    assert "emulator: UnsupportedError" in outcome.error


# --- the command ---


def has_gpu():
    try:
        Gpu()
    except NoGpuError:
        return False
    return True


without_gpu = pytest.mark.skipif(has_gpu(), reason="there is a GPU")


@without_gpu
def test_without_gpu_the_exit_code_is_4(capsys):
    assert capture.main(["compare"]) == 4
    assert "needs an NVIDIA GPU" in capsys.readouterr().err


@without_gpu
def test_lost_processes_fail_their_instructions_alone(monkeypatch):
    monkeypatch.setattr(workers, "serve", dies)
    reports = list(workers.measure_all([MMA, F64], settings(), 1, 60))
    assert [r.outcomes[0].error for r in reports] == ["the process that ran it died"] * 2
    assert list(workers.measure_all([MMA], settings(), 1, 0)) == []


def dies(connection, settings):
    raise SystemExit(3)


def test_wrong_arguments():
    for arguments in (["record"], ["compare", "--cases", "0"], ["measure"]):
        with pytest.raises(SystemExit, match="2"):
            capture.main(arguments)


def test_choice_of_instructions():
    chosen = capture.choose("sm_90a", "", every_n=False)
    assert {i.n for i in chosen if i.is_wgmma} == {8, 16, 24, 32, 64, 72, 128, 176, 192, 256}
    assert len(capture.choose("sm_90a", "", every_n=True)) > len(chosen) > 500
    assert [str(i) for i in capture.choose("sm_80", MMA, every_n=False)] == [MMA]
    assert not any(i.is_wgmma for i in capture.choose("sm_100a", "", every_n=True))


@pytest.mark.parametrize(
    "capability, target", [((9, 0), "sm_90a"), ((8, 6), "sm_86"), ((12, 1), "sm_121a")]
)
def test_target_of_a_gpu(capability, target):
    assert capture.target_of(capability) == target


def test_gpu_without_tensor_cores():
    with pytest.raises(NoGpuError, match="sm_61"):
        capture.target_of((6, 1))


def test_table_sums_up(capsys):
    report = measure.measure(StandIn((0, 0, 0, 0)), Instruction.parse(MMA), settings())
    tallies = {"mma": capture.Tally(), "wgmma": capture.Tally(failed=2)}
    tallies["mma"].add(report)
    capture.print_table(tallies)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["mma", "1", "1", "24", "3072", "1", "0"]
    assert lines[3].split() == ["all", "1", "1", "24", "3072", "1", "2"]


def test_findings_name_the_instruction_and_the_first_difference():
    differing = measure.measure(StandIn((0, 0, 0, 0)), Instruction.parse(MMA), settings())
    (line,) = capture.findings(differing)
    assert line.startswith(f"DIFFERS {MMA}: 1 of 3072 registers in 1 of 24 cases; first: case 0")
    failing = measure.measure(Failing(700), Instruction.parse(MMA), settings())
    assert capture.findings(failing) == [f"FAILED {MMA}: cuLaunchKernel: error 700"]
    assert capture.findings(measure.measure(StandIn(), Instruction.parse(MMA), settings())) == []


@pytest.mark.hardware
@pytest.mark.skipif(not has_gpu(), reason="no GPU")
@pytest.mark.parametrize("opcode", [MMA, SPARSE])
def test_gpu_computes_what_the_emulator_does(opcode, capsys):
    assert capture.main(["compare", "--match", opcode, "--cases", "24", "--jobs", "1"]) == 0
    assert "1 of 1 instructions" in capsys.readouterr().out
