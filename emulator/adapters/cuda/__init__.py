"""People's own CUDA programs, unmodified, on a GPU that is not there.

Shared libraries take the place of the CUDA driver and the CUDA runtime. Their functions call this
package, which runs the kernels.
"""

from __future__ import annotations

import ctypes
import os


def on(gpu: str) -> None:
    """Gives this process a GPU, for packages that load the CUDA driver, such as numba-cuda.

    Call it before any of them is imported: what is loaded stays.

    Raises UnsupportedError for a GPU that is not known, and where the libraries cannot be built.
    """
    from emulator.adapters.cuda.command import environment
    from emulator.adapters.cuda.native import NVRTC, library_folder

    os.environ.update(environment(gpu))
    # Once they are loaded, the dynamic linker gives the same libraries to all who ask by name.
    for path in sorted(library_folder().glob("lib*.so.*")):
        if path.name != NVRTC or os.environ["EMULATOR_NVRTC"]:
            ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
