"""``torch.compile`` on the simulated device: what it remembers of the machine, and its settings."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from functools import lru_cache
from typing import Any

import torch

#: the type of functions that remember their results
_Cached = type(lru_cache(len))
#: modules that keep what they once learned about the device
_REMEMBERING = (
    "torch.utils._triton", "torch._inductor.utils", "torch._inductor.runtime.hints",
    "torch._inductor.codecache", "torch._inductor.runtime.triton_heuristics",
)  # fmt: skip
#: settings of inductor, and the variables that set them before it is imported: it compiles in this
#: process, and launches through Triton's driver
_SETTINGS = {
    "compile_threads": (1, "TORCHINDUCTOR_COMPILE_THREADS"),
    "use_static_cuda_launcher": (False, "TORCHINDUCTOR_USE_STATIC_CUDA_LAUNCHER"),
}


def enter_compiling(stack: ExitStack) -> None:
    """Has torch.compile find the device of `enter_runtime` until `stack` closes."""
    config = sys.modules.get("torch._inductor.config")
    for name, (value, variable) in _SETTINGS.items():
        if config is not None:
            stack.callback(setattr, config, name, getattr(config, name))
            setattr(config, name, value)
        before = os.environ.get(variable)
        stack.callback(_set_variable, variable, before)
        os.environ[variable] = str(int(value))
    interface = sys.modules.get("torch._dynamo.device_interface")
    if interface is not None:
        # It has copied these from torch.cuda when it was imported.
        for name, function in {
            "exchange_device": torch.cuda._exchange_device,
            "maybe_exchange_device": torch.cuda._maybe_exchange_device,
            "get_raw_stream": torch._C._cuda_getCurrentRawStream,
        }.items():
            before_it = vars(interface.CudaInterface)[name]
            stack.callback(setattr, interface.CudaInterface, name, before_it)
            setattr(interface.CudaInterface, name, staticmethod(function))


def _set_variable(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def forget() -> None:
    """Drops what PyTorch compiled and what it remembers of the device."""
    for name in _REMEMBERING:
        module = sys.modules.get(name)
        for value in list(vars(module).values()) if module is not None else ():
            _clear(value)
            for method in vars(value).values() if isinstance(value, type) else ():
                _clear(getattr(method, "__func__", method))
    interface = sys.modules.get("torch._dynamo.device_interface")
    if interface is not None:
        interface.caching_worker_device_properties.clear()
        torch._dynamo.reset()


def _clear(value: Any) -> None:
    if isinstance(value, _Cached):
        value.cache_clear()
