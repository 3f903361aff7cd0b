"""Contraction: operands of commutative statements of f64 that ptxas exchanges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from emulator.ptx.contraction.values import stands_alone, type_of
from emulator.ptx.dataflow import Dataflow, Statement, Value

#: first words of statements with operands that ptxas exchanges
_COMMUTATIVE = ("add", "sub", "mul", "mad", "fma", "min", "max")
#: values that machine code computes in halves of 32 bits, which it joins at the first use
_IN_HALVES = frozenset(["select", "selp.f64", "selp.b64", "selp.s64", "selp.u64"]) | {
    f"{head}.{type_}"
    for head, types in {
        **dict.fromkeys(["and", "or", "xor", "not", "shl"], ("b64",)),
        **dict.fromkeys(["add", "sub", "shr"], ("s64", "u64")),
    }.items()
    for type_ in types
}
#: values that machine code computes in two ways that join
_WITH_SLOW_PATH = ("div.rn.f64", "rcp.rn.f64", "sqrt.rn.f64", "rsqrt.approx.f64")


def exchanged(statements: Sequence[Statement]) -> frozenset[int]:
    """The statements of f64 of which ptxas exchanges the first two operands, which commute.

    It puts the operand first that came to be first (214 of 214 random blocks, fma with the
    factors; 130 of 130 with min and max), see `_Ages`; of two NaN the chip returns that of one
    place.
    `Fusion` keeps a and b as they are in the multiplication, so what holds for its statement holds
    for the factors.
    """
    if not any(statement.opcode.endswith(".f64") for statement in statements):
        return frozenset()
    flow = Dataflow(statements, stands_alone)
    ages = _Ages(flow.values)
    found = set()
    for value in flow.values:
        if value.head in _COMMUTATIVE and type_of(value) == "f64":
            first, second = map(ages.of, value.roots[:2])
            if first > second:
                found.add(value.index)
    return frozenset(found)


class _Ages:
    """Ages of values, as ptxas 13.0 has them: the earlier the smaller.

    Read from the machine code of 250 small kernels for sm_90a; with it every NaN of 75 functions of
    libdevice is an H200's. Of two that branches define, ptxas may have another order where it makes
    predicates of the branches.

    Values that are defined once come in the order of their definitions, neg and abs where their
    operand does, since they are read with it. Behind them come those of registers that branches
    define anew, the youngest register first, and last what is joined from halves for one reader.
    """

    def __init__(self, values: Sequence[Value]) -> None:
        self._places = {value: place for place, value in enumerate(values)}
        self._readers = Counter(root for value in values for root in value.roots)
        self._firsts: dict[Value, int] = {}

    def of(self, value: Value) -> tuple[int, int]:
        while value.head in ("neg", "abs"):
            value = value.roots[0]
        if value.opcode == "phi" or value.opcode in _WITH_SLOW_PATH:
            return 1, -self._first(value)
        if value.opcode in _IN_HALVES and self._readers[value] == 1:
            return 2, 0
        return 0, self._place(value)

    def _place(self, value: Value) -> int:
        return self._places.get(value, len(self._places))

    def _first(self, value: Value) -> int:
        """The place of the first of the values that branches bring."""
        if value not in self._firsts:
            seen, work = {value}, [value]
            while work:
                phi = work.pop()
                new = set(phi.roots if phi.opcode == "phi" else ()) - seen
                work += new
                seen |= new
            self._firsts[value] = min(
                (self._place(x) for x in seen if x.opcode != "phi"), default=0
            )
        return self._firsts[value]
