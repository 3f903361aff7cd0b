"""`gemm` that writes in place: interrupted, resumed, shown by a bar. (Its bits: test_gemm.)"""

import builtins
import importlib
import itertools
import os
import re
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from bits import assert_same_codes
from test_gemm import F16, HALF, ONES, drawn

from emulator import Instruction, gemm
from emulator.matrices import tiles

module = importlib.import_module("emulator.matrices.gemm")


@pytest.fixture
def small_tiles(monkeypatch):
    monkeypatch.setattr(tiles, "TILE", 16)
    monkeypatch.setattr(tiles, "BATCH", 16 * 16)


@pytest.mark.parametrize("codes", (False, True))
def test_out_is_written_in_place(codes, small_tiles):
    a, b, c = drawn(Instruction.parse(F16), 40, 30, 33)
    if not codes:
        a, b, c = a.view(np.float16), b.view(np.float16), c.view(np.float32)
    given = {"instruction": F16, "target": "sm_80", "codes": codes}
    want = gemm(a, b, c, **given)
    room = np.zeros((60, 80), want.dtype)
    for out in (np.empty_like(want), np.asfortranarray(want) * 0, room[::2, :60:2][:40, :30].T.T):
        if out.shape != want.shape:
            out = room[:40, :30]
        assert gemm(a, b, c, **given, out=out) is out
        assert_same_codes(out.view(np.uint32), want.view(np.uint32))
    assert not room[40:].any() and not room[:, 60:].any()


def test_out_may_be_an_operand(small_tiles):
    a, b, c = drawn(Instruction.parse(HALF), 40, 40, 40)
    given = {"instruction": HALF, "target": "sm_80", "codes": True}
    want = gemm(a, b, c, **given)
    for place in range(3):
        operands = [a.copy(), b.copy(), c.copy()]
        gemm(*operands, **given, out=operands[place])
        assert_same_codes(operands[place], want)


def test_an_interrupt_leaves_finished_tiles_and_can_be_resumed(small_tiles, monkeypatch):
    a, b, c = drawn(Instruction.parse(F16), 40, 30, 33, batches=((2,), (), (2,)))
    given = {"instruction": F16, "target": "sm_80", "codes": True}
    want = gemm(a, b, c, **given)
    right = tiles.accumulate
    for at in range(12):
        calls = itertools.count()

        def interrupted(*arguments, at=at, calls=calls):
            if next(calls) == at:
                raise KeyboardInterrupt
            return right(*arguments)

        monkeypatch.setattr(module, "accumulate", interrupted)
        out = np.full(want.shape, 0xDEAD, np.uint32)
        with pytest.raises(KeyboardInterrupt, match=rf"{at} of 12 tiles .*first_tile={at}\)"):
            gemm(a, b, c, **given, out=out)
        written = out != 0xDEAD
        assert_same_codes(np.where(written, out, want), want)
        assert np.count_nonzero(written.any((0, 1))) or not at
        # Halves of the work, in whole tiles: what is finished is not touched again.
        out[written] = 0xBEEF
        monkeypatch.setattr(module, "accumulate", right)
        gemm(a, b, c, **given, out=out, first_tile=at)
        assert_same_codes(out, np.where(written, np.uint32(0xBEEF), want))


def test_an_interrupt_without_out_is_only_that(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "accumulate", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        gemm(ONES, ONES.T, instruction=F16, target="sm_80")
    assert not str(caught.value)


def test_all_tiles_done_is_a_legal_place_to_go_on():
    out = np.full((4, 4), 7, np.float32)
    assert gemm(ONES, ONES.T, instruction=F16, target="sm_80", out=out, first_tile=1) is out
    assert (out == 7).all()


@pytest.mark.slow
@pytest.mark.parametrize("engine", ("vector", "compiled"))
def test_a_real_interrupt(engine, tmp_path, monkeypatch):
    """Control-C while the tiles run: the process ends as Python does, and `out` says the truth."""
    if engine == "compiled":
        pytest.importorskip("llvmlite")
    path = tmp_path / "out.npy"
    script = textwrap.dedent(f"""
        import signal
        import numpy as np
        from emulator import gemm
        from emulator.matrices import tiles
        # What a shell starts in the background ignores it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        tiles.TILE = 64
        rng = np.random.default_rng(0)
        a = rng.standard_normal((2048, 256)).astype(np.float16)
        out = np.lib.format.open_memmap({str(path)!r}, "w+", np.float32, (2048, 2048))
        print("ready", flush=True)
        gemm(a, a.T, instruction={F16!r}, target="sm_80", engine={engine!r}, out=out)
    """)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, env=environment)  # fmt: skip
    try:
        assert process.stdout.readline() == "ready\n"
        while not np.load(path, mmap_mode="r")[:64, :64].any():
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    done = int(re.search(r"KeyboardInterrupt: (\d+) of 1024 tiles", errors)[1])
    assert 0 < done < 1024
    rng = np.random.default_rng(0)
    a = rng.standard_normal((2048, 256)).astype(np.float16)
    want, out = gemm(a, a.T, instruction=F16, target="sm_80"), np.load(path)
    monkeypatch.setattr(tiles, "TILE", 64)
    rows, columns = divmod(done, 32)
    finished = np.zeros(out.shape, bool)
    finished[: 64 * rows], finished[64 * rows : 64 * rows + 64, : 64 * columns] = True, True
    assert_same_codes(out.view("u4") * finished, want.view("u4") * finished)
    gemm(a, a.T, instruction=F16, target="sm_80", out=out, first_tile=done)
    assert_same_codes(out.view("u4"), want.view("u4"))


# --- progress -------------------------------------------------------------------------------------


def test_a_bar_on_request(capsys, small_tiles):
    pytest.importorskip("tqdm")
    a = np.ones((40, 16), np.float16)
    d = gemm(a, a.T, instruction=F16, target="sm_80", progress=True)
    shown = capsys.readouterr()
    assert not shown.out
    assert "gemm" in shown.err and "9/9" in shown.err
    for quiet in (False, None):  # None: standard error is no terminal here
        assert np.array_equal(gemm(a, a.T, instruction=F16, target="sm_80", progress=quiet), d)
        assert not capsys.readouterr().err


def test_no_bar_without_tqdm(capsys, small_tiles, monkeypatch):
    load = builtins.__import__

    def without(name, *rest):
        if name.split(".")[0] == "tqdm":
            raise ImportError(name)
        return load(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    a = np.ones((40, 16), np.float16)
    assert (gemm(a, a.T, instruction=F16, target="sm_80", progress=True) == 16).all()
    assert not capsys.readouterr().err
