"""Launches over Dask workers: the bytes of one process, and what is refused."""

import os
import signal
import time

import numpy as np
import pytest

from emulator import EmulatorError, Memory, Module, Surface, Texture, UnsupportedError
from emulator.machine import dask_launch
from emulator.machine.report import KernelError

pytest.importorskip("distributed")

#: y[i] = a * x[i] + i for the i of a grid; the rest of the text stands in for {}
KERNEL = """.version 8.4
.target sm_90a
.address_size 64
.global .align 4 .u32 last;
.visible .entry k(.param .u64 x, .param .u64 y, .param .u32 n, .param .f32 a)
{{
    .reg .b64 %rd<9>;
    .reg .b32 %r<9>;
    .reg .f32 %f<9>;
    .reg .pred %p<3>;
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    ld.param.u32 %r1, [n];
    ld.param.f32 %f1, [a];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra END;
    mul.wide.u32 %rd3, %r5, 4;
    add.u64 %rd4, %rd1, %rd3;
    add.u64 %rd5, %rd2, %rd3;
    ld.global.f32 %f2, [%rd4];
    cvt.rn.f32.u32 %f3, %r5;
    fma.rn.f32 %f4, %f1, %f2, %f3;
    st.global.f32 [%rd5], %f4;
    {}
END:
    ret;
}}
"""
N = 1000
SAME = "st.global.u32 [last], %r1;"


class Here:
    """A client whose only worker is this process."""

    def nthreads(self):
        return {"here": 2}

    def scatter(self, data, **_):
        return data

    def submit(self, function, *args, **_):
        return function(*args)


@pytest.fixture
def here(monkeypatch):
    def computed(client, shared, cuts):
        import pickle

        for i in reversed(range(len(cuts) - 1)):
            sent = pickle.loads(pickle.dumps(shared))
            yield i, client.submit(dask_launch.run_chunk, sent, cuts[i], cuts[i + 1])

    monkeypatch.setattr(dask_launch, "_computed", computed)
    return Here()


def launched(text="", grid=32, **options):
    module = Module(KERNEL.format(text))
    x, y = np.arange(N, dtype=np.float32) / 7, np.full(N + 24, -5, np.float32)
    report = module["k"].launch(grid, 32, [x, y, N, np.float32(1.5)], **options)
    return y, module.variable("last"), report


@pytest.mark.parametrize("engine", ("vector", "auto"))
def test_chunks_change_nothing(here, engine):
    want, last, report = launched(SAME, engine="vector")
    counted = []
    got, also, merged = launched(
        SAME, dask=here, engine=engine, progress=lambda *x: counted.append(x)
    )
    assert want.tobytes() == got.tobytes() and (got[N:] == -5).all()
    assert last.tobytes() == also.tobytes() == np.uint32(N).tobytes()
    assert merged.counters["blocks"] == 32 and merged.counters["threads"] == 1024
    assert merged.counters["thread_statements"] == report.counters["thread_statements"]
    assert counted[-1] == (32, 32) and len(counted) == 8


def test_variables_are_where_a_memory_has_them(here):
    memory = Memory()
    modules = [Module(KERNEL.format(SAME), memory=memory) for _ in range(2)]
    x, y = np.zeros(N, "f4"), memory.allocate(4 * N)
    modules[1]["k"].launch(32, 32, [x, y, N, 1.0], memory=memory, dask=here)
    assert [int(x.variable("last").view("u4")[0]) for x in modules] == [0, N]
    assert (memory.view(y, 4 * N).view("f4") == np.arange(N)).all()


def test_textures_and_surfaces_reach_the_workers(here):
    text = KERNEL.replace(".f32 a)", ".f32 a, .param .u64 t, .param .u64 s)").format(
        """ld.param.u64 %rd6, [t]; ld.param.u64 %rd7, [s];
        tex.1d.v4.f32.f32 {%f5, %f6, %f7, %f8}, [%rd6, {%f3}];
        shl.b32 %r6, %r5, 2; sust.b.1d.b32.trap [%rd7, %r6], %f5;"""
    )
    x, y, texels, out = (np.full(N, k, np.float32) for k in range(4))
    texels += np.arange(N)
    given = [x, y, N, np.float32(1), Texture(texels), Surface(out)]
    Module(text)["k"].launch(32, 32, given, dask=here)
    assert (out == texels).all()


def test_clusters_stay_together(here):
    text = KERNEL.format("mov.u32 %r6, %cluster_ctarank; st.global.u32 [%rd5], %r6;")
    out = []
    for client in (None, here):
        x, y = np.zeros(N, np.float32), np.zeros(N, np.uint32)
        Module(text)["k"].launch(32, 32, [x, y, N, np.float32(1)], cluster=4, dask=client)
        out.append(y)
    assert np.array_equal(*out) and set(out[0]) == {0, 1, 2, 3}


def test_two_values_in_one_byte_are_refused_and_nothing_is_written(here):
    module = Module(KERNEL.format("st.global.u32 [last], %r5;"))
    x, y = np.ones(N, np.float32), np.full(N, -5, np.float32)
    with pytest.raises(UnsupportedError, match="different values in one byte of last"):
        module["k"].launch(32, 32, [x, y, N, np.float32(1)], dask=here)
    assert (y == -5).all() and not module.variable("last").any()


def test_the_comparison_would_show_a_chunk_that_is_missing(here, monkeypatch):
    want, *_ = launched()
    right = dask_launch.run_chunk
    monkeypatch.setattr(
        dask_launch, "run_chunk",
        lambda shared, first, last: right(shared, first, last - (first == 4)),
    )  # fmt: skip
    got, *_ = launched(dask=here)
    assert want.tobytes() != got.tobytes()


def test_the_error_is_that_of_the_first_chunk_that_fails(here):
    text = "setp.gt.u32 %p2, %r5, 600; @%p2 ld.global.f32 %f5, [%rd5 + 1048576];"
    found = []
    for client in (None, here):
        module = Module(KERNEL.format(text))
        x, y = np.ones(N, np.float32), np.full(N, -5, np.float32)
        with pytest.raises(KernelError) as raised:
            module["k"].launch(32, 32, [x, y, N, np.float32(1)], dask=client)
        assert (y == -5).all()
        found.append((raised.value.kind, raised.value.line, raised.value.block))
    assert found[0] == found[1] and found[0][2] == (18, 0, 0)


@pytest.mark.parametrize(("text", "words"), [
    ("atom.global.add.u32 %r6, [last], 1;", "atom.global.add.u32 changes memory"),
    ("red.global.add.u32 [last], 1;", "red.global.add.u32 changes memory"),
    ("ld.acquire.gpu.global.u32 %r6, [last];", "reads what another block may have written"),
    ("ld.volatile.global.u32 %r6, [last];", "reads what another block may have written"),
    ("mov.u32 %r6, %clock;", "%clock is one for the whole grid"),
    ("mov.u32 %r6, %envreg2;", "%envreg2 is one for the whole grid"),
])  # fmt: skip
def test_blocks_that_may_see_each_other_are_refused(here, text, words):
    with pytest.raises(UnsupportedError, match=words):
        launched(text, dask=here)


@pytest.mark.parametrize("text", (
    "atom.shared::cta.add.u32 %r6, [%r7], 1;", "ld.volatile.shared.u32 %r6, [%r7];",
    "ld.relaxed.cta.global.u32 %r6, [%rd4];",
))  # fmt: skip
def test_what_stays_in_a_block_is_not_refused(text):
    for statement in Module(KERNEL.format(text))["k"].bound.program.statements:
        assert not dask_launch._why_together(statement)


@pytest.mark.parametrize(("options", "words"), [
    ({"check": True}, "check=True needs all blocks in one process"),
    ({"counters": True}, "counters=True needs all blocks"),
    ({"stop_at": "nan"}, "stop_at= needs all blocks"),
    ({"seed": 3}, "seed= needs all blocks"),
    ({"engine": "reference"}, "engine='reference' needs all blocks"),
    ({"dask": 3}, "dask= is a distributed.Client; got int"),
])  # fmt: skip
def test_options_that_need_all_blocks_are_refused(here, options, words):
    with pytest.raises(EmulatorError, match=words):
        launched(**{"dask": here, **options})


# --- processes ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_workers_and_one_that_is_killed(client):
    want, *_ = launched(SAME)
    got, last, _ = launched(SAME, dask=client)
    assert want.tobytes() == got.tobytes()
    before = client.run(os.getpid)
    victim = next(iter(before.values()))

    def kill(done, total):
        if done < total and not killed:
            killed.append(victim)
            os.kill(victim, signal.SIGKILL)
            time.sleep(0.1)

    killed = []
    got, last, _ = launched(SAME, dask=client, progress=kill)
    assert killed and want.tobytes() == got.tobytes()
    assert last.tobytes() == np.uint32(N).tobytes()
    client.wait_for_workers(2, timeout=60)
    assert victim not in client.run(os.getpid).values()
