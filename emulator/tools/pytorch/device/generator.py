"""PyTorch's generator of random numbers for a GPU: a seed, and how many words were drawn."""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor

_MASK = (1 << 64) - 1
#: generators of the device, by the address of what PyTorch passes on of them
_known: WeakValueDictionary[int, Generator] = WeakValueDictionary()


class _Kind(type(torch._C.Generator)):  # type: ignore[misc]
    """Has generators of the CPU be generators too."""

    def __instancecheck__(cls, instance: object) -> bool:
        return type.__instancecheck__(torch._C.Generator, instance)


class Generator(torch._C.Generator, metaclass=_Kind):  # type: ignore[misc]
    """A generator of the device; of any other device, PyTorch's own.

    Its state is the seed of Philox4x32-10, and the offset: how many words each thread has drawn,
    always a multiple of 4.
    """

    def __new__(cls, device: str | torch.device = "cpu") -> Any:
        if torch.device(device).type != "cuda":
            return torch._C.Generator(device)
        made: Generator = super().__new__(cls, "cpu")
        made._device = torch.device(device)
        made._seed = torch.Generator("cpu").initial_seed()
        made._offset = 0
        _known[made._cdata] = made
        return made

    def __init__(self, device: str | torch.device = "cpu") -> None:
        pass

    @property
    def device(self) -> torch.device:
        return self._device

    def manual_seed(self, seed: int) -> Generator:
        self._seed, self._offset = int(seed) & _MASK, 0
        return self

    def seed(self) -> int:
        self.manual_seed(super().seed())
        return self._seed

    def initial_seed(self) -> int:
        return self._seed

    def get_offset(self) -> int:
        return self._offset

    def set_offset(self, offset: int) -> None:
        if offset % 4:
            raise RuntimeError("offset must be a multiple of 4")
        self._offset = offset & _MASK

    def get_state(self) -> Tensor:
        return torch.from_numpy(np.array([self._seed, self._offset], "u8").view("u1"))

    def set_state(self, state: Tensor) -> Generator:
        if state.numel() not in (8, 16) or state.dtype != torch.uint8:
            raise RuntimeError("RNG state is wrong size: a GPU's has 16 bytes")
        words = np.frombuffer(state.numpy().tobytes(), "u8").tolist()
        self._seed, self._offset = words[0], 0
        self.set_offset(words[1] if len(words) == 2 else 0)
        return self

    def clone_state(self) -> Generator:
        return Generator(self._device).set_state(self.get_state())

    def draw(self, words: int) -> tuple[int, int]:
        """The seed, and the offset before `words` more are drawn by each thread."""
        before = self._offset
        self._offset = (before + -(-words // 4) * 4) & _MASK
        return self._seed, before

    def on_cpu(self) -> torch.Generator:
        """A generator for an operator that only the CPU computes."""
        seed, offset = self.draw(4)
        return torch._C.Generator("cpu").manual_seed((seed + offset) & _MASK)


def of_device(value: object) -> Generator | None:
    """The generator of the device that PyTorch passed on; None for any other value."""
    return _known.get(value._cdata) if isinstance(value, Generator) else None
