"""Variables of the source: what nvcc -G says about registers, read from the PTX."""

import random
import shutil

import numpy as np
import pytest
from debugged import HEAD

from emulator import Module, OperandError
from emulator.machine.debugger.variables import variables_of

SOURCE = """__device__ __noinline__ float helper(float value, int twice) {
    float local = value * twice;
    return local + 1.0f;
}
extern "C" __global__ void scale(const float* in, float* out, int count) {
    int index = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int step = 0; step < count; step++) {
        sum += helper(in[index], step);
    }
    out[index] = sum;
}
"""
#: one variable "n" of type int in %r1 from MARK on; what stands before is its abbreviations
SECTIONS = """
 .section .debug_abbrev
 {
.b8 1,17,1,0,0
.b8 2,46,1,17,1,18,1,0,0
.b8 3,52,0,2,10,3,8,73,19,0,0
.b8 4,36,0,62,11,11,11,0,0
.b8 0
 }
 .section .debug_info
 {
.b32 55
.b8 2,0
.b32 .debug_abbrev
.b8 8
.b8 1
.b8 2
.b64 MARK
.b64 DONE
.b8 3
.b8 5,144,177,228,149,1
.b8 110,0
.b32 54
.b8 0
.b8 4
.b8 5,4
.b8 0,0
 }
"""
TEXT = (
    HEAD
    + """.visible .entry go(.param .u64 a)
{
 .reg .b32 %r<3>;
 mov.u32 %r1, 5;
 mov.u32 %r2, %laneid;
MARK:
 add.u32 %r1, %r1, %r2;
 mov.u32 %r2, %r1;
DONE:
 ret;
}"""
)


def debug(text):
    return Module(text)["go"].debug(1, 32, [np.zeros(4, "u4")])


def sections():
    """The sections with the offset of the type and the size of the unit as they are."""
    head = 11 + 1 + 1 + 16 + 1 + 6 + 2 + 4 + 1
    return SECTIONS.replace(".b32 54", f".b32 {head}").replace(".b32 55", f".b32 {head + 1}")


def test_a_variable_has_its_place_between_its_labels():
    with debug(TEXT + sections()) as d:
        assert d.variables().data == {}
        d.until("add")
        assert d.variables().data == {"n": 5} and d.value("n * 2") == 10
        d.stepi()
        assert d.values("n") == [5 + i for i in range(32)]
        assert "n" in str(d.registers("%r1")).splitlines()[2].split()
        d.until("ret")
        assert d.variables().data == {} and "nvcc -G" in str(d.variables())
        with pytest.raises(OperandError, match="no register, variable or parameter 'n'"):
            d.value("n")


def test_damaged_sections_name_nothing_and_raise_nothing():
    program, rng = Module(TEXT)["go"].rewritten[0], random.Random(0)
    whole = sections()
    (found,) = variables_of(TEXT + whole, program)
    assert found == ("n", "%r1", "s32", 2, 4)
    numbers = [i for i, x in enumerate(whole.split(",")) if x.isdigit()]
    for _ in range(300):
        parts = whole.split(",")
        for _ in range(rng.randint(1, 3)):
            parts[rng.choice(numbers)] = str(rng.randrange(256))
        variables_of(TEXT + ",".join(parts), program)
    lines = whole.splitlines()
    for i in range(len(lines)):
        variables_of(TEXT + "\n".join(lines[:i] + lines[i + 1 :]), program)
    assert variables_of(TEXT, program) == ()


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_variables_of_nvcc_are_followed_from_register_to_register(tmp_path):
    path = tmp_path / "kernel.cu"
    path.write_text(SOURCE)
    values, out = np.arange(32, dtype="f4"), np.zeros(32, "f4")
    kernel = Module.from_cuda(path, options=("-G",))["scale"]
    with kernel.debug(1, 32, [values, out, 3]) as d:
        d.break_at("kernel.cu:2", condition="twice == 2")
        assert d.cont().line.number == 2 and d.variables().data["twice"] == 2
        assert d.values("value") == values.tolist()
        assert d.finish().line.number == 9
        d.until("kernel.cu:11")
        assert d.values("sum") == [3 + 3.0 * i for i in range(32)]
        assert d.values("index") == list(range(32)) and d.value("count") == 3
        assert d.variables().data["in"] == d.value("in") > 1 << 32
        with pytest.raises(OperandError, match=r"index is in (%r\d+) at this statement: watch \1"):
            d.watch("index")
        # Source lines, backward over the call.
        assert d.next(reverse=True).line.number < 11
        d.delete(1)
        assert d.break_at("9").text == "kernel.cu:9"
        assert d.cont(reverse=True).line.number == 9 and d.value("step") == 2
