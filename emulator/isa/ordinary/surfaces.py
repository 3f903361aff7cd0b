"""Surfaces: PTX ISA 9.7.11.

ptxas of CUDA 13.0 was asked for all combinations of these words and of others (13,104 spellings on
sm_90; it crashes at ``sured`` with ``.xor``, ``.inc`` and ``.exch``, which PTX does not have).
"""

from collections.abc import Iterator

from emulator.isa.ordinary.row import Needs, Row, doing

#: geometries and the registers that their coordinates take
_GEOMETRIES = (("1d", 1), ("a1d", 2), ("2d", 2), ("a2d|3d", 4))
_CLAMP = "clamp=trap|clamp|zero"
_LOADED, _STORED = "{.cache=ca|cg|cs|cv}", "{.cache=wb|cg|cs|wt}"
_VECTORS = ("{.vec=v2}.type=b8|b16|b32|b64", ".vec=v4.type=b8|b16|b32")
#: operations and types of sured; those of .p take their sign from the surface
_UPDATES = (
    ("b", "add", "u32|s32|u64"), ("b", "min|max", "u32|s32|u64|s64"), ("b", "and|or", "b32"),
    ("p", "add|and|or", "b32"), ("p", "min|max", "b32|b64"),
)  # fmt: skip
_WIDE = (Needs("u64 min", version="8.1"), Needs("u64 max", version="8.1"),
         Needs("s64", version="8.1"), Needs("b64", version="8.1"))  # fmt: skip
_NOT_LOADED = "the driver of an H200 refuses modules that have it"


def _loads() -> Iterator[Row]:
    for geometry, given in _GEOMETRIES:
        for words in _VECTORS:
            form = f"suld.b!.geometry={geometry}{_LOADED}{words}.{_CLAMP}"
            yield Row(form, f"{{d:type+*vec}}, [s:surface;{given}]")


def _stores() -> Iterator[Row]:
    for geometry, given in _GEOMETRIES:
        for words in _VECTORS:
            form = f"sust.b!.geometry={geometry}{_STORED}{words}.{_CLAMP}"
            yield Row(form, f"[s:surface;{given}], {{b:type+*vec}}")
        form = f"sust.p!.geometry={geometry}{_STORED}{{.vec=v2|v4}}.type=b32.{_CLAMP}"
        yield Row(form, f"[s:surface;{given}], {{b:type+*vec}}")


def _updates() -> Iterator[Row]:
    for geometry, given in (("1d", 1), ("2d", 2), ("3d", 4)):
        for kind, operations, types in _UPDATES:
            form = f"sured.{kind}!.operation={operations}.geometry={geometry}.type={types}.{_CLAMP}"
            yield Row(form, f"[s:surface;{given}], b:type+", needs=_WIDE)


_QUERIES = (
    Row("suq.query=width|height|depth.type=b32", "d, [s:surface]"),
    Row("suq.query=channel_data_type|channel_order|array_size|memory_layout.type=b32",
        "d, [s:surface]", unmodelled=_NOT_LOADED),
)  # fmt: skip
ROWS = (
    *doing("samples polls", _loads()),
    *doing("paints", (*_stores(), *_updates())),
    *doing("samples", _QUERIES),
)
