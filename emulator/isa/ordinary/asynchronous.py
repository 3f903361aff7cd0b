"""Asynchronous copies, reductions and stores, mbarriers, tensor maps: PTX ISA 9.7.9 and 9.7.13."""

from collections.abc import Iterator
from typing import Any

from emulator.isa.ordinary.atomics import ACCUMULATORS
from emulator.isa.ordinary.memory import MEMORY_NEEDS
from emulator.isa.ordinary.row import Needs, Row, doing
from emulator.targets import having

_80, _90, _100 = (having(f"sm_{n}") for n in (80, 90, 100))
#: targets with pairs of CTAs
_PAIRED = having("tcgen05")
_HINT = "{.hint=L2::cache_hint}"
_POLICY = "policy:u64@L2::cache_hint"
#: the addresses of a copy
_BETWEEN = "[dst:to/b32], [src:from/b32]"
#: bytes of a bulk copy
_SIZE = "size:u32<0..1048560/16>"
_BYTES = "mbarrier::complete_tx::bytes"
_MULTICAST = "{.multicast=multicast::cluster}"
_MASK = "mask:u16<0..65535>@multicast::cluster"

_COPY_NEEDS = tuple(need for need in MEMORY_NEEDS if need.words.startswith("L2::"))
_COPIES = (
    *(
        Row(
            f"cp.async!.cache={cache}.to=shared|shared::cta.from=global{_HINT}"
            "{.prefetch=L2::64B|L2::128B|L2::256B}",
            f"{_BETWEEN}, size={sizes}, ignore:pred?, source_size:u32?, {_POLICY}",
            "",
            _80,
            "7.0",
            needs=_COPY_NEEDS,
        )
        for cache, sizes in (("ca", "4,8,16"), ("cg", "16"))
    ),
    Row("cp.async.commit_group!", "", "", _80, "7.0"),
    Row("cp.async.wait_group!", "n=0..2147483647", "", _80, "7.0"),
    Row("cp.async.wait_all!", "", "", _80, "7.0"),
    *(
        Row(
            f"cp.async.mbarrier.arrive!{{.noinc}}{space}.type=b64",
            mbarrier,
            "",
            _80,
            "7.0",
            needs=(Needs("shared::cta", version="7.8"),),
        )
        for space, mbarrier in (
            ("", "[mbarrier:+]"),
            (".space=shared|shared::cta", "[mbarrier:space]"),
        )
    ),
)

#: orders of a bulk copy: a relaxed one says how much of it is one access, .b128
_ORDERS = (("{.weak}", ""), (".semantics=relaxed.%s", ".type=b128"))
_SCOPE = "scope=cta|cluster|gpu|sys"
_OF_CLUSTER = "scope=cta|cluster"
_ORDERED = tuple(Needs(word, version="9.3") for word in ("weak", "relaxed"))


def _bulk() -> Iterator[Row]:
    """Bulk copies, one row for each pair of spaces and each order."""
    for order, type_ in _ORDERS:
        every, inside = (order.replace("%s", scopes) for scopes in (_SCOPE, _OF_CLUSTER))
        yield Row(
            f"cp.async.bulk!{every}.to=shared::cluster.from=global.{_BYTES}{_MULTICAST}{_HINT}"
            f"{type_}",
            f"{_BETWEEN}, {_SIZE}, [mbarrier:shared], {_MASK}, {_POLICY}",
            "",
            having("bulk.relaxed") if type_ else _90,
            "8.0",
            needs=_ORDERED,
        )
        yield Row(
            f"cp.async.bulk!{every}.to=shared::cta.from=global.{_BYTES}{_HINT}{{.ignore_oob}}"
            f"{type_}",
            f"{_BETWEEN}, {_SIZE}, left:u32<0..15>@ignore_oob, right:u32<0..15>@ignore_oob, "
            f"[mbarrier:shared], {_POLICY}",
            "",
            _90,
            "8.6",
            needs=(*_ORDERED, Needs("ignore_oob", version="9.2")),
        )
        yield Row(
            f"cp.async.bulk!{inside}.to=shared::cluster.from=shared::cta.{_BYTES}{type_}",
            f"{_BETWEEN}, {_SIZE}, [mbarrier:shared]",
            "",
            _90,
            "8.0",
            needs=_ORDERED,
        )
        masked = (*_ORDERED, Needs("cp_mask", _100, "8.6"))
        yield Row(
            f"cp.async.bulk!{every}.to=global.from=shared::cta.bulk_group{_HINT}{{.cp_mask}}"
            f"{type_}",
            f"{_BETWEEN}, {_SIZE}, {_POLICY}, byte_mask:u16@cp_mask",
            "",
            _90,
            "8.0",
            needs=masked,
        )
        yield Row(
            f"multimem.cp.async.bulk!{every}.to=global.from=shared::cta.bulk_group{{.cp_mask}}"
            f"{type_}",
            f"{_BETWEEN}, {_SIZE}, byte_mask:u16@cp_mask",
            "",
            _90,
            "9.1",
            needs=masked,
        )
    yield Row(
        f"cp.async.bulk.prefetch!.L2.from=global{_HINT}",
        f"[src:from/b32], {_SIZE}, {_POLICY}",
        "",
        _90,
        "8.0",
    )
    yield Row("cp.async.bulk.commit_group!", "", "", _90, "8.0")
    yield Row("cp.async.bulk.wait_group!{.read}", "n=0..2147483647", "", _90, "8.0")


_REDUCED = (
    ("operation=and|or|xor", "b32"),
    ("operation=add", "u32|s32|u64"),
    ("operation=inc|dec", "u32"),
    ("operation=min|max", "u32|s32"),
)
_REDUCED_GLOBAL = (
    ("operation=and|or|xor", "b32|b64"),
    ("operation=add", "u32|s32|u64|f64"),
    ("operation=add{.noftz}", "f32"),
    ("operation=inc|dec", "u32"),
    ("operation=min|max", "u32|s32|u64|s64|f16|bf16"),
    ("operation=add.noftz", "f16|bf16"),
)
#: reductions: name and order, spaces and completion, operands behind the size, what is reduced
_TO_CLUSTER = (f".to=shared::cluster.from=shared::cta.{_BYTES}", ", [mbarrier:shared]", _REDUCED)
_REDUCING = (
    ("cp.reduce.async.bulk!", _OF_CLUSTER, "8.0", *_TO_CLUSTER),
    (
        "cp.reduce.async.bulk!", _SCOPE, "8.0",
        f".to=global.from=shared::cta.bulk_group{_HINT}", f", {_POLICY}", _REDUCED_GLOBAL,
    ),
    (
        "multimem.cp.reduce.async.bulk!", _SCOPE, "9.1",
        ".to=global.from=shared::cta.bulk_group", "", _REDUCED_GLOBAL,
    ),
)  # fmt: skip
_REDUCTIONS = tuple(
    Row(
        f"{name}{order}{spaces}.{operation}.type={types}",
        f"{_BETWEEN}, {_SIZE}{more}",
        "atomic.update",
        _90,
        version,
        needs=(Needs("noftz f32", version="9.4"), *_ORDERED),
    )
    for name, scope, version, spaces, more, reduced in _REDUCING
    for order in ("", f".semantics=relaxed.{scope}")
    for operation, types in reduced
)


def _tensor_copies() -> Iterator[Row]:
    """Loads into shared memory, stores from it and prefetches, for every way to cut a tensor."""
    every, cut = "dim=1d|2d|3d|4d|5d", "dim=3d|4d|5d"
    # mode, dimensions, coordinates, operand behind the mbarrier, targets into a cluster, into a CTA
    offsets = "{offsets:u16*dim-2}"
    loads = (
        ("{.mode=tile}", every, "dim", "", _90, _90),
        (".mode=tile::gather4", "dim=2d", "5", "", _PAIRED, _100),
        (".mode=im2col", cut, "dim", offsets, _90, _90),
        (".mode=im2col::w", cut, "dim", "{offsets:u16*2}", _PAIRED, _100),
        (".mode=im2col::w::128", cut, "dim", "{offsets:u16*2}", _PAIRED, _PAIRED),
    )
    groups = tuple(Needs(f"cta_group::{n}", _PAIRED, "8.6") for n in (1, 2))
    for mode, dims, coordinates, extra, targets, to_own in loads:
        source, version = f"[map:/b32;{coordinates}]", "8.0" if targets is _90 else "8.6"
        for to, found, since in (
            ("shared::cluster", targets, version),
            ("shared::cta", to_own, "8.6"),
        ):
            multicast, mask = (_MULTICAST, _MASK) if to == "shared::cluster" else ("", "")
            operands = (f"[dst:{to}]", source, "[mbarrier:shared]", extra, mask, _POLICY)
            yield Row(
                f"cp.async.bulk.tensor!.{dims}.to={to}.from=global{mode}.{_BYTES}{multicast}"
                f"{{.cta_group=cta_group::1|cta_group::2}}{_HINT}",
                ", ".join(filter(None, operands)), "", found, since, needs=groups,
            )  # fmt: skip
        yield Row(
            f"cp.async.bulk.prefetch.tensor!.{dims}.L2.from=global{mode}{_HINT}",
            ", ".join(filter(None, (source, extra, _POLICY))), "", targets, version,
        )  # fmt: skip
    stores = (
        ("{.mode=tile}", every, "dim", _90, "8.0"),
        (".mode=tile::scatter4", "dim=2d", "5", _PAIRED, "8.6"),
        (".mode=im2col_no_offs", cut, "dim", _90, "8.0"),
    )
    for mode, dims, coordinates, targets, version in stores:
        stored = f"[map:/b32;{coordinates}], [src:shared], {_POLICY}"
        yield Row(
            f"cp.async.bulk.tensor!.{dims}.to=global.from=shared::cta{mode}.bulk_group{_HINT}",
            stored, "", targets, version,
        )  # fmt: skip
        if "scatter4" not in mode:
            yield Row(
                f"cp.reduce.async.bulk.tensor!.{dims}.to=global.from=shared::cta"
                f".operation=add|min|max|inc|dec|and|or|xor{mode}.bulk_group{_HINT}",
                stored, "", targets, version,
            )  # fmt: skip


_RELEASES = (".mmio.semantics=release.scope=sys", ".semantics=release.scope=gpu|sys")
_REDUCES = "writes exchanges reduces asynchronous"
#: in shared::cluster the mbarrier's address may be in a narrow register
_CLUSTERED = (
    (".space=shared::cluster", "[a:space+]", "[mbarrier:shared]"),
    ("", "[a:+]", "[mbarrier:shared+]"),
)
_STORED = "b8|b16|b32|b64|u8|u16|u32|u64|s8|s16|s32|s64"
_STORES = (
    *(
        Row(
            f"st.async!{space}.{_BYTES}{vec}.type={types}",
            f"{a}, {{b*vec}}, {mbarrier}",
            "",
            _90,
            "8.1",
            effects="writes asynchronous",
            needs=(Needs("b128", version="9.2"),),
        )
        for vec, types in (
            ("{.vec=v2|v4}", "b32|u32|s32|f32"),
            ("{.vec=v2}", "b64|u64|s64|f64"),
            ("", "b128"),
        )
        for space, a, mbarrier in (
            *(("{.scope=weak|cluster}" + space, *more) for space, *more in _CLUSTERED),
            # Its own block may be named so; the code is the same.
            ("{.weak}.space=shared|shared::cta", *_CLUSTERED[0][1:]),
        )
    ),
    *(
        Row(
            f"st.async!{order}{{.space=global}}.type={_STORED}|f32|f64",
            "[a:space+], b",
            "",
            _100,
            "8.7",
            effects="writes asynchronous",
        )
        for order in _RELEASES
    ),
    *(
        Row(
            f"multimem.st.async!{_RELEASES[1]}{{.space=global}}.type={types}",
            f"[a:space+], {b}",
            "",
            _100,
            "9.3",
            effects="writes asynchronous",
            dropped=ACCUMULATORS,
        )
        for types, b in ((_STORED, "b:type++"), ("f32|f64", "b"))
    ),
    Row(
        "st.bulk!{.weak}{.space=shared::cta}",
        "[a:space+], size:u64<0..16777216/8>, value=0",
        "",
        _100,
        "8.6",
        effects="writes",
    ),
    *(
        Row(
            f"red.async!.semantics=relaxed.scope=cluster{space}.{_BYTES}.{operation}.type={types}",
            f"{a}, b, {mbarrier}",
            "atomic.update",
            _90,
            "8.1",
            effects=_REDUCES,
        )
        for operation, types in (
            ("operation=inc|dec", "u32"),
            ("operation=min|max|add", "u32|s32"),
            ("operation=add", "u64"),
            ("operation=and|or|xor", "b32"),
        )
        for space, a, mbarrier in _CLUSTERED
    ),
    *(
        Row(
            f"{name}!{order}{{.space=global}}.operation=add.type={types}",
            "[a:space+], b",
            "atomic.update",
            _100,
            version,
            effects=_REDUCES,
        )
        for name, version, order, types in (
            *(("red.async", "8.7", order, "u32|s32|u64|s64") for order in _RELEASES),
            ("multimem.red.async", "9.3", _RELEASES[1], "u32|s32|u64"),
        )
    ),
)

_SPACES = "{.space=shared|shared::cta}"
_MBARRIER_NEEDS = (
    Needs("shared::cta", version="7.8"),
    *(Needs(word, version="8.0") for word in ("release", "acquire")),
    Needs("cluster", _90, "8.0"),
    Needs("relaxed", _90, "8.6"),
    *(Needs(word, _90, "9.3") for word in ("layout::v0", "layout::v1")),
    *(Needs(f"phase_type::{phase}", _90, "9.3") for phase in ("primary", "conditional")),
)
_LAYOUT = ".layout=layout::v0|layout::v1"


def _mbarrier(name: str, operands: str, targets: tuple[str, ...], version: str, **more: Any) -> Row:
    form = f"mbarrier.{name}.type=b64"
    return Row(form, operands, "", targets, version, needs=_MBARRIER_NEEDS, **more)


def _mbarriers() -> Iterator[Row]:
    """Order and scope are given together, or neither is."""
    counted = "[mbarrier:space], count:u32<1..1048575>"
    yield _mbarrier(f"init!{{{_LAYOUT}}}{_SPACES}", counted, _80, "7.0")
    yield _mbarrier(f"inval!{_SPACES}", "[mbarrier:space]", _80, "7.0")
    yield _mbarrier("pending_count!{.layout=layout::v0}", "d:u32, state:u64", _80, "7.0")
    yield _mbarrier(f"check_layout!{_LAYOUT}{_SPACES}", "p, [mbarrier:space]", _90, "9.3")
    every = "{.space=shared|shared::cta|shared::cluster}"
    for order in ("", ".semantics=relaxed.scope=cta|cluster"):
        for name in ("expect_tx", "complete_tx"):
            yield Row(
                f"mbarrier.{name}!{order}{every}.type=b64",
                "[mbarrier:space], bytes:u32",
                "",
                _90,
                "8.0",
            )
    for order in ("", ".semantics=relaxed|release.scope=cta|cluster"):
        for name in ("arrive", "arrive_drop"):
            arrival = "[mbarrier:space], count$:u32<1..4294967295>?"
            yield _mbarrier(
                f"{name}!{order}{_SPACES}", f"d~:u64, {arrival}", _80, "7.0", optional_on=_90
            )
            yield _mbarrier(f"{name}!{order}.space=shared::cluster", f"_, {arrival}", _90, "8.0")
            expected = "[mbarrier:space], bytes:u32"
            yield _mbarrier(f"{name}.expect_tx!{order}{_SPACES}", f"d~:u64, {expected}", _90, "8.0")
            yield _mbarrier(
                f"{name}.expect_tx!{order}.space=shared::cluster", f"_, {expected}", _90, "8.0"
            )
    for order in ("", ".semantics=release.scope=cta"):
        for name in ("arrive", "arrive_drop"):
            yield _mbarrier(
                f"{name}!.noComplete{order}{_SPACES}",
                "d~:u64, [mbarrier:space], count$:u32<1..4294967295>",
                _80,
                "7.0",
            )


def _waits() -> Iterator[Row]:
    """Tests of phases; what operations have reported is told of the primary one alone."""
    for order in ("", ".semantics=acquire|relaxed.scope=cta|cluster"):
        for name, targets, version, hint in (
            ("test_wait", _80, "7.0", ""),
            ("try_wait", _90, "7.8", ", time:u32?"),
        ):
            for phase, p in (
                ("{.phase_type=phase_type::conditional}", "p"),
                (".phase_type=phase_type::primary", "p|q~?, report!:b8?"),
            ):
                # Without a parity there is no test of the conditional phase.
                untold = phase if p != "p" else ""
                yield _mbarrier(
                    f"{name}!{untold}{order}{_SPACES}",
                    f"{p}, [mbarrier:space], state:u64{hint}",
                    targets,
                    version,
                )
                yield _mbarrier(
                    f"{name}.parity!{phase}{order}{_SPACES}",
                    f"{p}, [mbarrier:space], parity:u32<0..1>{hint}",
                    targets,
                    max(version, "7.1"),
                )


#: fields of tensormap.replace, which ptxas drops where a tensor map is copied
_FIELDS = (
    "global_address|rank|box_dim|global_dim|element_stride|global_stride|elemtype|"
    "interleave_layout|swizzle_mode|swizzle_atomicity|fill_mode"
)
_TENSORMAPS = (
    *(
        Row(
            f"tensormap.replace!.tile.field={fields}{{.space=global|shared::cta}}.b1024.type={type_}",
            operands,
            "",
            having("tensormap.swizzle_atomicity" if "atomicity" in fields else "tensormap.replace"),
            "8.3",
        )
        for fields, type_, operands in (
            ("global_address", "b64", "[map:space+], value"),
            ("rank", "b32", "[map:space+], value"),
            (
                "box_dim|global_dim|element_stride",
                "b32",
                "[map:space+], ordinal=0..4, value:u32/f16x2",
            ),
            ("global_stride", "b64", "[map:space+], ordinal=0..4, value"),
            ("elemtype", "b32", "[map:space+], value=0..15"),
            ("interleave_layout", "b32", "[map:space+], value=0..2"),
            ("swizzle_mode", "b32", "[map:space+], value=0..4"),
            ("swizzle_atomicity", "b32", "[map:space+], value=0..3"),
            ("fill_mode", "b32", "[map:space+], value=0..1"),
        )
    ),
    Row(
        "tensormap.cp_fenceproxy!.to=global.from=shared::cta.tensormap::generic.release.scope=cta|cluster|gpu|sys.sync.aligned",
        f"{_BETWEEN}, size=128",
        "",
        _90,
        "8.3",
        scope="warp",
        dropped=_FIELDS,
    ),
)

_CANCEL = (
    Row(
        "clusterlaunchcontrol.try_cancel.async!{.space=shared::cta}.mbarrier::complete_tx::bytes{.multicast=multicast::cluster::all}.type=b128",
        "[dst:space/b32], [mbarrier:shared]",
        "",
        _100,
        "8.6",
        needs=(Needs("multicast::cluster::all", having("multicast::cluster::all")),),
    ),
    Row(
        "clusterlaunchcontrol.query_cancel!.is_canceled.pred.response=b128",
        "p, a:response",
        "",
        _100,
        "8.6",
    ),
    Row(
        "clusterlaunchcontrol.query_cancel!.get_first_ctaid.v4.type=b32.response=b128",
        "{d:type*4}, a:response",
        "",
        _100,
        "8.6",
    ),
    Row(
        "clusterlaunchcontrol.query_cancel!.axis=get_first_ctaid::x|get_first_ctaid::y|get_first_ctaid::z.type=b32.response=b128",
        "d:type, a:response",
        "",
        _100,
        "8.6",
    ),
)

ROWS = (
    *doing(
        "copies reduces@reduce bulk@bulk commits@commit_group waits@wait_group|wait_all "
        "hint@prefetch",
        (*_COPIES, *_bulk(), *_REDUCTIONS, *_tensor_copies()),
    ),
    *_STORES,
    *doing("mbarrier polls waits@try_wait", (*_mbarriers(), *_waits())),
    *doing("maps", _TENSORMAPS),
    *doing("copies exchanges cancels", _CANCEL),
)
