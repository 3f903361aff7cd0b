"""printf, assert, malloc and free of kernels: tests/cuda/system.cu, compiled by nvcc 13.0."""

import ctypes
import math
import struct

import numpy as np
import pytest
from paths import CUDA

from emulator import KernelError, Module
from emulator.machine.system.externals import EXTERNALS

SYSTEM = Module(CUDA / "system.ptx")


def c_printf(form, *values):
    """The text that the C library of this machine makes."""
    libc = ctypes.CDLL(None)
    buffer = ctypes.create_string_buffer(4096)
    given = [ctypes.c_double(v) if isinstance(v, float) else v for v in values]
    libc.snprintf(buffer, 4096, form.encode(), *given)
    return buffer.value.decode()


class Host:
    """A thread whose memory is one array of bytes."""

    def __init__(self, form, *values):
        self.printed = []
        self.memory = bytearray(8)
        self.format = self._put(form.encode() + b"\0")
        texts = {
            i: self._put(v.encode() + b"\0") for i, v in enumerate(values) if isinstance(v, str)
        }
        self.memory += bytes(-len(self.memory) % 8)
        self.arguments = len(self.memory)
        for i, value in enumerate(values):
            if isinstance(value, float):
                raw = struct.pack("<d", value)
            elif isinstance(value, str):
                raw = struct.pack("<Q", texts[i])
            elif isinstance(value, ctypes.c_longlong):
                raw = struct.pack("<q", value.value)
            else:
                raw = struct.pack("<i", value)
            self.memory += bytes(-len(self.memory) % len(raw)) + raw

    def _put(self, raw):
        place = len(self.memory)
        self.memory += raw
        return place

    def read(self, address, size):
        return bytes(self.memory[address : address + size])

    def text(self, address):
        return bytes(self.memory[address:]).partition(b"\0")[0].decode()

    def print(self, text):
        self.printed.append(text)


def vprintf(form, *values):
    """What is printed, and the value that the function returns."""
    host = Host(form, *values)
    count = EXTERNALS["vprintf"](host, [host.format, host.arguments])
    return host.printed[0], count


def printed(form, *values):
    text, count = vprintf(form, *values)
    assert count == len(values)
    return text


_FLAGS = ("", "-", "+", "0", " ", "#")
INTEGERS = [
    f"%{flags}{width}{precision}{kind}"
    for kind in "diuxXo"
    for flags in _FLAGS
    for width in ("", "9")
    for precision in ("", ".4", ".0")
]
FLOATS = [
    f"%{flags}{width}{precision}{kind}"
    for kind in "fFeEgGaA"
    for flags in _FLAGS
    for width in ("", "14")
    for precision in ("", ".0", ".3")
]


@pytest.mark.parametrize("value", [0, 1, -1, 12345, -(2**31), 2**31 - 1])
def test_integers_as_the_c_library(value):
    for form in INTEGERS:
        assert printed(form, value) == c_printf(form, value), form


@pytest.mark.parametrize(
    "value",
    [0.0, -0.0, 1.0, -2.5, math.pi * 1e10, 5e-324, 1e-7, 0.1, math.inf, -math.inf, math.nan],
)
def test_floats_as_the_c_library(value):
    for form in FLOATS:
        if "#" in form and form[-1] in "aA":
            continue  # a point behind a single digit is all that # adds
        assert printed(form, value) == c_printf(form, value), form


def test_texts_sizes_and_stars():
    assert (
        printed("%s|%8s|%-8s|%.2s|%c", "abc", "de", "fg", "hij", 65) == "abc|      de|fg      |hi|A"
    )
    assert printed("%hd %hu", 40000, -1) == "-25536 65535"
    assert vprintf("%hhd %hhu", 300, -1) == ("44 255", 0)
    wide = ctypes.c_longlong(-(2**40))
    assert printed("%lld %d %lx", wide, 7, wide) == f"{-(2**40)} 7 {2**64 - 2**40:x}"
    assert printed("%*d|%-*d", 5, 42, 5, 42) == "   42|42   "
    assert printed("100%% %p", ctypes.c_longlong(0)) == "100% (nil)"


PI = 3.14159


@pytest.mark.parametrize(
    ("form", "values", "want"),
    [
        ("a %.*f %%", (2, PI), ("a %.*f %", 0)),
        ("%d %d %.*f", (1, 2, 3, PI), ("1 2 %.*f", 2)),
        ("%*d %.*f", (7, 1, 2, PI), ("      1 %.*f", 2)),
        ("%*d|%-*d", (5, 42, 5, 42), ("   42|42   ", 4)),
        ("%s %.*s", ("q", 2, "abc"), ("q %.*s", 1)),
        ("%f %.3f %5.1f", (PI, PI, PI), ("3.141590 3.142   3.1", 3)),
        ("%.*d", (3, 9), ("%.*d", 0)),
        ("%.f|%d", (PI, 4), ("3|4", 2)),
        ("%*.2f|%0*d|%-*d", (7, PI, 5, 1, 5, 1), ("   3.14|00001|1    ", 6)),
        ("%lf %lc %ls %hd", (PI, 65, "st", 1), ("3.141590 A st 1", 4)),
    ],
)
def test_what_an_h200_printed_and_returned(form, values, want):
    assert vprintf(form, *values) == want


@pytest.mark.parametrize(
    ("form", "count"),
    [("%hhd %d %d", 2), ("%hhx", 0), ("%zu %d", 1), ("%jd", 0), ("%td %d %d", 2), ("%5.*f|%d", 1),
     ("%d %5.*f|%d %d", 3), ("%.*f %d %d %d", 3), ("%d|%.*d|%d", 2), ("%.*s|%d", 1)],
)  # fmt: skip
def test_what_an_h200_counts(form, count):
    """Its text ends in garbage then; here it has the program's arguments."""
    assert vprintf(form, 1, 2, 3, 4, 5, 6)[1] == count


def test_a_kernel_prints_thread_by_thread():
    out = np.zeros(32, "f4")
    report = SYSTEM["say"].launch(1, 32, [2, 3.25, out])
    assert report.printed[0] == "t0   -50|0    |00000|+0| 0|ff|0XFF|10|4000000000|a|even|%\n"
    assert report.printed[1] == "t1   -13|1    |-0001|+1| 1|100|0X100|11|4000000001|b|odd|%\n"
    assert report.printed[3].startswith("3.250000 3.250000e+00 1.08333 3.25E+20 3.250 ")
    assert out[:3].tolist() == [1216, 1216, 0]  # as on an H200


def test_malloc_and_free():
    out = np.zeros(64, "i4")
    SYSTEM["heap"].launch(1, 40, [out])
    assert out[:40].tolist() == [t * t * (t + 1) // 2 for t in range(40)]
    with pytest.raises(KernelError, match=r"free: 0x\w+ was freed before\n.*thread \(40, 0, 0\)"):
        SYSTEM["heap"].launch(1, 64, [out])


def test_a_failed_assertion_says_where():
    out = np.arange(64, dtype="i4")
    with pytest.raises(KernelError) as caught:
        SYSTEM["check"].launch(1, 64, [out, 50])
    assert caught.value.kind == "assertion"
    assert "`out[threadIdx.x] < n` failed" in caught.value.reason
    assert caught.value.threads[0] == (50, 0, 0)
    assert caught.value.source == "system.cu:20"
    assert (out == np.arange(64)).all()


def test_memory_ends_with_free():
    text = """
    .version 8.0
    .target sm_80
    .address_size 64
    .extern .func (.param .b64 r) malloc (.param .b64 n);
    .extern .func free (.param .b64 p);
    .visible .entry k(.param .u64 out)
    {
        .reg .b64 %p; .reg .b32 %x;
        .param .b64 n; .param .b64 r;
        st.param.b64 [n], SIZE; call (r), malloc, (n); ld.param.b64 %p, [r];
        BODY
        ret;
    }
    """
    use = "{ .param .b64 q; st.param.b64 [q], %p; call free, (q); } ld.u32 %x, [%p];"
    with pytest.raises(KernelError, match="use after free: malloc 0 of 16 bytes"):
        Module(text.replace("SIZE", "16").replace("BODY", use))["k"].launch(1, 1, [0])
    store = ".reg .b64 %o; ld.param.u64 %o, [out]; st.u64 [%o], %p;"
    out = np.ones(1, "u8")
    Module(text.replace("SIZE", str(1 << 40)).replace("BODY", store))["k"].launch(1, 1, [out])
    assert out[0] == 0
    with pytest.raises(KernelError, match="is nothing that malloc gave"):
        Module(text.replace("SIZE", "16").replace(
            "BODY", "{ .param .b64 q; st.param.b64 [q], 4096; call free, (q); }"
        ))["k"].launch(1, 1, [0])  # fmt: skip
