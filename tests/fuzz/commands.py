"""Damaged command lines: an answer, or a message and exit code 2, and no file changed."""

import io
import json
import os
import sys
import tempfile
import time
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np

from emulator.__main__ import main
from fuzz.guard import main as fuzz

F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
WGMMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
WORD = "0x4000004000010040"
KERNEL = """.version 8.0
.target sm_80
.address_size 64
.visible .entry add(.param .u64 out)
{
    .reg .b32 %r<3>; .reg .b64 %d<3>;
    ld.param.u64 %d0, [out]; mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 4;
    add.s64 %d2, %d0, %d1; st.global.u32 [%d2], %r0; ret;
}
"""
#: command -> lines that it answers; files of `folder` go by their names
RIGHT = {
    "list": ("list --target H100 --type f16 --family mma.sp",
             "list --family movmatrix --all --json"),
    "info": (f"info {F16} --target A100", f"info {WGMMA} --json"),
    "lane": (f"lane {F16} a 9 2", f"lane {F16} a 9 2 --group 0 --json"),
    "element": (f"element {F16} b 5 1",),
    "table": (f"table {F16} b --format csv --by element",
              f"table {F16} c --format markdown"),
    "view": (f"view {F16} --operand a --format svg",
             f"view {WGMMA} --swizzle 64B --major mn -o new.svg"),
    "run": ("run move.ptx --target sm_90a --registers words.npz --show x",
            "run move.ptx -o new --json"),
    "launch": ("launch kernel.ptx --block 8 --arg array.npy:one.npy --html two.html",
               "launch kernel.ptx add --block 8 --arg zeros:u4:8 --target H100 --counters",
               "launch kernel.ptx --block 8 --arg arange:u4:8:new", "launch kernel.ptx --problems"),
    "check": ("check kernel.ptx --block 8 --arg zeros:u4:8 --schedule-seeds 2 --json",
              "check kernel.ptx --block 8 --arg zeros:u4:8 --counters --html new --stop-at any"),
    "debug": ("debug kernel.ptx --block 8 --arg array.npy:one.npy -e stepi -e continue",
              "debug kernel.ptx add --block 8 --arg zeros:u4:8 --batch --json -e info"),
    "descriptor": (f"descriptor {WORD} {WGMMA} --operand b --major k --shared-size 4096",
                   f"descriptor {WORD} {WGMMA} --need swizzle=128B,start=0x400 --json",
                   f"descriptor {WGMMA} --build swizzle=32B"),
    "explain": (f"explain {F16} --target sm_90a --row 1 --col 2 --seed 3 --inputs edges",
                f"explain {F16} --target H100 --a 1.5,0x3c00 --b 2 --c 1 --html -o new",
                f"explain {F16} --target H100 --input matrices.npz --json"),
    "compare": (f"compare {F16} --targets sm_80,H100 --limit 3 --same --seed 1",
                f"compare {F16} --input matrices.npz -o new"),
    "error": (f"error {F16} --targets A100,H100 --k 16..32 --rows 2 --columns 2 --json",
              f"error {F16} --k 16 --rows 1 --order reversed --distribution wide -o new.svg"),
    "probe": (f"probe {F16} --target H100 --json",),
    "fault": (f"fault {F16} --target sm_80 --input results.npz --limit 2 --json",),
    "torch": ("torch --strict missing.py --target H100",),
    "exec": ("exec --gpu H100",),
    "record": (f"record {F16} --cases 2 --target sm_80 -o new.py --json",
               "record kernel.ptx --block 8 --arg zeros:u4:8 -o new.py"),
    "guide": ("guide", "guide commands --json"),
    "selftest": ("selftest --engine bogus",),
}  # fmt: skip
JUNK = (
    "", " ", "-", "--", "-1", "0", "7", "99", "18446744073709551616", "9" * 5000, "0x", "1.5",
    "nan", "1e400", "é", "١", "x" * 5000, "\0", "a", "e", "scale_a", "f16", "mma", F16, WGMMA,
    "sm_90a", "sm_1", "H100", "128B", "mn", "tile=0x0", "start=-1", "swizzle=", "=", ",", "1,,2",
    ":", "zeros:f4:", "random:f8:3x-1", "zeros:O:3", "reference", "svg", ".", "..", "/",
    "missing/new", "missing.npz", "matrices.npz", "words.npz", "array.npy", "objects.npz",
    "cut.npz", "move.ptx", "kernel.ptx", "binary", "--json", "--target", "--input", "-o",
    "loop", "loop/x", "array.npy:loop", "zeros:u4:8:kernel.ptx", "zeros:u4:8:missing/x",
    "zeros:u4:" + "x".join("1" * 100), "zeros:f4,,:8", "random:>i4:8", "random:u1:0x9999999999",
    "ones:bool:8", "zeros:u4:8:/dev/full", "-9" * 3000, "\udc80", "🙂", "-o=", "--html",
    "--operand", "--seed", "--row", "--need", "--registers", "--arg", "--help",
)  # fmt: skip
#: seconds of processor time that a line may take
SLOW = 30.0


def fill(folder):
    """Files of every kind in an empty folder."""
    ones = {"A": np.ones((16, 16), "f2"), "B": np.ones((16, 8), "f2")}
    np.savez(folder / "matrices.npz", **ones)
    np.savez(folder / "results.npz", **ones, D=np.full((16, 8), 16, "f4"))
    np.savez(folder / "words.npz", x=np.arange(32, dtype=np.uint32))
    np.savez(folder / "objects.npz", A=np.array([{}]), x=np.array([None]))
    np.save(folder / "array.npy", np.zeros(8, np.uint32))
    (folder / "cut.npz").write_bytes((folder / "matrices.npz").read_bytes()[:300])
    (folder / "move.ptx").write_text(".target sm_80\n.reg .u32 x; mov.u32 x, 7;")
    (folder / "kernel.ptx").write_text(KERNEL)
    (folder / "binary").write_bytes(b"\x7fELF\xff\xfe\0")
    (folder / "loop").symlink_to(folder / "loop")


def files(folder):
    return {
        path.name: path.readlink() if path.is_symlink() else path.read_bytes()
        for path in folder.iterdir()
    }


@contextmanager
def inside(folder):
    """The folder as the current one, with a statement to read from standard input."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        with mock.patch("sys.stdin", io.StringIO(".target sm_80 .reg .u32 x; mov.u32 x, 7;")):
            yield
    finally:
        os.chdir(before)


def outcome(words):
    """The exit code of a command line, argparse's too."""
    try:
        return main(words)
    except SystemExit as stop:
        return stop.code


def damaged(rng, line):
    """The words of a line, some of them others, missing, twice, or elsewhere."""
    words = line.split()
    for _ in range(rng.randint(1, 2)):
        place, how = rng.randrange(1, len(words) + 1), rng.randrange(5)
        if how == 0 and len(words) > 2:
            del words[place % (len(words) - 1) + 1]
        elif how == 1:
            words.insert(place, rng.choice(JUNK))
        elif how == 2:
            words.insert(place, rng.choice(words[1:] or JUNK))
        else:
            words[place if place < len(words) else -1] = rng.choice(JUNK)
    return words


def tried(words, folder):
    """Runs a line in a folder of `fill`, where no file changes but its outputs: its exit code."""
    before, start = files(folder), time.process_time()
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), inside(folder):
        code = outcome(words)
    out, err, after = out.getvalue(), err.getvalue(), files(folder)
    assert time.process_time() - start < SLOW
    assert code in (0, 1, 2) and len(err) <= 4096, (code, err[:300])
    if code == 2:
        assert out == "" and "error: " in err, (out[:300], err[:300])
        assert after == before
    else:
        assert out and err == "", err[:300]
        if "--json" in words and "--help" not in words:
            json.loads(out)
    changed = {name for name in before if after.get(name) != before[name]}
    assert changed <= outputs(words), "a file that was there has changed"
    assert all(words.count(name) <= 1 for name in changed), "a file that was read has changed"
    return code


def outputs(words):
    """Files that a line says to write: those of options, and the ends of ``--arg`` words."""
    pairs = pairwise(words)
    after_option = {word for option, word in pairs if option in ("-o", "--output", "--html")}
    return after_option | {word.rpartition(":")[2] for word in words if ":" in word}


def case(rng):
    """One damaged line: its exit code."""
    words = damaged(rng, rng.choice(RIGHT[rng.choice(list(RIGHT))]))
    if words[0] == "selftest" and "bogus" not in words:
        return "left out"  # the recordings, all of them
    with tempfile.TemporaryDirectory() as folder:
        fill(Path(folder))
        try:
            return f"exit code {tried(words, Path(folder))}"
        except BaseException as error:
            error.add_note(" ".join(word[:200] for word in words))
            raise


if __name__ == "__main__":
    sys.exit(fuzz(case))
