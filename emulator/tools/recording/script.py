"""Runs one kernel on the first NVIDIA GPU and writes a golden file: inputs, outputs, chip, driver.

    python THIS_FILE.py [OUT.json]

It needs Python 3.8 or later and NVIDIA's driver, nothing else. The kernel runs twice; results that
differ from run to run are not written. Exit codes: 0 written, 1 results differ or a call of the
driver failed, 4 no GPU.
"""

from __future__ import annotations

import base64
import ctypes
import datetime
import json
import sys
import zlib
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any, Dict, List  # noqa: UP035 - for Python 3.8

#: the kernel, its launch, and its parameters: bytes, and the array whose address they begin with
JOB: Dict[str, Any] = {}  # noqa: UP006

_LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
_MANAGEMENT = "nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1"
#: numbers of attributes and options of the driver
_MAJOR, _MINOR, _DYNAMIC_SHARED, _LOG, _LOG_BYTES = 75, 76, 8, 5, 6
_NO_GPU = 4


def unpacked(text: str) -> bytes:
    """The bytes of an array as files hold it."""
    return zlib.decompress(base64.b64decode(text))


def packed(data: bytes) -> str:
    """Text of bytes, for a file."""
    return base64.b64encode(zlib.compress(data, 9)).decode()


class _Driver:
    """The driver, with the first GPU's context."""

    def __init__(self) -> None:
        try:
            self.library = ctypes.CDLL(_LIBRARY)
        except OSError as error:
            sys.exit(_complain(f"no NVIDIA driver here: {error}"))
        self.device, count, context = c_int(), c_int(), c_void_p()
        if self.library.cuInit(0) or self.library.cuDeviceGetCount(byref(count)) or not count.value:
            sys.exit(_complain("the NVIDIA driver finds no GPU"))
        self.call("cuDeviceGet", byref(self.device), 0)
        self.call("cuDevicePrimaryCtxRetain", byref(context), self.device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function of the driver; ends the script if it fails."""
        code = getattr(self.library, name)(*arguments)
        if code:
            word = c_char_p()
            self.library.cuGetErrorName(code, byref(word))
            sys.exit(f"{name} fails: {(word.value or b'').decode()} ({code})")

    def load(self, ptx: str) -> c_void_p:
        """The module of a PTX text; ends the script with the compiler's words."""
        log = ctypes.create_string_buffer(8192)
        options = (c_int * 2)(_LOG, _LOG_BYTES)
        values = (c_void_p * 2)(ctypes.addressof(log), len(log))
        module, text = c_void_p(), c_char_p(ptx.encode())
        if self.library.cuModuleLoadDataEx(byref(module), text, 2, options, values):
            sys.exit(f"the driver does not take the PTX:\n{log.value.decode(errors='replace')}")
        return module

    def attribute(self, number: int) -> int:
        value = c_int()
        self.call("cuDeviceGetAttribute", byref(value), number, self.device)
        return value.value


def _complain(text: str) -> int:
    print(text, file=sys.stderr)
    return _NO_GPU


def run(driver: _Driver, job: Dict[str, Any]) -> List[bytes]:  # noqa: UP006
    """Launches the kernel of a job once, and returns the contents of its arrays."""
    module, function = driver.load(job["ptx"]), c_void_p()
    driver.call("cuModuleGetFunction", byref(function), module, c_char_p(job["kernel"].encode()))
    shared = job["dynamic_shared"]
    driver.call("cuFuncSetAttribute", function, _DYNAMIC_SHARED, shared)
    contents, places = [unpacked(array["data"]) for array in job["arrays"]], []
    for data in contents:
        place = c_uint64()
        driver.call("cuMemAlloc_v2", byref(place), c_size_t(max(1, len(data))))
        if data:
            driver.call("cuMemcpyHtoD_v2", place, data, c_size_t(len(data)))
        places.append(place)
    held = []
    for parameter in job["parameters"]:
        raw = bytearray(unpacked(parameter["data"]))
        if parameter["array"] >= 0:
            raw[:8] = places[parameter["array"]].value.to_bytes(8, "little")
        held.append(_aligned(bytes(raw)))
    slots = (c_void_p * max(1, len(held)))(*(address for _, address in held))
    sizes = [c_uint(n) for n in (*job["grid"], *job["block"])]
    driver.call("cuLaunchKernel", function, *sizes, c_uint(shared), None, slots, None)
    driver.call("cuCtxSynchronize")
    out = []
    for data, place in zip(contents, places):  # noqa: B905 - Python 3.8 has no strict=
        after = ctypes.create_string_buffer(max(1, len(data)))
        if data:
            driver.call("cuMemcpyDtoH_v2", after, place, c_size_t(len(data)))
        out.append(after.raw[: len(data)])
        driver.call("cuMemFree_v2", place)
    driver.call("cuModuleUnload", module)
    return out


def _aligned(raw: bytes) -> Any:
    """A buffer with bytes at an address that a tensor map may have, and that address."""
    buffer = ctypes.create_string_buffer(len(raw) + 64)
    address = -(-ctypes.addressof(buffer) // 64) * 64
    ctypes.memmove(address, raw, len(raw))
    return buffer, address


def provenance(driver: _Driver) -> Dict[str, str]:  # noqa: UP006
    """Chip, driver and date."""
    name, version = ctypes.create_string_buffer(256), c_int()
    driver.call("cuDeviceGetName", name, len(name), driver.device)
    driver.call("cuDriverGetVersion", byref(version))
    return {
        "gpu": name.value.decode(),
        "compute capability": f"{driver.attribute(_MAJOR)}.{driver.attribute(_MINOR)}",
        "driver": _driver_version(),
        "cuda": f"{version.value // 1000}.{version.value % 1000 // 10}",
        "date": datetime.date.today().isoformat(),
    }


def _driver_version() -> str:
    try:
        management = ctypes.CDLL(_MANAGEMENT)
    except OSError:
        return "unknown"
    text = ctypes.create_string_buffer(80)
    management.nvmlInit_v2()
    failed = management.nvmlSystemGetDriverVersion(text, len(text))
    return "unknown" if failed else text.value.decode()


def main(words: List[str]) -> int:  # noqa: UP006
    """Runs the job twice and writes the golden file."""
    driver = _Driver()
    first = run(driver, JOB)
    again = run(driver, JOB)
    unlike = [i for i in range(len(first)) if first[i] != again[i]]
    if unlike:
        print(f"not written: arrays {unlike} differ from run to run", file=sys.stderr)
        return 1
    out = words[0] if words else f"{JOB['name']}.json"
    about = provenance(driver)
    golden = {"format": 1, "provenance": about, "job": JOB, "outputs": list(map(packed, first))}
    with open(out, "w", encoding="utf-8") as file:  # noqa: PTH123
        json.dump(golden, file, indent=1)
        file.write("\n")
    print(f"{JOB['name']} on {about['gpu']}, driver {about['driver']}: wrote {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
