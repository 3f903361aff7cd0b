"""From the text of LLVM instructions to a function in memory."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

import llvmlite.binding as llvm

#: a compiled segment: its arguments, the first warp and the one behind the last, the context
SEGMENT = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
)
#: of LLVM's optimiser and of its code generator
_LEVEL = 2


@lru_cache(maxsize=1)
def host() -> tuple[str, str]:
    """The name of this machine's processor, and its features."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


class Library:
    """Machine code of one module, which lives as long as this does."""

    def __init__(self, text: str, cpu: str | None = None, features: str | None = None) -> None:
        own_cpu, own_features = host()
        module = llvm.parse_assembly(text)
        machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=own_cpu if cpu is None else cpu,
            features=own_features if features is None else features,
            opt=_LEVEL,
        )
        options = llvm.create_pipeline_tuning_options(speed_level=_LEVEL)
        options.loop_vectorization = options.slp_vectorization = False
        passes = llvm.create_pass_builder(machine, options)
        passes.getModulePassManager().run(module, passes)
        self._engine: Any = llvm.create_mcjit_compiler(module, machine)
        self._engine.finalize_object()

    def address(self, name: str) -> int:
        return int(self._engine.get_function_address(name))
