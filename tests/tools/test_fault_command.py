"""``python -m emulator fault``, what the fault finder refuses, and its table of mistakes."""

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from commands import answer, refusal
from paths import PTX
from sweeps import swept
from test_faults import DENSE, run_dense
from test_faults_sparse import SCALED, SPARSE
from test_faults_wgmma import WGMMA

from dtypes import FORMATS, code_type
from emulator import Instruction, OperandError, UnsupportedError, mma
from emulator.__main__ import main
from emulator.isa.matrix_opcodes import expand as matrix_instructions
from emulator.targets import find_target
from emulator.tools.faults import copies, rows
from emulator.tools.faults.finder import MISTAKES, find_faults
from emulator.tools.faults.inputs import Given
from emulator.tools.faults.variants import probe_of

pytestmark = pytest.mark.sampled(3)

OPCODE = str(DENSE)
EXAMPLE = PTX / "fault_dense.npz"


@pytest.fixture
def save(tmp_path):
    def write(**arrays):
        file = tmp_path / "in.npz"
        np.savez(file, **arrays)
        return file

    return write


def fault(file, *options, opcode=OPCODE):
    return ("fault", opcode, "--target", "sm_80", "--input", file, *options)


def small(seed=0):
    rng = np.random.default_rng(seed)
    return {"A": rng.standard_normal((16, 16)).astype("f2"),
            "B": rng.standard_normal((16, 8)).astype("f2")}  # fmt: skip


# --- the command ----------------------------------------------------------------------------------


def test_the_example_of_the_readme_is_a_real_kernel(capsys):
    with np.load(EXAMPLE) as arrays:
        given = dict(arrays)
    d, _ = run_dense((given["A"], given["B"], given["C"]), ("%a2, %a3}, {%b0", "%a2, %a2}, {%b0"))
    assert np.array_equal(d.view("u4"), given["D"].view("u4"))
    lines = answer(capsys, *fault(EXAMPLE))
    assert lines[1] == "D: 64 of 128 elements are wrong"
    assert "1. a2 stands where a3 belongs" in lines


def test_json_has_everything(capsys):
    data = answer(capsys, *fault(EXAMPLE, "--json"))
    assert (data["verdict"], data["wrong"], data["total"]) == ("found", 64, 128)
    (named,) = data["faults"]
    assert (named["mistake"], named["operand"]) == ("register used twice", "a")
    assert named["exact"] and named["explained"] == 64 and named["direction"] == "made"


def test_exit_codes(capsys, save):
    matrices = small()
    d = mma(DENSE, *matrices.values(), target="sm_80")
    assert answer(capsys, *fault(save(**matrices, D=d)))[1] == "D: right, 128 of 128 elements"
    wrong = np.random.default_rng(9).standard_normal((16, 8)).astype("f4")
    assert main([str(x) for x in fault(save(**matrices, D=wrong), "--json")]) == 1
    assert json.loads(capsys.readouterr().out)["verdict"] == "none"


def test_small_letters_are_registers(capsys, save):
    matrices = small()
    words = DENSE.fragment("a").scatter(matrices["A"].view("u2"))
    lines = answer(capsys, *fault(save(**matrices, a=words[:, [1, 0, 2, 3]])))
    assert lines[1] == "a as passed: wrong"
    assert "1. a0 and a1 exchanged" in lines
    right = answer(capsys, *fault(save(**matrices, a=words)))
    assert right[1:] == ["a as passed: right", "operand a: right, 256 of 256 elements"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"A": np.full((16, 16), 0.1, "f4")}, "A[0, 0] is 0.1000"),
        ({"A": np.ones((8, 16), "f2")}, r"is (16, 16 (or a multiple)); got (8, 16)"),
        ({"B": np.ones((32, 8), "f2")}, "steps of k are a 1, b 2"),
        ({"C": np.ones((8, 8), "f4")}, "operand c: codes must be"),
        ({"D": np.ones((8, 8), "f4")}, "d= is D (16, 8) or its registers (32, 4)"),
        ({"DD": np.ones(1)}, "nearest is 'D'"),
        ({"e": np.ones(32, "u4")}, "takes no 'e'"),
        ({"a": np.ones((16, 4), "u4")}, "32 lanes, 4 registers"),
        ({"expected": np.ones((16, 8), "f4")}, "give one of them"),
        ({"A": np.array(["x"])}, "A holds <U1 (1,); numbers of float16 or codes of f16"),
    ],
)
def test_bad_arrays_are_named(capsys, save, change, words):
    arrays = small() | {"D": np.ones((16, 8), "f4")} | change
    assert words in refusal(capsys, *fault(save(**arrays)))


def test_bad_files_and_opcodes(capsys, tmp_path, save):
    assert "cannot read" in refusal(capsys, *fault(tmp_path / "none.npz"))
    text = tmp_path / "text.npz"
    text.write_text("no archive")
    assert "no .npz file" in refusal(capsys, *fault(text))
    assert "nothing to compare" in refusal(capsys, *fault(save(**small())))
    assert "B is missing" in refusal(capsys, *fault(save(A=small()["A"], D=np.ones((16, 8), "f4"))))
    assert "limit=" in refusal(capsys, *fault(EXAMPLE, "--limit", 0))
    assert "numpy.savez('x.npz', A=…)" in refusal(capsys, *fault(save(arr_0=np.ones(3))))
    assert "nearest is 'selector'" in refusal(capsys, *fault(save(selectr=np.ones(3))))
    assert "nearest" not in refusal(capsys, *fault(save(quux=np.ones(3))))
    movmatrix = "movmatrix.sync.aligned.m8n8.trans.b16"
    assert "takes an mma" in refusal(capsys, *fault(EXAMPLE, opcode=movmatrix))


def test_bad_arguments_are_named():
    a, b = small().values()
    d = np.ones((16, 8), "f4")
    with pytest.raises(OperandError, match=r"'register_a'.* nearest is 'registers_a'"):
        find_faults(DENSE, a, b, target="sm_80", d=d, register_a=1)
    with pytest.raises(UnsupportedError, match="not available on sm_75"):
        find_faults(DENSE, a, b, target="sm_75", d=d)
    with pytest.raises(OperandError, match=r"shared= is missing"):
        tile = np.ones((64, 16), "f2"), np.ones((16, 16), "f2")
        find_faults(
            WGMMA, *tile, target="H100", d=np.ones((64, 16), "f4"), descriptor_b=np.uint64(1)
        )
    with pytest.raises(OperandError, match=r"row 0, columns 0…3 of A have 4 non-zero"):
        find_faults(SPARSE, np.ones((16, 32), "f2"), np.ones((32, 8), "f2"), target="sm_80", d=d)


def test_addresses_and_memory_in_a_file(capsys, save):
    """Rows of A 48 bytes apart, addressed as if 32."""
    lane, a = np.arange(32), np.random.default_rng(0).standard_normal((16, 16)).astype("f2")
    shared = np.zeros((16, 48), np.uint8)
    shared[:, :32] = a.view(np.uint8)
    b = np.ones((16, 8), "f2")
    for stride, said in ((48, "a as passed: right"), (32, "rows 48 bytes apart instead of 32")):
        addresses = lane % 16 * stride + lane // 16 * 16
        file = save(A=a, B=b, shared=shared.reshape(-1), addresses_a=addresses)
        lines = answer(capsys, *fault(file))
        assert any(said in line for line in lines), lines


def test_d_alone_asks_for_what_decides():
    a, b = (np.random.default_rng(x).standard_normal(y).astype("f2")
            for x, y in enumerate(((16, 16), (16, 8))))  # fmt: skip
    wanted = "D shows how an operand is wrong"
    for other, asks in (((a.T, b), "addresses_a="), ((a, b.reshape(8, 16).T), "addresses_b="),
                        ((a, b), None)):  # fmt: skip
        d = mma(DENSE, *(np.ascontiguousarray(x) for x in other), target="sm_80")
        notes = [x for x in find_faults(DENSE, a, b, target="sm_80", d=d).notes if wanted in x]
        assert len(notes) == (asks is not None) and all(asks in x for x in notes)
    # The registers are given: then it is known.
    registers = DENSE.fragment("a").scatter(a.view("u2"))
    d = mma(DENSE, a.T.copy(), b, target="sm_80")
    report = find_faults(DENSE, a, b, target="sm_80", d=d, registers_a=registers)
    assert not any("addresses_a=" in x for x in report.notes)


# --- the table ------------------------------------------------------------------------------------


def test_every_mistake_can_be_made():
    """Each row of the table has a way of making it in one of five kernels, and changes D there.

    Those of addresses and copies are made in test_faults_memory.py.
    """
    seen = {}
    for ins, target, steps in (
        (DENSE, "sm_80", 1), (SPARSE, "sm_80", 2), (WGMMA, "sm_90a", 2), (SCALED, "sm_120a", 1),
        (Instruction.parse("mma.sync.aligned.m8n8k16.row.col.s32.s8.u8.s32"), "sm_80", 1),
    ):  # fmt: skip
        kernel = kernel_of(ins, target, steps)
        right = kernel.result()
        kernel = replace(kernel, aims={"d": right * 2})
        assert not repeated_names(kernel)
        for mistake in MISTAKES:
            for variant in mistake.variants(kernel):
                result = None if mistake.name in seen else variant.kernel.result()
                if result is not None and (result != right).any():
                    seen[mistake.name] = variant
                    break
    of_memory = {x.name for x in (*rows.MISTAKES, rows.OF_LANES, *copies.MISTAKES)}
    assert seen.keys() == {x.name for x in MISTAKES} - of_memory
    assert len(MISTAKES) == len({x.name for x in MISTAKES})


def repeated_names(kernel):
    """Ways of making a mistake that share a name: the search would take one for the other."""
    names = Counter((x.name, y.operand, y.detail) for x in MISTAKES for y in x.variants(kernel))
    return [name for name, count in names.items() if count > 1]


def kernel_of(ins, target, steps):
    """A kernel with another value in every element."""
    k = ins.k * steps
    zeros = {
        name: np.zeros(shape, code_type(FORMATS[type_].bits))
        for name, shape, type_ in (
            ("a", (ins.m, k), ins.a_type), ("b", (k, ins.n), ins.b_type),
            ("scale_a", (ins.m, ins.scale_chunks * steps), ins.scale_type),
            ("scale_b", (ins.scale_chunks * steps, ins.n), ins.scale_type),
        ) if type_
    }  # fmt: skip
    return probe_of(Given(ins, find_target(target), zeros, {}).right())


def one_of_each_form():
    made = {}
    for ins in matrix_instructions():
        if not ins.is_wgmma or ins.n == 16:
            made.setdefault(ins.form, ins)
    return list(made.values())


def test_there_are_many_forms():
    assert len(one_of_each_form()) > 50


@pytest.mark.slow
@swept(one_of_each_form(), 8)
def test_every_form_is_searched(ins):
    """A right D is right, and a wrong one raises nothing, for an instruction of every form."""
    kernel = kernel_of(ins, ins.targets[-1], 1)
    assert not repeated_names(kernel), ins
    if ins.c_type == ins.d_type:
        assert not repeated_names(kernel_of(ins, ins.targets[-1], 2)), ins
    matrices = {x: kernel.matrix(x) for x in ("b", "c")}
    known = {f"registers_{x}": kernel.words[x] for x in ("scale_a", "scale_b") if x in kernel.words}
    if ins.is_sparse:
        known |= {"e": kernel.words["e"]}
    registers = {"registers_a": ins.fragment("a").scatter(
        np.stack(np.split(kernel.matrix("a"), 1, -1)))}  # fmt: skip
    d = kernel.result()
    options = known | registers | {"target": ins.targets[-1]}
    report = find_faults(ins, None, *matrices.values(), d=d, **options)
    assert report.verdict == "right", f"{ins}: {report}"
    flipped = np.flip(d, -1).copy()
    assert find_faults(ins, None, *matrices.values(), d=flipped, **options).verdict != "right"


def test_the_help_tells_the_exit_codes(capsys):
    with pytest.raises(SystemExit):
        main(["fault", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "Exit code 0: nothing is wrong, or a mistake explains every bit; 1: none does." in text
