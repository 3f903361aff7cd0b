"""CUDA C++ to PTX, by nvcc or by NVRTC, whichever is installed; and what its flags mean here."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from emulator.errors import OperandError, UnsupportedError, quoted, shown
from emulator.machine.options import Contract
from emulator.reading import TEXT_LIMIT, check_regular
from emulator.targets import find_target

SUFFIXES = (".cu", ".cuh")
#: characters of a compiler's messages that are quoted
_MESSAGE = 2000


class Compiled(NamedTuple):
    """PTX that a compiler wrote."""

    text: str
    #: name, version and place of the compiler
    compiler: str


def compile_cuda(
    source: str | os.PathLike[str], target: str, options: Sequence[str] = ()
) -> Compiled:
    """Compiles CUDA C++, a path or the text itself, for a target, with source lines (``.loc``).

    nvcc is taken from the PATH or from the package nvidia-cuda-nvcc, NVRTC from the package
    nvidia-cuda-nvrtc (extra ``cuda``). `options` go to the compiler.

    Raises OperandError for a source that cannot be read or compiled, with the compiler's messages,
    UnsupportedError where no compiler is installed.
    """
    arch = str(find_target(target))
    _check_options(options)
    if isinstance(source, str) and ("\n" in source or ";" in source):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "source.cu"
            path.write_text(source)
            return _compiled(path, arch, options)
    if not isinstance(source, (str, os.PathLike)):
        raise OperandError(f"CUDA C++ is text or a path; got {type(source).__name__}")
    check_regular(Path(source), TEXT_LIMIT)
    return _compiled(Path(source), arch, options)


def _compiled(path: Path, arch: str, options: Sequence[str]) -> Compiled:
    if nvcc := _nvcc():
        return Compiled(_by_nvcc(nvcc, path, arch, options), _named(nvcc))
    if library := _nvrtc():
        return Compiled(_by_nvrtc(library, path, arch, options), _nvrtc_named(library))
    raise UnsupportedError(
        "CUDA C++ needs a compiler: pip install nvidia-cuda-nvrtc, or put nvcc into the PATH"
    )


def _check_options(options: Sequence[str]) -> None:
    if isinstance(options, str) or not all(isinstance(word, str) for word in options):
        raise OperandError(
            f"options is a sequence of words, as in ('-O3', '-DTILE=64'); got {shown(options)}"
        )


#: flags of nvcc and NVRTC that say how ptxas computes, without their value and first dashes
_FLAGS: dict[str, Contract] = {
    "fmad=false": "none", "fmad=true": "ptxas", "use_fast_math": "ptxas",
    "G": "O0", "device-debug": "O0", "Xptxas=-O0": "O0", "ptxas-options=-O0": "O0",
}  # fmt: skip


def contract_of(options: Sequence[str]) -> Contract:
    """The `contract` of a launch that computes as these options of nvcc or NVRTC make ptxas do.

    The last of ``-fmad`` and ``-use_fast_math`` counts. With ``-G`` or ``-Xptxas -O0`` nothing is
    fused, whatever the others say.
    """
    joined = " ".join(options)
    for name in ("Xptxas", "ptxas-options", "fmad"):
        joined = joined.replace(f"{name} ", f"{name}=")
    found = [_FLAGS[word] for x in joined.split() if (word := x.lstrip("-")) in _FLAGS]
    return "O0" if "O0" in found else found[-1] if found else "ptxas"


def _nvcc() -> str | None:
    found = shutil.which("nvcc")
    if found:
        return found
    for folder in _packages():
        for name in ("nvcc", "nvcc.exe"):
            for place in (folder / "bin" / name, folder / "cuda_nvcc" / "bin" / name):
                if place.is_file():
                    return str(place)
    return None


def _named(nvcc: str) -> str:
    """nvcc with its version and place, as ``nvcc V13.0.88 (/usr/local/bin/nvcc)``."""
    done = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False)
    version = re.search(r"V\d[\d.]*", done.stdout)
    return f"nvcc {version[0] if version else ''} ({nvcc})"


def _packages() -> list[Path]:
    """Folders of NVIDIA's packages of the running Python."""
    spec = find_spec("nvidia")
    places = list(spec.submodule_search_locations or ()) if spec else []
    return [
        folder
        for place in places
        for folder in (Path(place), *sorted(Path(place).iterdir()))
        if folder.is_dir()
    ]


def _by_nvcc(nvcc: str, path: Path, arch: str, options: Sequence[str]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.ptx"
        command = [nvcc, "-ptx", "-lineinfo", f"-arch={arch}", *options, str(path), "-o", str(out)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or not out.is_file():
            raise OperandError(f"nvcc refuses {quoted(str(path))}:\n{done.stderr[:_MESSAGE]}")
        return out.read_text()


# --- NVRTC ----------------------------------------------------------------------------------------


def _nvrtc() -> ctypes.CDLL | None:
    pattern = "nvrtc64_*.dll" if sys.platform == "win32" else "libnvrtc.so.*"
    for folder in _packages():
        for place in sorted(folder.rglob(pattern)):
            if "builtins" not in place.name and "alt" not in place.name:
                return ctypes.CDLL(str(place))
    return None


def _nvrtc_named(library: ctypes.CDLL) -> str:
    major, minor = ctypes.c_int(), ctypes.c_int()
    library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"NVRTC {major.value}.{minor.value} ({library._name})"


def _by_nvrtc(library: ctypes.CDLL, path: Path, arch: str, options: Sequence[str]) -> str:
    given = [f"--gpu-architecture={arch}", "--generate-line-info", f"-I{path.parent}", *options]
    words = (ctypes.c_char_p * len(given))(*(word.encode() for word in given))
    program = ctypes.c_void_p()
    text = path.read_bytes()
    made = library.nvrtcCreateProgram(
        ctypes.byref(program), text, path.name.encode(), 0, None, None
    )
    if made:
        raise OperandError(f"NVRTC gives error {made} for {quoted(str(path))}")
    try:
        if library.nvrtcCompileProgram(program, len(given), words):
            log = _text(library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog, program)
            raise OperandError(f"NVRTC refuses {quoted(str(path))}:\n{log[:_MESSAGE]}")
        return _text(library.nvrtcGetPTXSize, library.nvrtcGetPTX, program)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _text(size_of: Any, read: Any, program: ctypes.c_void_p) -> str:
    size = ctypes.c_size_t()
    size_of(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    read(program, buffer)
    return buffer.value.decode("utf-8", "replace")
