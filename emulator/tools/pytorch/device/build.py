"""Has a PyTorch that is built without CUDA take the device "cuda" for one that is there.

PyTorch asks two C++ objects about a device: a guard, which knows the current device, and hooks,
which know whether it was built in. A build without CUDA has no guard and hooks that say no. Here
PyTorch's own guard for devices that do nothing is put in place, and copies of the two objects'
tables of functions answer for one device, number 0.
"""

from __future__ import annotations

import ctypes
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path

import torch

from emulator.errors import UnsupportedError

#: the place of the device among PyTorch's types of devices
_CUDA = 1
#: functions of an object's table that are copied; more than either has
_ENTRIES = 64
#: places of virtual functions in c10/core/impl/DeviceGuardImplInterface.h that return the device
#: cuda:0: exchangeDevice and getDevice
_GUARD = (1, 2)
#: places in ATen/detail/AcceleratorHooksInterface.h, behind two of the destructor, that return
#: true, one device, or nothing: isBuilt, isAvailable, hasPrimaryContext, init, deviceCount,
#: setCurrentDevice
_HOOKS_ONE = (2, 3, 4, 5, 6, 7)
#: those that return device number 0: getCurrentDevice, exchangeDevice, maybeExchangeDevice
_HOOKS_ZERO = (8, 9, 10)

_Function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_zero = _Function(lambda _: 0)


def has_gpu() -> bool:
    """Whether this PyTorch has kernels for GPUs of its own."""
    return bool(torch._C._has_cuda)  # a simulated GPU changes torch.version, not this


def check_build() -> None:
    """Raises UnsupportedError for a PyTorch with kernels for GPUs, or for another system."""
    if has_gpu():
        raise UnsupportedError(
            f"this PyTorch ({torch.__version__}) is built for a GPU; a simulated one needs the "
            "build for the CPU: pip install torch --index-url https://download.pytorch.org/whl/cpu"
        )
    if hasattr(torch._C, "_cuda_getDeviceCount"):
        raise UnsupportedError("this process has a simulated GPU already")
    set_guard()


@cache
def set_guard() -> None:
    """Gives PyTorch a guard of the device, for good: it counts devices at its first gradient."""
    name = "_ZN3c104impl26device_guard_impl_registryE"
    try:
        registry = (ctypes.c_void_p * (_CUDA + 1)).in_dll(_library("libc10"), name)
    except ValueError as error:
        raise UnsupportedError(f"PyTorch {torch.__version__} has no {name} ({error})") from None
    # PyTorch replaces a guard that counts no devices by its guard that does nothing.
    empty = _table([_address(_zero)] * _ENTRIES)
    registry[_CUDA] = _lasting([empty])
    torch._C._ensureCUDADeviceGuardSet()
    guard = ctypes.c_void_p.from_address(registry[_CUDA] or 0)
    functions = list((ctypes.c_void_p * _ENTRIES).from_address(guard.value or 0))
    for place in _GUARD:
        # As a pair of bytes, the type and the number, cuda:0 is 1.
        functions[place] = _one()
    guard.value = _table(functions)


def enter_hooks(stack: ExitStack) -> None:
    """Has PyTorch find one device built in and there, until `stack` closes.

    Raises UnsupportedError where it does not, as versions may differ.
    """
    library = _library("libtorch_cpu")
    get = library._ZN2at6detail12getCUDAHooksEv
    get.restype = ctypes.c_void_p
    hooks = ctypes.c_void_p.from_address(get())
    before = hooks.value or 0
    functions = list((ctypes.c_void_p * _ENTRIES).from_address(before))
    for place in _HOOKS_ONE:
        functions[place] = _one()
    for place in _HOOKS_ZERO:
        functions[place] = _address(_zero)
    stack.callback(setattr, hooks, "value", before)
    hooks.value = _table(functions)
    if str(torch._C._accelerator_getAccelerator()) != "cuda":
        raise UnsupportedError(f"PyTorch {torch.__version__} takes no device from outside")


def prepare() -> None:
    """Gives PyTorch the guard early where one fits; `check_build` says why none does."""
    if not has_gpu():
        with suppress(UnsupportedError):
            set_guard()


def enter_one_thread(stack: ExitStack) -> None:
    """Lets `backward` of the calling thread run in that thread, instead of in one of the device.

    A thread of the device may still want Python's lock when Python has ended, which aborts the
    process.
    """
    stack.enter_context(torch.autograd.set_multithreading_enabled(False))


def check_gradients() -> None:
    """Raises UnsupportedError where PyTorch counted devices before it had this one."""
    try:
        torch.ones((), device="cuda:0", requires_grad=True).clone().backward()
    except RuntimeError as error:
        if "device_ready_queues_" not in str(error):
            raise
        raise UnsupportedError(
            "this process computed a gradient before it had a GPU, and PyTorch counts devices "
            "then: import emulator.adapters.pytorch before the first backward()"
        ) from None


def _library(name: str) -> ctypes.CDLL:
    path = Path(torch.__file__).parent / "lib" / f"{name}.so"
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise UnsupportedError(
            f"a simulated GPU needs PyTorch for Linux ({error!s:.100})"
        ) from None


def _one() -> int:
    """The address of a function that returns 1 and needs no lock of Python's."""
    return _address(ctypes.pythonapi.Py_IsInitialized)


def _address(function: object) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]


def _table(functions: list[int | None]) -> int:
    """The address of a table of functions, behind the two words that C++ has in front of it."""
    return _lasting([0, 0, *functions]) + 2 * ctypes.sizeof(ctypes.c_void_p)


def _lasting(words: list[int | None]) -> int:
    """The address of words that stay when Python ends, for PyTorch asks later still."""
    made = (ctypes.c_void_p * len(words))(*words)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
    return ctypes.addressof(made)
