"""PyTorch and Triton under ``exec``: their devices, and a line of the log for each launch."""

from __future__ import annotations

from emulator.adapters.cuda.settings import settings

#: packages that have the GPU
_given: set[str] = set()


def give(package: str) -> None:
    """Gives torch or triton, which were just imported, the GPU of this process.

    Raises UnsupportedError for a package that cannot have it, such as a PyTorch that is built for
    CUDA.
    """
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
