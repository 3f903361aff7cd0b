"""``python -m emulator run`` and ``selftest``: PTX files and recordings, in process."""

import io
import json
import sys

import numpy as np
import pytest

from emulator.__main__ import main
from emulator.tools import recordings

F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"


# --- run ------------------------------------------------------------------------------------------

PTX = """.target sm_80
// .reg .b32 %not; a comment
.reg .b32 %a<4>, %b<2>;   /* ; */
.reg .f32 %c<4>,          // first ; second
          %d<4>;
.reg .s32 %n;
mov.s32 %n, %laneid;
mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
    {%d0, %d1, %d2, %d3}, {%a0, %a1, %a2, %a3}, {%b0, %b1}, {%c0, %c1, %c2, %c3};
"""
ONES = 0x3C003C00  # two f16 ones


@pytest.fixture
def ptx(tmp_path):
    path = tmp_path / "kernel.ptx"
    path.write_text(PTX)
    return path


@pytest.fixture
def ones(tmp_path):
    """A and B all one, C = −1/2 in every lane."""
    path = tmp_path / "in.npz"
    words = {f"a{i}": np.full(32, ONES, np.uint32) for i in range(4)}
    words |= {f"b{i}": np.full(32, ONES, np.uint32) for i in range(2)}
    words |= {f"c{i}": np.full(32, 0xBF000000, np.uint32) for i in range(4)}
    np.savez(path, **words)
    return path


def test_run_shows_what_it_wrote(ask, ptx, ones, tmp_path):
    lines = ask("run", ptx, "--registers", ones, "--target", "A100")
    assert lines[0] == "sm_80, 32 lanes, 5 of 15 registers"
    # 16 products of ones, minus a half
    assert "%d0 .f32  41780000 15.5  in all lanes" in lines
    assert any(line.split() == ["lane", "%n", ".s32"] for line in lines)
    assert any(line.split() == ["31", "0000001f", "31"] for line in lines)
    assert not any("%a0" in line for line in lines)
    # D that is what it was before has been written all the same.
    done = tmp_path / "done.npz"
    with np.load(ones) as words:
        given = {name: np.zeros_like(array) for name, array in words.items()}
    np.savez(done, **given, **{f"d{i}": np.zeros(32, np.uint32) for i in range(4)})
    lines = ask("run", ptx, "--registers", done, "--target", "H100")
    assert lines[0] == "sm_90a, 32 lanes, 5 of 15 registers"
    assert "%d3 .f32  00000000 0.0  in all lanes" in lines
    data = ask("run", ptx, "--registers", done, "--json")
    assert (data["written"], data["changed"]) == (["d0", "d1", "d2", "d3", "n"], ["n"])


def test_run_shows_named_registers_in_json(ask, ptx, ones):
    data = ask("run", ptx, "--registers", ones, "--show", "d3,%a0, n", "--json")
    assert list(data["registers"]) == ["d3", "a0", "n"]
    assert data["registers"]["d3"] == {
        "type": "f32", "words": ["0x41780000"] * 32, "values": [15.5] * 32
    }  # fmt: skip
    assert data["registers"]["a0"] == {"type": "b32", "words": ["0x3c003c00"] * 32}
    assert data["registers"]["n"]["values"] == list(range(32))
    assert data["changed"] == ["d0", "d1", "d2", "d3", "n"]
    assert (data["target"], data["lanes"]) == ("sm_80", 32)


def test_run_writes_no_file_that_it_reads(refused, ptx, ones):
    for file in (ptx, ones):
        before = file.read_bytes()
        assert "is read, too" in refused("run", ptx, "--registers", ones, "-o", file)
        assert file.read_bytes() == before


def test_run_writes_what_it_can_read_again(ask, ptx, ones, tmp_path):
    out = tmp_path / "out.words"
    assert ask("run", ptx, "--registers", ones, "-o", out) == [f"wrote {out}: 15 registers"]
    with np.load(out) as arrays:
        assert sorted(arrays) == sorted(
            [*(f"{x}{i}" for x in "acd" for i in range(4)), "b0", "b1", "n"]
        )
        assert arrays["d1"].dtype == np.uint32
        assert arrays["d1"].tolist() == [0x41780000] * 32
        assert arrays["a3"].tolist() == [ONES] * 32
    data = ask("run", ptx, "--registers", out, "--json")
    assert data["changed"] == []


def test_run_writes_a_register_named_file(ask, refused, tmp_path):
    """numpy.savez would take it for the file to write to."""
    kernel, out = tmp_path / "kernel.ptx", tmp_path / "out.npz"
    kernel.write_text(".target sm_90a .reg .u32 file; mov.u32 file, 7;")
    assert ask("run", kernel, "-o", out) == [f"wrote {out}: 1 register"]
    before = out.read_bytes()
    with np.load(out) as written:
        assert written.files == ["file"] and (written["file"] == 7).all()
    kernel.write_text(".target sm_90a .reg .u32 file; mov.u32 file, nothing;")
    refused("run", kernel, "-o", out)
    assert out.read_bytes() == before and sorted(x.name for x in tmp_path.iterdir()) == [
        "kernel.ptx", "out.npz",
    ]  # fmt: skip


def test_run_keeps_infinities_and_nans_valid_json(ask, tmp_path):
    path = tmp_path / "specials.ptx"
    path.write_text(
        ".target sm_90a .reg .f32 x; .reg .f16x2 h; .reg .f64 y; .reg .pred p;"
        "mov.f32 x, 0f7F800000; mov.b32 h, 0x7E003C00; mov.f64 y, 0.1; mov.pred p, 1;"
    )
    registers = ask("run", path, "--json")["registers"]
    assert registers["x"]["values"] == ["inf"] * 32
    assert registers["h"]["values"] == [[1.0, "nan"]] * 32
    assert registers["y"]["words"] == ["0x3fb999999999999a"] * 32
    assert registers["p"] == {"type": "pred", "words": ["0x1"] * 32}
    assert "h .f16x2  7e003c00 1.0 nan  in all lanes" in ask("run", path)


def test_run_says_that_nothing_changed(ask, tmp_path):
    path = tmp_path / "store.ptx"
    path.write_text(
        ".target sm_90 .reg .b32 p, r; stmatrix.sync.aligned.m8n8.x1.shared.b16 [p], {r};"
    )
    zeros = tmp_path / "zeros.npz"
    np.savez(zeros, p=np.zeros(32, np.uint32), r=np.zeros(32, np.uint32))
    assert ask("run", path, "--registers", zeros) == [
        "sm_90, 32 lanes, 0 of 2 registers",
        "no register was written, and shared memory holds what it held before",
    ]


def test_run_splits_wide_results_over_blocks(ask, tmp_path):
    path = tmp_path / "wide.ptx"
    moves = "".join(f"mov.b32 %r{i}, %laneid;" for i in range(12))
    path.write_text(".target sm_70\n.reg .b32 %r<12>;" + moves)
    lines = ask("run", path)
    assert max(map(len, lines)) <= 100
    assert sum(line.startswith("lane ") for line in lines) == 2
    shown = " ".join(lines)
    assert all(f"%r{i} .b32" in shown for i in range(12))


def wgmma_files(tmp_path, fence="wgmma.fence.sync.aligned;"):
    """D = A·B of ones: B is ones all over shared memory, whatever the descriptor points to."""
    text = """
    .version 8.0 .target sm_90a .address_size 64
    .reg .b32 %a<4>; .reg .f32 %d<4>; .reg .b64 %b;
    mov.b64 %b, 0x0000001000080000;  // 256 bytes between core matrices in n, 128 in k
    FENCE
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16
        {%d0, %d1, %d2, %d3}, {%a0, %a1, %a2, %a3}, %b, 0, 1, 1, 0;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    """.replace("FENCE", fence)
    path, words = tmp_path / "wgmma.ptx", tmp_path / "wgmma.npz"
    path.write_text(text)
    memory = np.full(128, ONES, np.uint32).view(np.uint8)
    np.savez(words, shared=memory, **{f"a{i}": np.full(128, ONES, np.uint32) for i in range(4)})
    return path, words


def test_run_takes_a_warpgroup_for_wgmma_and_its_shared_memory(ask, refused, tmp_path):
    path, words = wgmma_files(tmp_path)
    out = tmp_path / "out.npz"
    assert ask("run", path, "--registers", words, "-o", out, "--show", "d0") == [
        "sm_90a, 128 lanes, 1 of 9 registers",
        "%d0 .f32  41800000 16.0  in all lanes",
        f"wrote {out}: 9 registers",
    ]
    with np.load(out) as arrays:
        assert arrays["d3"].tolist() == [0x41800000] * 128
        assert arrays["shared"].tobytes() == np.full(128, ONES, np.uint32).tobytes()
    assert "wgmma.fence" in refused("run", *wgmma_files(tmp_path, "")[:1], "--registers", words)


def test_run_reports_mistakes_with_their_place(refused, ptx, ones, tmp_path):
    def text(content):
        path = tmp_path / "wrong.ptx"
        path.write_text(content)
        return path

    # The declarations are taken out first; lines and columns are those of the file all the same.
    assert "line 9, column 25: " in refused("run", text(PTX.replace("%d3}", "%d3 %q}")))
    assert "line 7, column 1: " in refused("run", text(PTX.replace("mov.s32", "mov.s33")))
    assert "line 3, column 1: " in refused("run", text(PTX.replace(".b32 %a", ".b33 %a")))
    assert "line 8, column 1: " in refused("run", text(PTX.replace("m16n8k16", "m16n8k17")))
    old = text(PTX.replace("sm_80", "sm_75"))
    assert "not available on sm_75" in refused("run", old, "--registers", ones)
    assert "'%a0' is read and nothing has written it" in refused("run", ptx)
    shown = refused("run", ptx, "--registers", ones, "--show", "d0,d9")
    assert "register 'd9' is not declared" in shown
    np.savez(tmp_path / "unknown.npz", q=np.zeros(32, np.uint32))
    assert "register 'q' is not declared" in refused(
        "run", ptx, "--registers", tmp_path / "unknown.npz"
    )
    np.savez(tmp_path / "short.npz", a0=np.zeros(31, np.uint32))
    assert "(32,)" in refused("run", ptx, "--registers", tmp_path / "short.npz")
    np.savez(tmp_path / "memory.npz", shared=np.zeros(8, np.uint32))
    assert "uint8 (bytes,)" in refused("run", ptx, "--registers", tmp_path / "memory.npz")


def test_run_takes_the_target_of_the_file(ask, refused, tmp_path):
    def runs(header, *target):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.ptx"
        path.write_text(f"{header} .reg .u32 x; mov.u32 x, 7;")
        return path, *(("--target", *target) if target else ())

    sm_90a = "// all\n.version 8.0\n.target sm_90a, debug .address_size 64"
    for given, name in (
        (runs(sm_90a), "sm_90a"),
        (runs(sm_90a, "H200"), "sm_90a"),
        (runs(".target sm_80", "H100"), "sm_90a"),
        (runs(".target sm_52", "A100"), "sm_80"),
        (runs(".target sm_100f", "B300"), "sm_103a"),
        (runs("", "sm_75"), "sm_75"),
    ):
        assert ask("run", *given)[0].startswith(f"{name}, 32 lanes")
    assert "has no .target line: say which chip is meant" in refused("run", *runs(""))
    assert "has no .target line" in refused("run", *runs("/* .target sm_80 */"))
    why = refused("run", *runs(sm_90a, "B200"))
    assert "line 3, column 9: the text is made for sm_90a (.target), which uses features" in why
    why = refused("run", *runs(".target sm_90", "A100"))
    assert "made for sm_90 (.target), a later chip: sm_80 cannot run it" in why
    assert "made for sm_100f" in refused("run", *runs(".target sm_100f", "RTX 5090"))
    assert "too old" in refused("run", *runs(".target sm_52"))
    assert "no target 'sm_99'" in refused("run", *runs(".target sm_99"))
    assert "no target 'sm_99'" in refused("run", *runs(".target sm_99", "H100"))
    assert "a name such as sm_90a" in refused("run", *runs(".target 90"))


def test_run_writes_registers_that_nothing_set(ask, tmp_path):
    path, out = tmp_path / "one.ptx", tmp_path / "one.npz"
    path.write_text(".target sm_80 .reg .u32 x, y; mov.u32 x, 7;")
    assert ask("run", path, "-o", out) == [f"wrote {out}: 2 registers"]
    with np.load(out) as words:
        assert (words["x"] == 7).all() and not words["y"].any()


def test_run_reports_files_that_it_cannot_use(refused, ptx, ones, tmp_path):
    missing = tmp_path / "missing"
    assert "No such file" in refused("run", missing)
    assert "No such file" in refused("run", ptx, "--registers", missing)
    assert "No such file" in refused("run", ptx, "--registers", ones, "-o", missing / "out.npz")
    (tmp_path / "binary").write_bytes(b"\x7fELF\xff\xfe")
    assert "is not text" in refused("run", tmp_path / "binary")
    for content in (b"", b"text", b"PK\x03\x04 cut off"):
        (tmp_path / "bad.npz").write_bytes(content)
        assert "is no .npz file" in refused("run", ptx, "--registers", tmp_path / "bad.npz")
    np.save(tmp_path / "one.npy", np.zeros(32, np.uint32))
    assert "is one array, an .npy file" in refused("run", ptx, "--registers", tmp_path / "one.npy")
    np.savez(tmp_path / "objects.npz", a0=np.array([None]))
    why = refused("run", ptx, "--registers", tmp_path / "objects.npz")
    assert "array 'a0' of" in why and "holds Python objects" in why


def test_run_reads_standard_input(ask, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO(".target sm_75 .reg .u32 x; mov.u32 x, 7;"))
    assert ask("run", "-")[1] == "x .u32  00000007  in all lanes"


# --- selftest -------------------------------------------------------------------------------------


@pytest.fixture
def golden(tmp_path, monkeypatch):
    """A folder with one recording of 16 − ½ = 15.5; gives a function that plants the result."""

    def plant(d):
        words = [
            np.full((1, 32, n), w, np.uint32) for n, w in ((4, ONES), (2, ONES), (4, 0xBF000000))
        ]
        expected = np.full((1, 32, 4), 0x41780000, np.uint32)
        expected[0, 7, 1] = d
        provenance = {"gpu": "Some GPU"}
        recording = recordings.Recording("planted", F16, "sm_90a", tuple(words), {}, expected)
        recordings.save(tmp_path / "planted", provenance, [recording])

    monkeypatch.setattr(recordings, "golden_folder", lambda: tmp_path)
    return plant


def test_selftest_passes_on_right_bits(ask, golden):
    golden(0x41780000)
    (line,) = ask("selftest")
    assert line.startswith("planted: 1 of 1 cases bit-identical")
    (summary,) = ask("selftest", "--engine", "reference", "--json")
    assert (summary["cases"], summary["differing"], summary["ok"]) == (1, 0, True)


def test_selftest_exits_with_1_on_a_wrong_bit(capsys, golden):
    golden(0x41780001)
    assert main(["selftest"]) == 1
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("planted: 0 of 1 cases")
    assert F16 in second and "1 of 1 cases differ" in second
    assert main(["selftest", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)[0]["ok"] is False


def test_selftest_without_recordings_is_no_pass(refused, golden):
    assert "no recordings" in refused("selftest")


def test_selftest_names_the_engines(refused):
    assert "nearest is 'vector'" in refused("selftest", "--engine", "vektor")
