"""The files that the tools read and write: what is refused before it is expanded, and what a
write that fails leaves as it was."""

import io
import stat
import tracemalloc
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from emulator import OperandError
from emulator.__main__ import main
from emulator.tools import files
from emulator.tools.files import LIMIT, read_npz, read_text, replacing_all, write_npz, write_text


def npy(array):
    out = io.BytesIO()
    np.lib.format.write_array(out, array)
    return out.getvalue()


def header(shape, descr="<f8"):
    """An .npy file that announces an array and holds nothing of it."""
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        out, {"descr": descr, "fortran_order": False, "shape": shape}
    )
    return out.getvalue()


def archive(path, contents, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as out:
        for name, content in contents.items():
            out.writestr(f"{name}.npy", content)
    return path


# --- reading --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.uint32).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array(7, np.int64),
        np.zeros((0, 4), np.float16),
        np.array([1.5, -2], ">f4"),
    ],
)
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed, lambda f, **x: write_npz(f, x)])
def test_arrays_come_back(tmp_path, array, save):
    save(tmp_path / "x.npz", one=array, other=array + 1)
    read = read_npz(tmp_path / "x.npz")
    assert list(read) == ["one", "other"]
    for name, right in (("one", array), ("other", array + 1)):
        assert read[name].dtype == right.dtype.newbyteorder("=") and read[name].dtype.isnative
        assert np.array_equal(read[name], right) and read[name].shape == right.shape


def test_types_of_ml_dtypes_come_back_as_bytes(tmp_path):
    np.savez(tmp_path / "x.npz", a=np.ones(3, ml_dtypes.bfloat16))
    assert read_npz(tmp_path / "x.npz")["a"].dtype == np.dtype("V2")


def encrypted(path):
    archive(path, {"a": npy(np.zeros(2))})
    content = bytearray(path.read_bytes())
    content[6] |= 1  # the flag in the local header, and in the directory
    content[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)


def objects(path):
    np.savez(path, a=np.array([None, 1]))


def damaged(path):
    archive(path, {"a": npy(np.arange(64.0))}, zipfile.ZIP_STORED)
    content = bytearray(path.read_bytes())
    content[300] ^= 255
    path.write_bytes(content)


FORGED = {
    "a size that is not there": {"a": header((1 << 20,))},
    "sizes whose product is not there": {"a": header((1 << 40, 1 << 40, 0, 1))},
    "a negative size": {"a": header((-1,))},
    "no header": {"a": b"\x93NUMPY\x01\x00"},
    "a version that does not exist": {"a": b"\x93NUMPY\x09\x00" + header((1,))[8:]},
    "a text": {"readme": b"hello"},
    "code for a header": {"a": b"\x93NUMPY\x01\x00\x14\x00" + b"__import__('os').abo"},
}


@pytest.mark.parametrize("contents", FORGED.values(), ids=FORGED)
def test_forged_headers_are_refused(tmp_path, contents):
    path = archive(tmp_path / "x.npz", contents)
    with pytest.raises(OperandError, match=r"is no \.npz file of arrays"):
        read_npz(path)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (encrypted, "array 'a' of .* is encrypted"),
        (objects, "array 'a' of .* holds Python objects"),
        (damaged, "is no .npz file of arrays"),
        (lambda path: path.write_bytes(b""), "is no .npz file of arrays"),
        (lambda path: path.write_bytes(b"PK\x03\x04 cut off"), "is no .npz file of arrays"),
        (lambda path: path.write_bytes(npy(np.zeros(2))), "is one array, an .npy file"),
        (lambda path: archive(path, {"a": npy(np.zeros(2))}, zipfile.ZIP_LZMA), "is no .npz file"),
        (lambda path: archive(path, {"a": npy(np.zeros(2))}, zipfile.ZIP_BZIP2), "is no .npz file"),
        (lambda path: path.mkdir(), "cannot read .*: Is a directory"),
        (lambda path: None, "cannot read .*: No such file"),
    ],
)
def test_files_that_hold_no_arrays(tmp_path, make, words):
    make(tmp_path / "x.npz")
    with pytest.raises(OperandError, match=words):
        read_npz(tmp_path / "x.npz")


def test_every_cut_of_a_file_is_refused(tmp_path):
    write_npz(tmp_path / "x.npz", {"a": np.arange(8), "b": np.zeros((2, 2))})
    whole = (tmp_path / "x.npz").read_bytes()
    for length in range(len(whole)):
        (tmp_path / "cut.npz").write_bytes(whole[:length])
        with pytest.raises(OperandError, match=r"is no \.npz file of arrays"):
            read_npz(tmp_path / "cut.npz")


def test_random_damage_never_escapes(tmp_path):
    rng = np.random.default_rng(5)
    write_npz(tmp_path / "x.npz", {"a": np.arange(8), "b": np.zeros((2, 2))})
    whole = np.frombuffer((tmp_path / "x.npz").read_bytes(), np.uint8)
    refused = 0
    for _ in range(400):
        content = whole.copy()
        content[rng.integers(0, len(content), 3)] = rng.integers(0, 256, 3)
        (tmp_path / "bad.npz").write_bytes(content.tobytes())
        try:
            read_npz(tmp_path / "bad.npz")
        except OperandError:
            refused += 1
    assert refused > 200


def test_a_small_file_that_expands_is_refused_before_it_does(tmp_path):
    path = archive(tmp_path / "x.npz", dict.fromkeys("abc", npy(np.zeros(5_000_000))))
    assert path.stat().st_size < 200_000
    tracemalloc.start()
    try:
        with pytest.raises(OperandError, match=r"more than 100,000,000 bytes .* up to 'c' they"):
            read_npz(path, 100_000_000)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_the_limit_is_exact(tmp_path):
    write_npz(tmp_path / "x.npz", {"a": np.zeros(100, np.uint8), "b": np.zeros(28, np.uint8)})
    whole = 100 + 28 + 2 * 128  # each with its header
    assert len(read_npz(tmp_path / "x.npz", whole)) == 2
    with pytest.raises(OperandError, match=f"more than {whole - 1} bytes together"):
        read_npz(tmp_path / "x.npz", whole - 1)
    assert LIMIT == 1 << 30


@pytest.mark.parametrize("command", ["fault", "explain"])
def test_names_are_judged_before_arrays_are_read(tmp_path, capsys, command):
    """20,000 small arrays took 15 s to read; these would be refused as arrays."""
    contents = {"A": npy(np.zeros(2)), **{f"x{i}": b"no array" for i in range(1000)}}
    path = archive(tmp_path / "x.npz", contents, zipfile.ZIP_STORED)
    opcode = "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32"
    assert main([command, opcode, "--target", "sm_80", "--input", str(path)]) == 2
    error = capsys.readouterr().err
    assert "has an array 'x0'; " in error and " are A, B, C, " in error


def test_a_name_that_stands_twice_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as out, pytest.warns(UserWarning):
        out.writestr("a.npy", npy(np.zeros(2)))
        out.writestr("a.npy", npy(np.ones(2)))
    with pytest.raises(OperandError, match="has an array 'a' twice"):
        read_npz(tmp_path / "x.npz")


def test_texts(tmp_path, monkeypatch):
    (tmp_path / "x").write_text("ä")
    assert read_text(str(tmp_path / "x")) == "ä"
    (tmp_path / "x").write_bytes(b"\xff")
    with pytest.raises(OperandError, match="is not text"):
        read_text(str(tmp_path / "x"))
    with pytest.raises(OperandError, match="cannot read 'a\\\\x00b'"):
        read_text("a\0b")
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(OperandError, match="standard input is closed"):
        read_text("-")


# --- writing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["file", "self", "args", "kwds", "ä", "a/b", "%r1"])
def test_arrays_of_any_name_are_written(tmp_path, name):
    """numpy.savez takes some names for its own arguments, and `file` for where to write."""
    write_npz(tmp_path / "x.npz", {name: np.arange(3), "d": np.zeros(2)})
    read = read_npz(tmp_path / "x.npz")
    assert list(read) == [name, "d"] and read[name].tolist() == [0, 1, 2]


def test_equal_arrays_make_equal_files(tmp_path):
    for name in ("x", "y"):
        write_npz(tmp_path / name, {"a": np.arange(3)})
    assert (tmp_path / "x").read_bytes() == (tmp_path / "y").read_bytes()


def test_what_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "x.npz"
    write_npz(path, {"a": np.arange(3)})
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"Object arrays cannot be saved|cannot write"):
        write_npz(path, {"a": np.zeros(1000), "b": np.array([None])})

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fdopen", full)
    with pytest.raises(OperandError, match=r"cannot write '.*x\.npz': No space left on device"):
        write_text(str(path), "new")
    assert path.read_bytes() == before and [x.name for x in tmp_path.iterdir()] == ["x.npz"]


def test_links_and_rights_stay(tmp_path):
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    write_text(str(link), "new")
    assert link.is_symlink() and real.read_text() == "new"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    write_text(str(tmp_path / "other"), "x")
    assert stat.S_IMODE((tmp_path / "other").stat().st_mode) == 0o644


def test_devices_are_written_to(tmp_path):
    write_text("/dev/null", "x")
    assert not Path("/dev/null").is_file()
    with pytest.raises(OperandError, match=r"cannot write '/dev/full': No space left on device"):
        write_text("/dev/full", "x")


def test_a_loop_of_links_is_no_file(tmp_path):
    (tmp_path / "one").symlink_to(tmp_path / "other")
    (tmp_path / "other").symlink_to(tmp_path / "one")
    for path in ("one", "one/x"):
        with pytest.raises(OperandError, match=r"cannot write .*: Too many levels of symbolic"):
            write_text(str(tmp_path / path), "x")
        with pytest.raises(OperandError, match=r"cannot read .*: Too many levels of symbolic"):
            read_text(str(tmp_path / path))


def test_several_files_are_replaced_together_or_not_at_all(tmp_path):
    names = [str(tmp_path / x) for x in "ab"]
    with replacing_all(names) as (a, b):
        a.write(b"1")
        b.write(b"2")
    with (
        pytest.raises(OperandError, match="cannot write '/dev/full': No space left"),
        replacing_all([*names, "/dev/full"]) as streams,
    ):
        for stream in streams:
            stream.write(b"new")
    assert [Path(x).read_bytes() for x in names] == [b"1", b"2"]
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("file", "why"),
    [
        ("/nowhere/at/all", "No such file"),
        ("/", "Is a directory"),
        ("a\0b", "null"),
        ("x" * 300, "too long"),
    ],
)
def test_files_that_cannot_be_written(file, why):
    with pytest.raises(OperandError, match=f"cannot write .*: .*{why}"):
        write_text(file, "x")
