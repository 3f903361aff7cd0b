"""wmma.load and wmma.store as native code: the bytes and the errors of the vector engine."""

from contextlib import suppress
from operator import itemgetter

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
_WINDOW = 4096
#: bytes of its words in all lanes, at most
_WORDS = 1024


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


def transfer(number, opcode, stride, offset=0):
    """Registers and statements of a matrix to or from the window of that number, and to or from
    the lanes' words of `a` or `c`."""
    ins = TRANSFERS[opcode]
    fragment = ins.fragment("r")
    size, count = fragment.word_bits, fragment.registers
    names = [f"%w{number}_{i}" for i in range(count)]
    vector, step = "{" + ", ".join(names) + "}", "" if stride is None else f", {stride}"
    base = "%rd8" if "shared" in opcode else "%rd2"
    place = f"[{base}+{number * _WINDOW + offset}]"
    # A matrix may lie in memory as its words do in lanes: what is stored is other words of `a`.
    first = (number + (ins.verb == "store")) * _WORDS
    at = [first + i * size // 8 for i in range(count)]
    lanes = (
        f"mad.wide.u32 %rd6, %r1, {count * size // 8}, {'%rd3' if ins.verb == 'load' else '%rd1'};"
    )
    if ins.verb == "load":
        act = f"{opcode} {vector}, {place}{step};"
        rest = [f"st.global.b{size} [%rd6+{x}], {name};" for x, name in zip(at, names, strict=True)]
        statements = [lanes, act, *rest]
    else:
        loads = [
            f"ld.global.b{size} {name}, [%rd6+{x}];" for x, name in zip(at, names, strict=True)
        ]
        statements = [lanes, *loads, f"{opcode} {place}, {vector}{step};"]
    return f".reg .b{size} {', '.join(names)};\n" + "\n".join(statements)


def text_of(*transfers):
    """All bytes of `a` go to shared memory, matrices to or from there or `b`, then all to `c`."""
    room = _WINDOW * len(transfers)
    acts = [transfer(i, *given) for i, given in enumerate(transfers)]
    return f"""{HEAD}.visible .entry go(.param .u64 a, .param .u64 b, .param .u64 c) {{
    .shared .align 128 .b8 room[{room}]; .reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .pred %p;
    ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c];
    mov.u32 %r1, %tid.x; mov.u64 %rd8, room; mov.u32 %r2, %r1; mov.u32 %r3, room;
    IN: mul.wide.u32 %rd9, %r2, 4; add.u64 %rd10, %rd1, %rd9; ld.global.u32 %r5, [%rd10];
    mad.lo.u32 %r6, %r2, 4, %r3; st.shared.u32 [%r6], %r5; add.u32 %r2, %r2, 32;
    setp.lt.u32 %p, %r2, {room // 4}; @%p bra IN;
    bar.sync 0;
    {" ".join(acts)}
    bar.sync 0; mov.u32 %r2, %r1; add.u64 %rd3, %rd3, {len(transfers) * _WORDS};
    OUT: mul.wide.u32 %rd9, %r2, 4; add.u64 %rd10, %rd3, %rd9; mad.lo.u32 %r6, %r2, 4, %r3;
    ld.shared.u32 %r5, [%r6]; st.global.u32 [%rd10], %r5; add.u32 %r2, %r2, 32;
    setp.lt.u32 %p, %r2, {room // 4}; @%p bra OUT; ret; }}"""


def given(count=1):
    room = _WINDOW // 4 * count
    return [words(room), words(room, 1), np.zeros(room + _WORDS // 4 * count, np.uint32)]


def with_strides(opcode):
    """A transfer in the matrix's own rows, and one in longer ones."""
    ins = TRANSFERS[opcode]
    unit = 8 * ins.alignment // ins.fragment("r").fmt.bits
    return (opcode, None), (opcode, ins.default_stride + 3 * unit)


def check(*opcodes):
    """One kernel with each of these transfers twice."""
    transfers = [x for opcode in opcodes for x in with_strides(opcode)]
    text, before = text_of(*transfers), given(len(transfers))
    go = Module(text)["go"]
    program = go.rewritten[0]
    for opcode in opcodes:
        one = next(x for x in program.statements if str(x.instruction) == opcode)
        assert can_translate(one, program.functions["go"], go.module.target)
    (_, b, c), _ = assert_same(text, 1, 32, before)
    # What lanes loaded, what lies in `b`, and what lay in shared memory: a window for each.
    loaded = np.frombuffer(c, "u1")[: _WORDS * len(transfers)].reshape(-1, _WORDS)
    shared = np.frombuffer(c, "u1")[loaded.size :].reshape(-1, _WINDOW)
    was_b, was_shared = (x.view("u1").reshape(-1, _WINDOW) for x in (before[1], before[0]))
    for i, (opcode, _) in enumerate(transfers):
        if TRANSFERS[opcode].verb == "load":
            assert loaded[i].any()
        elif ".shared" in opcode:
            assert (shared[i] != was_shared[i]).any()
        else:
            assert (np.frombuffer(b, "u1").reshape(-1, _WINDOW)[i] != was_b[i]).any()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("opcode", list(TRANSFERS)[:: max(1, len(TRANSFERS) // 12)])
def test_transfers(opcode):
    check(opcode)


#: each of them in one of the three spaces that it may name, which have nothing to do with its lines
EACH = [x for i, x in enumerate(TRANSFERS) if i % 3 == i // 3 % 3]


@pytest.mark.slow
@swept([EACH[i : i + 10] for i in range(0, len(EACH), 10)], 4, ids=itemgetter(0))
def test_every_transfer(opcodes):
    check(*opcodes)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("stride", "offset"), [(4, 0), (17, 0), (16, 4), (16, _WINDOW - 256), (600, 0)]
)
def test_what_is_refused(stride, offset):
    # Of global memory the message names an address of this process.
    for space in ("shared", "global") if offset != 4 else ("shared",):
        opcode = f"wmma.store.d.sync.aligned.row.m16n16k16.{space}.f32"
        found = assert_same(text_of((opcode, stride, offset)), 1, 32, given())
        assert isinstance(found[0], str)


def test_a_wrong_line_is_noticed(monkeypatch):
    right = wmma_lines._elements
    monkeypatch.setattr(
        wmma_lines,
        "_elements",
        lambda ins: (x._replace(offsets=x.offsets[::-1]) for x in right(ins)),
    )
    with pytest.raises(AssertionError):
        assert_same(text_of(("wmma.load.a.sync.aligned.row.m16n16k16.f16", 48)), 1, 32, given())
