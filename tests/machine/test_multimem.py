"""multimem on a group of simulated devices: all forms, all engines, addresses that are wrong."""

import pickle

import numpy as np
import pytest

from emulator import KernelError, Memory, Module, OperandError
from emulator.arith.scalar.types import TYPES
from emulator.isa.ordinary import atomics
from emulator.isa.ordinary.instruction import expand
from emulator.machine.memory import Region

HEAD = ".version 9.0\n.target {target}\n.address_size 64\n"
ENGINES = ("reference", "vector", "compiled")
#: lanes that execute the statements, of 64
ACTIVE = 40


def forms():
    """Every multimem instruction that runs, with its target."""
    rows = {row for row in atomics.ROWS if row.name.startswith("multimem")}
    return [
        x
        for x in expand()
        if x.form in rows and not x.form.unmodelled
        # Orders and scopes change nothing of the values; one spelling of each is enough.
        and not x.modifiers.get("scope") and not x.modifiers.get("space")
        and ".weak" not in str(x)
    ]  # fmt: skip


def kernel_of(ins):
    """A kernel of 64 threads, 40 of which execute the instruction on 32 bytes each."""
    type_, count = TYPES[ins.types[-1]], int(ins.modifiers.get("vec", "")[1:] or 1)
    names = [f"%w{i}" for i in range(count)]
    registers = "{" + ", ".join(names) + "}" if ins.modifiers.get("vec") else names[0]
    size = type_.size // 8
    places = [(x, f"[%o+{i * size}]") for i, x in enumerate(names)]
    if "ld_reduce" in str(ins):
        moves = "".join(f"@%p st.global.b{8 * size} {place}, {x};" for x, place in places)
        body = f"@%p {ins} {registers}, [%a]; {moves}"
    else:
        moves = "".join(f"@%p ld.global.b{8 * size} {x}, {place};" for x, place in places)
        body = f"{moves} @%p {ins} [%a], {registers};"
    target = "sm_90" if "sm_90" in ins.targets else "sm_100a"
    return (
        HEAD.format(target=target)
        + f"""
        .visible .entry k(.param .u64 group, .param .u64 own) {{
        .reg .b64 %a, %o, %f; .reg .b32 %t; .reg .pred %p; .reg .b{8 * size} %w<9>;
        ld.param.u64 %a, [group]; ld.param.u64 %o, [own]; mov.u32 %t, %tid.x;
        mul.wide.u32 %f, %t, 32; add.u64 %a, %a, %f; add.u64 %o, %o, %f;
        setp.lt.u32 %p, %t, {ACTIVE};
        {body}
        ret; }}"""
    )


def run(text, engine, devices=3, seed=0, **options):
    """The bytes of all devices and of the kernel's own array after a launch."""
    rng = np.random.default_rng(seed)
    held = [rng.integers(0, 256, 64 * 32, np.uint8) for _ in range(devices)]
    own, memory = rng.integers(0, 256, 64 * 32, np.uint8), Memory()
    group = memory.multicast(held)
    Module(text)["k"].launch(1, 64, [group, own], memory=memory, engine=engine, **options)
    return [x.tobytes() for x in (*held, own)]


FORMS = forms()


def test_there_are_all_forms():
    assert len(FORMS) == len({str(x) for x in FORMS}) == 192
    assert sum("e4m3" in str(x) for x in FORMS) == 24


@pytest.mark.parametrize("ins", FORMS, ids=str)
@pytest.mark.sampled(12)
def test_engines_are_equal(ins):
    text = kernel_of(ins)
    found = [run(text, engine) for engine in ENGINES]
    assert found[0] == found[1] == found[2]


# --- what they do ---------------------------------------------------------------------------------

LOAD = "multimem.ld_reduce.relaxed.sys.global"


def loaded(opcode, register, dtype, contents):
    """What each thread of a warp finds with ld_reduce in devices that hold `contents`."""
    text = (
        HEAD.format(target="sm_90")
        + f"""
        .visible .entry k(.param .u64 group, .param .u64 out) {{
        .reg .b64 %a, %o, %f; .reg .b32 %t; .reg .{register} %w;
        ld.param.u64 %a, [group]; ld.param.u64 %o, [out]; mov.u32 %t, %tid.x;
        mul.wide.u32 %f, %t, {np.dtype(dtype).itemsize}; add.u64 %a, %a, %f; add.u64 %o, %o, %f;
        {opcode} %w, [%a]; st.global.{register} [%o], %w; ret; }}"""
    )
    memory, out = Memory(), np.zeros(32, dtype)
    group = memory.multicast([np.ascontiguousarray(x, dtype) for x in contents])
    Module(text)["k"].launch(1, 32, [group, out], memory=memory)
    return out


def test_integers_by_hand():
    rng = np.random.default_rng(1)
    held = rng.integers(0, 1 << 32, (4, 32), np.uint32)
    assert (loaded(f"{LOAD}.add.u32", "b32", "u4", held) == held.sum(0, np.uint32)).all()
    assert (loaded(f"{LOAD}.max.u32", "b32", "u4", held) == held.max(0)).all()
    least = held.view("i4").min(0).view("u4")
    assert (loaded(f"{LOAD}.min.s32", "b32", "u4", held) == least).all()
    assert (loaded(f"{LOAD}.xor.b32", "b32", "u4", held) == np.bitwise_xor.reduce(held)).all()
    assert (loaded(f"{LOAD}.and.b32", "b32", "u4", held) == np.bitwise_and.reduce(held)).all()


def test_sums_are_rounded_in_the_order_of_devices():
    # 2^24 + 1 + 1 in f32: each 1 is lost, and from the other end none is.
    held = np.zeros((3, 32), np.float32)
    held[:, 0], held[:, 1] = (2.0**24, 1, 1), (1, 1, 2.0**24)
    out = loaded(f"{LOAD}.add.f32", "b32", "u4", held.view("u4")).view("f4")
    assert out[:2].tolist() == [2.0**24, 2.0**24 + 2]


@pytest.mark.parametrize(("wide", "wanted"), [("", 2048), (".acc::f32", 2050)])
def test_f16_sums_may_be_in_f32(wide, wanted):
    # 2048 + 1 + 1: in f16 each 1 is lost, in f32 none, and the sum is rounded once.
    held = np.zeros((3, 64), np.float16)
    held[:, 0] = 2048, 1, 1
    out = loaded(f"{LOAD}.add{wide}.f16x2", "b32", "u4", held.view("u4"))
    assert out.view("f2")[0] == wanted


def test_a_group_reaches_a_part_of_every_device():
    text = (
        HEAD.format(target="sm_90")
        + """
        .visible .entry k(.param .u64 group) {
        .reg .b64 %a; .reg .b32 %t; ld.param.u64 %a, [group]; mov.u32 %t, 7;
        multimem.st.relaxed.sys.global.u32 [%a+8], %t;
        multimem.red.relaxed.sys.global.add.u32 [%a+12], %t; ret; }"""
    )
    memory, held = Memory(), [np.arange(6, dtype="u4") for _ in range(2)]
    first, second = memory.allocate(24, "of the first"), 0x7000_0000_0000
    memory.map(second, held[1])
    memory.write(first, held[0])
    group = memory.multicast([first, second], "ring")
    assert memory.find(group) is None and memory.find(first) == Region("of the first", first, 24)
    Module(text)["k"].launch(1, 2, [group], memory=memory)
    wanted = [0, 1, 7, 17, 4, 5]
    assert held[1].tolist() == memory.view(first, 24).view("u4").tolist() == wanted
    again = pickle.loads(pickle.dumps(memory))
    Module(text)["k"].launch(1, 2, [group], memory=again)
    assert again.view(second, 24).view("u4").tolist() == [0, 1, 7, 31, 4, 5]
    assert held[1].tolist() == wanted


@pytest.mark.parametrize("engine", ENGINES)
def test_lanes_may_use_several_groups(engine):
    text = (
        HEAD.format(target="sm_90")
        + """
        .visible .entry k(.param .u64 one, .param .u64 two, .param .u64 out) {
        .reg .b64 %a, %b, %o, %f; .reg .b32 %t, %w, %odd; .reg .pred %p;
        ld.param.u64 %a, [one]; ld.param.u64 %b, [two]; ld.param.u64 %o, [out];
        mov.u32 %t, %tid.x; mul.wide.u32 %f, %t, 4; and.b32 %odd, %t, 1;
        setp.eq.u32 %p, %odd, 1; selp.b64 %a, %a, %b, %p;
        add.u64 %a, %a, %f; add.u64 %o, %o, %f;
        multimem.ld_reduce.weak.add.u32 %w, [%a]; st.global.u32 [%o], %w;
        multimem.st.weak.u32 [%a], %t; ret; }"""
    )
    memory, out = Memory(), np.zeros(32, "u4")
    ones, twos = [np.full(32, i, "u4") for i in (1, 10)], [np.full(32, 100, "u4")] * 1
    args = [memory.multicast(ones), memory.multicast(twos), out]
    Module(text)["k"].launch(1, 32, args, memory=memory, engine=engine)
    odd = np.arange(32) % 2 == 1
    assert (out == np.where(odd, 11, 100)).all()
    assert (ones[1] == np.where(odd, np.arange(32), 10)).all()
    assert (twos[0] == np.where(odd, 100, np.arange(32))).all()


BULK = """
    .visible .entry k(.param .u64 group) {
    .shared .align 16 .b32 tile[16]; .reg .b64 %a; .reg .b32 %t, %p, %w;
    .reg .b16 %m; .reg .pred %q;
    ld.param.u64 %a, [group]; mov.u32 %t, %tid.x; mov.u32 %p, tile; mad.lo.u32 %w, %t, 4, %p;
    st.shared.u32 [%w], %t; fence.proxy.async.shared::cta; bar.sync 0;
    setp.ne.u32 %q, %t, 0; @%q ret; mov.u16 %m, 0x000f;
    multimem.cp.async.bulk.global.shared::cta.bulk_group [%a], [tile], 64;
    multimem.cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%a+64], [tile], 64, %m;
    multimem.cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%a+128], [tile], 64;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; ret; }"""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("options", [{}, {"async_order": "late"}, {"check": True}], ids=str)
def test_bulk_copies_and_reductions(engine, options):
    if "check" in options and engine != "vector":
        pytest.skip("one engine has the checks")
    text = HEAD.format(target="sm_100").replace("9.0", "9.1") + BULK
    held, memory = [np.full(48, i, "u4") for i in (100, 200)], Memory()
    group = memory.multicast(held)
    report = Module(text)["k"].launch(1, 16, [group], memory=memory, engine=engine, **options)
    tile = np.arange(16)
    for i, device in zip((100, 200), held, strict=True):
        masked = np.where(tile % 4 == 0, tile, i)
        assert (device == np.concatenate([tile, masked, tile + i])).all()
    assert not report.findings
    with pytest.raises(KernelError, match=r"address space: .* is no multimem address"):
        Module(text)["k"].launch(1, 16, [np.zeros(48, "u4")], engine=engine)


# --- what is wrong --------------------------------------------------------------------------------


def launch_at(address, memory, engine="vector", statement="multimem.st.weak.u32 [%a], %t;"):
    text = (
        HEAD.format(target="sm_90")
        + f"""
        .visible .entry k(.param .u64 group) {{ .reg .b64 %a; .reg .b32 %t;
        ld.param.u64 %a, [group]; mov.u32 %t, %tid.x; {statement} ret; }}"""
    )
    Module(text)["k"].launch(1, 32, [address], memory=memory, engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_wrong_addresses(engine):
    memory, held = Memory(), [np.zeros(4, "u4") for _ in range(2)]
    group, plain = memory.multicast(held, "ring"), memory.allocate(64)
    with pytest.raises(KernelError, match=r"address space: .* is no multimem address; Memory\.mul"):
        launch_at(plain, memory, engine)
    with pytest.raises(KernelError, match="out of bounds: 4 bytes at ring \\+ 14 bytes, which has"):
        launch_at(group + 14, memory, engine)
    with pytest.raises(KernelError, match="misaligned"):
        launch_at(group + 2, memory, engine)
    with pytest.raises(KernelError, match="address space: ring \\+ 4 bytes is written: a multimem"):
        launch_at(group + 4, memory, engine, "st.global.u32 [%a], %t;")
    assert not np.any(held)
    memory.free(group)
    with pytest.raises(KernelError, match="is no multimem address"):
        launch_at(group, memory, engine)


def test_wrong_groups():
    memory = Memory()
    with pytest.raises(OperandError, match="have as many bytes each; got 4 and 8"):
        memory.multicast([np.zeros(1, "u4"), np.zeros(2, "u4")])
    assert memory.arrays == []
    with pytest.raises(OperandError, match="got no device"):
        memory.multicast([])
    with pytest.raises(OperandError, match="takes a list of devices; got 5"):
        memory.multicast(5)
    with pytest.raises(OperandError, match="as many bytes each; got 0"):
        memory.multicast([np.zeros(0, "u4")])
    with pytest.raises(OperandError, match="nothing starts at 0x10 in this Memory"):
        memory.multicast([16])
    group = memory.multicast([np.zeros(4, "u4")])
    with pytest.raises(OperandError, match="overlap multicast group of 1 devices"):
        memory.map(group + 8, np.zeros(4, "u4"))


def test_sums_of_fp8_say_why_they_do_not_run():
    text = (
        HEAD.format(target="sm_100a")
        + """.visible .entry k(.param .u64 group) {
        .reg .b64 %a; .reg .b32 %t; ld.param.u64 %a, [group];
        multimem.ld_reduce.weak.global.add.acc::f16.e4m3x4 %t, [%a]; ret; }"""
    )
    (problem,) = Module(text).problems
    assert "the rounding of sums of fp8 is not known" in problem.reason


def test_checks_see_every_device():
    text = (
        HEAD.format(target="sm_90")
        + """
        .visible .entry k(.param .u64 group, .param .u64 other) {
        .reg .b64 %a, %b; .reg .b32 %t, %w;
        ld.param.u64 %a, [group]; ld.param.u64 %b, [other]; mov.u32 %t, %ctaid.x;
        multimem.st.weak.global.u32 [%a], %t; ld.global.u32 %w, [%b]; ret; }"""
    )
    memory, held = Memory(), [np.zeros(4, "u4") for _ in range(2)]
    memory.map(0x7000_0000_0000, held[1])
    group = memory.multicast([memory.allocate(16), 0x7000_0000_0000])
    module = Module(text)["k"]
    report = module.launch(1, 1, [group, 0x7000_0000_0000], memory=memory, check=True)
    assert not report.findings
    report = module.launch(2, 1, [group, 0x7000_0000_0000], memory=memory, check=True)
    assert {x.kind for x in report.findings} == {"race between blocks"}
