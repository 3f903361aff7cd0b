"""Walks through a syntax tree: items of nested blocks, and the names that a node mentions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from emulator.ptx import tree


def items_of(block: tree.Block | None) -> Iterator[tree.Item]:
    """The items of a block and of the blocks within it."""
    stack = [block] if block is not None else []
    while stack:
        for item in stack.pop().items:
            if isinstance(item, tree.Block):
                stack.append(item)
            else:
                yield item


def variables_in(block: tree.Block | None) -> Iterator[tree.Variable]:
    return (item for item in items_of(block) if isinstance(item, tree.Variable))


def names_in(block: tree.Block | None) -> set[str]:
    """Every name that operands of a function mention."""
    return _names(item for item in items_of(block) if isinstance(item, tree.Instruction))


def addressed_in(block: tree.Block | None) -> set[str]:
    """The names that operands mention otherwise than to pass arguments to what they name."""
    return _names(
        item
        for item in items_of(block)
        if isinstance(item, tree.Instruction)
        and not any(isinstance(operand, tree.Arguments) for operand in item.operands)
    )


def _names(instructions: Iterable[tree.Instruction]) -> set[str]:
    out: set[str] = set()
    for item in instructions:
        for operand in item.operands:
            if isinstance(operand, tree.Name):
                out.add(operand.text)
            elif isinstance(operand, tree.Address) and operand.base is not None:
                out.add(operand.base.text)
            elif isinstance(operand, (tree.Offset, tree.Index)):
                out.add(operand.name)
    return out


def symbols_in(value: tree.Initialiser | tree.Field | None) -> Iterator[tree.SymbolAddress]:
    if isinstance(value, tree.SymbolAddress):
        yield value
    elif isinstance(value, tree.Values):
        for item in value.items:
            yield from symbols_in(item)
