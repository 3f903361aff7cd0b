"""Python packages under ``exec``: devices of PyTorch and Triton, with a line of the log for each
launch, and the compiler NVRTC of cuda.core and numba-cuda."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

from emulator.adapters.cuda.native import NVRTC
from emulator.adapters.cuda.settings import settings

#: functions of NVIDIA's own runtime in cuda.bindings that cuda.core calls -> those of the driver
#: that answer instead
_RUNTIME = {
    "cudaDeviceSynchronize": "cuCtxSynchronize", "cudaGetDeviceCount": "cuDeviceGetCount",
    "cudaDeviceGetPCIBusId": "cuDeviceGetPCIBusId",
}  # fmt: skip
#: packages that have the GPU
_given: set[str] = set()


def give(package: str) -> None:
    """Gives a package that was just imported the GPU of this process.

    Raises UnsupportedError for a package that cannot have it, such as a PyTorch that is built for
    CUDA.
    """
    if package == "cuda.pathfinder":
        # It looks for libraries that are loaded before it searches folders.
        if os.environ.get("EMULATOR_NVRTC"):
            ctypes.CDLL(NVRTC)
        return
    if package == "cuda.bindings.runtime":
        _give_runtime()
        return
    if package in _given or "torch" in _given:
        return
    _given.add(package)
    ours = settings()
    if package == "torch":
        from emulator.adapters import pytorch

        gpu = pytorch.install(ours.chip.name, check=ours.check, step_limit=ours.step_limit)
        driver = gpu.driver
    else:
        from emulator.adapters import triton

        driver = triton.install(ours.chip.name, check=ours.check, step_limit=ours.step_limit)
    if driver is not None:
        driver.launched = ours.write


def _give_runtime() -> None:
    from cuda.bindings import driver, runtime

    def answered_by(function: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
        def call(*given: Any) -> tuple[Any, ...]:
            code, *results = function(*given)
            return runtime.cudaError_t(int(code)), *results

        return call

    for name, other in _RUNTIME.items():
        setattr(runtime, name, answered_by(getattr(driver, other)))
