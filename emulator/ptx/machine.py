"""``Warp`` and ``Warpgroup``: typed registers, shared memory, and statements that run on them."""

from __future__ import annotations

from typing import Any

import numpy as np

from dtypes import Array
from emulator.arith import Engine
from emulator.arith.engines import check_engine
from emulator.errors import OperandError
from emulator.ptx.binder import Scope
from emulator.ptx.ordering import WgmmaOrder
from emulator.ptx.registers import RegisterFile
from emulator.ptx.shared import SharedVariables
from emulator.ptx.statements import bind, declare, placed
from emulator.ptx.syntax import Call, Statement, parse
from emulator.targets import find_target
from emulator.warp.memory import check_shared
from emulator.warp.multiply import Undefined


class Warp:
    """A warp of 32 lanes that execute PTX statements together.

    ``warp["%r0"]`` reads and sets the raw words of one register, ``(*batch, lanes)``;
    ``warp.registers["%r0"].values`` reads them as their declared type. ``warp.shared`` is shared
    memory, ``uint8 (*batch, bytes)``.
    """

    lanes = 32

    def __init__(
        self,
        target: str,
        *,
        shared_bytes: int = 48 * 1024,
        batch: tuple[int, ...] = (),
        engine: Engine = "auto",
        undefined: Undefined = "raise",
    ) -> None:
        check_engine(engine)
        self.target = find_target(target)
        self.engine: Engine = engine
        self.undefined: Undefined = undefined
        self.registers = RegisterFile(self.lanes, batch)
        self._shared: Array = np.zeros((*batch, shared_bytes), np.uint8)
        #: variables of .shared declarations
        self.variables = SharedVariables()
        #: what wgmma has in flight
        self.order = WgmmaOrder()
        self._shared_before: Array | None = None

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} of {self.lanes} lanes, {self.target}, "
            f"{len(self.registers)} registers, {self.shared.shape[-1]} bytes shared>"
        )

    @property
    def shared(self) -> Array:
        """Shared memory, ``uint8 (*batch, bytes)``."""
        return self._shared

    @shared.setter
    def shared(self, memory: Array) -> None:
        checked, batch = check_shared(memory), self.registers.shape[:-1]
        if checked.shape[:-1] != batch:
            sizes = ", ".join([*map(str, batch), "bytes"])
            raise OperandError(f"shared memory is uint8 ({sizes}) here; got {checked.shape}")
        self._shared = checked

    # --- registers ---

    def declare(self, type_: str, *names: str) -> None:
        """Declares registers as ``.reg`` does: ``warp.declare("b32", "%r0", "%r1")``."""
        self.registers.declare(type_.removeprefix("."), names)

    def __getitem__(self, name: str) -> Array:
        if self.undefined == "raise":
            self.order.check_read([name], "")
        return self.registers[name].words.copy()

    def __setitem__(self, name: str, values: Any) -> None:
        words = self.registers.checked(name, values)
        if self.undefined == "raise":
            self.order.write([name], "")
        self.registers[name].words = words

    def read(self, prefix: str, count: int) -> Array:
        """Words of registers ``prefix0 … prefix{count-1}``: ``(*batch, lanes, count)``."""
        return np.stack([self[f"{prefix}{i}"] for i in range(count)], axis=-1)

    def write(self, prefix: str, words: Array) -> None:
        """Sets registers ``prefix0 …`` from ``(…, lanes, count)``: all of them, or none."""
        words = np.asarray(words)
        names = [f"{prefix}{i}" for i in range(words.shape[-1])]
        checked = [self.registers.checked(n, words[..., i]) for i, n in enumerate(names)]
        for name, value in zip(names, checked, strict=True):
            self[name] = value

    # --- statements ---

    def run(self, text: str) -> None:
        """Runs PTX statements: declarations, mov, matrix instructions, data movement and cvt.

        All of `text` takes effect or, when it raises, none of it, on registers and on shared
        memory. Raises ParseError, UnsupportedError, OperandError or UndefinedError, with line and
        column.
        """
        statements = parse(text)
        registers, variables, order = self.registers, self.variables, self.order
        self.registers, self.variables = self._copy_registers(), variables.copy()
        self.order = order.copy()
        try:
            for statement in statements:
                self._run(statement)
        except BaseException:
            self.registers, self.variables, self.order = registers, variables, order
            if self._shared_before is not None:
                self.shared[...] = self._shared_before
            raise
        finally:
            self._shared_before = None

    def keep_shared(self) -> None:
        """Shared memory is about to be written: a statement that raises gives this state back."""
        if self._shared_before is None:
            self._shared_before = self.shared.copy()

    def _run(self, statement: Statement) -> None:
        scope = Scope(self.registers, self.variables)
        if not isinstance(statement, Call):
            declare(statement, scope, self.shared.shape[-1])
            return
        with placed(statement):
            bind(statement, scope, self.target, self.lanes).run(self)

    def _copy_registers(self) -> RegisterFile:
        copy = RegisterFile(self.lanes, self.registers.shape[:-1])
        for name, register in self.registers.items():
            copy.declare(register.type, (name,))
            copy[name].words = register.words
        return copy


class Warpgroup(Warp):
    """Four consecutive warps, 128 lanes, that execute wgmma together.

    Instructions of a warp, such as mma and ldmatrix, run on each of the four. A wgmma computes at
    its place in the program. Its ordering rules are checked all the same: touching its registers
    before the covering wait raises UndefinedError, unless ``undefined="hardware"``.
    """

    lanes = 128
