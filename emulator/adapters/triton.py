"""Triton kernels, compiled by Triton for a GPU that need not be there, and run here bit for bit.

``on("H100", kernel)[grid](x, y, n, BLOCK=1024)`` is the launch that ``kernel[grid](…)`` would be:
Triton specialises and compiles as it does for the GPU, and the PTX that it writes runs on CPU
tensors or NumPy arrays. Nothing of Triton is replaced but its driver, while a launch lasts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from emulator.errors import OperandError, UnsupportedError, quoted, shown
from emulator.machine.arguments import Memory
from emulator.machine.module import Module
from emulator.machine.report import Report
from emulator.memory.tensor_map import TensorMap
from emulator.memory.tensor_map_bits import SWIZZLES, element_dtype
from emulator.targets import Target, find_target

#: the shared memory of a multiprocessor that Triton may use, and what a launcher gets
_STREAM = 0


def on(target: str | Target, kernel: Any, **options: Any) -> OnTarget:
    """A Triton kernel as it runs on a GPU: ``on("H100", kernel)[grid](*args, **constants)``.

    `kernel` is a ``@triton.jit`` function, also under ``@triton.heuristics`` or
    ``@triton.autotune``, whose first configuration is taken: nothing here has the speed of the GPU.
    `options` go to every launch: those of `Kernel.launch`, such as ``contract="none"``.

    Raises OperandError for what is no Triton kernel, UnsupportedError for a target that Triton does
    not compile for.
    """
    chosen = find_target(target)
    if type(kernel).__name__ == "InterpretedFunction":
        raise OperandError(
            "Triton interprets this kernel (TRITON_INTERPRET=1); without that it is compiled"
        )
    if not hasattr(kernel, "run") or not hasattr(kernel, "__getitem__"):
        raise OperandError(f"a Triton kernel is a @triton.jit function; got {shown(kernel)}")
    return OnTarget(chosen, kernel, options)


class OnTarget(NamedTuple):
    """A kernel for a target; ``self[grid](…)`` compiles and runs it, and returns the `Report`."""

    target: Target
    kernel: Any
    options: Mapping[str, Any]

    def __getitem__(self, grid: Any) -> Any:
        def launch(*args: Any, **kwargs: Any) -> Report:
            tensors = [_tensor(value) for value in args]
            named = {name: _tensor(value) for name, value in kwargs.items()}
            driver = _Driver(self.target)
            with _active(driver):
                compiled = self.kernel[grid](*tensors, **named)
            if compiled is None or len(driver.launches) != 1:
                raise UnsupportedError(f"{quoted(str(self.kernel))} did not launch one kernel")
            (made,) = driver.launches
            return _run(compiled, made, self.options)

        return launch


# --- what Triton asks of a driver -----------------------------------------------------------------


class _Launch(NamedTuple):
    grid: tuple[int, int, int]
    source: Any
    metadata: Any
    arguments: tuple[Any, ...]


class _Driver:
    """A driver of Triton for a GPU that is not there: it notes launches and does none."""

    def __init__(self, target: Target) -> None:
        from triton.backends.compiler import GPUTarget

        self.name, self.launches = str(target), list[_Launch]()
        self.target = GPUTarget("cuda", target.number, 32)
        self.utils = _Utilities(target)

    def launcher_cls(self, source: Any, metadata: Any) -> Any:
        def launch(x: int, y: int, z: int, *given: Any) -> None:
            # stream, function, packed metadata, launch metadata and two hooks come first
            active = _driver_config().active
            active.launches.append(_Launch((x, y, z), source, metadata, given[6:]))

        return launch

    def get_current_target(self) -> Any:
        return self.target

    def get_current_device(self) -> str:
        # Triton keeps what it compiled by device: a name of our own keeps it apart from a GPU's.
        return f"emulated {self.name}"

    def set_current_device(self, device: Any) -> None:
        pass

    def get_current_stream(self, device: Any) -> int:
        return _STREAM

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cpu")

    def get_benchmarker(self) -> Any:
        """Finds all configurations of an autotuned kernel equally fast."""
        return lambda call, *, quantiles=None, **options: [1.0] * len(quantiles or [1])


class _Utilities(NamedTuple):
    target: Target

    def get_device_properties(self, device: Any) -> dict[str, int]:
        limit = self.target.shared_limit
        return {"max_shared_mem": limit, "multiprocessor_count": 132, "warpSize": 32,
                "max_num_regs": 65536, "sm_clock_rate": 1, "mem_clock_rate": 1,
                "mem_bus_width": 1}  # fmt: skip

    def load_binary(self, name: str, *rest: Any) -> tuple[Any, ...]:
        return name, name, 0, 0, 1024

    def unload_module(self, module: Any) -> None:
        pass


def _driver_config() -> Any:
    from triton.runtime.driver import driver

    return driver


@contextmanager
def _active(driver: _Driver) -> Iterator[None]:
    config = _driver_config()
    # Asking for the active driver where there is no GPU raises.
    before = config._active
    config.set_active(driver)
    try:
        yield
    finally:
        config._active = before


# --- arguments ------------------------------------------------------------------------------------


def _tensor(value: Any) -> Any:
    """NumPy and ml_dtypes arrays as tensors, which Triton reads; the memory is the same."""
    if not isinstance(value, np.ndarray):
        return value
    import torch

    if value.dtype.kind in "biufc":
        return torch.from_numpy(value)
    known = getattr(torch, str(value.dtype), None)
    if known is None:
        raise OperandError(f"Triton has no type for arrays of {value.dtype}")
    return torch.from_numpy(value.view(f"u{value.itemsize}")).view(known)


def _flat(signature: Any, values: Any) -> Iterator[tuple[str, Any]]:
    """The arguments that the kernel takes, with Triton's names of their types."""
    for kind, value in zip(signature, values, strict=True):
        if isinstance(kind, tuple):
            yield from _flat(kind, value)
        elif kind != "constexpr":
            yield kind, value


def _run(compiled: Any, made: _Launch, options: Mapping[str, Any]) -> Report:
    metadata = made.metadata
    # Triton names the variant of the target that its code needs: sm_90a for 90.
    module = Module(compiled.asm["ptx"])
    kernel = module[metadata.name]
    memory, arguments = Memory(), list[Any]()
    descriptors = iter(getattr(metadata, "tensordesc_meta", None) or ())
    names = list(made.source.signature)
    for name, (kind, value) in zip(
        [n for n in names if made.source.signature[n] != "constexpr"] + [""] * len(names),
        _flat(made.source.signature.values(), made.arguments),
        strict=False,
    ):
        if kind.startswith("tensordesc"):
            arguments += _descriptor(value, next(descriptors, None), memory, name)
        elif kind.startswith("*"):
            arguments.append(_pointer(value, memory, name))
        else:
            arguments.append(value)
    blocks = int(np.prod(made.grid)) * metadata.num_ctas
    for size in (metadata.global_scratch_size, getattr(metadata, "profile_scratch_size", 0)):
        if len(arguments) < len(kernel.parameters):
            arguments.append(np.zeros(blocks * size, np.uint8) if size else 0)
    x, y, z = made.grid
    return kernel.launch(
        (x * metadata.num_ctas, y, z), metadata.num_warps * 32, arguments,
        dynamic_shared=metadata.shared, memory=memory, **options,
    )  # fmt: skip


def _pointer(value: Any, memory: Memory, name: str) -> int:
    """The address of a tensor; all memory that it is a part of can be reached through it."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value
    if not hasattr(value, "untyped_storage"):
        raise OperandError(f"argument {name} is a CPU tensor or an array; got {shown(value)}")
    if value.device.type != "cpu":
        raise OperandError(f"argument {name} is on {value.device}; tensors here are on the CPU")
    import torch

    storage = value.untyped_storage()
    address, size = storage.data_ptr(), storage.nbytes()
    if size and all(address != known for known, _, _ in memory.arrays):
        whole = torch.empty(0, dtype=torch.uint8).set_(storage)
        memory.map(address, _typed(whole.numpy(), value), name)
    return int(value.data_ptr())


def _typed(raw: Any, tensor: Any) -> Any:
    """Bytes in the shape of the tensor where it is all of its memory, for messages."""
    if tensor.is_contiguous() and tensor.nbytes == raw.nbytes and not tensor.dtype.is_complex:
        return raw.view(f"u{tensor.itemsize}").reshape(tuple(tensor.shape))
    return raw


def _descriptor(value: Any, metadata: Any, memory: Memory, name: str) -> Sequence[Any]:
    """A host's tensor descriptor as the kernel takes it: a tensor map, sizes and strides."""
    if metadata is None:
        from triton.backends.driver import decompose_descriptor

        base, *rest = decompose_descriptor(value)
        return [_pointer(base, memory, name), *rest]
    if metadata.get("is_im2col") or metadata["fp4_padded"]:
        raise UnsupportedError(f"argument {name}: im2col and padded fp4 descriptors of Triton")
    # Triton's codes are those of the map; older versions have no descriptors that round.
    dtype = element_dtype(metadata["elem_type"], getattr(value, "round_f32_to_tf32", False))
    size = metadata["elem_size"]
    built = TensorMap.tiled(
        _pointer(value.base, memory, name), dtype=dtype, dims=list(reversed(value.shape)),
        strides=[size * stride for stride in reversed(value.strides[:-1])],
        box=list(reversed(metadata["block_size"])), swizzle=SWIZZLES[metadata["swizzle"]],
        l2_promotion="128B", fill="nan" if getattr(value, "padding", "") == "nan" else "zeros",
    )  # fmt: skip
    return [built, *value.shape, *value.strides]
