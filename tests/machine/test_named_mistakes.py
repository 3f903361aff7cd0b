"""Findings that name the mistake: the wait that leaves a group, advice that fits, lists."""

import numpy as np
import pytest

from emulator import Module
from emulator.machine.checks.finding import Finding, Party, merged
from emulator.machine.shared.place import Place
from emulator.ptx.source import Source

TEXT = """.version 8.3
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 p) DIRECTIVE
{
 .shared .align 128 .b8 tile[4096];
 .reg .b32 %r<99>; .reg .b64 %rd<9>; .reg .b16 %h<4>;
 ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; mov.u32 %r9, tile; mad.lo.u32 %r9, %r1, 16, %r9;
 mul.wide.u32 %rd2, %r1, 16; add.u64 %rd2, %rd1, %rd2;
 BODY
 ret;
}
"""
COPIES = (
    "cp.async.ca.shared.global [%r9], [%rd2], 16; cp.async.commit_group;\n"
    "cp.async.ca.shared.global [%r9+1024], [%rd2], 16; COMMIT\n"
    "cp.async.wait_group LEFT;\n ld.shared.u16 %h1, [%r9+1024]; "
)
STORES = (
    "mov.u32 %r2, tile; cvta.to.global.u64 %rd3, %rd1; fence.proxy.async;\n"
    "cp.async.bulk.global.shared::cta.bulk_group [%rd3], [tile], 16; cp.async.bulk.commit_group;\n"
    "cp.async.bulk.wait_group.read LEFT;\n st.shared.u16 [tile+2], %h2;"
)
PEERS = (
    "mov.u32 %r2, %cluster_ctarank; xor.b32 %r3, %r2, 1; mov.u32 %r4, tile; "
    "mapa.shared::cluster.u32 %r5, %r4, %r3; barrier.cluster.arrive; barrier.cluster.wait; "
    "st.shared::cluster.u32 [%r5], %r2; ld.shared.u32 %r6, [tile]; "
    "barrier.cluster.arrive; barrier.cluster.wait;"
)


def findings(body, grid=1, block=32, directive=""):
    text = TEXT.replace("BODY", body).replace("DIRECTIVE", directive)
    return Module(text)["k"].launch(grid, block, [np.zeros(4096, "u4")], check=True).findings


@pytest.mark.parametrize("left, commit, said", [
    ("1", "cp.async.commit_group;", "; cp.async.wait_group 1 at PTX line 12 leaves its group"),
    ("0", "", "; no commit_group follows it before the wait at PTX line 12"),
    ("0", "cp.async.commit_group;", ""),
])  # fmt: skip
def test_a_wait_that_leaves_a_group_is_named(left, commit, said):
    found = findings(COPIES.replace("LEFT", left).replace("COMMIT", commit))
    assert [x.kind for x in found] == ["read before wait"] * bool(said)
    assert all(said in x.reason and x.reason.startswith("reads tile[512],") for x in found)


def test_a_missing_barrier_is_not_said_to_be_the_waits():
    """The copies are complete for their thread; another one reads."""
    body = COPIES.replace("LEFT", "0").replace("COMMIT", "cp.async.commit_group;")
    (found,) = findings(body.replace("[%r9+1024];", "[tile+1024];"))
    assert "wait_group" not in found.reason


def test_a_bulk_wait_that_leaves_a_group_is_named():
    kinds = {x.kind: x.reason for x in findings(STORES.replace("LEFT", "1"), block=1)}
    assert "cp.async.bulk.wait_group.read 1 at PTX line 12 leaves" in kinds["overwritten too early"]
    kinds = {x.kind: x.reason for x in findings(STORES.replace("LEFT", "0"), block=1)}
    assert "overwritten too early" not in kinds


def test_no_barrier_is_advised_where_none_helps():
    body = "mov.u32 %r3, %ctaid.x; st.global.u32 [%rd1], %r3;"
    (found,) = findings(body, grid=2)
    assert found.kind == "race between blocks" and "make it atomic" in found.advice
    (found,) = findings("st.shared.u32 [tile+96], %r1;")
    assert found.kind == "race" and "no barrier can stand within" in found.advice
    assert "to tile[24] in" in found.reason
    cluster = ".reqnctapercluster 2, 1, 1"
    advice = [x.advice for x in findings(PEERS, 2, 1, cluster) if x.kind == "race"]
    assert advice and all("barrier of the cluster" in x for x in advice)


def place(line, source=(), statement="st.shared.u32 [%r1], 0;"):
    return Place("k", line, 1, statement, source)


def finding(line, reason="tile[3] is read", **of_place):
    return Finding("race", reason, Party(place(line, **of_place), (0, 0, 0), ()), count=2)


def test_findings_of_one_source_line_are_one_with_a_list():
    alike = [finding(i, f"tile[{i}] is read", source=("a.cu:7",)) for i in range(1, 26)]
    (one,) = merged(alike)
    assert (one.line, one.count, len(one.others)) == (1, 50, 24)
    assert "the same at 24 more statements, PTX lines 2, 3, 4," in str(one)
    assert one.data["others"] == list(range(2, 26))
    apart = [*alike[:2], finding(30, source=("a.cu:8",)), finding(31, "x is read")]
    assert len(merged(apart)) == 3


def test_findings_without_source_lines_are_one_where_many_statements_are_alike():
    alike = [finding(i, statement=f"st.shared.u32 [%r{i}], 0;") for i in range(4)]
    assert len(merged(alike)) == 1
    assert len(merged(alike[:3])) == 3
    assert len(merged([*alike[:3], finding(9, statement="ld.shared.u32 %r1, [%r2];")])) == 4


def test_long_lists_of_registers_are_counted():
    registers = ", ".join(f"%f{i}" for i in range(64))
    text = f"wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {{{registers}}}, %rd1, %rd2, p;"
    quoted = Source(text).statement(0)
    assert quoted.endswith("f16 {…64 registers…}, %rd1, %rd2, p;")
    few = "st.shared.v4.u32 [%r1], {%r2, %r3, %r4, %r5};"
    assert Source(few).statement(0) == few
    long = f"call f, ({'register, ' * 100});"
    assert Source(long).statement(0).endswith("register, …")
