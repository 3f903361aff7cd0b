"""``explain``: operands of all kinds, mistakes, the page, and the command."""

import html.parser

import numpy as np
import pytest
from codes import f32_codes
from commands import answer, refusal
from designed import any_bits
from explained import F16, dot

from emulator import Descriptor, Instruction, OperandError, UnsupportedError
from emulator.tools.explanations.explanation import explain, explain_registers

# --- what goes in and out -------------------------------------------------------------------------


def test_registers_and_matrices_tell_the_same():
    rng = np.random.default_rng(3)
    codes = [any_bits(rng, F16.fragment(x).fmt, F16.fragment(x).shape) for x in "abc"]
    registers = [F16.fragment(x).scatter(y) for x, y in zip("abc", codes, strict=True)]
    one = explain(F16, *codes, row=4, col=4, target="sm_89", codes=True)
    two = explain_registers(F16, *registers, row=4, col=4, target="sm_89")
    assert one.text() == two.text() and one.data == two.data
    wmma = Instruction.parse("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32")
    a = rng.standard_normal((16, 16)).astype(np.float16)
    made = explain(wmma, a, a, row=2, col=3, target="sm_90a")
    assert made.data["products"][7]["b"]["value"] == a[7, 3]


def test_batch():
    a = np.zeros((3, 16, 16), np.float16)
    a[2] = 1
    b = np.ones((16, 8), np.float16)
    made = explain(F16, a, b, row=0, col=0, target="sm_80", batch=2)
    assert made.data["d"]["value"] == 16
    with pytest.raises(
        OperandError, match=r"batch axes \(3,\).* batch=\(0,\) .*--batch 0\); got \(\)"
    ):
        explain(F16, a, b, row=0, col=0, target="sm_80")
    with pytest.raises(OperandError, match="no batch axes"):
        explain(F16, a[0], b, row=0, col=0, target="sm_80", batch=0)


def test_mistakes():
    a, b = np.ones((16, 16), np.float16), np.ones((16, 8), np.float16)
    with pytest.raises(OperandError, match="row is 0 … 15; got 16"):
        explain(F16, a, b, row=16, col=0, target="sm_80")
    with pytest.raises(OperandError, match="A must be"):
        explain(F16, b, a, row=0, col=0, target="sm_80")
    with pytest.raises(UnsupportedError, match="not available on sm_70"):
        explain(F16, a, b, row=0, col=0, target="sm_70")
    move = Instruction.parse("movmatrix.sync.aligned.m8n8.trans.b16")
    with pytest.raises(OperandError, match="that multiplies"):
        explain(move, a, b, row=0, col=0, target="sm_80")


def test_opcodes_as_text():
    a, b = np.ones((16, 16), np.float16), np.ones((16, 8), np.float16)
    by_name = explain(str(F16), a, b, row=1, col=2, target="sm_80")
    assert by_name.data == explain(F16, a, b, row=1, col=2, target="sm_80").data
    registers = [F16.fragment(x).zeros() for x in "abc"]
    made = explain_registers(str(F16), *registers, row=1, col=2, target="sm_80")
    assert made.data["opcode"] == str(F16)
    with pytest.raises(OperandError, match=r"or its opcode.* needed; got int"):
        explain(5, a, b, row=1, col=2, target="sm_80")


def test_a_computation_of_an_instruction_that_has_one(capsys):
    a, b = np.ones((16, 16), np.float16), np.ones((16, 8), np.float16)
    with pytest.raises(
        OperandError, match=r"m8n8k4\.f16, whose warp has 4; .* leave it out; got 2"
    ):
        explain(F16, a, b, row=0, col=0, target="sm_80", computation=2)
    registers = [F16.fragment(x).zeros() for x in "abc"]
    with pytest.raises(OperandError, match="leave it out; got -1"):
        explain_registers(F16, *registers, row=0, col=0, target="sm_80", computation=-1)
    error = refusal(capsys, "explain", OPCODE, "--target", "sm_80", "--computation", "2")
    assert "leave it out; got 2" in error


class Tags(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.words, self.links = [], [], []

    def handle_starttag(self, tag, attributes):
        self.links += [value for name, value in attributes if name in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def test_the_page_is_whole_and_stands_alone():
    made = dot(F16, [(2.0**-13, 2.0**-12)], 1.0, target="sm_80")
    page = made.html()
    tags = Tags()
    tags.feed(page)
    assert tags.open == [] and tags.links == []
    assert page.startswith("<!DOCTYPE html>") and page.count("<table>") >= 3
    assert '+0.000000000000000000000000<span class="cut" title="cut off">1</span>' in page
    words = " ".join(" ".join(tags.words).split())
    for cell in ("lane 0 a0[15:0]", "0x3f800000 = 1 (f32)", "1 bit, 2^-25"):
        assert cell in words
    assert made._repr_html_() in page and str(made) == made.text()
    assert repr(made).startswith("<Explanation: D[0][0] of mma.sync")


# --- the command ----------------------------------------------------------------------------------

OPCODE = str(F16)


def test_command_with_one_dot_product(capsys):
    given = ("explain", OPCODE, "--target", "sm_80", "--a", "1.5,0x4000", "--b", "2,-0.5", "--c",
             "0x3f800000", "--row", "3", "--col", "2")  # fmt: skip
    lines = answer(capsys, *given)
    assert lines[0] == f"D[3][2] of {OPCODE} on sm_80"
    assert any(line.split() == ["D", "0x40400000", "=", "3", "(f32)"] for line in lines)
    data = answer(capsys, *given, "--json")
    assert data["products"][1]["b"] == {
        "type": "f16", "code": "0xb800", "value": -0.5,
        "place": {"operand": "b", "lane": 8, "register": 0, "low_bit": 16, "bits": 16},
    }  # fmt: skip


def test_command_with_files(capsys, tmp_path):
    matrices, registers = tmp_path / "m.npz", tmp_path / "r.npz"
    a, b = np.ones((16, 16)), np.full((16, 8), 2.0, np.float32)
    np.savez(matrices, A=a, b=b)
    data = answer(capsys, "explain", OPCODE, "--target", "sm_80", "--input", matrices, "--json")
    assert data["d"]["value"] == 32
    words = [F16.fragment(x).zeros() for x in "abc"]
    words[2][:] = f32_codes(7)[0]
    np.savez(registers, **dict(zip("abc", words, strict=True)))
    for option, file in (("--input", matrices), ("--registers", registers)):
        error = refusal(capsys, "explain", OPCODE, "--target", "sm_80", option, file, "-o", file)
        assert "is read, too" in error
    assert "is read, too" in refusal(capsys, "compare", OPCODE, "--input", matrices, "-o", matrices)
    page = tmp_path / "page.html"
    lines = answer(capsys, "explain", OPCODE, "--target", "sm_80", "--registers", registers, "-o",
                   page)  # fmt: skip
    assert lines == [f"wrote {page}"] and "0x40e00000 = 7" in page.read_text()
    np.savez(matrices, A=a, B=b / 3)
    error = refusal(capsys, "explain", OPCODE, "--target", "sm_80", "--input", matrices)
    assert "B[0, 0] is 0.66" in error and "f16 does not hold exactly" in error
    np.savez(matrices, A=a, BB=b)
    assert "nearest is 'B'" in refusal(
        capsys, "explain", OPCODE, "--target", "sm_80", "--input", matrices
    )
    error = refusal(capsys, "explain", OPCODE, "--target", "sm_80", "--registers", matrices)
    assert "has no a, b, c; " in error


@pytest.mark.parametrize("b", ["descriptor_b", "b_descriptor"])
@pytest.mark.parametrize("a", ["a", "descriptor_a"])
def test_registers_of_a_wgmma_in_a_file(a, b, capsys, tmp_path):
    """Operands go by the names of `execute`, and B by that of version 0.2, too."""
    ins = Instruction.parse("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16")
    places = {"swizzle_bytes": 32, "fmt": "f16"}
    word = {x: Descriptor.for_tile(rows, 16, start_address=start, **places).descriptor.encode()
            for x, rows, start in (("a", 64, 0), ("b", 8, 4096))}  # fmt: skip
    held = {
        "shared": np.full(8192, 0x3C, np.uint8) & np.tile(np.uint8([0, 255]), 4096),  # ones of f16
        "d": ins.fragment("d").zeros(), b: np.uint64(word["b"]),
        a: np.uint64(word["a"]) if a == "descriptor_a" else ins.fragment("a").zeros() + 0x3C003C00,
    }  # fmt: skip
    file = tmp_path / "words.npz"
    np.savez(file, **{name: np.asarray(x) for name, x in held.items()})
    asked = ("explain", ins, "--target", "H100", "--registers", file)
    assert answer(capsys, *asked, "--json")["d"]["value"] == 16
    del held[b]
    np.savez(file, **{name: np.asarray(x) for name, x in held.items()})
    assert "has no descriptor_b; " in refusal(capsys, *asked)


def test_arrays_of_ml_dtypes_survive_a_file(capsys, tmp_path):
    """NumPy gives them back as raw bytes."""
    import ml_dtypes

    file = tmp_path / "m.npz"
    np.savez(file, A=np.ones((16, 8), ml_dtypes.bfloat16), B=np.ones((8, 8), ml_dtypes.bfloat16))
    opcode = "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32"
    data = answer(capsys, "explain", opcode, "--target", "sm_80", "--input", file, "--json")
    assert data["d"]["value"] == 8


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["wide", "normal", "edges", "any"])
@pytest.mark.parametrize(
    "opcode",
    [
        OPCODE,
        "mma.sp.sync.aligned.m16n8k64.row.col.s32.u8.s8.s32",
        "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1"
        ".f32.ue4m3",
    ],
)
def test_generated_operands(capsys, opcode, kind):
    given = ("explain", opcode, "--target", "sm_120a", "--inputs", kind)
    first = answer(capsys, *given, "--seed", "1")
    assert first == answer(capsys, *given, "--seed", "1")
    assert first != answer(capsys, *given, "--seed", "2")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--a 1", "--a and --b go together"),
        ("--a 1 --b x", "'x' is no number of f16"),
        ("--a 1 --b 1e5", "1e5 is too large for f16, whose largest number is 65504"),
        ("--a 1 --b 0x10000", "does not fit the 16 bits of f16"),
        ("--a 1 --b 1 --seed 2", "operands come from one place"),
        ("--inputs wdie", "nearest is 'wide'"),
        ("--seed -1", "a seed is 0 or more; got -1"),
        ("--row 16", "row is 0 … 15"),
        ("--batch x", "--batch is an index"),
        ("--input none.npz", "cannot read 'none.npz'"),
        ("-o /none/x.html", "cannot write '/none/x.html'"),
    ],
)
def test_mistakes_on_the_command_line(capsys, words, message):
    assert message in refusal(capsys, "explain", OPCODE, "--target", "sm_80", *words.split())


@pytest.mark.parametrize(
    ("shape", "types", "word", "message"),
    [
        ("m16n8k16", "s32.s8.s8.s32", "1.5",
         "'1.5' is no number of s8; write an integer from -128 to 127, or a code such as 0x3f"),
        ("m16n8k16", "s32.s8.s8.s32", "128", "no number of s8; write an integer from -128 to 127"),
        ("m16n8k16", "s32.u8.u8.s32", "-1", "u8; write an integer from 0 to 255, or a code"),
        ("m16n8k128", "s32.b1.b1.s32.xor.popc", "2", "b1; write an integer from 0 to 1, or a code"),
    ],
)  # fmt: skip
def test_integers_out_of_range(capsys, shape, types, word, message):
    opcode = f"mma.sync.aligned.{shape}.row.col.{types}"
    given = ("explain", opcode, "--target", "sm_80", f"--a={word}", "--b", "1")
    error = refusal(capsys, *given)
    assert message in error and "inf" not in error and error.count("write") == 1


def test_the_shell_names_its_own_option_for_a_batch(capsys, tmp_path):
    a = np.ones((2, 3, 16, 16), np.float16)
    np.savez(tmp_path / "x.npz", A=a, B=np.ones((16, 8), np.float16))
    given = ("explain", OPCODE, "--target", "sm_80", "--input", tmp_path / "x.npz")
    assert "(in a shell --batch 0,0)" in refusal(capsys, *given)
    assert answer(capsys, *given, "--batch", "0,0", "--json")["d"]["value"] == 16
