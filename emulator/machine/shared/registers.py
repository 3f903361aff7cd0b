"""All engines: the typed register file of a warp or warpgroup, a name with one word per lane."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NoReturn

import numpy as np

from dtypes import Array, code_type
from emulator.arrays import as_array
from emulator.errors import OperandError, listing, near_name, shown
from emulator.isa.register_types import REGISTER_BITS
from emulator.ptx.statements import Declared, Mark

#: register type -> NumPy type of its values (bits and packed halves stay words)
VALUE_TYPES = {
    "f16": "float16", "f16x2": "float16", "f32": "float32", "f64": "float64",
    "s8": "int8", "s16": "int16", "s32": "int32", "s64": "int64", "pred": "bool",
}  # fmt: skip


class Register:
    """One register of every lane: ``words (*batch, lanes)`` and the ``values`` that they mean.

    Words of 128 bits are pairs of 64, ``(*batch, lanes, 2)``, the low one first.

    Both can be set: to one for all lanes, or one for each. Raises OperandError for what does not
    fit.
    """

    __slots__ = ("_file", "_held", "_words", "name", "type", "written")

    def __init__(self, name: str, type_: str, file: RegisterFile) -> None:
        self.name, self.type, self._file = name, type_, file
        #: as an engine has it: words ``(all lanes,)``, or ``(1,)`` where all hold the same
        self._held: Array | None = None
        self._words: Array | None = None
        #: something has set it
        self.written = False

    @property
    def bits(self) -> int:
        return REGISTER_BITS[self.type]

    @property
    def code(self) -> np.dtype[np.unsignedinteger]:
        """The NumPy type of its words, or of the halves of its words."""
        return code_type(min(self.bits, 64))

    @property
    def pair(self) -> tuple[int, ...]:
        """The shape of a word: () but of a pair."""
        return (2,) if self.bits == 128 else ()

    @property
    def held(self) -> Array:
        """The words of all lanes of the batch in one row, or the one that all hold."""
        if self._held is None:
            self._held = np.zeros((1, *self.pair), self.code)
        return self._held

    @property
    def words(self) -> Array:
        """The raw words, which cannot be changed in place."""
        if self._words is None:
            shape, held = (*self._file.shape, *self.pair), self.held
            same = len(held) == 1
            words = np.full(shape, held[0]) if same else np.ascontiguousarray(held).reshape(shape)
            words.flags.writeable = False
            self._words = words
        return self._words

    @words.setter
    def words(self, given: object) -> None:
        self._file.set({self.name: words_of(self, given)})

    @property
    def values(self) -> Array:
        """The words read as the declared type; ``(…, lanes, 2)`` halves for f16x2."""
        if self.type == "pred":
            return self.words.astype(np.bool_)
        if self.type not in VALUE_TYPES:
            return self.words.copy()
        view = self.words[..., None].view(VALUE_TYPES[self.type])
        return view.copy() if view.shape[-1] > 1 else view[..., 0].copy()

    @values.setter
    def values(self, given: object) -> None:
        self._file.set({self.name: words_of_values(self, given)})


class RegisterFile(Mapping[str, Register]):
    """The declared registers by name."""

    def __init__(self, declared: Declared, lanes: int, batch: tuple[int, ...]) -> None:
        self.shape = (*batch, lanes)
        self._declared = declared
        #: those that somebody has named
        self._registers: dict[str, Register] = {}
        #: called with the names of registers that are about to be set from outside of statements
        self.check_set: Callable[[Sequence[str]], None] = lambda names: None
        #: undo journal of `roll_back`; None: no rollback
        self.replaced: dict[str, tuple[Array | None, Array | None, bool]] | None = None

    def __getitem__(self, name: str) -> Register:
        register = self._registers.get(name) if isinstance(name, str) else None
        if register is None:
            type_ = self._declared.registers[self.known(name)]
            register = self._registers[name] = Register(name, type_, self)
        return register

    def __setitem__(self, name: str, _: object) -> NoReturn:
        raise OperandError(f'set a register as warp["{name:.100}"] = values, one per lane')

    def __contains__(self, name: object) -> bool:
        return name in self._declared.registers

    def __iter__(self) -> Iterator[str]:
        return iter(self._declared.registers)

    def __len__(self) -> int:
        return len(self._declared.registers)

    def known(self, name: str) -> str:
        """`name`, or OperandError where no such register is declared."""
        known = self._declared.registers
        if not isinstance(name, str) or name not in known:
            raise OperandError(
                f"register {shown(name, 100)} is not declared; declared are "
                f"{listing(known) or 'none'}{near_name(shown(name).strip(chr(39)), known)}"
            )
        return name

    def forget(self, mark: Mark) -> None:
        """Takes declarations back that came after a mark."""
        self._declared.forget(mark)
        for name in [x for x in self._registers if x not in self._declared.registers]:
            del self._registers[name]

    # --- words ---

    def set(self, words: Mapping[str, Array]) -> None:
        """Sets registers from outside of statements: all of them or, where one may not be, none."""
        full = {name: self._of_all_lanes(name, x) for name, x in words.items()}
        self.check_set(tuple(full))
        for name, x in full.items():
            self.write(name, x)

    def write(self, name: str, words: Array) -> None:
        """Replaces the words of a register: ``(all lanes,)``, or ``(1,)`` for all of them. They are
        kept as they are, and must not be changed later."""
        register = self[name]
        if self.replaced is not None and name not in self.replaced:
            self.replaced[name] = register._held, register._words, register.written
        register._words = None
        register._held, register.written = words, True

    def roll_back(self) -> None:
        """Gives every register back that was written since `replaced` became a dictionary."""
        while self.replaced:
            name = next(reversed(self.replaced))
            if name in self._registers:
                register = self._registers[name]
                register._held, register._words, register.written = self.replaced[name]
            del self.replaced[name]

    def _of_all_lanes(self, name: str, words: Array) -> Array:
        register = self[name]
        shape = (*self.shape, *register.pair)
        try:
            full = np.broadcast_to(words, shape)
        except ValueError:
            raise OperandError(
                f"register {name!r:.100} has one word per lane, {shape}; got {words.shape}"
            ) from None
        same = words.shape == register.pair or words.size == 1
        out = np.array(words if same else full, register.code, order="C")
        return out.reshape(-1, *register.pair)


# --- from what callers give to words --------------------------------------------------------------


def words_of(register: Register, given: object) -> Array:
    """Words for a register: unsigned words of its size, or integers that fit."""
    array, word = as_array(given, repr(register.name)), register.code
    if register.pair:
        return _pairs(register, array)
    if array.dtype.kind == "u" and array.dtype.itemsize == word.itemsize:
        if register.type == "pred":
            return _truth(register, array)
        return array.astype(word)
    return _integers(register, given, array)


def words_of_values(register: Register, given: object) -> Array:
    """Words for a register from values of its type.

    Floating-point registers take numbers, rounded to nearest where they are wider; integer ones and
    untyped ones integers of any type that fit; untyped ones arrays of floats of their size, too,
    whose bits they get; predicates truth values, or 0 and 1; f16x2 pairs of float16 ``(…, 2)``, or
    words. Raises OperandError for anything else.
    """
    name = register.name
    array = as_array(given, repr(name))
    if array.dtype.kind in "iuf":
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if register.pair:
        return _pairs(register, array)
    if register.type == "pred":
        return _truth(register, array)
    if register.type in ("f16", "f32", "f64"):
        return _floats(register, given, array)
    halves = array.dtype == np.float16 and array.shape[-1:] == (2,)
    if register.type == "f16x2" and halves:
        return np.ascontiguousarray(array).view(np.uint32)[..., 0]
    is_array = isinstance(given, (np.ndarray, np.generic))
    same_size = array.dtype.itemsize * 8 == register.bits
    if register.type.startswith("b") and array.dtype.kind == "f" and is_array and same_size:
        return array.view(code_type(register.bits))
    return _integers(register, given, array)


def _pairs(register: Register, array: Array) -> Array:
    """Words of 128 bits: two of 64 each, the low one first."""
    if array.dtype != np.uint64 or array.shape[-1:] != (2,):
        raise OperandError(
            f"register {register.name!r:.100} is .b128: give an array of uint64 (…, 2), the low "
            f"half of each word first; got {_shown(array)}"
        )
    return array


def _truth(register: Register, array: Array) -> Array:
    if array.dtype != np.bool_:
        if array.dtype.kind not in "iu" or not np.isin(array, (0, 1)).all():
            raise OperandError(
                f"register {register.name!r:.100} is .pred: give True or False, or 0 or 1, one for "
                f"all lanes or one per lane; got {_shown(array)}"
            )
        array = array != 0
    return array.astype(np.uint8)


def _floats(register: Register, given: object, array: Array) -> Array:
    integers = array.dtype.kind in "iu"
    if array.dtype.kind not in "iuf" or (integers and isinstance(given, (np.ndarray, np.generic))):
        words = f'; words are set as warp.words["{register.name:.100}"] = …' if integers else ""
        raise OperandError(
            f"register {register.name!r:.100} is .{register.type}: give numbers or arrays of "
            f"floats, one for all lanes or one per lane; got {_shown(array)}{words}"
        )
    with np.errstate(over="ignore"):
        values = array.astype(VALUE_TYPES[register.type])
    if (np.isinf(values) & np.isfinite(array)).any():
        raise OperandError(
            f"register {register.name!r:.100} is .{register.type}, which has no number as large as "
            f"{shown(array[np.isinf(values) & np.isfinite(array)].flat[0])}"
        )
    return values.view(code_type(register.bits))


def _integers(register: Register, given: object, array: Array) -> Array:
    if array.dtype.kind not in "iu" and not isinstance(given, (np.ndarray, np.generic)):
        # Python integers beyond 64 bits, or of both signs, which NumPy would make floats of.
        array = np.array(given, object)
    whole = array.dtype.kind in "iu" or (
        array.dtype == object and all(type(x) is int for x in array.flat)
    )
    if not whole:
        raise OperandError(
            f"register {register.name!r:.100} is .{register.type}: give {register.bits}-bit words "
            "or integers that fit, one for all lanes or one per lane; got "
            f"{_shown(np.asarray(given))}"
        )
    low, high = -(1 << register.bits - 1), (1 << register.bits) - 1
    if array.size and not low <= int(array.min()) <= int(array.max()) <= high:
        wrong = array.min() if int(array.min()) < low else array.max()
        raise OperandError(
            f"register {register.name!r:.100} holds {register.bits} bits, {low} … {high}; "
            f"got {_number(int(wrong))}"
        )
    if array.dtype == object:
        array = np.array([x & high for x in array.flat], np.uint64).reshape(array.shape)
    return array.astype(code_type(register.bits))


def _number(number: int) -> str:
    """An integer in a message, where Python refuses to print very long ones."""
    return str(number) if abs(number) < 1 << 128 else f"{hex(number)[:40]}…"


def _shown(array: Array) -> str:
    """An array in a message: its only element, or type and shape."""
    if array.ndim == 0 and isinstance(array.item(), int) and array.dtype == object:
        return f"int {_number(array.item())}"
    return f"{shown(array.item())}" if array.ndim == 0 else f"{array.dtype} {array.shape}"
