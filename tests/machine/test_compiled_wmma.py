"""wmma.load and wmma.store as native code: the bytes and the errors of the vector engine."""

from contextlib import suppress

import numpy as np
import pytest
from sweeps import swept
from test_compiled_engine import HEAD, assert_same, words

from emulator import EmulatorError, Instruction, Module
from emulator.isa.wmma import FORMS
from emulator.machine.compiled import wmma_lines
from emulator.machine.compiled.translation import can_translate

pytestmark = pytest.mark.sampled(4)

#: bytes of the memory that a matrix lies in
_ROOM = 16384


def transfers():
    """Every wmma.load and wmma.store by its opcode, in global and shared memory and neither."""
    out = {}
    for form in FORMS:
        for shape in form.shapes.split():
            accumulators = {x for pair in form.dc.split() for x in pair.split(".")}
            kinds = [("load", m, form.types.split()) for m in "ab"]
            kinds += [("load", "c", accumulators), ("store", "d", accumulators)]
            for verb, matrix, types in kinds:
                for type_ in sorted(types):
                    for layout in ("row", "col"):
                        for space in (".global", ".shared", ""):
                            opcode = (
                                f"wmma.{verb}.{matrix}.sync.aligned.{layout}.{shape}{space}.{type_}"
                            )
                            with suppress(EmulatorError):
                                out[opcode] = Instruction.parse(opcode)
    return out


TRANSFERS = transfers()


def text_of(opcode, stride, offset=0):
    """All bytes of `a` go to shared memory, a matrix to or from there or `b`, then all to `c`."""
    ins = TRANSFERS[opcode]
    fragment = ins.fragment("r")
    size, count = fragment.word_bits, fragment.registers
    names = [f"%w{i}" for i in range(count)]
    vector, step = "{" + ", ".join(names) + "}", "" if stride is None else f", {stride}"
    place = f"[%rd7+{offset}]"
    if ins.verb == "load":
        act = f"{opcode} {vector}, {place}{step};"
        after = "".join(
            f"st.global.b{size} [%rd5+{i * size // 8}], {x};" for i, x in enumerate(names)
        )
    else:
        loads = (f"ld.global.b{size} {x}, [%rd4+{i * size // 8}];" for i, x in enumerate(names))
        act, after = "".join(loads) + f"{opcode} {place}, {vector}{step};", ""
    shared = "shared" in opcode
    return f"""{HEAD}.visible .entry go(.param .u64 a, .param .u64 b, .param .u64 c) {{
    .shared .align 128 .b8 room[{_ROOM}]; .reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .pred %p;
    .reg .b{size} %w<{count}>;
    ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c];
    mov.u32 %r1, %tid.x; mul.wide.u32 %rd8, %r1, {count * size // 8}; add.u64 %rd4, %rd1, %rd8;
    add.u64 %rd5, %rd3, %rd8; mov.u64 %rd7, {"room" if shared else "%rd2"};
    mov.u32 %r2, %r1; mov.u32 %r3, room;
    IN: mul.wide.u32 %rd9, %r2, 4; add.u64 %rd10, %rd1, %rd9; ld.global.u32 %r5, [%rd10];
    mad.lo.u32 %r6, %r2, 4, %r3; st.shared.u32 [%r6], %r5; add.u32 %r2, %r2, 32;
    setp.lt.u32 %p, %r2, {_ROOM // 4}; @%p bra IN;
    bar.sync 0; {act} {after} bar.sync 0; mov.u32 %r2, %r1;
    OUT: mul.wide.u32 %rd9, %r2, 4; add.u64 %rd10, %rd3, %rd9; mad.lo.u32 %r6, %r2, 4, %r3;
    ld.shared.u32 %r5, [%r6]; st.global.u32 [%rd10+4096], %r5; add.u32 %r2, %r2, 32;
    setp.lt.u32 %p, %r2, {_ROOM // 4}; @%p bra OUT; ret; }}"""


def given():
    return [words(_ROOM // 4), words(_ROOM // 4, 1), np.zeros(_ROOM // 4 + 1024, np.uint32)]


def check(opcode):
    ins = TRANSFERS[opcode]
    unit = 8 * ins.alignment // ins.fragment("r").fmt.bits
    for stride in (None, ins.default_stride + 3 * unit):
        text = text_of(opcode, stride)
        go = Module(text)["go"]
        program = go.rewritten[0]
        one = next(x for x in program.statements if str(x.instruction) == opcode)
        assert can_translate(one, program.functions["go"], go.module.target)
        held, _ = assert_same(text, 1, 32, given())
        assert held[2] != given()[2].tobytes()


@pytest.mark.parametrize("opcode", list(TRANSFERS)[:: max(1, len(TRANSFERS) // 12)])
def test_transfers(opcode):
    check(opcode)


@pytest.mark.slow
@swept(list(TRANSFERS))
def test_every_transfer(opcode):
    check(opcode)


@pytest.mark.parametrize(
    ("stride", "offset"), [(4, 0), (17, 0), (16, 4), (16, _ROOM - 256), (600, 0)]
)
def test_what_is_refused(stride, offset):
    # Of global memory the message names an address of this process.
    for space in ("shared", "global") if offset != 4 else ("shared",):
        opcode = f"wmma.store.d.sync.aligned.row.m16n16k16.{space}.f32"
        found = assert_same(text_of(opcode, stride, offset), 1, 32, given())
        assert isinstance(found[0], str)


def test_a_wrong_line_is_noticed(monkeypatch):
    right = wmma_lines._elements
    monkeypatch.setattr(
        wmma_lines,
        "_elements",
        lambda ins: (x._replace(offsets=x.offsets[::-1]) for x in right(ins)),
    )
    with pytest.raises(AssertionError):
        assert_same(text_of("wmma.load.a.sync.aligned.row.m16n16k16.f16", 48), 1, 32, given())
