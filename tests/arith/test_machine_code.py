"""Compiled code on disk: found again, made anew where damaged, not used where others write; and
the threads that run it."""

import ctypes
import threading
import time

import pytest

machine_code = pytest.importorskip("emulator.arith.kernels.machine_code")

TEXT = """
define i64 @twice(i64 %x) {
  %y = add i64 %x, %x
  ret i64 %y
}
"""


@pytest.fixture
def made(monkeypatch, tmp_path):
    """How often LLVM compiled, with an empty folder."""
    monkeypatch.setenv("EMULATOR_CACHE_DIR", str(tmp_path / "cache"))
    out = []
    compile_ = machine_code._compile
    monkeypatch.setattr(machine_code, "_compile", lambda *x: out.append(1) or compile_(*x))
    return out


def twice(x):
    (address,) = machine_code.function_addresses(TEXT, ["twice"])
    return machine_code.callable_at(address, ctypes.c_int64, ctypes.c_int64)(x)


def test_code_is_made_once(made, tmp_path):
    assert twice(21) == 42
    assert twice(-4) == -8 and len(made) == 1
    (file,) = (tmp_path / "cache").iterdir()
    assert file.suffix == ".o"


@pytest.mark.parametrize(
    "damage", [lambda x: x[:-9], lambda x: b"", lambda x: x[:40] + b"!" + x[41:]]
)
def test_a_damaged_file_is_made_anew(made, tmp_path, damage):
    assert twice(1) == 2
    (file,) = (tmp_path / "cache").iterdir()
    file.write_bytes(damage(file.read_bytes()))
    assert twice(3) == 6 and len(made) == 2
    assert twice(4) == 8 and len(made) == 2


def test_a_folder_that_others_write_to_is_not_used(made, tmp_path):
    assert twice(1) == 2
    (tmp_path / "cache").chmod(0o777)
    assert machine_code.cache_folder() is None
    assert twice(2) == 4 and len(made) == 2


def test_the_oldest_files_go(made, tmp_path, monkeypatch):
    monkeypatch.setattr(machine_code, "_KEPT", 1)
    assert twice(1) == 2
    (first,) = (tmp_path / "cache").iterdir()
    first.rename(first.with_name("old.o"))
    assert twice(1) == 2
    assert [x.name for x in (tmp_path / "cache").iterdir()] == [first.name]


# --- threads --------------------------------------------------------------------------------------


@pytest.fixture
def three_threads(monkeypatch):
    monkeypatch.setattr(machine_code, "processors", lambda: 3)
    machine_code._pool.cache_clear()
    yield
    machine_code._pool.cache_clear()


def test_each_part_is_computed_once(three_threads):
    seen = []

    def piece(first, last):
        seen.append((threading.get_ident(), first, last))
        time.sleep(0.002)
        return 1 << first // 50

    assert machine_code.in_parts(piece, 100, 9) == 3
    assert sorted(x for _, *part in seen for x in range(*part)) == list(range(100))
    assert len({thread for thread, *_ in seen}) > 1


def test_nobody_computes_when_the_caller_has_failed(three_threads):
    """What the parts write to may be gone then."""
    caller, begun, running = threading.get_ident(), threading.Event(), []

    def piece(first, last):
        if threading.get_ident() == caller:
            begun.wait()
            raise KeyboardInterrupt
        running.append(first)
        begun.set()
        time.sleep(0.01)
        running.remove(first)
        return 0

    with pytest.raises(KeyboardInterrupt):
        machine_code.in_parts(piece, 8, 3)
    assert not running
