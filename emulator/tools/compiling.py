"""CUDA C++ to PTX, by nvcc or by NVRTC: whichever is installed."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from emulator.errors import OperandError, UnsupportedError, quoted
from emulator.reading import TEXT_LIMIT, check_regular
from emulator.targets import find_target

SUFFIXES = (".cu", ".cuh")
#: characters of a compiler's messages that are quoted
_MESSAGE = 2000


def compile_cuda(source: str | Path, target: str, options: Sequence[str] = ()) -> str:
    """The PTX of a CUDA C++ file for a target, with source lines (``.loc``).

    nvcc is taken from the PATH or from the package nvidia-cuda-nvcc, NVRTC from the package
    nvidia-cuda-nvrtc (extra ``cuda``). `options` go to the compiler.

    Raises OperandError for a file that cannot be read or compiled, with the compiler's messages,
    UnsupportedError where no compiler is installed.
    """
    path, arch = Path(source), str(find_target(target))
    check_regular(path, TEXT_LIMIT)
    if nvcc := _nvcc():
        return _by_nvcc(nvcc, path, arch, options)
    if library := _nvrtc():
        return _by_nvrtc(library, path, arch, options)
    raise UnsupportedError(
        "CUDA C++ needs a compiler: pip install nvidia-cuda-nvrtc, or put nvcc into the PATH"
    )


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


def _packages() -> list[Path]:
    """Folders of NVIDIA's packages of the running Python."""
    spec = find_spec("nvidia")
    places = list(spec.submodule_search_locations or ()) if spec else []
    return [folder for place in places for folder in (Path(place), *sorted(Path(place).iterdir()))
            if folder.is_dir()]  # fmt: skip


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
