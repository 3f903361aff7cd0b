"""The shared libraries of the driver, the runtime and NVML: trampolines in C, built once into a
cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

from emulator.adapters.cuda.tables import C_TYPES, Function, functions_of, runtime12_functions
from emulator.errors import UnsupportedError

#: file name -> its functions and the version of its symbols, "" for none
LIBRARIES: dict[str, tuple[Sequence[Function], str]] = {
    "libcuda.so.1": (functions_of("driver"), ""),
    "libcudart.so.13": (functions_of("runtime"), "libcudart.so.13"),
    "libcudart.so.12": (runtime12_functions(), "libcudart.so.12"),
    "libnvidia-ml.so.1": (functions_of("nvml"), ""),
}
_SUPPORT = Path(__file__).parent / "trampolines.c"
#: the compiler NVRTC, which stands in front of the real one, and its C source
NVRTC = "libnvrtc.so.13"
_NVRTC_TEXT = Path(__file__).parent / "nvrtc.c"
_COMPILERS = ("cc", "gcc", "clang")


def c_text(library: str, functions: Sequence[Function]) -> str:
    parts = [f'#define LIBRARY "{library}"\n', _SUPPORT.read_text()]
    for index, function in enumerate(functions):
        kinds = function.kinds
        arguments = ", ".join(f"{C_TYPES[kind]} a{i}" for i, kind in enumerate(kinds))
        fields = "".join(
            f"{C_TYPES[k]} a{i} __attribute__((aligned(8))); " for i, k in enumerate(kinds)
        )
        values = ", ".join(f"a{i}" for i in range(len(kinds)))
        words = f"struct {{ {fields}}} words = {{ {values} }};" if kinds else "int words;"
        parts.append(
            f'__attribute__((visibility("default"))) int64_t {function.name}({arguments or "void"})'
            f" {{ {words} return call({index}, &words); }}\n"
        )
    return "".join(parts)


def library_folder() -> Path:
    """The folder with the libraries, built if they are not there.

    Raises UnsupportedError where there is no C compiler, or it fails.
    """
    texts = {name: c_text(name, functions) for name, (functions, _) in LIBRARIES.items()}
    texts[NVRTC] = _NVRTC_TEXT.read_text()
    key = hashlib.sha256("".join(texts.values()).encode()).hexdigest()[:16]
    given = os.environ.get("EMULATOR_CACHE_DIR")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = (Path(given) if given else cache / "ptx-mma-emulator") / f"cuda-{key}"
    if folder.is_dir():
        return folder
    compiler = next((found for name in _COMPILERS if (found := shutil.which(name))), None)
    if compiler is None:
        raise UnsupportedError(
            "a C compiler is needed once, to build the libraries that programs load as the CUDA "
            f"driver; none of {', '.join(_COMPILERS)} is on the PATH"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        ready = Path(made) / "ready"
        ready.mkdir()
        for name, text in texts.items():
            _build(compiler, ready, name, text)
        try:
            ready.rename(folder)
        except OSError:  # another process was faster
            if not folder.is_dir():
                raise
    return folder


def real_nvrtc() -> str:
    """The path of the NVRTC that is installed; "" where there is none."""
    homes = [os.environ.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH")]
    folders = [
        *os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep),
        *(f"{home}/lib64" for home in (*homes, "/usr/local/cuda") if home),
        *map(str, Path(sysconfig.get_path("platlib")).glob("nvidia/*/lib")),
        "/usr/lib/x86_64-linux-gnu",
    ]
    found = (Path(folder) / NVRTC for folder in folders if folder)
    ours = "ptx-mma-emulator"
    return next((str(path) for path in found if ours not in str(path) and path.is_file()), "")


def _build(compiler: str, folder: Path, name: str, text: str) -> None:
    source, script = folder / f"{name}.c", folder / f"{name}.map"
    source.write_text(text)
    options = ["-shared", "-fPIC", "-O1", "-w", f"-Wl,-soname,{name}", "-o", str(folder / name)]
    version = NVRTC if name == NVRTC else LIBRARIES[name][1]
    if version:
        script.write_text(f"{version} {{ global: cuda*; __cuda*; nvrtc*; local: *; }};\n")
        options.append(f"-Wl,--version-script={script}")
    done = subprocess.run(
        [compiler, *options, str(source), "-ldl", "-lpthread"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        first = (done.stderr.splitlines() or ["no message"])[0]
        raise UnsupportedError(f"{compiler} could not build {name}: {first[:200]}")
    source.unlink()
    script.unlink(missing_ok=True)
