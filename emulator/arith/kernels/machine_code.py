"""LLVM IR to functions in memory. What LLVM made is kept on disk for the next process."""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from functools import lru_cache, reduce
from itertools import pairwise, starmap
from operator import or_
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm

#: one function may be compiled at a time: LLVM's context is the process's
_lock = threading.Lock()
#: engines of the functions in use: code lives as long as they do
_engines: list[Any] = []
#: files of compiled code that are kept
_KEPT = 256


@lru_cache(maxsize=1)
def _machine() -> Any:
    """The processor that runs this process, with all that it can do."""
    with suppress(RuntimeError):  # of versions that have nothing to initialise any more
        llvm.initialize()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=2)


@lru_cache(maxsize=1)
def vector_bytes() -> int:
    """Bytes of a vector that this processor computes with at once, at least 32."""
    return 64 if llvm.get_host_cpu_features().get("avx512f") else 32


def function_addresses(ir: str, names: Sequence[str]) -> tuple[int, ...]:
    """The addresses of functions of a module, compiled or found on disk."""
    with _lock:
        machine = _machine()
        code = _stored(ir, machine)
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        _engines.append(engine)
        return tuple(engine.get_function_address(name) for name in names)


def _compile(ir: str, machine: Any) -> bytes:
    """Machine code, without passes over the IR before: kernels are written as they are to run, and
    measured, the passes take three times as long as all else and gain nothing."""
    module = llvm.parse_assembly(ir)
    module.verify()
    code: bytes = machine.emit_object(module)
    return code


# --- on disk --------------------------------------------------------------------------------------


def _stored(ir: str, machine: Any) -> bytes:
    """Machine code of `ir`: that of an earlier process where it is on disk and whole."""
    folder = cache_folder()
    host = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), llvmlite.__version__
    key = hashlib.sha256("\n".join((*host, machine.triple, ir)).encode()).hexdigest()
    if folder is None:
        return _compile(ir, machine)
    path = folder / f"{key}.o"
    with suppress(OSError):
        held = path.read_bytes()
        # A file that was cut short is as good as none.
        if held[:32] == hashlib.sha256(held[32:]).digest():
            return held[32:]
    code = _compile(ir, machine)
    with suppress(OSError):
        _keep(path, hashlib.sha256(code).digest() + code)
    return code


def cache_folder() -> Path | None:
    """Where compiled code is kept: EMULATOR_CACHE_DIR, or the user's folder of caches; None where
    that cannot be written to, or is open to others."""
    given = os.environ.get("EMULATOR_CACHE_DIR")
    with suppress(OSError, RuntimeError):
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(given) if given else Path(base) / "ptx-mma-emulator"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
        # Machine code that others may write is not to be run.
        others = found.st_mode & 0o022 or (hasattr(os, "getuid") and found.st_uid != os.getuid())
        return None if others else folder
    return None


def _keep(path: Path, held: bytes) -> None:
    """Writes a file in one step, and removes the oldest where there are many."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(held)
    Path(file.name).replace(path)
    files = sorted(path.parent.glob("*.o"), key=lambda x: x.stat().st_mtime)
    for old in files[:-_KEPT]:
        old.unlink(missing_ok=True)


# --- threads --------------------------------------------------------------------------------------


def processors() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(processors(), "emulator")


if hasattr(os, "register_at_fork"):
    # A forked child inherits the pool, but none of its threads.
    os.register_at_fork(after_in_child=_pool.cache_clear)


def in_parts(piece: Callable[[int, int], int], count: int, threads: int) -> int:
    """``piece(first, last)`` for all of `count` in so many threads; the bits that any returns."""
    threads = min(threads, count)
    if threads <= 1 or processors() == 1:
        return piece(0, count)
    threads = min(threads, processors())
    # Several parts for each thread, so that none waits long for the last.
    parts = min(count, threads * 4)
    cuts = [i * count // parts for i in range(parts + 1)]
    left = iter(list(pairwise(cuts)))

    def work() -> int:
        """Computes parts until none is left."""
        return reduce(or_, starmap(piece, left), 0)

    others = [_pool().submit(work) for _ in range(threads - 1)]
    try:
        found = work()
    finally:
        # Who has begun still writes to memory of the caller, who may be interrupted.
        begun = [x for x in others if not x.cancel()]
        wait(begun)
    return reduce(or_, (x.result() for x in begun), found)


def callable_at(address: int, result: Any, *arguments: Any) -> Callable[..., Any]:
    """A function of C at an address; it runs without the lock of the interpreter."""
    return ctypes.CFUNCTYPE(result, *arguments)(address)


assert sys.byteorder == "little", "registers are read as bytes, the lowest first"
