"""Loads, stores and what else is done to addresses: PTX ISA 9.7.9."""

from collections.abc import Iterator
from functools import partial

from emulator.isa.ordinary.row import ALL_TARGETS, Needs, Row
from emulator.targets import having

_75, _80, _90, _100 = (having(f"sm_{n}") for n in (75, 80, 90, 100))

SCOPE = "scope=cta|cluster|gpu|sys"
_SMALL = "b8|b16|b32|u8|u16|u32|s8|s16|s32|f32"
_DOUBLE = "b64|u64|s64|f64"
_L1 = "level1=L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate"
_L2 = "level2=L2::evict_normal|L2::evict_first|L2::evict_last"
_HINT = "{.hint=L2::cache_hint}"
_PREFETCH = "{.prefetch=L2::64B|L2::128B|L2::256B}"
_SHARED = "space=shared|shared::cta|shared::cluster"

#: requirements of some words, in loads, stores and atomics alike
MEMORY_NEEDS = (
    Needs("cluster", _90, "7.8"),
    Needs("shared::cta", version="7.8"),
    Needs("shared::cluster", _90, "7.8"),
    Needs("param::entry", version="8.3"),
    Needs("param::func", version="8.3"),
    Needs("b128", version="8.3"),
    Needs("b128 sys", version="8.4"),
    Needs("relaxed", version="6.0"),
    Needs("acquire", version="6.0"),
    Needs("release", version="6.0"),
    Needs("weak", version="6.0"),
    Needs("mmio", version="8.2"),
    Needs("L2::cache_hint", _80, "7.4"),
    Needs("L2::64B", _75, "7.4"),
    Needs("L2::128B", _75, "7.4"),
    Needs("L2::256B", _80, "7.4"),
    *(Needs(word, version="7.4") for word in _L1.removeprefix("level1=").split("|")),
)
#: vectors and types of every access
_EVERY = (
    (f"{{.vec=v2|v4}}.type={_SMALL}", ALL_TARGETS, "1.0"),
    (f"{{.vec=v2}}.type={_DOUBLE}", ALL_TARGETS, "1.0"),
    (".type=b128", ALL_TARGETS, "8.3"),
)
#: vectors of 32 bytes, in global memory alone
_LONG = ((".vec=v8.type=b32|u32|s32|f32", _100, "8.8"), (f".vec=v4.type={_DOUBLE}", _100, "8.8"))


def _loads() -> Iterator[tuple[str, bool]]:
    """The ways to load, and whether they go to global memory."""
    cached = "{.cache=ca|cg|cs|lu|cv}"
    spaces = f"space=const|local|param|param::entry|param::func|{_SHARED.removeprefix('space=')}"
    yield f"ld{{.weak}}.{spaces}{cached}", False
    yield f"ld{{.weak}}{{.space=global}}{cached}{_HINT}{_PREFETCH}", True
    yield f"ld{{.weak}}{{.space=global}}.{_L1}{_HINT}{_PREFETCH}", True
    yield f"ld.space=global{{.cache=ca|cg|cs}}.nc{_HINT}{_PREFETCH}", True
    yield f"ld.space=global.nc.{_L1}{_HINT}{_PREFETCH}", True
    yield f"ld.volatile{{.space=global}}{_PREFETCH}", True
    yield f"ld.volatile.{_SHARED}", False
    order = f"ld.semantics=relaxed|acquire.{SCOPE}"
    yield f"{order}{{.space=global}}{{.{_L1}}}{_HINT}{_PREFETCH}", True
    yield f"{order}.{_SHARED}", False


def _stores() -> Iterator[tuple[str, bool]]:
    """The ways to store, and whether they go to global memory."""
    cached = "{.cache=wb|cg|cs|wt}"
    spaces = f"space=local|param|param::func|{_SHARED.removeprefix('space=')}"
    yield f"st{{.weak}}.{spaces}{cached}", False
    yield f"st{{.weak}}{{.space=global}}{cached}{_HINT}", True
    yield f"st{{.weak}}{{.space=global}}.{_L1}{_HINT}", True
    yield "st.volatile{.space=global}", True
    yield f"st.volatile.{_SHARED}", False
    order = f"st.semantics=relaxed|release.{SCOPE}"
    yield f"{order}{{.space=global}}{{.{_L1}}}{_HINT}", True
    yield f"{order}.{_SHARED}", False


def _rows(forms: Iterator[tuple[str, bool]], operands: str, effects: str) -> Iterator[Row]:
    for form, is_global in forms:
        for access, targets, version in _EVERY + (_LONG if is_global else ()):
            eviction = f"{{.{_L2}}}" if is_global and targets is _100 else ""
            yield Row(
                f"{form}{eviction}{access}", operands, "", targets, version, needs=MEMORY_NEEDS,
                effects=effects,
            )  # fmt: skip


_LOAD = "reads polls"
#: orders that statements of .mmio got later
_ORDERED = ("acquire", "release")
_GENERIC_NEEDS = (*MEMORY_NEEDS, Needs("param", version="7.7"))

_Hint = partial(Row, effects="hint")

_ADDRESSES = (
    _Hint("prefetch{.space=global|local}.level=L1|L2", "[a:space]", version="2.0"),
    _Hint(
        "prefetch{.space=global}.level=L2::evict_last|L2::evict_normal", "[a:space]", "", _80, "7.4"
    ),
    _Hint("prefetch{.space=const|param}.tensormap", "[a:space+]", "", _90, "8.0"),
    _Hint("prefetchu.L1", "[a:global]", version="2.0"),
    _Hint("applypriority{.space=global}.L2::evict_normal", "[a:space], size=128", "", _80, "7.4"),
    _Hint("discard{.space=global}.L2", "[a:space], size=128", "", _80, "7.4"),
    _Hint(
        "createpolicy.fractional!.primary=L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged"
        "{.secondary=L2::evict_first|L2::evict_unchanged}.type=b64",
        "d:u64, fraction:f32?",
        "",
        _80,
        "7.4",
    ),
    _Hint(
        "createpolicy.range!{.space=global}.primary=L2::evict_last|L2::evict_normal|L2::evict_first|"
        "L2::evict_unchanged{.secondary=L2::evict_first|L2::evict_unchanged}.type=b64",
        "d:u64, [a:space+], primary_size:u32, total_size:u32",
        "",
        _80,
        "7.4",
    ),
    _Hint("createpolicy.cvt!.L2.type=b64", "d:u64, property:u64", "", _80, "7.4"),
    Row(
        "isspacep.space=const|global|local|shared|shared::cta|shared::cluster|param|param::entry",
        "p, a:u32++",
        version="2.0",
        effects="pure",
        needs=_GENERIC_NEEDS,
    ),
    *(
        Row(
            f"cvta{to}.space=const|global|local|shared|shared::cta|shared::cluster|param|param::entry"
            ".type=u64",
            operands,
            version="2.0",
            effects="pure points",
            needs=_GENERIC_NEEDS,
        )
        for to, operands in (("", "d, a&space"), (".to!", "d, a"))
    ),
    *(
        Row(f"{name}{{.space=shared::cluster}}.type=u32|u64", ops, "", _90, "7.8", effects="pure")
        for name, ops in (("mapa", "d, a&shared, b:u32"), ("getctarank", "d:u32, a&shared"))
    ),
)

ROWS = (
    *_ADDRESSES,
    *_rows(_loads(), "{d:type+*vec}, [a:space], policy:u64@L2::cache_hint", _LOAD),
    *_rows(_stores(), "[a:space], {b:type+*vec}, policy:u64@L2::cache_hint", "writes"),
    *(
        Row(f"{name}.volatile.space=local{access}", operands, version="9.1", effects=effects)
        for name, operands, effects in (
            ("ld", "{d:type+*vec}, [a:space]", _LOAD),
            ("st", "[a:space], {b:type+*vec}", "writes"),
        )
        for access, _, _ in _EVERY[:2]
    ),
    *(
        Row(
            f"{name}.mmio.semantics={orders}.sys{{.space=global}}.type={_SMALL}|{_DOUBLE}|b128",
            operands,
            needs=(*MEMORY_NEEDS, *(Needs(f"mmio {x}", version="9.3") for x in _ORDERED)),
            effects=effects,
        )
        for name, orders, operands, effects in (
            ("ld", "relaxed|acquire", "d:type+, [a:space]", _LOAD),
            ("st", "relaxed|release", "[a:space], b:type+", "writes"),
        )
    ),
    Row(
        f"ldu{{.space=global}}{{.vec=v2|v4}}.type={_SMALL}",
        "{d:type+*vec}, [a:space]",
        version="2.0",
        effects="reads",
    ),
    Row(
        f"ldu{{.space=global}}{{.vec=v2}}.type={_DOUBLE}",
        "{d:type+*vec}, [a:space]",
        version="2.0",
        effects="reads",
    ),
    Row("ldu{.space=global}.type=b128", "{d*vec}, [a:space]", version="8.3", effects="reads"),
)
