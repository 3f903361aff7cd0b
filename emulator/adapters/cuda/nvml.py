"""The management library NVML, for programs that ask which GPUs there are."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from emulator.adapters.cuda.calls import DRIVER, lasting, put, put_text
from emulator.adapters.cuda.chips import target
from emulator.adapters.cuda.driver import devices
from emulator.adapters.cuda.settings import settings

#: the handle of the one device
_DEVICE = 1
_INVALID, _UNSUPPORTED, _TOO_SMALL = 2, 3, 7
#: errors of the driver's door -> those of NVML
_CODES = {3: 1, 801: 3}
_SAID = {
    0: "The operation was successful", 1: "NVML was not initialized", 2: "An argument is invalid",
    3: "Not Supported", 7: "The size is too small",
}  # fmt: skip


def _by_index(index: int, out: int) -> int:
    put(out, "Q", _DEVICE)
    return _INVALID if index else 0


def _name(device: int, out: int, room: int) -> int:
    return _text(out, room, f"NVIDIA {settings().chip.name} (emulated)")


def _uuid(device: int, out: int, room: int) -> int:
    raw = f"emulated {target().name}".encode()
    return _text(out, room, f"GPU-{uuid.UUID(bytes=raw.ljust(16, bytes(1))[:16])}")


def _memory(device: int, out: int) -> None:
    space = devices.space()
    put(out, "3Q", space.total, space.total - space.used, space.used)


def _text(out: int, room: int, text: str) -> int:
    if room <= len(text):
        return _TOO_SMALL
    put_text(out, room, text)
    return 0


def code_of(code: int) -> int:
    """The code of NVML for one of the driver's door."""
    return _CODES.get(code, code)


#: what is there, by symbol
NVML: dict[str, Callable[..., int | None]] = {
    # There is nothing to start or to end.
    **dict.fromkeys(("nvmlInit", "nvmlInit_v2", "nvmlInitWithFlags"), lambda *_: 0),
    "nvmlShutdown": lambda: 0,
    **dict.fromkeys(("nvmlDeviceGetCount", "nvmlDeviceGetCount_v2"), lambda out: put(out, "I", 1)),
    "nvmlDeviceGetHandleByIndex": _by_index, "nvmlDeviceGetHandleByIndex_v2": _by_index,
    "nvmlDeviceGetIndex": lambda device, out: put(out, "I", 0),
    "nvmlDeviceGetName": _name, "nvmlDeviceGetUUID": _uuid, "nvmlDeviceGetMemoryInfo": _memory,
    "nvmlDeviceGetCudaComputeCapability":
        lambda device, *out: devices.device_capability(*out, number=0),
    "nvmlErrorString": lambda code: lasting(_SAID.get(code, "Unknown Error")),
    # There is no driver whose version or branch could be told.
    **dict.fromkeys(("nvmlSystemGetDriverBranch", "nvmlSystemGetDriverVersion"),
                    lambda out, room: _UNSUPPORTED),
    **dict.fromkeys(("nvmlSystemGetCudaDriverVersion", "nvmlSystemGetCudaDriverVersion_v2"),
                    DRIVER["cuDriverGetVersion"]),
}  # fmt: skip
