"""The command line: its commands in process, exit codes, messages for mistakes; the shell around.

Facts are stated here from the manual (PTX ISA 9.7.14, 9.7.15), not taken from the tables.
"""

import csv
import io
import json
import os
import subprocess
import sys
from dataclasses import asdict

import numpy as np
import pytest

from emulator import Instruction
from emulator import __main__ as command_line
from emulator.__main__ import main
from emulator.errors import UnsupportedError
from emulator.targets import find_target

pytestmark = pytest.mark.sampled(4)

F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
S4 = "mma.sync.aligned.m8n8k32.row.col.s32.s4.s4.s32"
QUAD = "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32"
SPARSE = "mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
SCALED = (
    "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0"
)
WGMMA = "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16"


# --- list -----------------------------------------------------------------------------------------


def test_list_has_a_line_per_instruction_with_its_targets(ask):
    lines = {line.split()[0]: line for line in ask("list")}
    assert lines[F16].endswith(" sm_80+")
    assert lines[QUAD].endswith(" sm_70+")
    assert lines[SCALED].endswith(" sm_120a/f+")
    sparse_fp4 = SCALED.replace("mma", "mma.sp::ordered_metadata", 1).replace("k64", "k128")
    assert lines[sparse_fp4].endswith(" sm_120a, sm_121a")


def test_list_collapses_the_sizes_of_wgmma(ask):
    lines = ask("list", "--family", "wgmma")
    f16 = next(line for line in lines if ".m64nNk16.f32.f16.f16 " in line)
    assert "8-256 by 8 " in f16 and f16.endswith(" sm_90a")
    integers = [line for line in lines if ".m64nNk32.s32.s8.u8 " in line]
    assert "8-32 by 8, 48-256 by 16 " in integers[0] and len(integers) == 1
    spelled = ask("list", "--family", "wgmma", "--all")
    assert sum(".f32.bf16.bf16" in line for line in spelled) == 32
    assert not any("nNk" in line for line in spelled)


def test_list_filters(ask):
    everything = ask("list", "--json")
    assert len({row["opcode"] for row in everything}) == len(everything)

    hopper = ask("list", "--target", "H100", "--json")
    assert hopper == ask("list", "--target", "sm_90a", "--json")
    names = [row["opcode"] for row in everything if "sm_90a" in row["targets"]]
    assert [row["opcode"] for row in hopper] == names
    assert {row["fidelity"] for row in hopper} <= {"exact", "validated", "modelled"}

    fp4 = ask("list", "--type", "e2m1", "--json")
    assert fp4 and all("e2m1" in " ".join(row["types"].values()).split() for row in fp4)
    assert {row["opcode"] for row in fp4 if "tcgen05" not in row["opcode"]} == {
        row["opcode"] for row in everything if "e2m1" in row["opcode"]
    }
    families = {row["family"] for row in ask("list", "--family", "mma.sp", "--json")}
    assert families == {"mma.sp", "mma.sp::ordered_metadata"}
    assert ask("list", "--family", "wgmma", "--target", "sm_80") == ["opcode  on sm_80"]


def test_list_names_the_nearest_of_an_unknown_filter(refused):
    assert "nearest is 'e2m3'" in refused("list", "--type", "e2m33")
    assert "nearest is 'wgmma'" in refused("list", "--family", "wgma")
    assert "nearest is 'sm_90a'" in refused("list", "--target", "sm_90ab")
    assert "nearest" not in refused("list", "--family", "zzz")


def test_list_takes_groups(ask):
    def listed(*argv):
        return ask("list", *argv, "--json")

    families = {row["family"] for row in listed("--family", "wmma")}
    assert families == {"wmma.load", "wmma.mma", "wmma.store"}
    for group, members in (("fp8", "e4m3 e5m2"), ("fp6", "e3m2 e2m3"), ("fp4", "e2m1")):
        one_by_one = [row for type_ in members.split() for row in listed("--type", type_)]
        assert {x["opcode"] for x in listed("--type", group)} == {x["opcode"] for x in one_by_one}


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("sm90", "sm_90"), ("90a", "sm_90a"), ("compute_80", "sm_80"), ("SM_120F", "sm_120f"),
        ("H20", "sm_90a"), ("TITAN V", "sm_70"), ("DGX Spark", "sm_121a"),
        ("Jetson Orin", "sm_87"), ("H800", "sm_90a"), ("A800", "sm_80"),
    ],
)  # fmt: skip
def test_names_of_targets(name, target):
    assert find_target(name).name == target


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("P100", "'P100': too old, without tensor cores; the first with them is sm_70"),
        ("sm_61", "too old"), ("GTX 1080", "too old"), ("compute_35", "too old"),
        ("sm_81", "no target 'sm_81'; the nearest is 'sm_80'; targets are sm_70, "),
        ("99", "the nearest is 'sm_90'; targets"), ("sm_130", "the nearest is 'sm_121'"),
        ("Q", "no target 'Q'; targets are"), ("9" * 5000, "9…"),
    ],
)  # fmt: skip
def test_targets_that_do_not_exist(name, words):
    with pytest.raises(UnsupportedError, match=words):
        find_target(name)


# --- info -----------------------------------------------------------------------------------------


def test_info_of_a_dense_instruction(ask):
    data = ask("info", F16, "--json")
    assert (data["m"], data["n"], data["k"], data["lanes"]) == (16, 8, 16, 32)
    registers = {x["operand"]: (x["elements"], x["registers"]) for x in data["operands"]}
    assert registers == {"d": (4, 4), "a": (8, 4), "b": (4, 2), "c": (4, 4)}
    types = {x["operand"]: set(x["register_types"]) for x in data["operands"]}
    half, single = {"b32", "f16x2"}, {"b32", "f32"}
    assert types == {"d": single, "a": half, "b": half, "c": single}
    covered = [target for recipe in data["recipes"] for target in recipe["targets"]]
    assert sorted(covered) == sorted(data["targets"]) and "sm_75" not in covered

    lines = ask("info", F16)
    assert lines[0] == F16
    assert "  targets: sm_80+" in lines
    assert any(line.split()[:5] == ["a", "f16", "16x16", "8", "4"] for line in lines)


def test_info_has_the_constants_of_recipes_as_numbers(ask):
    (hopper,) = ask("info", F16, "--target", "H200", "--json")["recipes"]
    assert hopper["constants"] == [{"step": "FusedDotAdd", "fields": {
        "fraction_bits": 25, "floor": -133, "result": "f32", "rounding": "rz", "precision": None,
        "run": 0, "passes": 0, "group": 1,
    }}]  # fmt: skip
    for opcode in (F16, S4, "mma.sync.aligned.m8n8k4.row.col.rz.f64.f64.f64.f64",
                   "wmma.mma.sync.aligned.row.col.m16n16k16.f16.f16"):  # fmt: skip
        data, ins = ask("info", opcode, "--json"), Instruction.parse(opcode)
        for recipe in data["recipes"]:
            for target in recipe["targets"]:
                arithmetic = ins.arithmetic(target)
                said = json.loads(json.dumps([asdict(step) for step in arithmetic.steps]))
                assert [x["fields"] for x in recipe["constants"]] == said
                assert [x["step"] for x in recipe["constants"]] == [
                    type(step).__name__ for step in arithmetic.steps
                ]
                assert data["modifiers"] == {
                    "rounding": arithmetic.rounding, "satfinite": arithmetic.saturate,
                    "bit_operation": arithmetic.bit_operation,
                }  # fmt: skip
    moved = ask("info", "ldmatrix.sync.aligned.m8n8.x4.shared.b16", "--json")
    assert "modifiers" not in moved and moved["recipes"][0]["constants"] == []


def test_info_says_what_a_target_computes_and_how_we_know(ask):
    (hopper,) = ask("info", F16, "--target", "H200", "--json")["recipes"]
    assert (hopper["targets"], hopper["fidelity"]) == (["sm_90a"], "validated")
    assert hopper["detail"]
    (step,) = hopper["steps"]
    assert "cut 25 bits below the largest exponent" in step and "toward zero to f32" in step
    (ampere,) = ask("info", F16, "--target", "A100", "--json")["recipes"]
    assert "in 2 passes, k = 0-7; 8-15" in ampere["steps"][0]
    (integer,) = ask("info", S4, "--target", "sm_80", "--json")["recipes"]
    assert integer["fidelity"] == "exact" and "wrapped to 32 bits" in integer["steps"][0]

    fp8 = F16.replace("k16", "k32").replace("f16", "e4m3")
    (lowered,) = ask("info", fp8, "--target", "sm_90", "--json")["recipes"]
    assert lowered["steps"][0] == "convert a and b to f16, exactly"
    assert "in 2 passes, the first over k = 0-1, 4-5, 8-9, ...:" in lowered["steps"][2]
    assert lowered["steps"][3] == "x = x + c, rounded to nearest even in f32"
    lines = ask("info", fp8, "--target", "sm_90")
    assert lines[-2] == "  4. x = x + c, rounded to nearest even in f32"
    assert lines[-1].endswith("use wgmma.mma_async here, other bits")
    libraries = {name: ask("info", opcode, "--target", name, "--json")["recipes"][0]["libraries"]
                 for opcode, name in ((F16, "sm_90a"), (fp8, "B200"), (fp8, "sm_89"))}  # fmt: skip
    assert libraries["sm_90a"].endswith("use wgmma.mma_async here, the same bits")
    # fp8 on tcgen05 is not lowered to f16, as on mma.
    assert libraries["B200"].endswith("use tcgen05.mma here, other bits")
    assert not libraries["sm_89"]
    assert max(map(len, lines)) <= 100


def test_info_shows_targets_in_short(ask):
    headings = [line.split(":")[0] for line in ask("info", F16) if line.startswith("sm_")]
    assert headings[0] == "sm_80 to sm_89" and headings[-1] == "sm_120+"
    assert "sm_90, sm_90a" in headings and "sm_100 to sm_110f" in headings


def test_info_lists_selectors_and_scale_ids(ask):
    sparse = ask("info", SPARSE, "--json")
    assert sparse["selector"] == [0, 1, 2, 3]
    ordered = ["0b0100", "0b1000", "0b1001", "0b1100", "0b1101", "0b1110"]
    assert sparse["metadata_nibble"] == ordered
    assert "  selector: 0, 1, 2, 3" in ask("info", SPARSE)
    scaled = ask("info", SCALED, "--json")
    assert (scaled["byte_id_a"], scaled["thread_id_a"]) == ([0, 2], [0, 1])
    assert (scaled["byte_id_b"], scaled["thread_id_b"]) == ([0, 2], [0, 1, 2, 3])


def test_info_of_wgmma_shows_the_descriptor(ask):
    lines = ask("info", WGMMA)
    (b,) = (line.split() for line in lines if line.startswith("b "))
    assert b[1:3] == ["f16", "16x16"] and ".b64" in b and b[-4:-2] == ["descriptor", "of"]
    assert any(line.split()[:5] == ["d", "f32", "64x16", "8", "8"] for line in lines)


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_every_instruction_has_an_info(ask, step):
    for row in ask("list", "--json")[::step]:
        opcode = row["opcode"]
        if "nNk" in opcode:
            opcode = opcode.replace("nNk", f"n{row['n'][-1]}k")
        if ".xN" in opcode:
            opcode = opcode.replace(".xN", f".x{row['n'][-1]}")
        assert ask("info", opcode)[0] == opcode
        assert ask("info", opcode, "--json")["opcode"] == opcode


def test_info_refuses_what_is_no_instruction(refused):
    assert f"nearest is {F16}" in refused("info", F16.replace("k16", "k17"))
    assert "nearest to 'nma' is 'mma'" in refused("info", F16.replace("mma", "nma"))
    assert "nearest is '.f16'" in refused("info", F16.replace("f16.f16", "f16.f17"))
    assert "not available on sm_75" in refused("info", F16, "--target", "T4")


# --- lane, element --------------------------------------------------------------------------------


def test_lane(ask):
    # a2, a3 sit at row g + 8, columns 2t and 2t + 1; here g = 1, t = 1.
    assert ask("lane", F16, "a", 9, 3) == ["a(9, 3): lane 5, register 1, bits 31:16"]
    assert ask("lane", S4, "a", 5, 10) == ["a(5, 10): lane 21, register 0, bits 11:8"]
    data = ask("lane", F16, "a", 9, 3, "--json")
    where = {key: data[key] for key in ("lane", "register", "low_bit", "bits")}
    assert where == {"lane": 5, "register": 1, "low_bit": 16, "bits": 16}
    assert (data["opcode"], data["operand"], data["row"], data["col"]) == (F16, "a", 9, 3)


def test_lane_names_the_matrix_where_there_are_several(ask):
    # computation 1 is that of lanes 4 … 7 and 20 … 23
    assert ask("lane", QUAD, "a", 2, 1, "--group", 1) == [
        "computation 1, a(2, 1): lane 6, register 0, bits 31:16"
    ]
    assert ask("lane", SPARSE, "e", 3, 1, "--group", 2)[0].startswith(
        "selector 2, e(3, 1): lane 14"
    )
    line = ask("lane", SCALED, "scale_b", 1, 2, "--group", 5)[0]
    assert line == "byte-id 2, thread-id 1, scale_b(1, 2): lane 9, register 0, bits 31:24"


def test_element(ask):
    assert ask("element", F16, "a", 7, 2) == ["bits 15:0   (1, 14)", "bits 31:16  (1, 15)"]
    (first, second) = ask("element", F16, "a", 7, 2, "--json")["elements"]
    assert first == {"low_bit": 0, "bits": 16, "group": 0, "row": 1, "col": 14}
    assert second == {"low_bit": 16, "bits": 16, "group": 0, "row": 1, "col": 15}
    assert ask("element", QUAD, "a", 6, 0)[1] == "bits 31:16  (2, 1)  computation 1"
    # a 4-bit element in an 8-bit container sits at bits 5:2
    fp4 = "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e4m3.f32"
    assert ask("element", fp4, "a", 0, 0)[:2] == ["bits 5:2    (0, 0)", "bits 13:10  (0, 1)"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("lane", F16, "a", 16, 0), "row 16 is out of range; it has 16 rows"),
        (("lane", F16, "a", 0, -1), "column -1 is out of range"),
        (("lane", F16, "a", 0, 0, "--group", 1), "group 1 is out of range"),
        (("lane", F16, "e", 0, 0), "its operands in registers are d, a, b, c"),
        (("lane", WGMMA, "b", 0, 0), "its operands in registers are d, a"),
        (("element", F16, "a", 32, 0), "lane 32 is out of range"),
        (("element", F16, "b", 0, 2), "register 2 is out of range; it has 2 registers"),
        (("table", F16, "x"), "has no fragment 'x'"),
        (("lane", F16, "A", 0, 0), "operands in registers are d, a, b, c; nearest is 'a'"),
        (("table", WGMMA, "b"), "b lies in shared memory (`descriptor` and `view --operand b`"),
        (("table", "mma.sync", "a"), "'mma.sync'"),
    ],
)
def test_wrong_places_are_refused(refused, words, message):
    assert message in refused(*words)


# --- table ----------------------------------------------------------------------------------------


def test_table_by_lane(ask):
    lines = ask("table", F16, "a")
    assert lines[0].split() == ["lane", "a0", "a1", "a2", "a3"]
    assert lines[8] == "7     (1,6) (1,7)  (9,6) (9,7)    (1,14) (1,15)  (9,14) (9,15)"
    assert len(lines) == 33
    # longer runs in one row or one column are ranges
    assert ask("table", S4, "a")[2].split() == ["1", "(0,8-15)"]
    assert ask("table", S4, "b")[2].split() == ["1", "(8-15,0)"]


def test_table_formats_hold_the_same(ask):
    rows = list(csv.reader(io.StringIO("\n".join(ask("table", S4, "a", "--format", "csv")))))
    assert rows[0] == ["lane", "a0"]
    assert rows[2] == ["1", " ".join(f"(0,{col})" for col in range(8, 16))]
    header, rule, *lines = ask("table", F16, "d", "--format", "markdown")
    assert header == "| lane | d0 | d1 | d2 | d3 |"
    assert set(rule) == set("| -")
    assert lines[5] == "| 5 | (1,2) | (1,3) | (9,2) | (9,3) |"


@pytest.mark.parametrize(
    ("opcode", "operand"), [(F16, "b"), (QUAD, "c"), (SPARSE, "e"), (WGMMA, "d")]
)
def test_table_by_element_is_the_inverse_of_by_lane(ask, opcode, operand):
    by_lane = ask("table", opcode, operand, "--json")
    by_element = ask("table", opcode, operand, "--by", "element", "--json")
    assert by_element["location"] == ["lane", "register", "low_bit", "bits"]
    seen = 0
    for lane, (words, groups) in enumerate(
        zip(by_lane["elements"], by_lane["groups"], strict=True)
    ):
        for register, (elements, which) in enumerate(zip(words, groups, strict=True)):
            width = 32 // len(elements)
            for i, ((row, col), group) in enumerate(zip(elements, which, strict=True)):
                where = by_element["matrices"][group][row][col]
                assert where == [lane, register, i * width, width]
                seen += 1
    assert seen == np.array(by_element["matrices"]).size // 4


def test_table_by_element(ask):
    lines = ask("table", F16, "b", "--by", "element")
    assert lines[0].split() == ["row", *map(str, range(8))]
    # b0 is row 2t, b1 row 2t + 1, column g
    assert lines[4].split()[:3] == ["3", "1:0.[31:16]", "5:0.[31:16]"]
    assert ask("table", F16, "c", "--by", "element")[1].split()[:4] == ["0", "0:0", "0:1", "1:0"]


def test_table_names_the_matrices(ask):
    lines = ask("table", QUAD, "a")
    assert lines[0].startswith("group:(row,col), 0 = computation 0; 1 = computation 1")
    assert lines[2].split() == ["lane", "a0", "a1"]
    assert lines[9].split() == ["6", "1:(2,0)", "1:(2,1)", "1:(2,2)", "1:(2,3)"]
    lines = ask("table", QUAD, "a", "--by", "element")
    assert [line for line in lines if line.endswith(":")] == [f"computation {i}:" for i in range(4)]
    rows = list(csv.reader(ask("table", QUAD, "a", "--by", "element", "--format", "csv")))
    assert rows[0][:2] == ["group", "row"] and len(rows) == 1 + 4 * 8
    assert "| row | 0 | 1 | 2 | 3 |" in ask(
        "table", QUAD, "a", "--by", "element", "--format", "markdown"
    )


# --- the shell ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "argv", [[], ["lst"], ["lane", F16, "a", "one", "2"], ["table", F16, "a", "--format", "svg"]]
)
def test_a_bad_command_line_exits_with_2(capsys, argv):
    with pytest.raises(SystemExit) as stop:
        main(argv)
    assert stop.value.code == 2
    out, err = capsys.readouterr()
    assert out == "" and "usage: python -m emulator" in err


@pytest.mark.parametrize("command", command_line.COMMANDS)
def test_every_command_has_help_and_json(capsys, command):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    assert "--json" in capsys.readouterr().out


def test_ctrl_c_ends_without_a_traceback(monkeypatch, capsys):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(command_line, "main", interrupted)
    assert command_line._shell() == 130
    assert capsys.readouterr() == ("", "")


def test_python_m_emulator():
    done = subprocess.run(
        [sys.executable, "-m", "emulator", "lane", F16, "a", "9", "3"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "a(9, 3): lane 5, register 1, bits 31:16\n"


@pytest.mark.skipif(os.name != "posix", reason="pipes of another kind")
def test_a_reader_that_leaves_is_no_error():
    with subprocess.Popen(
        [sys.executable, "-m", "emulator", "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_a_command_imports_only_what_it_needs():
    code = f"""
import sys
from dataclasses import asdict
from emulator.__main__ import main
main(["lane", {F16!r}, "a", "0", "0"])
print(*sorted(m for m in sys.modules if m.startswith("emulator.tools.")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1:] == [
        "emulator.tools.arguments emulator.tools.lookup emulator.tools.report emulator.tools.words"
    ]
