"""Atomic operations and reductions on memory: PTX ISA 9.7.13 and, for multimem, 9.7.9.

The rule of a row is that of the value that the location gets: see `emulator.arith.scalar.atomic`.
That of multimem.ld_reduce combines the words of all devices: `emulator.arith.scalar.multimem`.
"""

from collections.abc import Iterator
from functools import partial

from emulator.isa.ordinary.memory import MEMORY_NEEDS, SCOPE
from emulator.isa.ordinary.row import ALL_TARGETS, Needs, Row
from emulator.targets import having

_90 = having("sm_90")
_HINT = "{.hint=L2::cache_hint}"
_SHARED = "space=shared|shared::cta|shared::cluster"
_NEEDS = (
    *MEMORY_NEEDS,
    Needs("acq_rel", version="6.0"),
    Needs("b128", _90, "8.3"),
    Needs("bf16", _90, "7.8"),
    Needs("bf16x2", _90, "7.8"),
    Needs("noftz f32", _90, "9.4"),
)

#: operations, types, and the PTX version of those that atom and red share
_OPERATIONS = (
    ("operation=and|or|xor", "b32|b64", "1.1"),
    ("operation=add", "u32|s32|u64|f64", "1.1"),
    ("operation=add{.noftz}", "f32", "1.1"),
    ("operation=inc|dec", "u32", "1.1"),
    ("operation=min|max", "u32|s32|u64|s64", "1.1"),
    ("operation=add.noftz", "f16|f16x2|bf16|bf16x2", "6.2"),
)
#: the same of vectors, which are in global memory alone
_VECTORS = (
    ("operation=add{.noftz}", "vec=v2|v4.type=f32"),
    ("operation=add|min|max.noftz", "vec=v2|v4|v8.type=f16|bf16"),
    ("operation=add|min|max.noftz", "vec=v2|v4.type=f16x2|bf16x2"),
)


def _rows(name: str, orders: str, operands: str) -> Iterator[Row]:
    """The forms of atom or red, on global memory and generic addresses, on shared memory."""
    head = f"{name}{{.semantics={orders}}}{{.{SCOPE}}}"
    hinted = f"{operands}, policy:u64@L2::cache_hint"
    for operation, types, version in _OPERATIONS:
        rest = f".{operation}%s.type={types}"
        yield _row(f"{head}{{.space=global}}{rest % _HINT}", hinted, version)
        yield _row(f"{head}.{_SHARED}{rest % ''}", operands, version)
    vectors = hinted.replace("d~", "{d~*vec}").replace(", b", ", {b*vec}")
    for operation, types in _VECTORS:
        form = f"{head}{{.space=global}}.{operation}{_HINT}.{types}"
        yield _row(form, vectors, "8.1", _90)


def _row(form: str, operands: str, version: str, targets: tuple[str, ...] = ALL_TARGETS) -> Row:
    # Only a result can end a wait.
    effects = "writes exchanges " + ("reads polls" if form.startswith("atom") else "reduces")
    return Row(form, operands, "atomic.update", targets, version, needs=_NEEDS, effects=effects)


def _exchanges() -> Iterator[Row]:
    head = f"atom{{.semantics=relaxed|acquire|release|acq_rel}}{{.{SCOPE}}}"
    exchange = ".operation=exch%s.type=b32|b64|b128"
    hinted = "d~, [a:space], b, policy:u64@L2::cache_hint"
    yield _row(f"{head}{{.space=global}}{exchange % _HINT}", hinted, "1.1")
    yield _row(f"{head}.{_SHARED}{exchange % ''}", "d~, [a:space], b", "1.1")
    every = f"space=global|{_SHARED.removeprefix('space=')}"
    compare = f"{head}{{.{every}}}.operation=cas.type=b16|b32|b64|b128"
    yield _row(compare, "d~, [a:space], b, c", "1.1")


#: vectors and types of fp8 in memory of several devices
_FP8 = (
    (".vec=v4|v8", "e4m3|e5m2"),
    (".vec=v2|v4|v8", "e4m3x2|e5m2x2"),
    ("{.vec=v2|v4}", "e4m3x4|e5m2x4"),
)
#: vectors and types of the other floating-point elements, and the operations that reduce them
_FLOATS = (
    ("", "f64", "add"),
    ("{.vec=v2|v4}", "f32", "add"),
    (".vec=v2|v4|v8", "f16|bf16", "add|min|max"),
    ("{.vec=v2|v4}", "f16x2|bf16x2", "add|min|max"),
)
#: operations and types of integers
_INTEGERS = (("and|or|xor", "b32|b64"), ("add", "u32|s32|u64"), ("min|max", "u32|s32|u64|s64"))
_LOADED, _STORED = "{d*vec}, [a:space]", "[a:space], {b*vec}"
_REDUCED = "[a:space++], {b*vec}"

_Multimem = partial(Row, targets=_90, version="8.1", needs=MEMORY_NEEDS)
#: words that stores and reductions of several devices drop
ACCUMULATORS = "acc::f32|acc::f16"
#: stores and reductions, where ptxas drops the type of an accumulator
_Multicast = partial(_Multimem, dropped=ACCUMULATORS)
_Fp8 = partial(_Multimem, targets=having("multimem.e4m3"), version="8.6")


def _of_bytes(operands: str, types: str) -> str:
    """The operands of fp8: any register of 32 bits may hold four."""
    return operands.replace("*vec", ":b32*vec") if "x4" in types else operands


def _loads_reduced() -> Iterator[Row]:
    load = partial(_Multimem, rule="multimem.reduce", effects="reads polls")
    small = partial(_Fp8, rule="multimem.reduce", effects="reads polls")
    sums = partial(small, rule="", unmodelled="the rounding of sums of fp8 is not known")
    for order in ("{.weak}", f".semantics=relaxed|acquire.{SCOPE}"):
        form = f"multimem.ld_reduce!{order}{{.space=global}}.operation=%s%s.type=%s"
        for operations, types in _INTEGERS:
            yield load(form % (operations, "", types), _LOADED)
        for vec, types, operations in _FLOATS:
            yield load(form % (operations, vec, types), _LOADED)
            if "f16" in types:
                wide = f"add.accumulator=acc::f32{vec}"
                yield load(form % (wide, "", types), _LOADED, version="8.2")
        for vec, types in _FP8:
            loaded = _of_bytes(_LOADED, types)
            yield small(form % ("min|max", vec, types), loaded)
            yield sums(form % ("add{.accumulator=acc::f16}", vec, types), loaded)


def _stores_multicast() -> Iterator[Row]:
    for order in ("{.weak}", f".semantics=relaxed|release.{SCOPE}"):
        form = f"multimem.st!{order}{{.space=global}}%s.type=%s"
        yield _Multicast(form % ("", "b32|b64|u32|u64|s32|s64"), _STORED, effects="writes")
        for vec, types, _ in _FLOATS:
            yield _Multicast(form % (vec, types), _STORED, effects="writes")
        for vec, types in _FP8:
            stored = _of_bytes(_STORED, types)
            yield _Fp8(form % (vec, types), stored, effects="writes", dropped=ACCUMULATORS)


def _reductions_multicast() -> Iterator[Row]:
    reduction = partial(_Multicast, rule="atomic.update", effects="writes exchanges reduces")
    for order in ("", f".semantics=relaxed|release.{SCOPE}"):
        form = f"multimem.red!{order}{{.space=global}}.operation=%s%s.type=%s"
        for operations, types in _INTEGERS:
            yield reduction(form % (operations, "", types), _REDUCED)
        for vec, types, operations in _FLOATS:
            yield reduction(form % ("add", vec, types), _REDUCED)
            if operations != "add":  # vectors alone
                yield reduction(form % ("min|max", vec.strip("{}"), types), _REDUCED)


ROWS = (
    *_rows("atom", "relaxed|acquire|release|acq_rel", "d~, [a:space], b"),
    *_exchanges(),
    *_rows("red", "relaxed|release", "[a:space], b"),
    *_loads_reduced(),
    *_stores_multicast(),
    *_reductions_multicast(),
)
