"""The choice of an autotuned kernel's configuration: nothing here has the speed of a GPU."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Any, Literal, TypeAlias

import numpy as np

from emulator.adapters.triton_arguments import bytes_at
from emulator.errors import OperandError, UnsupportedError, listing, shown

Choice: TypeAlias = Literal["first", "all agree"] | Mapping[str, Any]


class Tuning:
    """Takes the place of Triton's measurements: the best configuration is the chosen one."""

    def __init__(self, choice: Choice = "first") -> None:
        if choice not in ("first", "all agree") and not isinstance(choice, Mapping):
            raise OperandError(
                f'autotune is "first", "all agree" or a dict of settings; got {shown(choice)}'
            )
        self._choice = choice
        #: the arguments that a kernel is being tuned for, and what its best configuration left
        self._round: Any = None
        self._best: tuple[str, list[Any]] | None = None
        self._stack, self._has_inductor = ExitStack(), False

    def enter(self, stack: ExitStack) -> None:
        """Replaces Triton's measurements until the stack closes."""
        from triton.runtime.autotuner import Autotuner

        def bench(tuner: Any, *args: Any, config: Any, **meta: Any) -> list[float]:
            return [self._rank(tuner, args, config, meta)] * 3

        stack.callback(setattr, Autotuner, "_bench", Autotuner._bench)
        Autotuner._bench = bench
        self._stack = stack

    def replace_inductor(self) -> None:
        """Has torch.compile take the first configuration of each kernel that it makes.

        It measures by itself, and is imported when a program compiles its first model.
        """
        module = sys.modules.get("torch._inductor.runtime.triton_heuristics")
        if module is not None and not self._has_inductor:
            self._has_inductor = True
            inductor = module.CachingAutotuner
            self._stack.callback(setattr, inductor, "bench", inductor.bench)
            inductor.bench = lambda *given, **named: 1.0

    def _rank(self, tuner: Any, args: Any, config: Any, meta: Any) -> float:
        """A time for a configuration: 1 for the chosen one, more for others."""
        from triton.compiler.errors import CompileTimeAssertionFailure
        from triton.runtime.errors import OutOfResources, PTXASError

        if self._round is not tuner.nargs:
            self._round, self._best = tuner.nargs, None
        settings = config.all_kwargs()
        if isinstance(self._choice, Mapping):
            return 1.0 if self._is_named(settings, tuner.configs) else 2.0
        if self._choice == "first" and self._best is not None:
            return 2.0
        if config.pre_hook is not None:  # it may give descriptors the shapes of their blocks
            config.pre_hook(tuner.nargs | meta | settings)
        try:
            # Shared memory that the GPU lacks shows when a kernel is loaded.
            compiled = tuner.fn.run(*args, **(meta | settings | {"warmup": True}))
            if compiled is not None:
                compiled._init_handles()
        except (OutOfResources, CompileTimeAssertionFailure, PTXASError):
            return float("inf")
        left = self._run(tuner, args, settings, meta) if self._choice == "all agree" else []
        if self._best is None:
            self._best = str(config), left
            return 1.0
        _check_agreement(*self._best, str(config), left)
        return 2.0

    def _is_named(self, settings: Mapping[str, Any], configs: Any) -> bool:
        chosen = self._choice
        assert isinstance(chosen, Mapping)
        if not any(chosen.items() <= config.all_kwargs().items() for config in configs):
            known = listing((str(config) for config in configs), 10)
            raise OperandError(f"no configuration has {dict(chosen)}; there are {known}")
        return chosen.items() <= settings.items()

    def _run(self, tuner: Any, args: Any, settings: Any, meta: Any) -> list[Any]:
        """Runs a configuration, copies the memory that it wrote, and restores it."""
        held = [bytes_at(*place) for place in _places((*args, *meta.values()))]
        before = [array.copy() for array in held]
        try:
            tuner.pre_hook(tuner.nargs | meta | settings)
            tuner.fn.run(*args, **(meta | settings))
            return [array.copy() for array in held]
        finally:
            for array, contents in zip(held, before, strict=True):
                array[:] = contents


def _places(values: Iterable[Any]) -> list[tuple[int, int]]:
    """Address and bytes of the memory of tensors, also under descriptors and other types."""
    tensors: list[Any] = [
        x if hasattr(x, "untyped_storage") else getattr(x, "base", None) for x in values
    ]
    storages = [x.untyped_storage() for x in tensors if hasattr(x, "untyped_storage")]
    return list(dict.fromkeys((x.data_ptr(), x.nbytes()) for x in storages if x.nbytes()))


def _check_agreement(first: str, held: list[Any], other: str, left: list[Any]) -> None:
    for number, (a, b) in enumerate(zip(held, left, strict=True)):
        differing = np.flatnonzero(a != b)
        if len(differing):
            raise UnsupportedError(
                f"configurations of an autotuned kernel do not agree: in tensor {number} byte "
                f"{differing[0]} and {len(differing) - 1} others differ between {first} and {other}"
            )
