"""A Memory lives from launch to launch; launches work in place and can be undone."""

import copy
import pickle
import signal
import sys

import numpy as np
import pytest

from emulator import EmulatorError, KernelError, Memory, Module, OperandError

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
ADDS = (
    HEAD
    + """
.visible .global .u32 counter;
.visible .entry adds(.param .u64 to, .param .u32 stop)
{
    .reg .b64 %a<3>; .reg .b32 %x, %s; .reg .pred %p;
    ld.param.u64 %a0, [to];
    ld.param.u32 %s, [stop];
    ld.global.u32 %x, [%a0];
    add.u32 %x, %x, 1;
    st.global.u32 [%a0], %x;
    mov.u64 %a1, counter;
    st.global.u32 [%a1], %x;
    setp.ne.u32 %p, %s, 0;
    @%p trap;
    ret;
}
"""
)
MAKES = (
    HEAD
    + """
.extern .func (.param .b64 r) malloc (.param .b64 n);
.extern .func free (.param .b64 p);
.visible .entry makes(.param .u64 to, .param .u32 stop)
{
    .reg .b64 %a, %p; .reg .b32 %s; .reg .pred %q;
    ld.param.u64 %a, [to];
    { .param .b64 n; .param .b64 r; st.param.b64 [n], 64;
      call (r), malloc, (n); ld.param.b64 %p, [r]; }
    st.global.u64 [%a], %p;
    st.u32 [%p], 41;
    ld.param.u32 %s, [stop]; setp.ne.u32 %q, %s, 0;
    @%q trap;
    ret;
}
.visible .entry frees(.param .u64 p, .param .u32 stop)
{
    .reg .b64 %p; .reg .b32 %s; .reg .pred %q;
    ld.param.u64 %p, [p];
    st.global.u32 [%p], 7;
    { .param .b64 p; st.param.b64 [p], %p; call free, (p); }
    ld.param.u32 %s, [stop]; setp.ne.u32 %q, %s, 0;
    @%q trap;
    ret;
}
"""
)
ENGINES = ("reference", "vector", "compiled")
AT = 0x10_0000_0000


@pytest.fixture(scope="module")
def adds():
    return Module(ADDS)["adds"]


@pytest.mark.parametrize("engine", ENGINES)
def test_allocated_memory_keeps_its_bytes(adds, engine):
    memory = Memory()
    at = memory.allocate(1 << 34, "A")
    assert at % 512 == 0 and memory.read(at, 8) == bytes(8)
    memory.write(at, np.uint32([5]))
    for _ in range(2):
        adds.launch(1, 1, [at, 0], memory=memory, engine=engine)
    assert memory.read(at, 4) == b"\7\0\0\0"
    assert memory.find(at + 9) == ("A", at, 1 << 34)
    memory.free(at)
    assert memory.find(at) is None
    with pytest.raises(OperandError, match=f"nothing starts at {at:#x}"):
        memory.free(at)
    with pytest.raises(OperandError, match="nothing lies there"):
        memory.read(at, 1)
    with pytest.raises(KernelError, match="out of bounds"):
        adds.launch(1, 1, [at, 0], memory=memory, engine=engine)


def test_accesses_of_the_host_stay_within_an_array():
    memory = Memory()
    at = memory.allocate(16)
    memory.write(at + 12, b"abcd")
    assert memory.read(at + 8, 8) == b"\0\0\0\0abcd"
    for run in (lambda: memory.write(at + 13, b"abcd"), lambda: memory.read(at - 1, 4)):
        with pytest.raises(OperandError, match="4 bytes at"):
            run()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("shift", [0, 4])
def test_a_launch_that_raises_leaves_memory_as_it_was(engine, shift):
    """Also of arrays that have another alignment than their address."""
    memory, array = Memory(), np.arange(8, dtype="u4")
    memory.map(AT + array.ctypes.data % 16 + shift, array)
    (at, _, _), module = memory.arrays[0], Module(ADDS, memory=memory)
    module["adds"].launch(1, 1, [at, 0], memory=memory, engine=engine)
    assert array[0] == 1 and module.variable("counter").view("u4")[0] == 1
    with pytest.raises(KernelError, match="trap"):
        module["adds"].launch(1, 1, [at, 1], memory=memory, engine=engine)
    assert array[0] == 1 and module.variable("counter").view("u4")[0] == 1
    array[0] = 8
    module["adds"].launch(1, 1, [at, 0], memory=memory, engine=engine)
    assert array[0] == 9 and memory.read(at, 4) == b"\11\0\0\0"


def test_modules_of_a_memory_have_addresses_of_their_own():
    memory = Memory()
    first, second = Module(ADDS, memory=memory), Module(ADDS, memory=memory)
    found = [memory.find(at) for at, _, name in memory.arrays if name == "counter"]
    one, other = (region.address for region in found)
    at = memory.allocate(4)
    second["adds"].launch(1, 1, [at, 0], memory=memory)
    assert memory.read(one, 4) == bytes(4) and memory.read(other, 4) == b"\1\0\0\0"
    first["adds"].launch(1, 1, [other, 0], memory=memory)  # a variable of another module
    assert second.variable("counter").tolist() == [2, 0, 0, 0]
    assert first.variable("counter").tolist() == [2, 0, 0, 0]
    second.unload()
    assert memory.find(other) is None and memory.find(one) is not None


@pytest.mark.parametrize("engine", ENGINES)
def test_malloc_lives_with_the_memory(adds, engine):
    memory, module = Memory(), Module(MAKES)

    def run(name, *args):
        module[name].launch(1, 1, args, memory=memory, engine=engine)

    at = memory.allocate(8)
    run("makes", at, 0)
    (pointer,) = np.frombuffer(memory.read(at, 8), "u8").tolist()
    adds.launch(1, 1, [pointer, 0], memory=memory, engine=engine)
    assert memory.read(pointer, 4) == b"\52\0\0\0"
    for name, given in (("makes", at), ("frees", pointer)):
        with pytest.raises(KernelError, match="trap"):
            run(name, given, 1)
    assert memory.read(at, 8) == pointer.to_bytes(8, "little")
    assert memory.read(pointer, 4) == b"\52\0\0\0"
    run("makes", at, 0)
    assert memory.read(at, 8) != pointer.to_bytes(8, "little")
    run("frees", pointer, 0)
    assert memory.find(pointer) is None
    with pytest.raises(KernelError):
        run("frees", pointer, 0)


def test_copies_and_pickles_have_bytes_of_their_own(adds):
    memory, module = Memory(), Module(MAKES)
    memory.map(AT + 4, np.arange(4, dtype="u4"), "A")
    at = memory.allocate(8)
    module["makes"].launch(1, 1, [at, 0], memory=memory)
    (pointer,) = np.frombuffer(memory.read(at, 8), "u8").tolist()
    for other in (copy.deepcopy(memory), pickle.loads(pickle.dumps(memory))):
        for place in (AT + 4, pointer):
            adds.launch(1, 1, [place, 0], memory=other)
        assert other.read(AT + 4, 4) == b"\1\0\0\0" and other.read(pointer, 4) == b"\52\0\0\0"
        assert memory.read(AT + 4, 4) == bytes(4) and memory.read(pointer, 4) == b"\51\0\0\0"


def test_a_memory_does_not_change_during_a_launch(adds):
    memory, said = Memory(), []
    at = memory.allocate(4)

    def callback(done, total):
        for change in (lambda: memory.free(at), lambda: memory.allocate(4)):
            with pytest.raises(OperandError, match="the Memory is in use"):
                change()
            said.append(done)

    adds.launch(1, 1, [at, 0], memory=memory, progress=callback)
    assert said and memory.read(at, 4) == b"\1\0\0\0"


# --- what is written, and where -------------------------------------------------------------------

#: enough statements for native code
_LONG = "not.b32 %i, %i; " * 6
#: each thread stores its number, once or four times, or adds 1, or reads and stores what it read,
#: at the address that it is given
SCATTER = (
    HEAD
    + f"""
.visible .entry scatter(.param .u64 table, .param .u32 wide, .param .u32 last)
{{
    .reg .b64 %t, %o, %p, %z; .reg .b32 %i, %b, %n, %w, %c; .reg .pred %q, %v;
    ld.param.u64 %t, [table]; ld.param.u32 %w, [wide]; ld.param.u32 %c, [last];
    mov.u32 %i, %tid.x; mov.u32 %b, %ctaid.x; mov.u32 %n, %ntid.x; mad.lo.u32 %i, %b, %n, %i;
    mul.wide.u32 %o, %i, 8; add.u64 %t, %t, %o;
    ld.global.u64 %p, [%t];
    setp.eq.u32 %q, %w, 1; @%q bra WIDE;
    setp.eq.u32 %q, %w, 2; @%q bra ATOMIC;
    setp.eq.u32 %q, %w, 3; @%q bra READ;
    {_LONG}
    st.u32 [%p], %i;
    bra DONE;
WIDE:
    {_LONG}
    st.v4.u32 [%p], {{%i, %i, %i, %i}};
    bra DONE;
ATOMIC:
    {_LONG}
    red.add.u32 [%p], 1;
    bra DONE;
READ:
    {_LONG}
    ld.u32 %i, [%p]; mov.u64 %z, %p; st.u32 [%z], %i;
DONE:
    setp.eq.u32 %v, %b, %c; @%v trap;
    ret;
}}
"""
)
NEVER = 1 << 30
#: each thread adds 1 to words that lie far apart, one after the other
LOOP = (
    HEAD
    + """
.visible .entry k(.param .u64 a, .param .u32 n)
{
    .reg .b64 %a, %o, %p; .reg .b32 %i, %b, %s, %n, %j; .reg .pred %q;
    ld.param.u64 %a, [a]; ld.param.u32 %n, [n];
    mov.u32 %i, %tid.x; mov.u32 %b, %ctaid.x; mov.u32 %s, %ntid.x; mad.lo.u32 %i, %b, %s, %i;
    mov.u32 %j, 0;
L:  mul.lo.u32 %s, %j, 8192; add.u32 %s, %s, %i; mul.wide.u32 %o, %s, 4; add.u64 %p, %a, %o;
    ld.global.u32 %s, [%p]; add.u32 %s, %s, 1; st.global.u32 [%p], %s;
    add.u32 %j, %j, 1; setp.lt.u32 %q, %j, %n; @%q bra L;
    ret;
}
"""
)


@pytest.fixture(scope="module")
def scatter():
    return Module(SCATTER)["scatter"]


class Buffers:
    """Arrays between canaries, at addresses of a Memory."""

    def __init__(self, rng, count=5):
        self.memory, self.whole, self.spans = Memory(), [], []
        for i in range(count):
            size = int(rng.choice([16, 48, 4096, 70_000, 300_000]))
            room = rng.integers(0, 256, size + 512, np.uint8)
            lead = -room.ctypes.data % 16 + int(rng.choice([64, 64, 68]))
            address = AT + i * (1 << 20)
            self.memory.map(address, room[lead : lead + size], f"array {i}")
            self.whole.append(room)
            self.spans.append((address, size, room, lead))
        self.before = [x.copy() for x in self.whole]

    def check(self, expected=None):
        """All bytes are as expected, those of the canaries as they were."""
        for room, wanted in zip(self.whole, expected or self.before, strict=True):
            assert room.tobytes() == wanted.tobytes()

    def addresses(self, rng, count, size):
        """Legal addresses, at the edges more often."""
        out = []
        for _ in range(count):
            address, length, _, _ = self.spans[rng.integers(len(self.spans))]
            last = (length - size) // size * size
            pick = rng.integers(4)
            offset = (0, last, int(rng.integers(last // size + 1)) * size)[min(pick, 2)]
            out.append(address + offset)
        return np.array(out, np.uint64)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("wide", [0, 1, 2, 3])
def test_random_accesses_change_what_they_name(scatter, engine, wide):
    rng, size = np.random.default_rng(wide), 16 if wide == 1 else 4
    for _ in range(6):
        buffers = Buffers(rng)
        table = buffers.addresses(rng, 256, size)
        scatter.launch(4, 64, [table, wide, NEVER], memory=buffers.memory, engine=engine)
        expected = [x.copy() for x in buffers.before]
        for i, at in enumerate(table.tolist()):
            (number,) = (n for n, x in enumerate(buffers.spans) if x[0] <= at < x[0] + x[1])
            address, _, _, lead = buffers.spans[number]
            place = expected[number][lead + at - address :][:size].view("<u4")
            if wide < 2:
                place[:] = i
            elif wide == 2:
                place += np.uint32(1)
        if wide < 2:  # threads at one place: any of them may win
            for room, wanted in zip(buffers.whole, expected, strict=True):
                differs = np.flatnonzero(room != wanted)
                assert len(differs) <= size * (len(table) - len(np.unique(table)))
                wanted[differs] = room[differs]
            buffers.check(expected)
            for room, before, (_, length, _, lead) in zip(
                buffers.whole, buffers.before, buffers.spans, strict=True
            ):
                room[lead : lead + length] = before[lead : lead + length]
            buffers.check()
        else:
            buffers.check(expected)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("wide", [0, 1, 2, 3])
def test_one_access_beyond_an_edge_changes_nothing(scatter, engine, wide):
    """Whichever lane does it, next to whatever the others do, before or after other blocks."""
    rng, size = np.random.default_rng(10 + wide), 16 if wide == 1 else 4
    for _ in range(12):
        buffers = Buffers(rng)
        table = buffers.addresses(rng, 256, size)
        address, length, _, _ = buffers.spans[rng.integers(5)]
        far = int(rng.choice([size, 4096, 1 << 19, 1 << 46]))
        outside = (
            address - far, address + (length - length % size) + (far - size),
            (1 << 64) - far, (1 << 63) + far, far, address + 1,
        )  # fmt: skip
        table[rng.integers(len(table))] = outside[rng.integers(len(outside))] % (1 << 64)
        with pytest.raises(KernelError, match=r"out of bounds|misaligned|null"):
            scatter.launch(4, 64, [table, wide, NEVER], memory=buffers.memory, engine=engine)
        buffers.check()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("wide", [0, 1, 2])
def test_a_late_trap_undoes_all_blocks(scatter, engine, wide):
    rng, size = np.random.default_rng(20 + wide), 16 if wide == 1 else 4
    for _ in range(6):
        buffers = Buffers(rng)
        table = buffers.addresses(rng, 256, size)
        given = table.copy()
        with pytest.raises(KernelError, match="trap"):
            scatter.launch(4, 64, [table, wide, 3], memory=buffers.memory, engine=engine)
        buffers.check()
        assert (table == given).all()


@pytest.mark.parametrize("options", [{"check": True}, {"seed": 3}, {"async_order": "late"}])
def test_options_of_a_launch_undo_the_same(scatter, options):
    rng = np.random.default_rng(30)
    buffers = Buffers(rng)
    table = buffers.addresses(rng, 256, 4)
    with pytest.raises(KernelError, match="trap"):
        scatter.launch(4, 64, [table, 0, 3], memory=buffers.memory, **options)
    buffers.check()


@pytest.mark.parametrize("engine", ENGINES)
def test_an_interrupt_undoes_a_launch(scatter, engine):
    rng = np.random.default_rng(40)
    for done in (1, 2, 3):
        buffers = Buffers(rng)
        table = buffers.addresses(rng, 256, 4)

        def interrupt(count, total, done=done):
            if count >= done:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            scatter.launch(
                4, 64, [table, 0, NEVER], memory=buffers.memory, engine=engine, progress=interrupt
            )
        buffers.check()


def test_an_interrupt_while_native_code_keeps_bytes(scatter, monkeypatch):
    """It is raised when the launch has ended, and nothing has changed."""
    pytest.importorskip("llvmlite")
    from emulator.memory.journal import Journal

    note = Journal.note

    def interrupted(self, held):
        if sys._getframe(3).f_code.co_name == "keep_row":
            raise KeyboardInterrupt
        note(self, held)

    monkeypatch.setattr(Journal, "note", interrupted)
    rng = np.random.default_rng(50)
    buffers = Buffers(rng)
    table = buffers.addresses(rng, 256, 4)
    with pytest.raises(KeyboardInterrupt):
        scatter.launch(4, 64, [table, 0, NEVER], memory=buffers.memory, engine="compiled")
    buffers.check()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("engine", ["vector", "compiled"])
def test_signals_at_any_moment_undo_a_launch(engine):
    """A launch has changed everything or nothing."""
    kernel, count = Module(LOOP)["k"], 32
    array = np.zeros(8192 * count, "u4")
    rng = np.random.default_rng(60)

    armed = False

    def interrupt(*_):
        if armed:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    undone = 0
    kernel.launch(64, 128, [array, count], engine=engine)  # all is imported
    try:
        for _ in range(60):
            array[:] = given = rng.integers(0, 1 << 32, len(array), np.uint32)
            try:
                armed = True
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 0.03))
                kernel.launch(64, 128, [array, count], engine=engine)
                armed = False
            except KeyboardInterrupt:
                armed = False
                undone += bool((array == given).all())
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert (array == given).all() or (array == given + np.uint32(1)).all()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert undone


def test_read_only_arrays_are_never_written(scatter):
    array = np.zeros(64, "u4")
    array.flags.writeable = False
    memory = Memory()
    memory.map(AT, array)
    for engine in ENGINES:
        with pytest.raises(EmulatorError, match="read-only"):
            scatter.launch(1, 32, [np.full(32, AT, "u8"), 0, NEVER], memory=memory, engine=engine)
    assert not array.any()


def test_arrays_that_overlap_share_their_bytes(adds):
    """The one that spans the others is worked on in place, else copies are."""
    base = np.zeros(64, "u4")
    memory = Memory()
    kernel = Module(
        HEAD
        + """
    .visible .entry both(.param .u64 a, .param .u64 b)
    {
        .reg .b64 %a, %b; .reg .b32 %x;
        ld.param.u64 %a, [a]; ld.param.u64 %b, [b];
        st.global.u32 [%a+64], 5;
        ld.global.u32 %x, [%b]; add.u32 %x, %x, 1; st.global.u32 [%b], %x;
        ret;
    }
    """
    )["both"]
    for first in (base, base[:32]):
        base[:] = 0
        kernel.launch(1, 1, [first, base[16:]], memory=memory)
        assert base[16] == 6 and base.sum() == 6
