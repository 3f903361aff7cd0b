"""ldmatrix, stmatrix, movmatrix and .shared variables as PTX statements."""

import numpy as np
import pytest

from emulator import (
    EmulatorError,
    Instruction,
    OperandError,
    ParseError,
    UndefinedError,
    Warp,
    Warpgroup,
    execute,
)

LOAD = "ldmatrix.sync.aligned.m8n8.x1.shared.b16"
LOAD_4 = "ldmatrix.sync.aligned.m8n8.x4.shared.b16"
STORE = "stmatrix.sync.aligned.m8n8.x1.shared.b16"
STORE_2 = "stmatrix.sync.aligned.m8n8.x2.shared.b16"
MOVE = "movmatrix.sync.aligned.m8n8.trans.b16"


def filled(kind=Warp, target="sm_90a", seed=0, **options):
    """A machine whose shared memory holds random bytes, with addresses of rows in %p."""
    machine = kind(target, shared_bytes=4096, **options)
    machine.shared[...] = np.random.default_rng(seed).integers(0, 256, machine.shared.shape)
    machine.run(".reg .b32 %p, %r<4>; .reg .u64 %q; .reg .f32 %f<2>;")
    machine["%p"] = range(0, 16 * machine.lanes, 16)
    machine["%q"] = range(0, 16 * machine.lanes, 16)
    return machine


def tile(memory, address=0):
    """The 8 × 8 matrix of 16-bit elements whose rows of 16 bytes start at `address`."""
    return memory[address : address + 128].view("<u2").reshape(8, 8)


def halves(words):
    """The 8 × 8 matrix that 32 words hold: lane 4r + c has elements 2c and 2c + 1 of row r."""
    return words.view("<u2").reshape(8, 8)


# --- what they do: the lane maps of PTX ISA 9.7.14.5.15 to 17 ---


def test_ldmatrix():
    machine = filled()
    machine.run(f"{LOAD} {{%r0}}, [%p]; {LOAD_4} {{%f0, %r1, _, %r3}}, [%p+16];")
    assert np.array_equal(halves(machine["%r0"]), tile(machine.shared))
    for name, place in (("%f0", 16), ("%r1", 144), ("%r3", 400)):
        assert np.array_equal(halves(machine[name]), tile(machine.shared, place)), name
    assert not machine.registers["%r2"].written


def test_ldmatrix_transposes():
    machine = filled()
    machine.run(f"{LOAD.replace('x1', 'x1.trans')} {{%r0}}, [%p];")
    assert np.array_equal(halves(machine["%r0"]), tile(machine.shared).T)


def test_stmatrix_writes_rows_back():
    machine = filled()
    before = machine.shared.copy()
    machine.run(f"{LOAD} {{%r0}}, [%p]; {STORE_2} [%p+1024], {{%r0, 0x30002}};")
    assert np.array_equal(machine.shared[1024:1152], before[:128])
    assert (machine.shared[1152:1280].view("<u4") == 0x30002).all()
    before[1024:1280] = machine.shared[1024:1280]
    assert np.array_equal(machine.shared, before)


def test_stmatrix_writes_the_array_that_the_user_holds():
    machine = filled()
    mine = machine.shared
    machine.run(f"mov.b32 %r0, 7; {STORE} [%p], {{%r0}};")
    assert machine.shared is mine and (mine[:128].view("<u4") == 7).all()


def test_movmatrix():
    machine = filled()
    machine.run(f"{LOAD} {{%r0}}, [%p]; {MOVE} %r1, %r0; {MOVE} %f1, 0f00020001;")
    assert np.array_equal(halves(machine["%r1"]), tile(machine.shared).T)
    assert np.array_equal(halves(machine["%f1"])[0], [1] * 8)
    assert np.array_equal(halves(machine["%f1"])[1], [2] * 8)


@pytest.mark.parametrize(
    "opcode",
    [
        "ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8",
        "ldmatrix.sync.aligned.m8n16.x4.shared.b8x16.b4x16_p64",
        "ldmatrix.sync.aligned.m16n16.x1.trans.shared::cta.b8x16.b6x16_p32",
        "stmatrix.sync.aligned.m16n8.x4.trans.shared.b8",
    ],
)
def test_other_shapes_are_what_execute_does(opcode):
    ins = Instruction.parse(opcode)
    machine, memory = filled(target="sm_120a"), filled().shared
    rng = np.random.default_rng(1)
    machine.write("%r", rng.integers(0, 1 << 32, (32, 4), dtype=np.uint32))
    registers = machine.read("%r", 4)
    if ins.family == "ldmatrix":
        count = ins.fragment("d").registers
        vector = ", ".join(f"%r{i}" for i in range(count))
        want = execute(ins, machine["%p"], shared=memory, target="sm_120a")
        machine.run(f"{opcode} {{{vector}}}, [%p];")
        assert np.array_equal(machine.read("%r", count), want)
    else:
        execute(ins, machine["%p"], registers, shared=memory, target="sm_120a")
        machine.run(f"{opcode} [%p], {{%r0, %r1, %r2, %r3}};")
        assert np.array_equal(machine.shared, memory)


# --- addresses ---


@pytest.mark.parametrize(
    ("type_", "value", "offset"),
    [
        ("b32", 32, 0), ("s64", 32, 0), ("u16", 16, 16), ("b8", 240, -208), ("u32", 48, -16),
        ("b64", (5 << 32) + 32, 0), ("u32", 0, 0x20), ("u32", 0, 32),
    ],
)  # fmt: skip
def test_address_registers(type_, value, offset):
    """A narrow register is zero-extended, a wide one cut to the 32 bits of a shared address."""
    machine = filled()
    machine.run(f".reg .{type_} a; {LOAD} {{%r0}}, [%p+32];")
    machine["a"] = value
    machine.run(f"{LOAD} {{%r1}}, [a+{offset}];")
    first_row = machine.shared[32:48].view("<u4")
    assert np.array_equal(machine["%r1"][:4], first_row)


def test_generic_addresses():
    machine = filled()
    machine.run(f"{LOAD.replace('.shared', '')} {{%r0}}, [%q];")
    assert np.array_equal(halves(machine["%r0"]), tile(machine.shared))
    machine["%q"] = 1 << 32
    with pytest.raises(UndefinedError, match="leaves shared memory"):
        machine.run(f"{LOAD.replace('.shared', '')} {{%r0}}, [%q];")


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("%p+8", "lane 0, 0x8, is no multiple of 16"),
        ("%p+4096", "leaves shared memory"),
        ("%p+0x1000000", "lane 0, 0x1000000, leaves shared memory"),
        ("%q+4096", "leaves shared memory"),
        ("%p+-16", "lane 0, 0xfffffff0, leaves shared memory"),
        ("tile+4096", "lane 0, 0x1000, leaves shared memory"),
    ],
)
@pytest.mark.parametrize("statement", [f"{LOAD} {{%r0}}, [@];", f"{STORE} [@], {{%r0}};"])
def test_bad_addresses(address, words, statement):
    machine = filled()
    machine.run(".shared .align 16 .b8 tile[16];")
    memory = machine.shared.copy()
    with pytest.raises(UndefinedError, match=f"line 2, column 1: .*{words}"):
        machine.run(f"mov.b32 %r0, 5;\n{statement.replace('@', address)}")
    assert not machine.registers["%r0"].written
    assert np.array_equal(machine.shared, memory)


@pytest.mark.parametrize("offset", ["0x7ffffffffffffff0", "-0x7ffffffffffffff0", "0x100000000"])
@pytest.mark.parametrize("statement", [f"{LOAD} {{%r0}}, [@];", f"{STORE} [@], {{%r0}};"])
def test_an_offset_has_the_bits_of_its_address(offset, statement):
    with pytest.raises(OperandError, match=r"line 1, .*the offset of operand p of .* has 32 bits"):
        filled().run(statement.replace("@", f"%p+{offset}"))


# --- variables ---


def test_variables_lie_one_after_the_other():
    machine = filled()
    machine.run(
        ".shared .b8 a[3]; .shared .b64 b, c[2]; .shared .align 128 .f16x2 d[4][8];"
        ".shared .align 1 .b32 e;"
        "mov.u32 %r0, b; mov.b32 %r1, d; mov.s32 %r2, e; mov.u64 %q, c; mov.b32 %r3, d+4;"
    )
    assert [int(machine[name][0]) for name in ("%r0", "%r1", "%r2", "%q", "%r3")] == [
        8, 128, 256, 16, 132,
    ]  # fmt: skip
    machine.run("mov.u32 %r0, d[3]; mov.u32 %r1, c[1]; mov.u32 %r2, a[1]; mov.b32 %r3, c+-8;")
    assert [int(machine[f"%r{i}"][0]) for i in range(4)] == [140, 24, 1, 8]
    assert {name: x.bytes for name, x in machine.variables.items()} == {
        "a": 3, "b": 8, "c": 16, "d": 128, "e": 4,
    }  # fmt: skip


def test_variables_as_addresses():
    machine = filled()
    machine.run(
        ".shared .align 16 .b8 x[48], tile[1024]; .reg .b32 row;"
        f"mov.u32 row, tile; {LOAD} {{%r0}}, [tile+16]; mov.b32 %r1, 9;"
        f"{STORE} [x+16], {{%r1}}; {LOAD} {{%r2}}, [row];"
    )
    assert np.array_equal(machine["%r0"][:8], np.tile(machine.shared[64:80].view("<u4"), 2))
    assert np.array_equal(machine["%r2"][:4], machine.shared[48:64].view("<u4"))
    assert (machine.shared[16:32].view("<u4") == 9).all()


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        (".shared .b8 t[4097];", OperandError, r"0 … 4096 .* has 4096; .*shared_bytes=4097"),
        (".shared .b8 t[4095]; .shared .b16 u;", OperandError, "'u' takes bytes 4096 … 4097"),
        (".shared .b8 t, t;", OperandError, "'t' is declared already"),
        (".shared .b8 %p;", OperandError, "'%p' is declared already"),
        (".shared .b8 t; .reg .b32 t;", OperandError, "'t' is declared already"),
        (".shared .pred t;", OperandError, "a variable cannot be .pred"),
        (".shared .b33 t;", OperandError, "a variable cannot be .b33; nearest is '.b32'"),
        (".shared .align 3 .b8 t;", ParseError, "a power of two; got 3"),
        (".shared .b8 t[0];", OperandError, "'t' has no elements"),
        (".shared .b8 t[];", OperandError, "'t' has no elements"),
        (".shared b8 t;", ParseError, "a type such as .b32, found 'b8'"),
        (
            ".shared .b8 t; mov.f32 %f0, t;",
            OperandError,
            "'t' is a variable in .shared memory, not a register",
        ),
        (".shared .b8 t; mov.b32 t, %p;", OperandError, "'t' is a variable in .shared memory"),
        (".shared .b8 t; mov.b32 %p, u+4;", OperandError, "'u' is not declared; declared are t"),
        (".shared .b8 t; mov.b32 %p, {t, t};", OperandError, "'t' is a variable"),
        (f".shared .b8 t; {LOAD} {{t}}, [%p];", OperandError, "'t' is a variable"),
    ],
)
def test_bad_variables(text, error, words):
    machine = filled()
    with pytest.raises(error, match=rf"line 1, column \d+: .*{words}"):
        machine.run(text)
    assert not machine.variables


# --- all or nothing ---


def test_a_statement_that_raises_leaves_shared_memory_alone():
    machine = filled()
    memory, mine = machine.shared.copy(), machine.shared
    text = f"mov.b32 %r0, 1; {STORE} [%p], {{%r0}}; {STORE} [%p+512], {{%r0}}; .shared .b8 t;"
    for fault in (
        "mov.b32 %r0, %nowhere;",
        f"{STORE} [%p+8], {{%r0}};",
        "mov.b32 {",
        "trap;",
        "bra NOWHERE;",
    ):
        with pytest.raises(EmulatorError):
            machine.run(text + fault)
        assert machine.shared is mine and np.array_equal(mine, memory)
        assert not machine.registers["%r0"].written and not machine.variables
    machine.run(text)
    assert not np.array_equal(machine.shared, memory)


def test_batches():
    machine = filled(batch=(3,))
    machine.run(f"{LOAD} {{%r0}}, [%p]; {STORE} [%p+512], {{%r0}}; {MOVE} %r1, %r0;")
    for i in range(3):
        assert np.array_equal(halves(machine["%r0"][i]), tile(machine.shared[i]))
        assert np.array_equal(halves(machine["%r1"][i]), tile(machine.shared[i]).T)
        assert np.array_equal(tile(machine.shared[i], 512), tile(machine.shared[i]))


# --- warpgroups ---


@pytest.mark.parametrize("batch", [(), (2,)])
def test_every_warp_of_a_group_runs_its_own(batch):
    group = filled(Warpgroup, batch=batch)
    text = f"{LOAD} {{%r0}}, [%p]; {MOVE} %r1, %r0; {STORE_2} [%p+2048], {{%r1, %r0}};"
    group["%p"] = [lane % 32 * 16 + lane // 32 * 256 for lane in range(128)]
    want = np.array(group.shared)
    group.run(text)
    for w in range(4):
        for i in np.ndindex(batch):
            rows = tile(want[i], 256 * w)
            mine = slice(32 * w, 32 * w + 32)
            assert np.array_equal(halves(group["%r0"][i][mine]), rows)
            assert np.array_equal(halves(group["%r1"][i][mine]), rows.T)
            assert np.array_equal(tile(group.shared[i], 2048 + 256 * w), rows.T)
            assert np.array_equal(tile(group.shared[i], 2176 + 256 * w), rows)


def test_warps_that_store_to_one_place():
    group = filled(Warpgroup)
    group["%p"] = [lane % 32 * 16 for lane in range(128)]
    memory = group.shared.copy()
    group["%r0"] = [lane // 96 for lane in range(128)]
    with pytest.raises(UndefinedError, match=r"two rows with different contents .* address 0;"):
        group.run(f"{STORE} [%p], {{%r0}};")
    assert np.array_equal(group.shared, memory)
    group["%r0"] = 6
    group.run(f"{STORE} [%p], {{%r0}};")
    assert (group.shared[:128].view("<u4") == 6).all()


WGMMA = (
    "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 {%d0,%d1,%d2,%d3}, {%a0,%a1,%a2,%a3}, 0, 0;"
)
FENCE = "wgmma.fence.sync.aligned;"
FINISH = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("", f"{LOAD} {{%d0}}, [%p];", "'%d0' is written while"),
        ("", f"{LOAD} {{%a3}}, [%p];", "'%a3' is written while"),
        ("", f"{STORE} [%p], {{%d1}};", "'%d1' is read while"),
        ("", f"{MOVE} %r0, %d2;", "'%d2' is read while"),
        ("", f"{LOAD} {{%r0}}, [%d0];", "'%d0' is read while"),
        ("", "cvt.rn.f16x2.f32 %a0, 0f00000000, 0f00000000;", "'%a0' is written while"),
        (f"{LOAD} {{%a0}}, [%p];", "", "'%a0' was touched since"),
    ],
)
def test_wgmma_orders_the_registers_of_moves(before, after, words):
    group = filled(Warpgroup)
    group.run(".reg .b32 %a<4>; .reg .b32 %d<4>;")
    for name in "ad":
        group.write(f"%{name}", np.zeros((128, 4), np.uint32))
    with pytest.raises(UndefinedError, match=words):
        group.run(FENCE + before + WGMMA + after)
    group.run(f"{before}{FENCE}{WGMMA}{FINISH}{after}")


def test_wgmma_reads_what_stmatrix_stored():
    group = Warpgroup("sm_90a", shared_bytes=4096)
    group.run(
        ".reg .b32 %a<4>, %p, one; .reg .b32 %d<4>; .reg .b64 desc; mov.b32 one, 0x01010101;"
        ".reg .pred keep; mov.pred keep, 1; mov.b32 %a0, one; mov.b32 %a1, one;"
        "mov.b32 %a2, one; mov.b32 %a3, one;"
    )
    group["%p"] = [lane % 32 * 16 for lane in range(128)]
    group["desc"] = 8 << 16 | 16 << 32
    group.run(
        f"{STORE.replace('x1', 'x4')} [%p], {{one, one, one, one}}; fence.proxy.async;{FENCE}"
        f"{WGMMA.replace(', 0, 0;', ', desc, !keep;')}{FINISH}"
    )
    assert group["%d0"].tolist() == [32] * 128
