"""Debugger: ``Snapshot``, what the reference engine holds between two statements, put back in
place.

Objects stay the same and get back what they held, so that views, closures of pending copies and
whoever looks at a thread stay right.
"""

from __future__ import annotations

from _thread import LockType
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, CellType, FunctionType, MethodType, ModuleType
from typing import Any
from weakref import ReferenceType

import numpy as np

from dtypes import Array

#: objects that never change; and locks, which nobody holds between statements
_CONSTANT = (int, str, bytes, float, type(None), type, Enum, ModuleType, BuiltinFunctionType,
             BaseException, np.generic, np.dtype, range, type(...), slice,
             ReferenceType, LockType)  # fmt: skip
#: modules and packages whose objects no launch changes
_FIXED = ("emulator.ptx.", "emulator.isa.", "emulator.targets", "emulator.arith.",
          "emulator.machine.module", "emulator.machine.debugger.")  # fmt: skip
#: attributes of a launch and its run that are fixed, or belong to the caller
_PASSED_OVER = frozenset({"code", "kernel", "module", "given", "observe", "between", "progress",
                          "memory", "client", "watchers", "touched"})  # fmt: skip


class UnknownStateError(Exception):
    """Something is held of which nobody knows how to put it back."""


class Snapshot:
    """The state that can be reached from some objects. Raises UnknownStateError."""

    def __init__(self, roots: Iterable[object]) -> None:
        #: bytes of arrays
        self.bytes = 0
        self._undo: list[Callable[[], None]] = []
        seen: dict[int, object] = {}
        left = list(roots)
        while left:
            found = left.pop()
            if isinstance(found, _CONSTANT) or id(found) in seen:
                continue
            seen[id(found)] = found
            left.extend(self._keep(found))
        self._alive = seen

    def restore(self) -> None:
        for undo in self._undo:
            undo()

    def _keep(self, held: object) -> Iterable[object]:
        """Keeps what an object holds; the objects that it leads to."""
        if isinstance(held, np.ndarray):
            return self._keep_array(held)
        if isinstance(held, np.random.Generator):
            self._undo.append(
                partial(setattr, held.bit_generator, "state", held.bit_generator.state)
            )
            return ()
        if isinstance(held, memoryview):
            return (held.obj,)
        if isinstance(held, bytearray):
            self.bytes += len(held)
            self._undo.append(partial(held.__setitem__, slice(None), bytes(held)))
            return ()
        if isinstance(held, FunctionType):
            return (*(held.__closure__ or ()), *(held.__defaults__ or ()))
        if isinstance(held, MethodType):
            return (held.__self__, held.__func__)
        if isinstance(held, partial):
            return (held.func, *held.args, *held.keywords.values())
        if isinstance(held, CellType):
            self._undo.append(partial(setattr, held, "cell_contents", held.cell_contents))
            return (held.cell_contents,)
        if type(held).__module__.startswith(_FIXED):
            return ()
        return self._keep_members(held)

    def _keep_array(self, held: Array) -> Iterable[object]:
        if held.base is not None:
            return (held.base,)
        if held.flags.writeable:
            self.bytes += held.nbytes
            self._undo.append(partial(held.__setitem__, ..., held.copy()))
        return ()

    def _keep_members(self, held: object) -> list[object]:
        """Those of a container, and the attributes of an object of the engine."""
        out: list[object] = []
        container = isinstance(held, (tuple, frozenset, list, set, deque, dict))
        if isinstance(held, (tuple, frozenset)):
            out += held
        elif isinstance(held, dict):
            self._undo.append(partial(_put_members, held, list(held.items())))
            out += [*held.keys(), *held.values()]
        elif isinstance(held, list):
            self._undo.append(partial(held.__setitem__, slice(None), list(held)))
            out += held
        elif isinstance(held, (set, deque)):
            self._undo.append(partial(_put_members, held, list(held)))
            out += held
        kind = type(held)
        if not container and not kind.__module__.startswith("emulator."):
            raise UnknownStateError(f"{kind.__module__}.{kind.__qualname__}")
        if hasattr(held, "__dict__"):
            self._undo.append(partial(_put_attributes, held, dict(held.__dict__)))
            out += [x for name, x in held.__dict__.items() if name not in _PASSED_OVER]
        names = [x for base in kind.__mro__ for x in base.__dict__.get("__slots__", ())]
        slots = {x: getattr(held, x) for x in names if x != "__dict__" and hasattr(held, x)}
        if slots and not isinstance(held, tuple):
            self._undo.append(partial(_put_slots, held, slots))
            out += slots.values()
        return out


def _put_members(held: set[Any] | dict[Any, Any] | deque[Any], saved: list[Any]) -> None:
    held.clear()
    (held.extend if isinstance(held, deque) else held.update)(saved)


def _put_attributes(held: object, saved: dict[str, object]) -> None:
    held.__dict__.clear()
    held.__dict__.update(saved)


def _put_slots(held: object, saved: dict[str, object]) -> None:
    for name, value in saved.items():
        object.__setattr__(held, name, value)
