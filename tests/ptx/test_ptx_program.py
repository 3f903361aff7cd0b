"""Statements bound once and run often, and runs that take effect as a whole or not at all."""

import numpy as np
import pytest

from emulator import (
    Module,
    OperandError,
    ParseError,
    UndefinedError,
    UnsupportedError,
    Warp,
    Warpgroup,
)
from emulator.machine.shared.registers import RegisterFile
from emulator.memory.space import Space

STORE = "stmatrix.sync.aligned.m8n8.x1.shared.b16 [p], {r0};"
LOAD = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {r1}, [p];"
DECLARE = ".reg .b32 r0, r1, p; .shared .align 16 .b8 tile[512];"


def machine(kind=Warp, **options):
    out = kind("sm_90a", shared_bytes=4096, **options)
    out.run(DECLARE)
    out["p"] = np.arange(out.lanes) % 32 * 16
    out["r0"] = 1
    out["r1"] = 2
    return out


def state(warp):
    """Everything that a run may change."""
    registers = {x.name: (x.type, x.words.tolist(), x.written) for x in warp.registers.values()}
    return registers, warp.shared.tobytes(), dict(warp.variables), warp._state.order.saved()[:3]


# --- basic blocks ---


def test_labels_without_a_branch_divide_nothing():
    """Debug information has many; the exit behind the last statement stands at one that is used."""
    text = """.version 8.0 .target sm_90a .address_size 64 .visible .entry go() { .reg .pred %p;
    .reg .b32 %r<3>; mov.u32 %r1, %tid.x; $L__tmp0: setp.eq.u32 %p, %r1, 0; @%p bra END;
    $L__tmp1: add.u32 %r1, %r1, 1; $L__tmp2: add.u32 %r2, %r1, 1; END: }"""
    text = text.replace(" .target", "\n.target").replace(" .address", "\n.address")
    program = Module(text)["go"].rewritten[0]
    assert program.leaders == {5}
    assert [str(x.instruction) for x in program.statements][5:] == ["ret"]


# --- bound once, run often ---


def test_a_program_runs_as_often_as_it_is_asked_to():
    warp, other = machine(), machine()
    text = f"mov.b32 r1, r0; {STORE} {LOAD} mov.b32 r0, {{5, 7}};"
    program = warp.bind(text)
    for value in (3, 9):
        warp["r0"] = other["r0"] = value
        warp.run(program)
        other.run(text)
        assert state(warp) == state(other)
        assert (warp["r1"] == value).all()
    assert repr(program) == "<Program of 4 statements>"


def test_running_reads_no_text(monkeypatch):
    warp = machine()
    program = warp.bind(STORE + LOAD)

    def fail(*_):
        raise AssertionError("text is read again")

    monkeypatch.setattr("emulator.ptx.statements.parse_statements", fail)
    monkeypatch.setattr("emulator.ptx.module.Instruction.parse", fail)
    monkeypatch.setattr("emulator.machine.warp.bind", fail)
    for _ in range(3):
        warp.run(program)
    with pytest.raises(AssertionError, match="text is read again"):
        warp.run(STORE)


def test_binding_declares_and_runs_nothing():
    warp = machine()
    program = warp.bind(f".reg .b32 new; .shared .b8 x[16]; mov.b32 new, 4; {STORE}")
    assert not warp.registers["new"].written and not warp.shared.any()
    assert warp.variables["x"].address == 512
    warp.run(program)
    warp.run(program)
    assert (warp["new"] == 4).all() and warp.shared.any()
    with pytest.raises(OperandError, match="'new' is declared already"):
        warp.bind(".reg .b32 new;")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("mov.b32 {", ParseError),
        ("mov.b32 nowhere, 1;", OperandError),
        ("mma.sync.aligned.m16n8k17.row.col.f32.f16.f16.f32 {};", ParseError),
        ("applypriority.async.bulk r0, r0;", UnsupportedError),
        ("{ .reg .b32 inner; .shared .b8 y[9]; mov.b32 inner, nowhere; }", OperandError),
        ("bra NOWHERE;", OperandError),
        (".reg .b32 r0;", OperandError),
        (".shared .b8 tile;", OperandError),
    ],
)
def test_what_cannot_be_bound_declares_nothing(text, error):
    warp = machine()
    before = state(warp)
    for call in (warp.bind, warp.run):
        with pytest.raises(error, match="line 2, column"):
            call(f".reg .b32 new<9>; .shared .b64 x; mov.b32 new0, x; {STORE}\n{text}")
        assert state(warp) == before
    assert warp.variables.end == 512


def test_a_text_made_for_a_later_chip_is_refused():
    warp = machine()
    before = state(warp)
    for call in (warp.bind, warp.run):
        with pytest.raises(UnsupportedError, match=r"line 2, column 9: .* is made for sm_120"):
            call(".version 8.7\n.target sm_120\n.reg .b32 new; mov.b32 new, 1;")
        assert state(warp) == before
    warp.run(".version 6.0 .target sm_70 .address_size 64 .reg .b32 new; mov.b32 new, 1;")
    assert (warp["new"] == 1).all()


def test_a_program_belongs_to_its_machine():
    with pytest.raises(OperandError, match="bound on another machine"):
        machine().run(machine().bind(STORE))


# --- all or nothing ---

FAULTS = {
    "misaligned": "mov.b32 p, 8; " + LOAD,
    "unwritten": ".reg .b32 u; mov.b32 r0, u;",
    "outside": "mov.b32 p, 4096; " + STORE,
    "global": ".reg .u64 g; mov.u64 g, 0;wmma.load.a.sync.aligned.row.m8n8k32.global.s4 {r1}, [g];",
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", [Warp, Warpgroup])
def test_a_run_that_raises_changes_nothing(fault, kind):
    warp = machine(kind)
    mine = warp.shared
    mine[::3] = 7
    before = state(warp)
    start = f"mov.b32 r0, 6; {STORE} mov.b32 r1, r0;"
    if kind is Warpgroup:
        start += "wgmma.fence.sync.aligned; wgmma.commit_group.sync.aligned;"
    with pytest.raises((UndefinedError, UnsupportedError)):
        warp.run(f"{start} .reg .b32 new; .shared .b8 x; {FAULTS[fault]}")
    assert state(warp) == before and warp.shared is mine
    program = warp.bind(f"{start} .reg .b32 new; {FAULTS[fault]}")
    bound = state(warp)
    with pytest.raises((UndefinedError, UnsupportedError)):
        warp.run(program)
    assert state(warp) == bound
    warp.run(start)
    assert (warp["r1"] == 6).all()


def test_a_run_keeps_only_what_it_touches():
    """No copy of registers or shared memory stands behind the promise."""
    warp = machine()
    warp.run(".reg .b32 %r<2000>;")
    held = [register.words for register in warp.registers.values()]
    warp.run("mov.b32 %r0, 3;")
    changed = [
        register.name
        for register, words in zip(warp.registers.values(), held, strict=True)
        if register.words is not words
    ]
    assert changed == ["%r0"]
    shared = warp._state.shared
    shared.replaced = []
    shared.store(np.array([16]), np.ones((1, 4), np.uint8), 4)
    assert sum(before.nbytes for *_, before in shared.replaced) == 4


class Interrupted:
    """Raises KeyboardInterrupt in call number `at` of a method."""

    def __init__(self, monkeypatch, owner, name, at):
        original, self.calls = getattr(owner, name), 0

        def method(*args, **options):
            self.calls += 1
            if self.calls == at:
                raise KeyboardInterrupt
            return original(*args, **options)

        monkeypatch.setattr(owner, name, method)


@pytest.mark.parametrize(
    ("owner", "name", "calls"),
    [
        (RegisterFile, "write", 3),
        (RegisterFile, "roll_back", 1),
        (Space, "store", 2),
        (Space, "roll_back", 1),
        (Space, "_put", 4),
        (RegisterFile, "forget", 1),
    ],
)
def test_an_interrupt_leaves_nothing_half_done(monkeypatch, owner, name, calls):
    """Wherever it comes, even while a failed run is being taken back."""
    text = f"mov.b32 r0, 6; {STORE} mov.b32 r1, 8; mov.b32 p, 4080; {STORE} mov.b32 p, 8; {LOAD}"
    for at in range(1, calls + 1):
        warp = machine()
        before = state(warp)
        with monkeypatch.context() as patch:
            Interrupted(patch, owner, name, at)
            with pytest.raises((KeyboardInterrupt, UndefinedError)):
                warp.run(text)
        assert state(warp) == before, at
        warp.run("mov.b32 r0, 9;")
        with pytest.raises(UndefinedError):
            warp.run(text)
        assert (warp["r0"] == 9).all() and warp.shared.tobytes() == before[1]


def test_read_only_shared_memory():
    for kind in (Warp, Warpgroup):
        warp = machine(kind)
        memory = np.ones(4096, np.uint8)
        memory.flags.writeable = False
        warp.shared = memory
        warp.run(LOAD)
        assert (warp["r1"] == 0x01010101).all()
        with pytest.raises(OperandError, match=r"line 2, .*shared memory is read-only"):
            warp.run(f"mov.b32 r1, 9;\n{STORE}")
        assert (warp["r1"] == 0x01010101).all()
        warp["r1"] = 5
        warp.run("mov.b32 r0, r1;")
        assert (warp["r0"] == 5).all()


def test_global_memory_is_refused():
    warp = machine()
    warp.run(".reg .u64 g; mov.u64 g, 0;")
    statement = "wmma.load.a.sync.aligned.row.m8n8k32.global.s4 {r1}, [g];"
    with pytest.raises(UnsupportedError, match=r"line 1, .*shared memory alone.*global_memory="):
        warp.run(statement)
    warp.run(statement.replace(".global", ".shared"))
    warp.run(statement.replace(".global", ""))


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("L: L: ret;", ["L"]),
        ("%r: ret;", ["%r"]),
        ("L: .branchtargets M; M: L: ret;", ["L"]),
        ("{ L: } { L: } L: ret;", []),
    ],
)
def test_a_label_has_a_name_of_its_own_in_its_block(body, names):
    text = f".version 8.5 .target sm_90a .address_size 64 .entry k() {{ .reg .b32 %r; {body} }}"
    reasons = [f"{name!r} is declared already" for name in names]
    assert [problem.reason for problem in Module(text).problems] == reasons
