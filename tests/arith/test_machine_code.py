"""Compiled code on disk: found again, made anew where damaged, not used where others write; and
the threads that run it."""

import ast
import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from contextlib import suppress
from itertools import count, pairwise
from pathlib import Path

import numpy as np
import pytest

from emulator.arith.fast import threads

machine_code = pytest.importorskip("emulator.arith.fast.kernels.machine_code")
crew = pytest.importorskip("emulator.arith.fast.kernels.crew")

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
    return machine_code.function(TEXT, "twice", ctypes.c_int64, ctypes.c_int64)(x)


def test_code_is_made_once(made, tmp_path):
    assert twice(21) == 42
    assert twice(-4) == -8 and len(made) == 1
    (file,) = (tmp_path / "cache").iterdir()
    assert file.suffix == ".o"


def test_much_code_is_made_quickly_first_and_again_when_it_has_run(made, monkeypatch):
    monkeypatch.setattr(machine_code, "_LARGE", 10)
    levels, machine = [], machine_code._machine
    monkeypatch.setattr(machine_code, "_machine", lambda *x: levels.append(x[-1]) or machine(*x))

    def improved():
        return machine_code.Improved(TEXT, "twice", ctypes.c_int64, ctypes.c_int64)

    found = improved()
    assert found.now()(21) == 42 and levels == [0]
    enough = machine_code._SECONDS * len(TEXT)
    found.ran(0.9 * enough)
    assert found.now()(21) == 42 and levels == [0]
    found.ran(0.2 * enough)
    assert found.now()(21) == 42 and levels == [0, 2]
    found.ran(enough)
    assert improved().now()(4) == 8 and levels == [0, 2]  # it is known now
    monkeypatch.setattr(machine_code, "_LARGE", len(TEXT) + 1)
    machine_code.Improved(TEXT.replace("twice", "again"), "again", ctypes.c_int64)
    assert levels == [0, 2, 2]


SHARED = 'define i64 @"half"(i64 %x) {\n  %y = ashr i64 %x, 1\n  ret i64 %y\n}\n'
CALLER = """
define internal i64 @"part"(i64 %x) alwaysinline {{
  %y = call i64 @"{0}"(i64 %x)
  %z = add i64 %y, {1}
  ret i64 %z
}}
define i64 @go(i64 %x) {{
  %y = call i64 @"part"(i64 %x)
  %z = call i64 @"part"(i64 %y)
  ret i64 %z
}}
declare i64 @"{0}"(i64 %x)
"""


@pytest.fixture
def half(monkeypatch):
    """The symbol of a function that modules share, which nobody has called yet."""
    for name in ("_symbols", "_shared_texts", "_shared_codes"):
        monkeypatch.setattr(machine_code, name, {})
    return machine_code.symbol_of("half", lambda: SHARED)


def caller(symbol, added, **more):
    text = CALLER.format(symbol, added)
    return machine_code.Improved(text, "go", ctypes.c_int64, ctypes.c_int64, **more)


def test_modules_share_a_function(made, half):
    assert half == machine_code.symbol_of("half", None)  # it is not written again
    assert not made
    assert caller(half, 1).now()(9) == (9 // 2 + 1) // 2 + 1 and len(made) == 2
    assert caller(half, 2).now()(9) == (9 // 2 + 2) // 2 + 2 and len(made) == 3
    assert machine_code.symbol_of("half", lambda: SHARED) == half
    other = machine_code.symbol_of("third", lambda: SHARED.replace("half", "third"))
    assert other != half
    assert machine_code.symbol_of("none", str) == ""


def test_another_processor_has_functions_of_its_own(half, monkeypatch):
    monkeypatch.setattr(machine_code, "_processor", lambda: ("x86-64", ""))
    assert machine_code.symbol_of("half", lambda: SHARED) != half


def test_pieces_are_inlined_with_all_optimisations(made, half, monkeypatch):
    codes, emitted = [], machine_code._emitted
    monkeypatch.setattr(
        machine_code, "_emitted", lambda *x, **y: codes.append(emitted(*x, **y)) or codes[-1]
    )
    found = caller(half, 3, seldom=True)
    assert found.now()(20) == (10 + 3) // 2 + 3
    found.ran(1.0)
    assert found.now()(20) == (10 + 3) // 2 + 3
    assert [b"part" in code for code in codes] == [False, True, False]


def test_the_size_of_a_text_counts_pieces_as_often_as_they_are_called():
    text = CALLER.format("half", 1)
    piece = text[text.index("(i64") : text.index("define i64 @go")]
    assert machine_code._size(text) == len(text) + len(piece)
    assert machine_code._size(text.replace("alwaysinline", "noinline")) == len(text) - 4


def test_code_that_cannot_be_made_better_stays(made, monkeypatch):
    monkeypatch.setattr(machine_code, "_LARGE", 10)
    found = machine_code.Improved(TEXT, "twice", ctypes.c_int64, ctypes.c_int64)
    first = found.now()

    def fails(*given):
        raise RuntimeError("LLVM")

    monkeypatch.setattr(machine_code, "_machine", fails)
    for _ in range(2):
        found.ran(1.0)
        assert found.now() is first and found.now()(21) == 42


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


def test_a_full_disk_leaves_nothing(made, tmp_path):
    """No file may be longer than its checksum."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (32, before[1]))
    try:
        assert twice(21) == 42
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert not list((tmp_path / "cache").iterdir())
    assert twice(4) == 8 and len(list((tmp_path / "cache").iterdir())) == 1


def test_a_folder_in_place_of_the_file_is_left_alone(made, tmp_path):
    assert twice(1) == 2
    (file,) = (tmp_path / "cache").iterdir()
    file.unlink()
    file.mkdir()
    assert twice(2) == 4 and list((tmp_path / "cache").iterdir()) == [file]


def test_the_oldest_files_go(made, tmp_path, monkeypatch):
    monkeypatch.setattr(machine_code, "_KEPT", 1)
    assert twice(1) == 2
    (first,) = (tmp_path / "cache").iterdir()
    first.rename(first.with_name("old.o"))
    assert twice(1) == 2
    assert [x.name for x in (tmp_path / "cache").iterdir()] == [first.name]


# --- in memory ------------------------------------------------------------------------------------


def many(number):
    """The function that adds a number."""
    text = TEXT.replace("%x, %x", f"%x, {number}")
    return machine_code.function(text, "twice", *[ctypes.c_int64] * 2)


def mappings():
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("no /proc")
    return len(maps.read_text().splitlines())


def test_code_is_freed_with_its_last_user(made):
    many(0)(1)
    before = mappings()
    functions = [many(number) for number in range(1, 20)]
    codes = [weakref.ref(x.code) for x in functions]
    assert [x(1) for x in functions] == list(range(2, 21)) and mappings() > before
    again = many(19)
    del functions
    gc.collect()
    assert again(1) == 20 and [x() is None for x in codes] == [True] * 18 + [False]
    del again
    assert codes[-1]() is None and mappings() <= before + 1


def test_equal_texts_share_code(made):
    one, other = many(5), many(5)
    assert one.code is other.code and many(6).code is not one.code and len(made) == 2
    del one
    assert other(1) == 6


def test_threads_that_compile_one_text_share_it(made):
    start, found = threading.Barrier(4), []

    def work():
        start.wait()
        found.append(many(7))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for x in threads:
        x.start()
    for x in threads:
        x.join()
    assert len({id(x.code) for x in found}) == 1 and len(made) == 1
    assert [x(1) for x in found] == [8] * 4


def test_an_interrupt_leaves_nothing_behind(made, tmp_path, monkeypatch):
    """The engine of the compilation that is stopped takes its target machine with it."""
    create = machine_code.llvm.create_mcjit_compiler

    def stops(*given):
        create(*given)
        raise KeyboardInterrupt

    for number in range(20):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(machine_code.llvm, "create_mcjit_compiler", stops)
            many(number)
        assert many(number)(1) == number + 1
    assert len(made) == 20 == len(list((tmp_path / "cache").iterdir()))


def test_a_signal_handler_may_compile_meanwhile(made, monkeypatch):
    compile_ = machine_code._compile

    def interrupted(*given):
        monkeypatch.setattr(machine_code, "_compile", compile_)
        assert many(8)(1) == 9
        return compile_(*given)

    monkeypatch.setattr(machine_code, "_compile", interrupted)
    assert many(9)(1) == 10


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of threads and fork
def test_forks_while_a_thread_compiles(made):
    """LLVM is idle in the child, which compiles as well."""
    stop = threading.Event()

    def work():
        for number in count(3):
            if stop.is_set():
                return
            many(number)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(8):
            child = os.fork()
            if not child:
                signal.alarm(120)
                os._exit(many(2)(1))
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    finally:
        stop.set()
        thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_interrupts_at_random_moments(tmp_path, seed):
    """`interrupts` compares what ran afterwards with the vector engine."""
    run = [sys.executable, "-m", "interrupts", str(seed), "12"]
    path = os.pathsep.join(x for x in sys.path if x)
    folders = {"EMULATOR_CACHE_DIR": str(tmp_path)}
    env = os.environ | folders | {"PYTHONPATH": path}
    done = subprocess.run(run, capture_output=True, text=True, timeout=600, env=env)
    assert done.returncode == 0, done.stderr
    hits = ast.literal_eval(done.stdout)
    assert hits["by_line"] == hits["by_signal"] == 12 and not hits["files left"]


# --- threads --------------------------------------------------------------------------------------


@pytest.fixture
def three_threads(monkeypatch):
    monkeypatch.setattr(threads, "processors", lambda: 3)
    threads._pool.cache_clear()
    yield
    threads._pool.cache_clear()


def test_each_part_is_computed_once(three_threads):
    seen = []

    def piece(first, last):
        seen.append((threading.get_ident(), first, last))
        time.sleep(0.002)
        return 1 << first // 50

    assert threads.in_parts(piece, 100, 9) == 3
    assert sorted(x for _, *part in seen for x in range(*part)) == list(range(100))
    assert len({thread for thread, *_ in seen}) > 1


@pytest.mark.parametrize("more", [0, 1, 2], ids="interrupted {} times more".format)
def test_nobody_computes_when_the_caller_has_failed(three_threads, monkeypatch, more):
    """What the parts write to may be gone then."""
    caller, begun, running = threading.get_ident(), threading.Event(), []
    wait, computed, failed = threads.wait, [], threading.Event()

    def interrupted(*given):
        if len(interrupts) < more:
            interrupts.append(1)
            raise KeyboardInterrupt
        return wait(*given)

    interrupts = []
    monkeypatch.setattr(threads, "wait", interrupted)

    def piece(first, last):
        if threading.get_ident() == caller:
            begun.wait()
            failed.set()
            raise KeyboardInterrupt
        running.append(first)
        computed.append(first)
        begun.set()
        failed.wait()
        time.sleep(0.01)
        running.remove(first)
        return 0

    with pytest.raises(KeyboardInterrupt):
        threads.in_parts(piece, 12, 3)
    assert not running and len(interrupts) == more
    assert len(computed) < 11  # nobody takes another part


# --- the crew -------------------------------------------------------------------------------------

SCALED = """
define i64 @scaled(i64 %first, i64 %end, i64 %by) {
  %count = sub i64 %end, %first
  %out = mul i64 %count, %by
  ret i64 %out
}
"""


def scaled(by, most=3):
    """How many there are in each part of 1,000, times a number, in so many threads."""
    kinds = [ctypes.c_int64] * 3
    function = machine_code.function(SCALED, "scaled", ctypes.c_int64, *kinds)
    cuts = threads.cuts_of(1000, most)
    found = threads.in_native_parts(function, cuts, most, by)
    assert found == [by * int(end - first) for first, end in pairwise(cuts)]
    return found


def test_the_crew_computes_each_part_once(three_threads):
    assert scaled(7, 1) == [7000]
    for by in range(2000):
        found = scaled(by)
        assert len(found) > 3 * threads._LARGEST
        assert max(found) == found[0] <= by * 1000 // (3 * threads._LARGEST)
        assert min(found) <= by * 1000 // (3 * threads._SMALLEST)


def test_a_crew_that_is_at_work_leaves_others_to_themselves(three_threads):
    wrong = []

    def ask(by):
        try:
            for _ in range(500):
                scaled(by)
        except AssertionError as error:
            wrong.append(error)

    asking = [threading.Thread(target=ask, args=(by,)) for by in range(4)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert not wrong


def test_threads_that_ask_for_the_crew_at_once_get_the_same(three_threads, monkeypatch):
    """A second one would take as many threads again."""
    made = []

    def slowly(others):
        time.sleep(0.05)
        made.append(others)
        return made

    monkeypatch.setattr(crew, "crew_of", slowly)
    threads._only_crew.cache_clear()
    try:
        asking = [threading.Thread(target=threads._crew) for _ in range(4)]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
    finally:
        threads._only_crew.cache_clear()
    assert made == [2]


def check_bytes():
    source = np.random.default_rng(0).integers(1, 256, 3 * threads._BYTES_WORTH_A_THREAD + 5)
    source = source.astype(np.uint8)
    to = np.zeros_like(source)
    assert threads.copy_bytes(to, source) is to and (to == source).all()
    threads.clear_bytes(to)
    assert not to.any()


def test_the_crew_copies_and_clears_bytes(three_threads, monkeypatch):
    scaled(3)
    functions, run = [], threads._on_bytes
    monkeypatch.setattr(threads, "_on_bytes", lambda *given: functions.append(1) or run(*given))
    check_bytes()
    assert len(functions) == 2


def test_bytes_that_are_not_copied_are_noticed(three_threads, monkeypatch):
    scaled(3)
    run = threads._on_bytes
    monkeypatch.setattr(
        threads, "_on_bytes", lambda function, to, *given: run(function, to[:-1], *given)
    )
    with pytest.raises(AssertionError):
        check_bytes()


def test_a_part_that_is_lost_is_noticed(three_threads, monkeypatch):
    monkeypatch.setattr(crew.Crew, "run", lambda self, code, cuts, *rest: cuts[1:] * 0)
    with pytest.raises(AssertionError):
        scaled(7)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_has_a_crew_of_its_own(three_threads):
    scaled(3)
    child = os.fork()
    if not child:
        with suppress(BaseException):
            signal.alarm(60)
            scaled(5)
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def test_bits_under_a_mask_do_not_come_from_memory():
    """LLVM takes an operand of a vpternlog under a mask from memory, and confuses it with another:
    such a text is compiled at level 0."""

    def many(word):
        return f"<{', '.join([f'i32 {word}'] * 16)}>"

    text = f"""
    define i32 @magnitudes(ptr %a, ptr %y, ptr %k, ptr %out) {{
        %signs = load <16 x i32>, ptr %a, align 4
        %read = load <16 x i32>, ptr %y, align 4
        %words = add <16 x i32> %read, {many(3)}
        %keys = load <16 x i32>, ptr %k, align 4
        %kept = icmp ugt <16 x i32> %keys, {many(5)}
        %sign = and <16 x i32> %signs, {many(-(1 << 31))}
        %magnitude = and <16 x i32> %words, {many((1 << 31) - 1)}
        %both = or <16 x i32> %sign, %magnitude
        %made = select <16 x i1> %kept, <16 x i32> %words, <16 x i32> %both
        store <16 x i32> %made, ptr %out, align 4
        ret i32 0
    }}"""
    a, y, k = np.random.default_rng(3).integers(0, 1 << 32, (3, 16), np.uint32)
    k %= 12
    out = np.zeros(16, np.uint32)
    places = (x.ctypes.data for x in (a, y, k, out))
    machine_code.function(text, "magnitudes", ctypes.c_int32, *[ctypes.c_void_p] * 4)(*places)
    words = y + np.uint32(3)
    both = (a & 1 << 31) | (words & (1 << 31) - 1)
    assert (out == np.where(k > 5, words, both)).all()
    assert not machine_code._FOLDED.search(machine_code._compile(text, 2))
