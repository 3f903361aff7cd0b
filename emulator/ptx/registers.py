"""The typed register file of a warp or warpgroup: declared names, one word per lane each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from dtypes import Array, code_type
from emulator.errors import OperandError, listing, nearest
from emulator.isa.operands import REGISTER_BITS

#: register type -> NumPy type of its values (bits and packed halves stay words)
VALUE_TYPES = {
    "f16": "float16", "f16x2": "float16", "f32": "float32", "f64": "float64",
    "s8": "int8", "s16": "int16", "s32": "int32", "s64": "int64", "pred": "bool",
}  # fmt: skip


@dataclass
class Register:
    """One register of every lane: raw words ``(…, lanes)``."""

    name: str
    type: str
    words: Array

    @property
    def bits(self) -> int:
        return REGISTER_BITS[self.type]

    @property
    def values(self) -> Array:
        """The words read as the declared type; ``(…, lanes, 2)`` halves for f16x2."""
        if self.type == "pred":
            return self.words.astype(np.bool_)
        if self.type not in VALUE_TYPES:
            return self.words.copy()
        view = np.ascontiguousarray(self.words)[..., None].view(VALUE_TYPES[self.type])
        return view.copy() if view.shape[-1] > 1 else view[..., 0].copy()

    @values.setter
    def values(self, _: object) -> NoReturn:
        _refuse_setting(self.name)


def _refuse_setting(name: str) -> NoReturn:
    # Warp.__setitem__ checks the order of wgmma, which is not known here.
    raise OperandError(f'set a register as warp["{name}"] = words or values, one per lane')


class RegisterFile(Mapping[str, Register]):
    """Declared registers by name."""

    def __init__(self, lanes: int, batch: tuple[int, ...]) -> None:
        self.shape = (*batch, lanes)
        self._registers: dict[str, Register] = {}

    def __getitem__(self, name: str) -> Register:
        return self._registers[self.known(name)]

    def __setitem__(self, name: str, _: object) -> NoReturn:
        _refuse_setting(name)

    def __contains__(self, name: object) -> bool:
        return name in self._registers

    def __iter__(self) -> Iterator[str]:
        return iter(self._registers)

    def __len__(self) -> int:
        return len(self._registers)

    def known(self, name: str, where: str = "") -> str:
        """`name`, or OperandError where no such register is declared."""
        if name not in self._registers:
            hint = f"; nearest is {nearest(name, self._registers)[0]!r}" if self._registers else ""
            raise OperandError(
                f"{where}register {name!r} is not declared; declared are "
                f"{listing(self._registers) or 'none'}{hint}"
            )
        return name

    def declare(self, type_: str, names: tuple[str, ...], where: str = "") -> None:
        """Declares registers, all zero; all of them or, on an error, none."""
        if type_ not in REGISTER_BITS:
            raise OperandError(
                f"{where}no register type .{type_}; types are "
                f"{', '.join('.' + t for t in REGISTER_BITS)}; nearest is "
                f".{nearest(type_, REGISTER_BITS)[0]}"
            )
        for i, name in enumerate(names):
            if name in self._registers or name in names[:i]:
                raise OperandError(f"{where}register {name!r} is declared already")
        for name in names:
            words = np.zeros(self.shape, code_type(REGISTER_BITS[type_]))
            self._registers[name] = Register(name, type_, words)

    def checked(self, name: str, values: Any, where: str = "") -> Array:
        """Words for register `name` from raw words or from values of a type of the same size.

        One value per lane, or one for all; Python integers may be signed. Raises OperandError
        where they do not fit.
        """
        register = self[name]
        given = np.asarray(values)
        word = register.words.dtype
        if register.type == "pred":
            words = given.astype(np.bool_).astype(word)
        elif given.dtype.itemsize == word.itemsize and given.dtype.kind in "uif":
            words = np.ascontiguousarray(given).view(word)
        elif given.dtype.kind in "iu" and not isinstance(values, np.ndarray):
            low, high = -(1 << register.bits - 1), (1 << register.bits) - 1
            if given.min(initial=0) < low or given.max(initial=0) > high:
                raise OperandError(f"{where}{name!r} holds {register.bits} bits; got {values!r}")
            words = given.astype(word)
        elif register.type == "f16x2" and given.dtype == np.float16 and given.shape[-1:] == (2,):
            words = np.ascontiguousarray(given).view(word)[..., 0]
        else:
            raise OperandError(
                f"{where}register {name!r} is .{register.type}: give {register.bits}-bit words or "
                f"values, one per lane; got {given.dtype} {given.shape}"
            )
        try:
            return np.broadcast_to(words, self.shape).copy()
        except ValueError:
            raise OperandError(
                f"{where}register {name!r} has one word per lane, {self.shape}; got {words.shape}"
            ) from None
