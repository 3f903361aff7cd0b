"""Compiles LLVM IR to functions in memory, and keeps the code on disk for later processes."""

from __future__ import annotations

import ctypes
import gc
import hashlib
import os
import re
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import lru_cache, partial
from math import inf
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import llvmlite
import llvmlite.binding as llvm

from emulator.arith.fast.scratch import Scratch

#: one module is compiled at a time: LLVM's context is the process's. A signal handler may launch a
#: kernel while its thread compiles, hence reentrant
_lock = threading.RLock()
#: the lock that llvmlite holds in each call of LLVM, also where code is freed
_llvmlite_lock: Any = getattr(llvm.ffi.lib, "_lock", nullcontext())


def _before_fork() -> None:
    """Waits until LLVM is idle: in the child, locks of other threads would stay locked."""
    _lock.acquire()
    _llvmlite_lock.__enter__()


def _after_fork() -> None:
    _llvmlite_lock.__exit__(None, None, None)
    _lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
    )

#: files of compiled code that are kept
_KEPT = 512
#: LLVM's level of optimisation; characters of a text that is compiled at level 0 first, which takes
#: a third of the time, and how long code of a text runs, for each character, before it is compiled
#: again: twice as long as that takes, as most code is not much slower
_LEVEL, _LARGE, _SECONDS = 2, 1 << 19, 1e-6


def _any(fits: Callable[[int], bool]) -> bytes:
    """A pattern of the bytes that fit."""
    return b"[" + b"".join(re.escape(bytes([x])) for x in range(256) if fits(x)) + b"]"


#: a vpternlog of AVX-512 under a mask with an operand in memory, in bytes: EVEX, map 3, prefix 66,
#: a mask, the opcode, memory. LLVM 20 to 22 confuse its operands: of select(k, y, a & m | y & ~m)
#: with a or m in memory they make a & y | m
_FOLDED = re.compile(
    b"".join(
        [
            b"\x62",
            _any(lambda x: x & 15 == 3),
            _any(lambda x: x & 7 == 5),
            _any(lambda x: x & 7 > 0),
            b"\x25",
            _any(lambda x: x < 0xC0),
        ]
    ),
    re.DOTALL,
)

#: the names of functions in a text, where they are defined and where they are called
_FUNCTION = re.compile(r'^define [^@\n]*@"?([^"(]+)"?', re.MULTILINE)
_CALLED = re.compile(r'call [^@\n]*@"?([^"(]+)"?')


class Code:
    """The functions of one LLVM module in memory, which is freed with the last reference to it."""

    def __init__(self, object_file: bytes) -> None:
        # An engine owns its target machine and frees it, so that no two may share one. This one
        # generates no code, hence no features, which would take longer to parse.
        machine = _target().create_target_machine(opt=0)
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(object_file))
        self._engine.finalize_object()

    def address(self, name: str) -> int:
        return int(self._engine.get_function_address(name))


#: the code in use by the key of its text: equal texts share it
_codes: WeakValueDictionary[str, Code] = WeakValueDictionary()
#: symbols of functions that modules share, by their name and the processor; "": each module has its
#: own; their texts, and their code, which is for good
_symbols: dict[tuple[str, tuple[str, str]], str] = {}
_shared_texts: dict[str, str] = {}
_shared_codes: dict[str, Code] = {}
#: the symbols of other modules in a text
_DECLARED = re.compile(r'^declare .*@"(shared\.[0-9a-f]{64})"', re.MULTILINE)


@lru_cache(maxsize=1)
def _target() -> Any:
    with suppress(RuntimeError):  # of versions that have nothing to initialise any more
        llvm.initialize()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple()


@lru_cache(maxsize=1)
def _processor() -> tuple[str, str]:
    """The name and the features of the processor that runs this process."""
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


@lru_cache(maxsize=4)
def _machine(name: str, features: str, level: int) -> Any:
    """The code generator for a processor, at a level of optimisation."""
    return _target().create_target_machine(cpu=name, features=features, opt=level)


@lru_cache(maxsize=1)
def vector_bytes() -> int:
    """Bytes of a vector that this processor computes with at once, at least 32."""
    return 64 if llvm.get_host_cpu_features().get("avx512f") else 32


def directed() -> bool:
    """True if this processor has instructions with a rounding mode of their own (AVX-512)."""
    return "+avx512f" in _processor()[1].split(",")


def function(
    ir: str, name: str, result: Any, *arguments: Any, level: int = _LEVEL
) -> Callable[..., Any]:
    """A C function of an LLVM module, compiled, or found in memory or on disk; it runs without the
    lock of the interpreter, and keeps its code in memory: whoever keeps only its address must keep
    the function as well."""
    code = loaded(ir, level)
    found = ctypes.CFUNCTYPE(result, *arguments)(code.address(name))
    found.code = code  # type: ignore[attr-defined]
    return found


def address_of_function(found: Callable[..., Any]) -> int:
    """Address of the code of a `function`."""
    return int(ctypes.cast(found, ctypes.c_void_p).value or 0)  # type: ignore[arg-type]


@contextmanager
def written() -> Iterator[None]:
    """While a text is written Python's collector rests, and in the end it looks at nothing else:
    the objects of a text refer to each other, and take more memory than LLVM."""
    if gc.get_freeze_count() or not gc.isenabled():  # the caller has the collector in hand
        yield
        return
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.collect()
        gc.unfreeze()
        gc.enable()


class Improved:
    """A C function of an LLVM module as `function` makes it; one of much text, or that is to run
    `seldom`, is compiled quickly at first, and once more with all optimisations when it has run
    long enough to pay for that."""

    def __init__(
        self, ir: str, name: str, result: Any, *arguments: Any, seldom: bool = False
    ) -> None:
        size = _size(ir)
        quick = (seldom or size >= _LARGE) and not _is_known(_key(ir, _LEVEL))
        make = partial(function, ir, name, result, *arguments)
        self._left = _SECONDS * size if quick else inf
        self._now = make(level=0 if quick else _LEVEL)
        #: what makes a better one; None: there is none
        self._better = make if quick else None

    def ran(self, seconds: float) -> None:
        """It ran for so long."""
        self._left -= seconds

    def now(self) -> Callable[..., Any]:
        """The function as it is now. Callers ask before they take memory of their own: LLVM needs
        much for a while."""
        better = self._better
        if better is not None and self._left <= 0:
            self._better = None
            Scratch.let_go()
            _give_back()
            with suppress(Exception):  # where LLVM fails, the function is still right
                self._now = better()
        return self._now


def loaded(ir: str, level: int = _LEVEL) -> Code:
    """The code of an LLVM module."""
    key = _key(ir, level)
    with _lock:
        code = _codes.get(key)
        if code is None:
            link(ir)
            code = _codes[key] = Code(_stored(key, ir, level))
        return code


def link(ir: str) -> None:
    """Loads the functions of other modules that a text declares."""
    for symbol in _DECLARED.findall(ir):
        if symbol not in _shared_codes:
            found = _shared_codes[symbol] = loaded(_shared_texts[symbol])
            llvm.add_symbol(symbol, found.address(symbol))


def symbol_of(name: str, write: Callable[[], str]) -> str:
    """The symbol by which all modules may declare and call a function; it is compiled once, with
    all optimisations, and stays in memory. `write` gives the text of a module with that function,
    "" where modules cannot share it: then the symbol is "", too."""
    key = name, _processor()
    if key not in _symbols:
        ir = write()
        _symbols[key] = symbol = f"shared.{_key(ir, _LEVEL)}" if ir else ""
        _shared_texts[symbol] = ir.replace(f'@"{name}"', f'@"{symbol}"')
    return _symbols[key]


def _is_known(key: str) -> bool:
    """True if code is in memory or on disk."""
    folder = cache_folder()
    return key in _codes or (folder is not None and (folder / f"{key}.o").exists())


def _size(ir: str) -> int:
    """Characters of a text where functions that are always inlined stand in place of calls."""
    functions, calls = _FUNCTION.split(ir), Counter(_CALLED.findall(ir))
    return len(ir) + sum(
        (calls[name] - 1) * len(body)
        for name, body in zip(functions[1::2], functions[2::2], strict=True)
        if "alwaysinline" in body.partition("\n")[0]
    )


def _compile(ir: str, level: int) -> bytes:
    """Machine code. Of all passes over the IR only that one comes before which inlines what is
    always to be inlined, but for level 0: kernels are written as they are to run, and measured, the
    passes take three times as long as all else and gain nothing."""
    code = _emitted(ir, _machine(*_processor(), level), inlined=level > 0)
    if level and _FOLDED.search(code):
        # At level 0 no instruction takes an operand from memory in place of a register.
        return _emitted(ir, _machine(*_processor(), 0))
    return code


def _emitted(ir: str, machine: Any, *, inlined: bool = True) -> bytes:
    module = llvm.parse_assembly(ir)
    module.verify()
    if inlined and "alwaysinline" in ir:
        passes = llvm.create_new_module_pass_manager()
        passes.add_always_inliner_pass()
        passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
    code: bytes = machine.emit_object(module)
    if len(ir) >= _LARGE:
        module.close()
        _give_back()
    return code


def _give_back() -> None:
    """Gives the system the memory that LLVM has freed, where the C library keeps it."""
    with suppress(OSError, TypeError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _key(ir: str, level: int) -> str:
    """Key of the code of `ir` on this processor, at a level of optimisation."""
    rules = _FOLDED.pattern.hex()
    parts = *_processor(), llvmlite.__version__, _target().triple, str(level), rules, ir
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


# --- on disk --------------------------------------------------------------------------------------


def _stored(key: str, ir: str, level: int) -> bytes:
    """Machine code of `ir`: that of an earlier process where it is on disk and whole."""
    folder = cache_folder()
    if folder is None:
        return _compile(ir, level)
    path = folder / f"{key}.o"
    with suppress(OSError):
        held = path.read_bytes()
        # A file that was cut short is as good as none.
        if held[:32] == hashlib.sha256(held[32:]).digest():
            return held[32:]
    code = _compile(ir, level)
    with suppress(OSError):
        _keep(path, hashlib.sha256(code).digest() + code)
    return code


def cache_folder() -> Path | None:
    """The folder of compiled code: EMULATOR_CACHE_DIR, or the user's folder of caches; None where
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
    """Writes a file in one step or not at all, and removes the oldest where there are many."""
    # The suffix is that of all files: one that a killed process has left becomes the oldest.
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=path.suffix, delete=False) as file:
        try:
            file.write(held)
            file.close()
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
    files = sorted(path.parent.glob(f"*{path.suffix}"), key=lambda x: x.stat().st_mtime)
    for old in files[:-_KEPT]:
        old.unlink(missing_ok=True)


assert sys.byteorder == "little", "registers are read as bytes, the lowest first"
