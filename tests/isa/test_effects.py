"""The column `effects`: what the engines, the contraction and the checks read of an instruction."""

import pytest

from emulator import Instruction
from emulator.isa import conversion, movement, tcgen05
from emulator.isa.instruction import EFFECTS, effects_of
from emulator.isa.ordinary.row import Row
from emulator.isa.ordinary.tables import ROWS

#: first words of the opcodes with an effect in some row, stated again by hand
NAMES = {
    "jumps": "bra brx call ret exit trap brkpt",
    "ends": "bra brx ret exit trap",
    "leaves": "ret exit",
    "calls": "call",
    "returns": "ret",
    "reads": "ld ldu atom multimem",
    "samples": "tex tld4 txq suld suq",
    "paints": "sust sured",
    "writes": "st atom red multimem",
    "exchanges": "atom red multimem clusterlaunchcontrol",
    "asynchronous": "st red multimem",
    "reduces": "red multimem",
    "reduces@reduce": "cp multimem",
    "copies": "cp clusterlaunchcontrol multimem fabric",
    "bulk@bulk": "cp multimem",
    "commits@commit_group": "cp wgmma multimem",
    "waits@wait_group|wait_all": "cp multimem",
    "waits@wait_group": "wgmma",
    "waits@try_wait": "mbarrier",
    "cancels": "clusterlaunchcontrol",
    "maps": "tensormap",
    "barrier": "bar barrier",
    "aligned": "bar",
    "aligned@aligned": "barrier",
    "mbarrier": "mbarrier",
    "polls": "atom ld mbarrier multimem nanosleep suld",
    "lanes": "shfl vote match activemask elect",
    "active": "activemask",
    "registers": "setmaxnreg",
    "carry": "addc subc madc",
    "stack": "alloca stacksave stackrestore",
    "orders": "fence membar wgmma",
    "hint": "applypriority createpolicy discard griddepcontrol nanosleep pmevent prefetch "
    "prefetchu fence membar",
    "moves": "mov selp",
    "special": "mov cvt",
    "selects": "selp",
    "points": "mov add sub or mad selp cvta cvt and xor min",
    "packs": "cvt mov bfi prmt or",
    "zero": "and",
    "one": "or",
    "gathers": "redux match",
    "shuffles": "shfl",
    "splits": "call brkpt pmevent setmaxnreg membar div rcp sqrt rsqrt",
}


#: effects of statements that do nothing but write registers
PURE = {"moves", "special", "selects", "points", "packs", "zero", "one", "gathers"}


def test_every_row_names_its_effects():
    rows = [*ROWS, *movement.FORMS, *conversion.FORMS]
    assert all(row.effects for row in rows)
    rows += tcgen05.ROWS
    words = {e.partition("@")[0] for row in rows for e in row.effects.split()}
    assert words == set(EFFECTS)


@pytest.mark.parametrize("effect", NAMES)
def test_names(effect):
    found = {row.name.partition(".")[0] for row in ROWS if effect in row.effects.split()}
    assert found == set(NAMES[effect].split())


def test_all_other_names_are_pure():
    named = {name for key, names in NAMES.items() if key not in PURE for name in names.split()}
    others = {row.name.partition(".")[0]: row for row in ROWS}
    for name in named - {"div", "rem", "rcp", "sqrt", "rsqrt"}:
        others.pop(name, None)
    assert {name for name, row in others.items() if "pure" not in row.effects.split()} == set()


@pytest.mark.parametrize(
    ("opcode", "effects"),
    [
        ("fence.acq_rel.gpu", "hint orders splits"),
        ("fence.acquire.gpu", "hint orders"),
        ("multimem.ld_reduce.weak.add.u32", "reads polls"),
        ("multimem.st.weak.u32", "writes"),
        ("multimem.red.add.u32", "writes exchanges reduces"),
        ("griddepcontrol.wait", "hint"),
        ("griddepcontrol.launch_dependents", "hint splits"),
        ("div.u32", "pure"),
        ("div.s32", "pure splits"),
        ("rcp.approx.f32", "pure"),
        ("rcp.rn.ftz.f32", "pure splits"),
        ("rsqrt.approx.f64", "pure splits"),
        ("rsqrt.approx.ftz.f64", "pure"),
        ("cp.async.bulk.prefetch.L2.global", "copies bulk hint"),
        ("cp.async.ca.shared.global", "copies"),
        ("cp.async.commit_group", "copies commits"),
        ("cp.async.wait_all", "copies waits"),
        ("cp.async.bulk.wait_group.read", "copies bulk waits"),
        ("wgmma.fence.sync.aligned", "orders"),
        ("wgmma.wait_group.sync.aligned", "orders waits"),
        ("mbarrier.try_wait.shared.b64", "mbarrier polls waits"),
        ("mbarrier.test_wait.shared.b64", "mbarrier polls"),
        ("bar.sync", "barrier aligned"),
        ("barrier.sync", "barrier"),
        ("barrier.sync.aligned", "barrier aligned"),
        ("bar.warp.sync", "barrier"),
        ("cvt.u32.u8", "pure points special"),
        ("cvt.rn.f32.u32", "pure"),
        ("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32", "allocates"),
        ("tcgen05.wait::ld.sync.aligned", "waits arrives"),
        ("tcgen05.wait::st.sync.aligned", "waits"),
        ("tcgen05.fence::before_thread_sync", "hint orders before"),
        ("tcgen05.fence::after_thread_sync", "hint orders after"),
        ("tcgen05.shift.cta_group::1.down", ""),
        ("redux.sync.add.s32", "pure gathers"),
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b16", "reads"),
        ("cvt.rn.f16x2.f32", "pure packs"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", ""),
        ("st.async.mbarrier::complete_tx::bytes.b32", "writes asynchronous"),
    ],
)
def test_effects_of_forms(opcode, effects):
    assert Instruction.parse(opcode).effects == frozenset(effects.split()) == effects_of(opcode)


def test_a_new_row_with_a_rule_is_pure_and_no_opcode_has_no_effects():
    assert Row("new.type=u32", "d, a", "integer.add").effects == "pure"
    assert Row("new.type=u32", "d, a", "carry.addc", carry="reads").effects == "carry"
    assert effects_of("select") == frozenset()
