"""Functions of PyTorch's C++ part that ``torch.cuda`` calls, for one simulated GPU.

torch.cuda itself stays as it is: it finds here what a build for CUDA would have.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from emulator.targets import Chip
from emulator.tools.pytorch.device.generator import Generator
from emulator.tools.pytorch.device.memory import Heap

_STREAM_KIND = 1


def enter_runtime(stack: ExitStack, chip: Chip, heap: Heap) -> Generator:
    """Has torch.cuda find the chip until `stack` closes; the generator of the device."""
    generator = Generator("cuda:0")
    generator.manual_seed(torch.initial_seed())
    for name, function in (_functions(chip, heap) | _CONSTANTS).items():
        _set(stack, torch._C, name, function)
    for owner, methods in ((torch._C._CudaStreamBase, _STREAM), (torch._C._CudaEventBase, _EVENT)):
        for name, value in methods.items():
            _set(stack, owner, name, value)
    cuda = torch.cuda
    cudart = SimpleNamespace(
        cudaMemGetInfo=lambda device: (heap.total - heap.used, heap.total),
        cudaProfilerStart=lambda: 0,
        cudaProfilerStop=lambda: 0,
        cudaError=SimpleNamespace(success=0),
        cudaGetErrorString=str,
        cudaHostRegister=lambda *given: 0,
        cudaHostUnregister=lambda *given: 0,
    )
    properties = _properties(chip)
    for name, value in {
        "_cudart": cudart,
        "default_generators": (generator,),
        "_initialized": True,
        "_cached_device_count": 1,
        "_get_device_properties": lambda device: properties,
        "_exchange_device": lambda device: 0,
        "_maybe_exchange_device": lambda device: 0,
        "is_current_stream_capturing": lambda: False,
    }.items():
        _set(stack, cuda, name, value)
    _set(stack, torch, "Generator", Generator)
    _set(stack, torch.version, "cuda", "13.0")
    _set(stack, Tensor, "pin_memory", lambda tensor, device=None: tensor)
    _set(stack, Tensor, "record_stream", _nothing)
    _set(stack, torch.backends.cuda, "is_built", lambda: True)
    _set(stack, torch._C._dynamo.guards, "_empty_strided_cuda", _empty_strided)
    _set(stack, torch.UntypedStorage, "__new__", staticmethod(_storages(heap)))
    return generator


def _empty_strided(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> Tensor:
    """What compiled code allocates with."""
    return torch.empty_strided(size, stride, dtype=dtype, device="cuda:0")


def _storages(heap: Heap) -> Callable[..., Any]:
    """The constructor of PyTorch's storages, with those of the device."""
    original = torch.UntypedStorage.__new__

    def new(cls: Any, *given: Any, device: Any = None, **named: Any) -> Any:
        if device is not None and torch.device(device).type == "cuda":
            return heap.allocate(*given).untyped_storage()
        return original(cls, *given, **named, **({} if device is None else {"device": device}))

    return new


def _set(stack: ExitStack, owner: object, name: str, value: object) -> None:
    """Sets an attribute until the stack closes."""
    if name in vars(owner):
        stack.callback(setattr, owner, name, vars(owner)[name])
    else:
        stack.callback(delattr, owner, name)
    setattr(owner, name, value)


def _properties(chip: Chip) -> SimpleNamespace:
    major, minor = divmod(chip.target.number, 10)
    limit, board = chip.target.shared_limit, chip.board
    return SimpleNamespace(
        name=f"NVIDIA {chip.name}",
        major=major,
        minor=minor,
        total_memory=board.memory_gib << 30,
        multi_processor_count=board.processors,
        max_threads_per_multi_processor=chip.processor.threads,
        max_threads_per_block=1024,
        warp_size=32,
        regs_per_multiprocessor=65536,
        L2_cache_size=board.l2_mib << 20,
        shared_memory_per_block=48 << 10,
        shared_memory_per_block_optin=limit,
        shared_memory_per_multiprocessor=limit + 1024,
        is_integrated=0,
        is_multi_gpu_board=0,
        gcnArchName="",
        uuid="simulated",
        clock_rate=board.clock_khz,
        memory_clock_rate=2619000,
        memory_bus_width=board.memory_bus,
        pci_bus_id=0,
        pci_device_id=0,
        pci_domain_id=0,
    )


def _functions(chip: Chip, heap: Heap) -> dict[str, Callable[..., Any]]:
    """The functions of ``torch._C`` that need the chip or its memory."""

    def statistics(device: int) -> dict[str, Any]:
        def pools(current: int, peak: int, total: int) -> dict[str, Any]:
            one = {"current": current, "peak": peak, "allocated": total, "freed": total - current}
            return {pool: dict(one) for pool in ("all", "small_pool", "large_pool")}

        memory = pools(heap.used, heap.peak, heap.peak)
        blocks = pools(len(heap.live), len(heap.live), heap.count)
        return {
            "allocated_bytes": memory, "reserved_bytes": memory, "active_bytes": memory,
            "requested_bytes": memory, "allocation": blocks, "active": blocks, "segment": blocks,
            "inactive_split": pools(0, 0, 0), "inactive_split_bytes": pools(0, 0, 0),
            "num_alloc_retries": 0, "num_ooms": 0, "max_split_size": -1,
        }  # fmt: skip

    def reset(device: int) -> None:
        heap.peak = heap.used

    return {
        "_cuda_memoryStats": statistics, "_cuda_resetPeakMemoryStats": reset,
        "_cuda_resetAccumulatedMemoryStats": reset,
        "_cuda_getArchFlags": lambda: f"sm_{chip.target.number}",
    }  # fmt: skip


def _nothing(*given: object, **named: object) -> None:
    """There is nothing to wait for, and nothing to set."""


def _first(*given: object) -> int:
    """Device 0, or stream 0."""
    return 0


def _stream(*given: object) -> tuple[int, int, int]:
    return 0, 0, _STREAM_KIND


#: functions of ``torch._C`` that answer for any chip
_CONSTANTS: dict[str, Callable[..., Any]] = {
    "_cuda_getDeviceCount": lambda: 1, "_cuda_init": _nothing, "_cuda_getDevice": _first,
    "_cuda_setDevice": _nothing, "_cuda_exchangeDevice": _first,
    "_cuda_maybeExchangeDevice": _first, "_cuda_synchronize": _nothing,
    "_cuda_getCurrentStream": _stream, "_cuda_getDefaultStream": _stream,
    "_cuda_getCurrentRawStream": _first, "_cuda_setStream": _nothing,
    "_cuda_emptyCache": _nothing, "_cuda_ipc_collect": _nothing,
    "_cuda_canDeviceAccessPeer": lambda *given: False, "_cuda_sleep": _nothing,
    "_cuda_isInBadFork": lambda: False, "_cuda_setMemoryFraction": _nothing,
    "_cuda_getMemoryFraction": lambda device: 1.0, "_cuda_isCurrentStreamCapturing": lambda: False,
    "_cuda_get_sync_debug_mode": _first, "_cuda_set_sync_debug_mode": _nothing,
    "_cuda_clearCublasWorkspaces": _nothing, "_cuda_isHistoryEnabled": lambda: False,
    "_cuda_CUDAAllocator_AllocatorState": _nothing,
    "_cuda_getAllocatorBackend": lambda: "native", "_cuda_hostMemoryStats": dict,
}  # fmt: skip


# --- streams and events ---------------------------------------------------------------------------


def _make_event(cls: Any, *given: object, **named: object) -> Any:
    event = object.__new__(cls)
    event.recorded = None
    return event


def _record(event: Any, stream: object = None) -> None:
    event.recorded = time.perf_counter()


def _elapsed(event: Any, end: Any) -> float:
    """Milliseconds on this machine, not the GPU's."""
    if event.recorded is None or end.recorded is None:
        raise RuntimeError("Both events must be recorded before calculating elapsed time.")
    return 1e3 * (end.recorded - event.recorded)


#: all streams are one: what is launched has ended when the launch returns
_STREAM: dict[str, Any] = {
    "__new__": staticmethod(lambda cls, *given, **named: object.__new__(cls)),
    "__init__": _nothing, "query": lambda stream: True, "synchronize": _nothing,
    "cuda_stream": 0, "stream_id": 0, "device_index": 0,
    "device_type": _STREAM_KIND, "priority": 0, "device": torch.device("cuda", 0),
    "__eq__": lambda stream, other: type(other) is type(stream), "__hash__": _first,
    "__enter__": lambda stream: stream, "__exit__": lambda stream, *given: None,
}  # fmt: skip
_EVENT: dict[str, Any] = {
    "__new__": staticmethod(_make_event), "__init__": _nothing, "record": _record,
    "wait": _nothing, "query": lambda event: True, "synchronize": _nothing,
    "elapsed_time": _elapsed, "cuda_event": 0, "device": torch.device("cuda", 0),
}  # fmt: skip
