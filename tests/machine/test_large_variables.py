"""Variables of a module take memory where something is written to them, and copies of them none."""

from pathlib import Path

import numpy as np
import pytest

from emulator import KernelError, Module, OperandError
from emulator.memory import untouched
from emulator.memory.shadow import GlobalShadow

TEXT = """
.version 8.0
.target sm_90
.address_size 64
.global .align 4 .b8 g[SIZE];
.global .align 4 .u32 first[4] = {1, 2, 3};
.visible .entry nothing(.param .u64 p) { ret; }
.visible .entry adds(.param .u64 p)
{
    .reg .b64 %rd<5>; .reg .b32 %r<5>;
    mov.u64 %rd1, g;
    ld.param.u64 %rd2, [p];
    add.u64 %rd1, %rd1, %rd2;
    red.global.add.u32 [%rd1], 5;
    ret;
}
"""
LARGE = 1_000_000_000


def resident() -> int:
    """Bytes of memory that the process has."""
    return 4096 * int(Path("/proc/self/statm").read_text().split()[1])


@pytest.mark.parametrize("options", [
    {"engine": "reference"}, {"engine": "vector"}, {"engine": "compiled"}, {"check": True},
], ids=str)  # fmt: skip
def test_a_large_variable_takes_no_memory(options):
    module = Module(TEXT.replace("SIZE", str(LARGE)))
    before = resident()
    during = []
    for name, place in (("nothing", 0), ("adds", LARGE // 2), ("adds", LARGE // 2)):
        module[name].launch(
            1, 32, [np.uint64(place)], progress=lambda *_: during.append(resident()), **options
        )
    assert len(during) >= 3
    assert max(during) - before < 200e6
    held = module.variable("g")[LARGE // 2 - 4 :]
    assert held[:16].view("u4").tolist() == [0, 2 * 32 * 5, 0, 0]


def test_an_error_leaves_variables_as_they_were():
    module = Module(TEXT.replace("SIZE", str(LARGE)))
    module["adds"].launch(1, 1, [np.uint64(8)])
    with pytest.raises(KernelError, match="misaligned"):
        module["adds"].launch(1, 2, [np.uint64(10)])
    assert module.variable("g")[:16].view("u4").tolist() == [0, 0, 5, 0]
    assert module.variable("first").view("u4").tolist() == [1, 2, 3, 0]


def test_a_caller_may_write_a_variable():
    module = Module(TEXT.replace("SIZE", str(3 << 20)))
    held = module.variable("g")
    held[-4:] = 1, 2, 0, 0
    module["adds"].launch(1, 1, [np.uint64((3 << 20) - 4)])
    assert held[-4:].tolist() == [6, 2, 0, 0]


def test_more_than_the_system_has(monkeypatch):
    def refuse(*_):
        raise MemoryError

    monkeypatch.setattr(untouched.np, "zeros", refuse)
    with pytest.raises(OperandError, match="there is no memory for 1,000,000,000 bytes"):
        untouched.zeros(LARGE)


def test_what_grows_keeps_what_it_held():
    shadow = GlobalShadow(10 << 20, 4)
    shadow.written[[0, 5, (5 << 19) - 1]] = 1, 2, 3
    shadow.reader[1, -1] = 9
    shadow.need(11 << 20)
    assert shadow.written[[0, 5, (5 << 19) - 1]].tolist() == [1, 2, 3]
    assert shadow.written.sum() == 6 and len(shadow.written) == 11 << 18
    assert shadow.reader.shape == (2, 11 << 18)
    assert shadow.reader[1, (10 << 18) - 1] == shadow.reader.sum() == 9
