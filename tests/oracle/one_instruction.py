"""Kernels of one ordinary instruction, written from its signature; for tests of engines."""

import numpy as np
from words import boundary_words, random_words

from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.ptx.program import REGISTER_BITS

CELL = 32
_TARGETS = ("sm_90a", "sm_100a", "sm_103a", "sm_120a", "sm_121a")
_TEXT = """.version 9.5
.target {target}
.address_size 64
.visible .entry go({parameters}, .param .u64 cells) {{
    .reg .pred %z<4>; .reg .b32 %t<9>; .reg .b64 %a<9>; {registers}
    .shared .align 128 .b8 room[{room}];
    mov.u32 %t3, %tid.x;
    ld.param.u64 %a2, [cells]; mad.wide.u32 %a2, %t3, {cell}, %a2;
    mov.u32 %t8, room; mad.lo.u32 %t8, %t3, {cell}, %t8;
    {before}
    {loads}
    {statement}
    {stores}
DONE: ret;
}}
"""
_COPY_IN = """ld.global.v4.b32 {%t4, %t5, %t6, %t7}, [%a2];
    st.shared.v4.b32 [%t8], {%t4, %t5, %t6, %t7};
    ld.global.v4.b32 {%t4, %t5, %t6, %t7}, [%a2+16];
    st.shared.v4.b32 [%t8+16], {%t4, %t5, %t6, %t7};"""
_COPY_OUT = """ld.shared.v4.b32 {%t4, %t5, %t6, %t7}, [%t8];
    st.global.v4.b32 [%a2], {%t4, %t5, %t6, %t7};
    ld.shared.v4.b32 {%t4, %t5, %t6, %t7}, [%t8+16];
    st.global.v4.b32 [%a2+16], {%t4, %t5, %t6, %t7};"""


class OneInstruction:
    """The text of a kernel whose threads execute an instruction once, and buffers for it."""

    def __init__(self, ins: OrdinaryInstruction, threads: int = 64, seed: int = 0):
        self.ins, self.threads = ins, threads
        self.rng = np.random.default_rng(seed)
        first = [t for t in _TARGETS if t in ins.targets]
        self.target = (first or list(ins.targets))[0]
        self.buffers: list[np.ndarray] = []
        self.registers: list[str] = []
        self.loads: list[str] = []
        self.stores: list[str] = []
        self.in_shared = False
        operands = [self._operand(operand) for operand in ins.signatures(self.target)[0].operands]
        self.statement = f"{ins} {_joined(operands)};"
        self._carry()

    def _operand(self, operand):
        if operand.kind == "immediate":
            legal = operand.values or range(256)
            return operand, str(legal[int(self.rng.integers(len(legal)))])
        if operand.kind == "address":
            self.in_shared = "shared" in self.ins.modifiers["space"]
            return operand, "[%t8]" if self.in_shared else "[%a2]"
        parts = operand.parts or (operand,) * (operand.count if operand.kind == "vector" else 1)
        names = [self._register(operand if operand.use != "read" else p, p) for p in parts]
        braces = operand.kind == "vector" or operand.parts
        return operand, f"{{{', '.join(names)}}}" if braces else names[0]

    def _register(self, operand, part):
        """Declares a register that is loaded before, or stored after."""
        types = part.types or operand.types
        type_ = next((t for t in types if t == "pred" or REGISTER_BITS[t] >= 16), types[0])
        j = len(self.buffers)
        name, bits = f"%r{j}", 32 if type_ == "pred" else REGISTER_BITS[type_]
        self.registers.append(f".reg .{type_} {name};")
        at = f"ld.param.u64 %a0, [p{j}]; mad.wide.u32 %a1, %t3, {bits // 8}, %a0; "
        if operand.use == "read":
            self.buffers.append(self._words(part, bits))
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
        self.buffers.append(np.full(self.threads * bits // 8, 0xA5, np.uint8))
        store = f"st.global.b{bits} [%a1], {name};"
        if type_ == "pred":
            store = f"selp.b32 %t4, 1, 0, {name}; st.global.b32 [%a1], %t4;"
        self.stores.append(at + store)
        return name

    def _words(self, operand, bits):
        """Boundaries, then random words; one membermask for each warp."""
        count, type_ = self.threads, operand.type or operand.types[0]
        if operand.name == "membermask":
            masks = [0xFFFFFFFF, int(self.rng.integers(1, 1 << 32))]
            words = [masks[i // 32 % 2] for i in range(count)]
        elif type_ == "b128":
            return self.rng.integers(0, 256, count * 16, np.uint8)
        else:
            words = self.rng.choice(np.array(boundary_words(type_), np.uint64), count // 2).tolist()
            words += random_words(type_, count - len(words), self.rng)
        return np.array(words, np.uint64).astype(f"uint{bits}").view(np.uint8).copy()

    def _carry(self):
        """The carry comes from a register, and goes into one."""
        if self.ins.reads_carry:
            carry = self.rng.integers(0, 2, self.threads).astype(np.uint32).view(np.uint8)
            j = len(self.buffers)
            self.buffers.append(carry.copy())
            self.loads.append(
                f"ld.param.u64 %a0, [p{j}]; mad.wide.u32 %a1, %t3, 4, %a0; "
                "ld.global.b32 %t4, [%a1]; add.cc.u32 %t4, %t4, 0xFFFFFFFF;"
            )
        if self.ins.writes_carry:
            j = len(self.buffers)
            self.buffers.append(np.zeros(self.threads * 4, np.uint8))
            self.stores.insert(0, "addc.u32 %t7, 0, 0;")
            self.stores.append(
                f"ld.param.u64 %a0, [p{j}]; mad.wide.u32 %a1, %t3, 4, %a0; "
                "st.global.b32 [%a1], %t7;"
            )

    @property
    def text(self) -> str:
        stores = list(self.stores)
        if self.in_shared:
            stores.append(_COPY_OUT)
        return _TEXT.format(
            target=self.target, cell=CELL, room=CELL * self.threads,
            parameters=", ".join(f".param .u64 p{j}" for j in range(len(self.buffers))),
            registers=" ".join(self.registers), before=_COPY_IN if self.in_shared else "",
            loads="\n    ".join(self.loads), statement=self.statement,
            stores="\n    ".join(stores),
        )  # fmt: skip

    def arguments(self):
        """New buffers, the last one with a cell of memory for each thread."""
        rng = np.random.default_rng(1)
        cells = rng.integers(0, 256, CELL * self.threads, np.uint8)
        cells[: CELL * self.threads // 4] = 0
        return [*(x.copy() for x in self.buffers), cells]


def _joined(operands):
    out = ""
    for operand, text in operands:
        out += text if not out else ("|" if operand.paired else ", ") + text
    return out
