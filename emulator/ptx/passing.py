"""Arguments of a call, moved to where the function takes them.

ptxas takes constants for parameters, registers for variables of .param, and the other way round, if
the sizes are equal. Moves in front of the call and behind it say the same.
"""

from __future__ import annotations

from emulator.isa.register_types import REGISTER_BITS
from emulator.ptx import tree
from emulator.ptx.names import Scope, Symbol
from emulator.ptx.program import RegisterInfo
from emulator.ptx.variables import ELEMENT_BYTES

#: operands between the parentheses of a call
_Item = tree.Name | tree.Element | tree.Integer | tree.Float
#: an opcode, and its operands
_Move = tuple[str, tuple[tree.Operand, ...]]


def with_moves(
    call: tree.Instruction, function: tree.Function, scope: Scope
) -> list[tree.Instruction]:
    """A direct call between the moves that it needs."""
    operands = list(call.operands)
    callee = int(isinstance(operands[0], tree.Arguments))
    before: list[_Move] = []
    after: list[_Move] = []
    for at, formals, moves in (
        (callee - 1, function.returns, after),
        (callee + 1, function.parameters, before),
    ):
        given = operands[at] if 0 <= at < len(operands) else None
        if isinstance(given, tree.Arguments) and len(given.items) == len(formals):
            pairs = zip(given.items, formals, strict=True)
            items = [_moved(item, formal, scope, moves, moves is after) for item, formal in pairs]
            operands[at] = given._replace(items=tuple(items))
    first, last = (
        [call._replace(opcode=opcode, operands=parts) for opcode, parts in moves]
        for moves in (before, after)
    )
    return [*first, call._replace(operands=tuple(operands)), *last]


def _moved(
    item: _Item, formal: tree.Variable, scope: Scope, moves: list[_Move], returned: bool
) -> _Item:
    """The operand that is passed in the place of an item; adds the move that it needs."""
    is_number = isinstance(item, (tree.Integer, tree.Float))
    space, bits = ("", _bits(formal)) if is_number else _held(item, scope)
    if space == formal.space or not bits or bits != _bits(formal):
        return item
    if is_number and (returned or isinstance(item, tree.Float) != formal.type.startswith("f")):
        return item
    at, function = item.at, scope.function
    register: _Item
    name = f"{len(function.registers)} of a call"
    hidden = tree.Name(name, at)
    type_ = f"f{bits}" if isinstance(item, tree.Float) else f"b{bits}"
    if formal.space == "reg":
        scope.registers[name] = scope.new(name, formal.type)
        if is_number:
            moves.append((f"mov.{type_}", (hidden, item)))
            return hidden
        assert isinstance(item, tree.Name)
        variable, register = tree.Address(item, 0, (), at), hidden
    else:
        scope.symbols[name] = Symbol(name, "param::func", len(function.registers), bits // 8)
        function.registers.append(RegisterInfo.bytes(name, bits // 8))
        variable, register = tree.Address(hidden, 0, (), at), item
    if returned == (formal.space == "param"):
        moves.append((f"ld.param.{type_}", (register, variable)))
    else:
        moves.append((f"st.param.{type_}", (variable, register)))
    return hidden


def _bits(formal: tree.Variable) -> int:
    """Bits of a parameter that a register or a constant may be passed for; 0 for others."""
    if formal.dimensions or formal.vector > 1 or formal.type == "pred":
        return 0
    if formal.space == "reg":
        return REGISTER_BITS.get(formal.type, 0)
    return 8 * ELEMENT_BYTES.get(formal.type, 0)


def _held(item: _Item, scope: Scope) -> tuple[str, int]:
    """The state space of a register or a variable of a call, and its bits."""
    if isinstance(item, tree.Name):
        registers = scope.function.registers
        register = scope.register(item.text)
        if register is not None:
            held = registers[register.index]
            return "reg", 0 if held.type == "pred" else held.bits
        symbol = scope.symbol(item.text)
        if symbol is not None and symbol.space == "param::func":
            return "param", registers[symbol.place].bits
    return "", 0
