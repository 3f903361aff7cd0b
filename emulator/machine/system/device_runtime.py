"""System around a kernel: the functions of CUDA's device runtime, which kernels call to launch
kernels (names and types are in cuda_device_runtime_api.h of CUDA 13.0)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from emulator.machine.shared.place import Index
from emulator.machine.system.device_launches import NO_MEMORY, SUCCESS, Copy
from emulator.machine.system.host import Host


def _sizes(argument: int) -> Index:
    """The three words of a dim3."""
    x, y, z = ((argument >> 32 * i) & 0xFFFF_FFFF for i in range(3))
    return x, y, z


def parameter_buffer(host: Host, arguments: Sequence[int]) -> int:
    """(kernel, grid, block, bytes of dynamic shared memory) -> a buffer for its parameters."""
    kernel, grid, block, shared = arguments
    return host.launches.buffer(kernel, _sizes(grid), _sizes(block), shared)


def launch_device(host: Host, arguments: Sequence[int]) -> int:
    """(buffer, stream)"""
    return host.launches.told(host.thread_id, host.launches.launch(*arguments))


def stream_create(host: Host, arguments: Sequence[int]) -> int:
    """(where its handle goes, flags)"""
    host.write(arguments[0], host.launches.stream().to_bytes(8, "little"))
    return SUCCESS


def stream_destroy(host: Host, arguments: Sequence[int]) -> int:
    """(stream): what was launched into it runs all the same."""
    return SUCCESS


def allocate(host: Host, arguments: Sequence[int]) -> int:
    """(where the address goes, bytes)"""
    address = host.heap.allocate(arguments[1])
    host.write(arguments[0], address.to_bytes(8, "little"))
    return host.launches.told(host.thread_id, SUCCESS if address else NO_MEMORY)


def release(host: Host, arguments: Sequence[int]) -> int:
    """(address)"""
    if arguments[0]:
        host.heap.free(arguments[0])
    return SUCCESS


def copy(host: Host, arguments: Sequence[int]) -> int:
    """(to, from, bytes, kind, stream)"""
    to, source, size, _, stream = arguments
    host.launches.add(Copy(to, size, source), stream)
    return SUCCESS


def fill(host: Host, arguments: Sequence[int]) -> int:
    """(to, byte, bytes, stream)"""
    to, value, size, stream = arguments
    host.launches.add(Copy(to, size, None, value & 0xFF), stream)
    return SUCCESS


def get_last_error(host: Host, arguments: Sequence[int]) -> int:
    return host.launches.last_error(host.thread_id, forget=True)


def peek_at_last_error(host: Host, arguments: Sequence[int]) -> int:
    return host.launches.last_error(host.thread_id, forget=False)


def error_string(host: Host, arguments: Sequence[int]) -> int:
    """(error) -> the address of a text"""
    return host.launches.text(arguments[0])


DEVICE_RUNTIME: dict[str, Callable[[Host, Sequence[int]], int]] = {
    "__cudaCDP2GetParameterBufferV2": parameter_buffer,
    "__cudaCDP2LaunchDeviceV2": launch_device,
    "__cudaCDP2LaunchDeviceV2_ptsz": launch_device,
    "__cudaCDP2StreamCreateWithFlags": stream_create,
    "__cudaCDP2StreamDestroy": stream_destroy,
    "__cudaCDP2Malloc": allocate,
    "__cudaCDP2Free": release,
    "__cudaCDP2MemcpyAsync": copy,
    "__cudaCDP2MemcpyAsync_ptsz": copy,
    "__cudaCDP2MemsetAsync": fill,
    "__cudaCDP2MemsetAsync_ptsz": fill,
    "__cudaCDP2GetLastError": get_last_error,
    "__cudaCDP2PeekAtLastError": peek_at_last_error,
    "__cudaCDP2GetErrorString": error_string,
}
