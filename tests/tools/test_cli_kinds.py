"""The command line on ldmatrix, stmatrix, movmatrix and cvt, and on kinds that it does not know.

Facts are stated here from the manual (PTX ISA 9.7.14.5.15-17, 9.7.9.21), not taken from the tables.
"""

import re

import pytest

from emulator import Instruction
from emulator.isa.catalogue import instructions, tensor_instructions
from emulator.tools import facts, wording

pytestmark = pytest.mark.sampled(2)

LOAD = "ldmatrix.sync.aligned.m8n8.x4.shared.b16"
UNPACK = "ldmatrix.sync.aligned.m8n16.x2.shared.b8x16.b6x16_p32"
STORE = "stmatrix.sync.aligned.m16n8.x2.trans.shared.b8"
TRANSPOSE = "movmatrix.sync.aligned.m8n8.trans.b16"
F16 = "cvt.rn.f16x2.f32"
E2M1 = "cvt.rn.satfinite.e2m1x2.f32"
RANDOM = "cvt.rs.relu.satfinite.e4m3x4.f32"


# --- list -----------------------------------------------------------------------------------------


def test_list_has_every_instruction(ask):
    rows = ask("list", "--all", "--json")
    known = [*instructions(), *tensor_instructions()]
    assert [row["opcode"] for row in rows] == [str(ins) for ins in known]
    shown = [line.split()[0] for line in ask("list", "--all")[1:]]
    assert shown == [row["opcode"] for row in rows]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("part", range(6))
def test_list_takes_every_family_and_type(ask, refused, part):
    everything = ask("list", "--json")
    families = {row["family"] for row in everything}
    assert families >= {
        "mma", "mma.sp", "mma.sp::ordered_metadata", "wgmma", "wgmma.sp", "cvt",
        "ldmatrix", "stmatrix", "movmatrix",
    }  # fmt: skip
    for family in sorted(families - {"mma.sp"})[part::6]:  # with ::ordered_metadata, see test_cli
        expected = [row for row in everything if row["family"] == family]
        assert ask("list", "--family", family, "--json") == expected
    types = {name for row in everything for name in " ".join(row["types"].values()).split()}
    assert {"f64", "s4", "b1", "b8", "b16", "b4x16_p64", "ue8m0", "ue4m3"} <= types
    assert "b32" not in types  # random bits are no elements
    for name in sorted(types)[part::6]:
        expected = [row for row in everything if name in " ".join(row["types"].values()).split()]
        assert ask("list", "--type", name, "--json") == expected
    assert "nearest is 'ldmatrix'" in refused("list", "--family", "ldmatrx")
    assert "nearest is 'b6x16_p32'" in refused("list", "--type", "b6x16_32")


@pytest.mark.parametrize(
    ("family", "count", "since"),
    [("ldmatrix", 21, "sm_75+"), ("stmatrix", 9, "sm_90+"), ("movmatrix", 1, "sm_75+")],
)
def test_list_of_movements(ask, family, count, since):
    _, *lines = ask("list", "--family", family)
    assert len(lines) == count
    assert {line.split()[-1] for line in lines} <= {since, "sm_100a/f+", "sm_90a/f+"}


def test_list_shows_fidelity_of_all(ask):
    level = {row["opcode"]: row["fidelity"] for row in ask("list", "--target", "H200", "--json")}
    assert level[LOAD] == level[TRANSPOSE] == level[F16] == "validated"
    assert UNPACK not in level and E2M1 not in level
    later = [line.split() for line in ask("list", "--target", "sm_100a")]
    assert later[0] == ["opcode", "N", "on", "sm_100a"]
    assert [UNPACK, "modelled"] in later and [E2M1, "modelled"] in later
    assert all(line[-1] in ("exact", "validated", "modelled") for line in later[1:])


def test_list_of_tensor_memory(ask):
    rows = ask("list", "--family", "tcgen05", "--target", "sm_107a", "--json")
    opcodes = {row["opcode"]: row for row in rows}
    assert not any("collector" in opcode for opcode in opcodes)
    assert opcodes["tcgen05.ld.sync.aligned.16x256b.xN.b32"]["n"] == [1, 2, 4, 8, 16, 32]
    ti16 = opcodes["tcgen05.mma.cta_group::1.kind::ti16"]
    assert ti16["types"] == {"d": "s32", "a": "s1z4m11", "b": "s1z4m11"}
    assert ti16["fidelity"] == "exact" and ti16["targets"] == ["sm_107a", "sm_107f"]
    assert opcodes["tcgen05.mma.cta_group::1.kind::f16"]["fidelity"] == "modelled"
    assert {row["family"] for row in rows} >= {"tcgen05.mma.ws.sp", "tcgen05.alloc", "tcgen05.cp"}
    assert ask("list", "--family", "tcgen05", "--target", "sm_120a") == ["opcode  on sm_120a"]


# --- info -----------------------------------------------------------------------------------------


def operands(data):
    return {x["operand"]: x for x in data["operands"]}


def test_info_of_ldmatrix(ask):
    data = ask("info", LOAD, "--target", "sm_90a", "--json")
    assert data["types"] == {"d": "b16"} and "m" not in data
    assert data["address_lanes"] == list(range(32))
    d, p = operands(data).values()
    assert (d["matrix"], d["matrices"], d["elements"], d["registers"]) == ([8, 8], 4, 8, 4)
    assert (p["operand"], p["matrix"], p["registers"]) == ("p", None, 1)
    (recipe,) = data["recipes"]
    assert (recipe["targets"], recipe["fidelity"]) == (["sm_90a"], "validated")
    lines = ask("info", LOAD)
    assert lines[0] == LOAD
    assert "  ldmatrix, 4 tiles of 8x8 in memory, warp of 32 lanes" in lines
    assert "  targets: sm_75+" in lines and "  address lanes: 0-31" in lines
    assert any(line.startswith("p ") and line.endswith("shared memory") for line in lines)
    assert max(map(len, lines)) <= 100


def test_info_of_ldmatrix_that_unpacks(ask):
    data = ask("info", UNPACK, "--json")
    assert data["types"] == {"d": "b8", "memory": "b6x16_p32"}
    assert data["address_lanes"] == list(range(16))
    (recipe,) = data["recipes"]
    assert recipe["fidelity"] == "modelled"
    address, unpack, _ = recipe["steps"]
    assert "lane i has the address of row i % 8 of tile i // 8" in address
    assert "first 12 bytes" in unpack and "16 elements of 6 bits" in unpack
    assert "last 4 bytes are padding" in unpack
    half = ask("info", UNPACK.replace("b6x16_p32", "b4x16_p64"), "--json")["recipes"][0]["steps"][1]
    assert "first 8 bytes" in half and "last 8 bytes are padding" in half


def test_info_of_stmatrix_and_movmatrix(ask):
    data = ask("info", STORE, "--json")
    assert list(operands(data)) == ["p", "r"]
    # 8 rows of 16 bytes for each tile; a lane has 4 bytes of each
    assert operands(data)["r"]["matrix"] == [8, 16] and operands(data)["r"]["registers"] == 2
    assert data["address_lanes"] == list(range(16))
    data = ask("info", TRANSPOSE, "--json")
    assert "address_lanes" not in data and list(operands(data)) == ["d", "a"]
    assert "  movmatrix, 1 tile of 8x8, warp of 32 lanes" in ask("info", TRANSPOSE)


def test_info_of_cvt(ask):
    data = ask("info", F16, "--target", "H100", "--json")
    assert data["types"] == {"d": "f16", "a": "f32", "b": "f32"}
    assert [x["elements"] for x in data["operands"]] == [2, 1, 1]
    (recipe,) = data["recipes"]
    assert recipe["fidelity"] == "validated"
    rounded, packed = recipe["steps"]
    assert "to f16, to nearest even" in rounded and "a NaN becomes 0x7fff" in rounded
    assert packed.endswith("from its highest bits down: a, b")
    lines = ask("info", F16)
    assert "  cvt, f32 to f16x2, every lane by itself" in lines and "  targets: sm_80+" in lines


@pytest.mark.parametrize(
    ("opcode", "words"),
    [
        (E2M1, ["the largest finite one", "a NaN becomes the largest number"]),
        (RANDOM, ["numbers with the sign bit set become +0", "random bits", "a, b, e, f"]),
        ("cvt.rz.f16.f32", ["to f16, toward zero", "numbers too large become the largest finite"]),
        ("cvt.rn.bf16.f32", ["to bf16, to nearest even; numbers too large become infinity"]),
        ("cvt.rna.tf32.f32", ["ties away from zero", "a NaN loses its low bits, and"]),
        ("cvt.rna.satfinite.tf32.f32", ["and one unit of the last kept one"]),
        ("cvt.rp.ue8m0x2.f32", ["the magnitude", "toward plus infinity", "large become NaN"]),
        ("cvt.rz.satfinite.ue8m0x2.bf16x2", ["finite one; a NaN becomes 0xff", "that they have"]),
        ("cvt.rn.f16x2.e5m2x2", ["exactly; a NaN becomes 0x7fff", "that they have in a"]),
        ("cvt.rn.bf16x2.ue8m0x2", ["to bf16, exactly"]),
    ],
)
def test_info_tells_what_a_cvt_does(ask, opcode, words):
    for recipe in ask("info", opcode, "--json")["recipes"]:
        text = "; ".join(recipe["steps"])
        assert [word for word in words if word not in text] == []


@pytest.mark.parametrize(
    ("opcode", "target", "words"),
    [
        # the passes of mma.m16n8k8, of which ptxas makes it for Turing, and C in f32 before them
        ("mma.sync.aligned.row.col.m16n16k16.f32.f32", "T4",
         ["in f32", "in 2 passes, k = 0-7; 8-15: every term is cut 24 bits"]),
        ("mma.sync.aligned.row.col.m16n16k16.f16.f16", "V100", ["in 4 passes, k = 0-3; 4-7; 8"]),
        ("mma.sync.aligned.row.col.m16n16k16.f16.f32", "H100", ["over all k at once", "to .* f16"]),
        ("mma.sync.aligned.row.col.m8n8k4.rz.f64.f64.f64.f64", "A100", ["rounded toward zero"]),
        ("mma.sync.aligned.row.col.m16n16k16.s32.s8.s8.s32.satfinite", "A100", ["clamped once"]),
        ("mma.xor.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32", "A100", [r"a.k. xor b.k."]),
        ("load.a.sync.aligned.col.m16n16k16.f16", "A100", ["column of matrix a, 16 .* 16 bytes"]),
        ("store.d.sync.aligned.row.m16n16k16.f32", "A100", ["row of matrix d, 16 .* written to"]),
    ],
)  # fmt: skip
def test_info_tells_what_a_wmma_does(ask, opcode, target, words):
    (recipe,) = ask("info", f"wmma.{opcode}", "--target", target, "--json")["recipes"]
    assert len(recipe["steps"]) == len(words)
    for step, pattern in zip(recipe["steps"], words, strict=True):
        assert re.search(pattern, step)


def test_info_refuses_a_target_that_lacks_it(refused):
    assert "not available on sm_70" in refused("info", LOAD, "--target", "V100")
    assert "not available on sm_90a" in refused("info", E2M1, "--target", "H100")


# --- lane, element, table -------------------------------------------------------------------------


def test_places_in_tiles(ask, refused):
    # register q holds row g = 3, columns 2t and 2t + 1 of tile q
    assert ask("lane", LOAD, "d", 3, 5, "--group", 2) == [
        "tile 2, d(3, 5): lane 14, register 2, bits 31:16"
    ]
    assert ask("element", LOAD, "d", 14, 2) == [
        "bits 15:0   (3, 4)  tile 2", "bits 31:16  (3, 5)  tile 2"
    ]  # fmt: skip
    # byte b of register q: memory row 2t + (b & 1), byte g + 8 * (b >> 1)
    assert ask("element", STORE, "r", 5, 1) == [
        "bits 7:0    (2, 1)  tile 1", "bits 15:8   (3, 1)  tile 1",
        "bits 23:16  (2, 9)  tile 1", "bits 31:24  (3, 9)  tile 1",
    ]  # fmt: skip
    assert ask("table", TRANSPOSE, "a")[6].split() == ["5", "(1,2)", "(1,3)"]
    assert ask("table", TRANSPOSE, "d")[6].split() == ["5", "(2,1)", "(3,1)"]
    assert ask("table", STORE, "r")[0] == "group:(row,col), 0 = tile 0; 1 = tile 1"
    assert "group 4 is out of range" in refused("lane", LOAD, "d", 0, 0, "--group", 4)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("lane", F16, "a", 0, 0), "its operands are plain registers"),
        (("element", F16, "d", 0, 0), "its operands are plain registers"),
        (("table", RANDOM, "rbits"), "no fragment 'rbits'"),
        (("table", LOAD, "p"), "no fragment 'p': its operands in registers are d"),
        (("lane", STORE, "d", 0, 0), "no fragment 'd': its operands in registers are r"),
    ],
)
def test_operands_that_are_no_matrices(refused, words, message):
    assert message in refused(*words)


# --- kinds without words of their own -------------------------------------------------------------


class Unknown(Instruction):
    """Multiplies, holds a matrix, has an address: and nothing in `tools` was written for it."""

    m, n, k = 16, 8, 16
    family, operands, targets, scope = "unknown", ("d", "p"), (), "warp"

    def __str__(self):
        return "unknown"

    @property
    def fragments(self):
        f32 = Instruction.parse("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
        return {"d": f32.fragment("d")}


def test_an_unknown_kind_is_described_by_its_fragments():
    ins = Unknown()
    assert facts.summary(ins) == "unknown, m = 16, n = 8, k = 16, warp of 32 lanes"
    assert facts.element_types(ins) == {"d": "f32"}
    d, p = facts.operands(ins)
    assert (d.type, d.matrix, d.elements, d.registers) == ("f32", (16, 8), 4, 4)
    assert (p.operand, p.type, p.matrix) == ("p", "", None)
    assert facts.choices(ins) == {} and wording.steps(ins, "sm_80") == []
