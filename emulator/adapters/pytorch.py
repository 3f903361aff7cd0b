"""PyTorch with the bits of a GPU: ``with simulated_gpu("H100"): …`` and ``tensor_core_matmul``."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from emulator.adapters.triton import Driver, enter_driver
from emulator.adapters.triton_tuning import Choice, Tuning
from emulator.targets import Chip, Target, find_chip
from emulator.tools.pytorch.device import build
from emulator.tools.pytorch.device.compiling import enter_compiling, forget
from emulator.tools.pytorch.device.memory import Heap
from emulator.tools.pytorch.device.operators import Operators
from emulator.tools.pytorch.device.runtime import enter_runtime
from emulator.tools.pytorch.mode import Products, tensor_core_matmul
from emulator.tools.pytorch.used import Used, UsedOperators, UsedProduct

__all__ = ["SimulatedGPU", "Used", "UsedProduct", "install", "simulated_gpu", "tensor_core_matmul"]

# PyTorch counts devices once, at the first gradient of a process: the sooner, the better.
build.prepare()


class SimulatedGPU:
    """A GPU that a process has: what ran on it, and its Triton driver."""

    def __init__(self, chip: Chip, used: Used, heap: Heap, driver: Driver | None) -> None:
        #: the chip by name, or the target that was given for it
        self.name = chip.name
        #: what ran, with the evidence for its bits
        self.used = used
        #: Triton's driver, where Triton is installed; `driver.report` is of the last launch
        self.driver = driver
        self._heap = heap

    def __repr__(self) -> str:
        return f"<simulated {self.name}, {self._heap.used:,} bytes in use>"


@contextmanager
def simulated_gpu(
    target: str | Target, *, strict: bool = False, autotune: Choice = "first", **options: Any
) -> Iterator[SimulatedGPU]:
    """Gives the process a device "cuda" until the context ends.

    Tensors on it live in CPU memory and know that they are on cuda. ``torch.cuda`` answers as with
    one GPU. Matrix products have the bits of the GPU's library (`tensor_core_matmul` says how they
    are known), pointwise operators of f32, f16 and bf16, random numbers and optimisers those of
    PyTorch's kernels, Triton kernels and what ``torch.compile`` makes of a model those of the
    kernels; all other operators are computed by PyTorch on the CPU. `used` of the result lists
    every operator with its evidence. Of tensors that are not on cuda nothing changes.

    `autotune` and `options` are those of `emulator.adapters.triton.gpu`.

    Raises UnsupportedError for a PyTorch that is built for a GPU, for a target without the
    instruction for a product, and with ``strict=True`` at the first operator whose evidence is
    "none".
    """
    with ExitStack() as stack:
        # Triton keeps what it compiled by device: a name of its own keeps a context's apart.
        name = f"simulated {find_chip(target).name}"
        yield _enter(stack, target, name, strict, autotune, options)


def install(
    target: str | Target, *, strict: bool = False, autotune: Choice = "first", **options: Any
) -> SimulatedGPU:
    """Gives the process a device "cuda" for the rest of its life, as `simulated_gpu` does."""
    return _enter(_forever, target, 0, strict, autotune, options)


#: what `install` has entered, which nothing ends
_forever = ExitStack()


def _enter(
    stack: ExitStack,
    target: str | Target,
    device: str | int,
    strict: bool,
    autotune: Choice,
    options: Mapping[str, Any],
) -> SimulatedGPU:
    chip = find_chip(target)
    build.check_build()
    heap = Heap(chip.board.memory_gib << 30)
    with ExitStack() as entered:
        forget()
        entered.callback(forget)
        build.enter_hooks(entered)
        generator = enter_runtime(entered, chip, heap)
        enter_compiling(entered)
        products = Products(chip, strict, used=UsedOperators(chip))
        Operators(chip, heap, products, generator).enter(entered)
        build.check_gradients()
        build.enter_one_thread(entered)
        driver = None
        if importlib.util.find_spec("triton") is not None:
            driver = Driver(chip.name, options, Tuning(autotune), device, "cuda")
            enter_driver(entered, driver)
        stack.push(entered.pop_all())
    products.used.clear()
    return SimulatedGPU(chip, products.used, heap, driver)
