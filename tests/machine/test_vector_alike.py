"""Neighbours that do the same to different registers compute together what they compute alone."""

import numpy as np
import pytest
from test_reference_engine import U32, both, differences, kernel, words

from emulator.machine.vector import alike

#: eight of a kind, neighbours that read what the one before has written or that overwrite what it
#: has read, that write one register, and that differ
BODY = """ld.global.u32 %r4, [%rd1]; mov.u32 %r5, 77;
    add.u32 %r10, %r4, 1; add.u32 %r11, %r4, 2; add.u32 %r12, %r5, 3; add.u32 %r13, %r4, %r3;
    add.u32 %r14, %r13, 5; add.u32 %r15, %r14, 6; add.u32 %r16, %r4, 7; add.u32 %r17, %r4, %r5;
    xor.b32 %r20, %r10, %r11; xor.b32 %r11, %r12, %r13; xor.b32 %r12, %r13, %r14;
    xor.b32 %r12, %r15, %r16; xor.b32 %r16, %r17, 9; xor.b32 %r21, %r4, 1; xor.b32 %r22, %r4, 2;
    mul.lo.u32 %r23, %r5, 3; mul.lo.u32 %r24, %r5, 5; mul.lo.u32 %r25, %r5, 7; sub.u32 %r26, 1, %r4;
    setp.lt.u32 %p1, %r10, %r4; setp.lt.u32 %p2, %r11, %r5; setp.lt.u32 %p3, %r12, 1000000000;
    @%p1 add.u32 %r20, %r20, 1; @%p2 add.u32 %r20, %r20, 2; @%p3 add.u32 %r20, %r20, 4;
    mul.wide.u32 %rd4, %r4, %r10; mul.wide.u32 %rd5, %r5, 3; mul.wide.u32 %rd6, %r3, %r11;
    xor.b64 %rd4, %rd4, %rd5; xor.b64 %rd4, %rd4, %rd6; cvt.u32.u64 %r27, %rd4;
    ex2.approx.f32 %f1, %f2; mad.lo.u32 %r20, %r20, 31, %r27;
""" + "".join(
    f"mad.lo.u32 %r20, %r20, 31, %r{i}; " for i in (11, 12, 15, 16, 21, 22, 23, 24, 25, 26)
) + "st.global.u32 [%rd2], %r20;"  # fmt: skip


@pytest.mark.parametrize("block", [64, 20])
def test_neighbours_depend_on_each_other(block):
    both(kernel(BODY), 2, block, [words(2 * block), np.zeros(2 * block, U32)])


@pytest.mark.parametrize("first", ["@%p1 add.u32 %r6, %r4, 1;", "add.u32 %r6, 5, 1;"])
def test_a_statement_of_another_sort_before_its_likes(first):
    """A guard that few lanes pass, or constants alone; what is written is read behind it."""
    body = f"""ld.global.u32 %r4, [%rd1]; mov.u32 %r6, 9; setp.lt.u32 %p1, %r3, 5; {first}
    add.u32 %r7, %r6, %r4; add.u32 %r8, %r6, %r3; add.u32 %r9, %r4, %r3;
    mad.lo.u32 %r7, %r7, %r8, %r9; mad.lo.u32 %r7, %r7, 31, %r6; st.global.u32 [%rd2], %r7;"""
    both(kernel(body), 2, 64, [words(128), np.zeros(128, U32)])


def test_each_carry_is_of_the_last():
    body = """ld.global.u32 %r4, [%rd1]; add.cc.u32 %r5, %r4, %r4; add.cc.u32 %r6, %r4, 5;
    add.cc.u32 %r7, %r4, %r3; addc.u32 %r8, %r4, 0; xor.b32 %r8, %r8, %r7; xor.b32 %r8, %r8, %r5;
    mad.lo.u32 %r8, %r8, 31, %r6; st.global.u32 [%rd2], %r8;"""
    both(kernel(body), 2, 64, [words(128), np.zeros(128, U32)])


def test_many_lanes_compute_one_after_the_other(monkeypatch):
    given = [words(128), np.zeros(128, U32)]
    want = both(kernel(BODY), 2, 64, given)[1]
    monkeypatch.setattr(alike, "_WORDS", 1 << 8)
    assert (both(kernel(BODY), 2, 64, given)[1] == want).all()


def test_a_wrong_row_is_noticed(monkeypatch):
    right = alike._rows
    monkeypatch.setattr(alike, "_rows", lambda found: right(found)[::-1])
    assert differences(kernel(BODY), 2, 64, [words(128), np.zeros(128, U32)])[0] == [1]


def test_who_computes_together(monkeypatch):
    right, found = alike._together, []
    monkeypatch.setattr(alike, "_together", lambda *x: found.append(len(x[0])) or right(*x))
    both(kernel(BODY), 2, 64, [words(128), np.zeros(128, U32)])
    assert found == [4, 3, 3, 4, 3, 3, 3]
