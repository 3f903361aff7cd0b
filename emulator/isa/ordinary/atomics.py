"""Atomic operations and reductions on memory: PTX ISA 9.7.13 and, for multimem, 9.7.9.

The rule of a row is that of the value that the location gets: see `emulator.arith.scalar.atomic`.
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
)

#: operations, types, and the PTX version of those that atom and red share
_OPERATIONS = (
    ("operation=and|or|xor", "b32|b64", "1.1"),
    ("operation=add", "u32|s32|u64|f32|f64", "1.1"),
    ("operation=inc|dec", "u32", "1.1"),
    ("operation=min|max", "u32|s32|u64|s64", "1.1"),
    ("operation=add.noftz", "f16|f16x2|bf16|bf16x2", "6.2"),
)
#: the same of vectors, which are in global memory alone
_VECTORS = (
    ("operation=add", "vec=v2|v4.type=f32"),
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
    vectors = hinted.replace("d~", "{d*vec}").replace(", b", ", {b*vec}")
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


#: operations and types of multimem.ld_reduce and multimem.red, and whether there are sums in f32
_MULTIMEM = (
    ("operation=and|or|xor", "type=b32|b64"),
    ("operation=add", "type=u32|s32|u64"),
    ("operation=min|max", "type=u32|s32|u64|s64"),
    ("operation=add", "type=f64"),
    ("operation=add{.vec=v2|v4}", "type=f32"),
    ("operation=add|min|max.vec=v2|v4|v8", "type=f16|bf16"),
    ("operation=add|min|max{.vec=v2|v4}", "type=f16x2|bf16x2"),
)


_Multimem = partial(
    Row,
    rule="",
    targets=_90,
    version="8.1",
    needs=MEMORY_NEEDS,
    effects="exchanges",
    unmodelled="its addresses stand for memory of several GPUs",
)


def _multimem() -> Iterator[Row]:
    for operation, types in _MULTIMEM:
        for order in ("{.weak}", f".semantics=relaxed|acquire.{SCOPE}"):
            form = f"multimem.ld_reduce!{order}{{.space=global}}.%s.{types}"
            yield _Multimem(form % operation, "{d*vec}, [a:space]")
            if "f16" in types:
                summed = operation.replace("add|min|max", "add.acc::f32")
                yield _Multimem(form % summed, "{d*vec}, [a:space]", version="8.2")
        reduced = operation.replace("add|min|max", "add") if "f16" in types else operation
        for order in ("", f".semantics=relaxed|release.{SCOPE}"):
            form = f"multimem.red!{order}{{.space=global}}.{reduced}.{types}"
            yield _Multimem(form, "[a:space], {b*vec}")
    for order in ("{.weak}", f".semantics=relaxed|release.{SCOPE}"):
        for vec, types in (
            ("", "b32|b64|u32|u64|s32|s64|f64"),
            ("{.vec=v2|v4}", "f32"),
            (".vec=v2|v4|v8", "f16|bf16"),
            ("{.vec=v2|v4}", "f16x2|bf16x2"),
        ):
            form = f"multimem.st!{order}{{.space=global}}{vec}.type={types}"
            yield _Multimem(form, "[a:space], {b*vec}")


ROWS = (
    *_rows("atom", "relaxed|acquire|release|acq_rel", "d~, [a:space], b"),
    *_exchanges(),
    *_rows("red", "relaxed|release", "[a:space], b"),
    *_multimem(),
)
