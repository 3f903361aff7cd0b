"""Kernels of ordinary instructions, written from their signatures; for tests of engines and GPUs.

`OneInstruction` is a statement between loads of its operands and stores of its results;
`kernel_of` makes a kernel of many, each in a scope of its own, on one line. `in_kernels` deals many
instructions to kernels, as most of the time of a small kernel goes into everything but its
statement.
"""

import re
from collections import defaultdict
from functools import cache

import numpy as np
from words import boundary_words, random_words

from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.isa.register_types import REGISTER_BITS

CELL = 32
#: what stands before the statements, in lines
HEAD = 8
_TARGETS = ("sm_90a", "sm_100a", "sm_103a", "sm_120a", "sm_121a")
_TEXT = """.version {version}
.target {target}
.address_size 64
.visible .entry go(.param .u64 memory) {{
    .reg .pred %z<4>; .reg .b32 %t<9>; .reg .b64 %a<9>;
    .shared .align 128 .b8 room[{room}];
    mov.u32 %t3, %tid.x; ld.param.u64 %a3, [memory];
    mov.u32 %t8, room; mad.lo.u32 %t8, %t3, {cell}, %t8;
{statements}
    ret;
}}
"""
_COPY_IN = (
    "ld.global.v4.b32 {%t4, %t5, %t6, %t7}, [%a2]; st.shared.v4.b32 [%t8], {%t4, %t5, %t6, %t7}; "
    "ld.global.v4.b32 {%t4, %t5, %t6, %t7}, [%a2+16]; "
    "st.shared.v4.b32 [%t8+16], {%t4, %t5, %t6, %t7};"
)
_COPY_OUT = (
    "ld.shared.v4.b32 {%t4, %t5, %t6, %t7}, [%t8]; st.global.v4.b32 [%a2], {%t4, %t5, %t6, %t7}; "
    "ld.shared.v4.b32 {%t4, %t5, %t6, %t7}, [%t8+16]; "
    "st.global.v4.b32 [%a2+16], {%t4, %t5, %t6, %t7};"
)
#: bytes and halves of registers, of which a selector takes some
_SELECTORS = (
    "b0", "b1", "b2", "b3", "h0", "h1", "h10", "h01", "h21", "h32", "h30", "b3210", "b7654",
    "b4062", "b1357", "b0000", "b10", "b20", "b31", "b320",
)  # fmt: skip


@cache
def _table(type_):
    """Boundaries of a type, and as many random words."""
    rng = np.random.default_rng(7)
    words = boundary_words(type_)
    return np.array([*words, *random_words(type_, len(words), rng)], np.uint64)


class OneInstruction:
    """A statement, and the bytes from `start` on of the memory that it reads and writes.

    With a `variety` above 0 that share of its operands is written otherwise than as a register of
    its own: as a constant, with a selector, as the register before, or left out.
    """

    def __init__(
        self,
        ins: OrdinaryInstruction,
        threads: int = 64,
        seed: int = 0,
        start: int = 0,
        variety: float = 0.0,
    ):
        self.ins, self.threads, self.start, self.variety = ins, threads, start, variety
        self.rng = np.random.default_rng(seed)
        self.target = _target(ins)
        self.memory = b""
        self.registers: list[str] = []
        self.loads: list[str] = []
        self.stores: list[str] = []
        self.in_shared = False
        # The cells come first.
        self._place(self._cells())
        given = ins.signatures(self.target)[0].operands
        operands = [
            self._operand(operand)
            for operand in given
            if not (operand.optional and self.rng.random() < variety)
        ]
        self.statement = f"{ins} {_joined(operands)};"
        self._carry()

    def _place(self, held: np.ndarray) -> str:
        """Puts an element of each thread behind the memory; makes %a1 the address of its own."""
        offset, size = self.start + len(self.memory), held.nbytes // self.threads
        self.memory += held.tobytes()
        return f"mad.wide.u32 %a1, %t3, {size}, %a3; add.u64 %a1, %a1, {offset}; "

    def _cells(self) -> np.ndarray:
        cells = self.rng.integers(0, 256, CELL * self.threads, np.uint8)
        cells[: CELL * self.threads // 4] = 0
        if self.ins.types and self.variety:
            # What an operand may equal.
            type_ = self.ins.types[0]
            words = self._words(type_, max(REGISTER_BITS.get(type_, 32), 16), cells.size // 2)
            cells[cells.size // 2 :] = words[: cells.size // 2]
        return cells

    def _operand(self, operand):
        if operand.kind == "immediate":
            legal = operand.values or range(256)
            return operand, str(legal[int(self.rng.integers(len(legal)))])
        if operand.kind == "address":
            self.in_shared = "shared" in self.ins.modifiers["space"]
            return operand, "[%t8]" if self.in_shared else "[%a2]"
        if self.rng.random() < self.variety and (text := self._otherwise(operand)):
            return operand, text
        parts = operand.parts or (operand,) * (operand.count if operand.kind == "vector" else 1)
        names = [self._register(operand if operand.use != "read" else p, p) for p in parts]
        braces = operand.kind == "vector" or operand.parts
        return operand, f"{{{', '.join(names)}}}" if braces else names[0]

    def _otherwise(self, operand):
        """An operand that is no register of its own; "" where it must be one."""
        if operand.selector:
            found = [x for x in _SELECTORS if re.fullmatch(operand.selector, x)]
            return f"{self._register(operand, operand)}.{self.rng.choice(found)}"
        if operand.use != "read" or operand.kind != "register":
            return ""
        if operand.constants in ("words", "any", "integers", "values"):
            return self._constant(operand)
        return ""

    def _constant(self, operand):
        type_ = operand.type or operand.types[0]
        if REGISTER_BITS.get(type_, 128) > 64 or operand.name in ("membermask", "policy"):
            return ""
        word = int(self.rng.choice(operand.values or _table(type_)))
        if operand.constants == "values" or (type_[0] == "f" and operand.constants == "any"):
            return f"0d{word:016X}" if type_ == "f64" else f"0f{word:08X}"
        bits = REGISTER_BITS[type_]
        if type_[0] == "s" and word >> bits - 1:
            return str(word - (1 << bits))
        return f"{word:#x}" + "U" * (bits == 64 and type_ == "u64")

    def _register(self, operand, part):
        """Declares a register that is loaded before, or stored after."""
        types = part.types or operand.types
        type_ = next((t for t in types if t == "pred" or REGISTER_BITS[t] >= 16), types[0])
        name, bits = f"%r{len(self.registers)}", 32 if type_ == "pred" else REGISTER_BITS[type_]
        self.registers.append(f".reg .{type_} {name};")
        if operand.use == "read":
            if operand.name == "policy":
                self.loads.append(f"createpolicy.fractional.L2::evict_last.b64 {name}, 1.0;")
                return name
            at = self._place(self._words(part.type or part.types[0], bits, part=part.name))
            load = f"ld.global.b{bits} {name}, [%a1];"
            if type_ == "pred":
                load = f"ld.global.b32 %t4, [%a1]; setp.ne.b32 {name}, %t4, 0;"
            self.loads.append(at + load)
            if operand.name == "membermask":
                self.loads.append(
                    f"mov.u32 %t5, %laneid; shr.u32 %t6, {name}, %t5; and.b32 %t6, %t6, 1; "
                    "setp.eq.b32 %z1, %t6, 0; @%z1 bra DONE;"
                )
            return name
        at = self._place(np.full(self.threads * bits // 8, 0xA5, np.uint8))
        store = f"st.global.b{bits} [%a1], {name};"
        if type_ == "pred":
            store = f"selp.b32 %t4, 1, 0, {name}; st.global.b32 [%a1], %t4;"
        self.stores.append(at + store)
        return name

    def _words(self, type_, bits, size=0, part=""):
        """Boundaries and random words, for each thread or of `size` bytes."""
        count = size * 8 // bits or self.threads
        if part == "membermask":
            # A shuffle from a lane that takes no part is undefined.
            some = int(self.rng.integers(1, 1 << 32))
            masks = [0xFFFFFFFF, 0xFFFFFFFF if "shuffles" in self.ins.effects else some]
            words = [masks[i // 32 % 2] for i in range(count)]
        elif type_ == "b128":
            return self.rng.integers(0, 256, count * 16, np.uint8)
        else:
            words = self.rng.choice(_table(type_), count)
        return np.array(words, np.uint64).astype(f"uint{bits}").view(np.uint8).copy()

    def _carry(self):
        """The carry comes from a register, and goes into one."""
        if self.ins.reads_carry:
            carry = self.rng.integers(0, 2, self.threads).astype(np.uint32)
            at = self._place(carry)
            self.loads.append(f"{at}ld.global.b32 %t4, [%a1]; add.cc.u32 %t4, %t4, 0xFFFFFFFF;")
        if self.ins.writes_carry:
            at = self._place(np.zeros(self.threads, np.uint32))
            self.stores.insert(0, "addc.u32 %t7, 0, 0;")
            self.stores.append(f"{at}st.global.b32 [%a1], %t7;")

    @property
    def scope(self) -> str:
        """All of it, on one line."""
        cell = f"mad.wide.u32 %a2, %t3, {CELL}, %a3; add.u64 %a2, %a2, {self.start};"
        parts = [cell, *self.registers, _COPY_IN * self.in_shared, *self.loads, self.statement]
        parts += [*self.stores, _COPY_OUT * self.in_shared]
        return f"{{ {' '.join(filter(None, parts))} DONE: bar.warp.sync -1; }}"


def kernel_of(given: list[OneInstruction], version="9.5") -> str:
    """A kernel that executes one after another."""
    return _TEXT.format(
        version=version, target=given[0].target, cell=CELL, room=CELL * given[0].threads,
        statements="\n".join(one.scope for one in given),
    )  # fmt: skip


def in_kernels(given, most=16):
    """The statements of kernels that execute these instructions, by their targets."""
    of_target = defaultdict(list)
    for ins in given:
        of_target[_target(ins)].append(ins)
    for found in of_target.values():
        for first in range(0, len(found), most):
            out, start = [], 0
            for ins in found[first : first + most]:
                out.append(OneInstruction(ins, start=start))
                start += len(out[-1].memory)
            yield out


def memory_of(given):
    """The bytes that a kernel of these statements takes."""
    return np.frombuffer(b"".join(one.memory for one in given), np.uint8).copy()


def parts_of(given, held):
    """What the memory holds of each statement."""
    return [bytes(held[one.start : one.start + len(one.memory)]) for one in given]


def _target(ins):
    return next((t for t in _TARGETS if t in ins.targets), ins.targets[0])


def _joined(operands):
    out = ""
    for operand, text in operands:
        out += text if not out else ("|" if operand.paired else ", ") + text
    return out
