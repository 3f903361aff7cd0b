"""``compare_launches``: the first store that differs, and the statement where values part."""

import json

import numpy as np
import pytest

from emulator import EmulatorError, Memory, Module, OperandError, compare_launches

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"


def kernel(body, declared=""):
    return Module(f"""{HEAD}{declared}.visible .entry k(.param .u64 out, .param .f32 x)
{{
    .reg .pred %p; .reg .b32 %r<10>; .reg .b64 %rd<4>; .reg .f32 %f<10>;
    .shared .align 16 .b32 box[256];
    ld.param.u64 %rd0, [out]; ld.param.f32 %f0, [x]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x; mad.lo.u32 %r3, %r1, %r2, %r0; mul.wide.u32 %rd1, %r3, 4;
    add.u64 %rd1, %rd0, %rd1;
{body}
    ret;
}}""")["k"]


#: x * x - 1 in threads 5 and later of block 2, 0 elsewhere; the store is 5 statements later
REST = """
    mov.f32 %f3, 0f00000000;
    setp.lt.u32 %p, %r3, 133; @%p bra STORE;
    mul.f32 %f1, %f0, %f0;
    add.f32 %f3, %f1, 0fBF800000;
    neg.f32 %f3, %f3;
    neg.f32 %f3, %f3;
STORE:
    st.global.f32 [%rd1], %f3;"""
X = np.float32(1 + 2.0**-20)


def contracts(body, out, **options):
    return compare_launches(kernel(body), 4, 64, {"out": out, "x": X},
                            contracts=("ptxas", "none"), **options)  # fmt: skip


def line_of(body, opcode):
    """The line of an opcode in the text of `kernel`."""
    text = kernel(body).module.text
    return 1 + text[: text.index(opcode)].count("\n")


def test_the_store_and_the_statement_are_named():
    out = np.zeros((4, 64), "f4")
    found = contracts(REST, out)
    assert found.store.name == "out" and found.store.index == (2, 5)
    assert found.store.differing == 256 - 133 and found.store.size == 256
    block, thread, place = found.store.writer
    assert (block, thread) == ((2, 0, 0), (5, 0, 0)) and place.statement.startswith("st.global")
    parting = found.parting
    assert parting.place.line == line_of(REST, "add.f32") and parting.thread == (5, 0, 0)
    assert parting.block == (2, 0, 0) and parting.result == "d"
    assert parting.values == ("1.9073495e-06", "1.9073486e-06")
    assert parting.operands == {"a": "1.0000019", "b": "-1.0"}
    assert "takes the product of line" in parting.reason
    assert not out.any()
    text = found.text()
    assert "out[2][5] is 1.9073495e-06 (0x36000004) on contract=ptxas" in text
    data = json.loads(json.dumps(found.data))
    assert data["parting"]["line"] == parting.place.line and data["store"]["index"] == [2, 5]


def test_launches_that_are_alike():
    found = contracts("st.global.f32 [%rd1], %f0;", np.zeros(256, "f4"))
    assert found.store is None and found.parting is None
    assert found.text() == "k: contract=ptxas and contract=none give every byte alike"


def test_what_another_warp_passed_on():
    """The value parts in warp 0; warp 1 stores it, by way of shared memory."""
    body = """
    shl.b32 %r4, %r0, 2; mov.u32 %r5, box; add.u32 %r4, %r4, %r5;
    cvt.rn.f32.u32 %f4, %r0; mul.f32 %f4, %f4, 0f2E000000; add.f32 %f1, %f0, %f4;
    mul.f32 %f1, %f1, %f0; add.f32 %f1, %f1, 0fBF800000;
    st.shared.f32 [%r4], %f1; bar.sync 0; setp.lt.u32 %p, %r0, 32; @%p bra DONE;
    ld.shared.f32 %f2, [%r4+-128]; st.global.f32 [%rd1], %f2;
DONE:"""
    found = contracts(body, np.zeros(256, "f4"))
    assert found.store.writer[1][0] >= 32
    assert found.parting.place.statement.startswith("add.f32 %f1")


def test_targets():
    body = """
    cvt.rn.f32.u32 %f6, %r0; mul.f32 %f6, %f6, %f0; cvt.rn.f16x2.f32 %r4, %f6, %f0;
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4},
        {%r4, %r4, %r4, %r4}, {%r4, %r4}, {%f0, %f6, %f0, %f6};
    st.global.f32 [%rd1], %f1;"""
    out = np.zeros(32, "f4")
    args = [out, np.float32(0.30001)]
    found = compare_launches(kernel(body), 1, 32, args, targets=["A100", "H100"])
    assert found.variants == ("sm_80", "sm_90a")
    assert found.parting.place.statement.startswith("mma.sync")
    assert found.parting.operands["a[0]"].startswith("(0.3, ")
    assert found.parting.operands["c[0]"] == "0.30001"
    assert all(value in found.text() for value in found.parting.values)


def test_what_memory_brought():
    """Block 1 loads what block 0 has written; the store that differs first is that of block 1."""
    body = """
    setp.eq.u32 %p, %r1, 1; @%p bra SECOND;
    mul.f32 %f1, %f0, %f0; add.f32 %f1, %f1, 0fBF800000; st.global.f32 [value], %f1; bra DONE;
SECOND: ld.volatile.global.f32 %f2, [value]; st.global.f32 [%rd0], %f2;
DONE:"""
    found = compare_launches(
        kernel(body, ".visible .global .f32 value;\n"), 2, 1, [np.zeros(4, "f4"), X],
        contracts=["none", "ptxas"],
    )  # fmt: skip
    assert found.store.writer[0] == (1, 0, 0)
    assert found.parting.reason.startswith("memory brought it")
    assert found.parting.place.statement.startswith("ld.volatile")


def test_mapped_memory_is_compared():
    memory, mapped = Memory(), np.zeros(256, "f4")
    memory.map(0x7000_0000, mapped, "mapped")
    found = compare_launches(
        kernel(REST), 4, 64, [np.uint64(0x7000_0000), X], contracts=("ptxas", "none"),
        memory=memory,
    )  # fmt: skip
    assert found.store.name == "mapped" and found.store.index == (133,) and not mapped.any()


@pytest.mark.parametrize(
    "options",
    [
        {}, {"targets": ["A100"]}, {"targets": "A100"}, {"contracts": ["none"] * 3},
        {"targets": ["A100", "H100"], "contracts": ["none", "ptxas"]}, {"targets": [1, 2]},
        {"targets": ["A100", "nothing"]}, {"contracts": ["none", "nvcc"]},
    ],
)  # fmt: skip
def test_mistakes_of_callers(options):
    with pytest.raises(EmulatorError):
        compare_launches(kernel(REST), 4, 64, [np.zeros(256, "f4"), X], **options)
    with pytest.raises(OperandError, match="a kernel is module"):
        compare_launches(None, 4, 64, [], **options)
