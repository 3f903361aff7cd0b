"""Draws the launches of copy_record.py: asynchronous copies of every kind, with random arguments."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

_TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(_TESTS.parent), str(_TESTS)]

from copy_kernels import Case, box_bytes, row, slice_bytes  # noqa: E402

from emulator import EmulatorError, TensorMap  # noqa: E402
from emulator.memory.tensor_map_bits import ELEMENT_TYPES, SWIZZLES  # noqa: E402

DTYPES = tuple(ELEMENT_TYPES)
#: a box of a case has so many bytes at most
LARGEST = 3072
COMMIT = ("cp.async.bulk.commit_group;", "cp.async.bulk.wait_group 0;")
#: what follows an element type of a map in a reduction of numbers near 1
NUMBERS = {
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "float32_ftz": "f32",
    "tfloat32": "f32", "tfloat32_ftz": "f32",
}  # fmt: skip
Map = dict[str, Any]


# --- maps -----------------------------------------------------------------------------------------


def draw_map(rng: Random, mode: str, rank: int, swizzle: str = "", dtype: str = "",
             interleave: str = "none", thin: bool | None = None, inner: bool = False) -> Map:  # fmt: skip
    """Arguments of a map that the driver takes, with a small box; `inner`: im2col within."""
    while True:
        found = _draw_map(rng, mode, rank, swizzle, dtype, interleave, thin, inner)
        try:
            given = dict(found)
            make = TensorMap.im2col if given.pop("mode") == "im2col" else TensorMap.tiled
            make(1 << 32, **given)
        except EmulatorError:
            continue
        corners = zip(spatial(found), found.get("lower", ()), found.get("upper", ()))
        empty = any(max(low, 0) > found["dims"][i] - 1 + high for i, low, high in corners)
        if box_bytes(found) <= LARGEST and not empty:
            return found


def _draw_map(rng: Random, mode: str, rank: int, swizzle: str, dtype: str, interleave: str,
              thin: bool | None, inner: bool) -> Map:  # fmt: skip
    dtype, swizzle = dtype or rng.choice(DTYPES), swizzle or rng.choice(SWIZZLES)
    size = ELEMENT_TYPES[dtype].bytes
    width = 128 if swizzle == "none" else int(swizzle[:-1])
    channels = rng.choice([n for n in (16, 32, 48, 64, 96, 128) if n <= width]) // size
    most = 12 if rank < 4 else 6
    dims = [rng.randint(1, 3 * channels), *(rng.randint(1, most) for _ in range(rank - 1))]
    unit = 32 if interleave == "32B" else 16
    first = size
    if interleave != "none":
        dims[0], first = rng.randint(1, most), unit
    strides, step = [], dims[0] * first
    for n in dims[1:]:
        step = -(-step // unit) * unit + unit * rng.randint(0, 2)
        strides.append(step)
        step *= n
    thin = rng.random() < 0.3 if thin is None else thin
    steps = [rng.randint(1, 8) if thin else 1 for _ in range(rank)]
    fill = "nan" if ELEMENT_TYPES[dtype].is_float and rng.random() < 0.5 else "zeros"
    out: Map = {
        "mode": mode, "dtype": dtype, "dims": dims, "strides": strides, "element_strides": steps,
        "interleave": interleave, "swizzle": swizzle, "fill": fill,
    }  # fmt: skip
    if mode == "tiled":
        box = [channels, *(rng.randint(1, most) for _ in range(rank - 1))]
        if interleave != "none":
            box[-2] = rng.choice((1, 3, 16, 100, 256))
        return out | {"box": box}
    corners = [(rng.randint(-2, 2), rng.randint(-2, 2)) for _ in range(rank - 2)]
    if inner:
        corners = [(abs(low), -abs(high)) for low, high in corners]
    return out | {
        "lower": [low for low, _ in corners], "upper": [high for _, high in corners],
        "channels": channels, "pixels": rng.randint(1, 40),
    }  # fmt: skip


def extent(given: Map) -> int:
    """Bytes of the tensor."""
    first = slice_bytes(given) or ELEMENT_TYPES[given["dtype"]].bytes
    steps = zip(given["dims"][1:], given["strides"], strict=True)
    most = given["dims"][0] * first + sum((n - 1) * step for n, step in steps)
    return -(-most // 16) * 16


def spatial(given: Map) -> range:
    """The dimensions in which an im2col copy walks."""
    if given["mode"] == "tiled":
        return range(0)
    first = 0 if slice_bytes(given) else 1
    return range(first, first + len(given["dims"]) - 2)


def unit_of(given: Map) -> int:
    """What a coordinate of dimension 0 is a multiple of."""
    return 1 if slice_bytes(given) else max(16 // ELEMENT_TYPES[given["dtype"]].bytes, 1)


def anywhere(rng: Random, given: Map) -> list[int]:
    """Coordinates within, across an edge, beside and far away from a tensor."""
    dims = given["dims"]
    box = given["box"] if given["mode"] == "tiled" else [given["channels"], *[3] * 8]
    kind = rng.random()
    out = []
    for n, b in zip(dims, box, strict=False):
        if kind < 0.25:
            out.append(rng.randint(0, max(n - b, 0)))
        elif kind < 0.75:
            out.append(rng.randint(max(-b, -40) + 1, n - 1))
        else:
            out.append(rng.randint(max(-b, -40) - 2, n + 2))
    if kind > 0.95:
        far = (-(1 << 31), (1 << 31) - 256, -(1 << 20), 1 << 24)
        out[rng.randrange(len(out))] = rng.choice(far)
    return _legal(rng, given, out, False)


def not_negative(rng: Random, given: Map) -> list[int]:
    """Coordinates at which a store may begin, some behind the tensor."""
    out = [rng.randint(0, n - 1 + (rng.random() < 0.1)) for n in given["dims"]]
    return _legal(rng, given, out, True)


def _legal(rng: Random, given: Map, out: list[int], positive: bool) -> list[int]:
    """Coordinates of whole 16 bytes that lie, where a copy walks, between the corners."""
    out[0] -= out[0] % unit_of(given)
    for i, low, high in zip(spatial(given), given.get("lower", ()), given.get("upper", ())):
        least = max(low, 0) if positive else low
        out[i] = rng.randint(least, max(given["dims"][i] - 1 + high, least))
    return out


# --- tensor copies --------------------------------------------------------------------------------


def coordinates(rank: int) -> str:
    return "{" + ", ".join(f"c{i}" for i in range(rank)) + "}"


def load_statement(rank: int, mode: str, multicast: bool = False, to: str = "cluster") -> str:
    offsets = ", {" + ", ".join(f"offset{i}" for i in range(rank - 2)) + "}"
    return (
        f"cp.async.bulk.tensor.{rank}d.shared::{to}.global.{mode}.mbarrier::complete_tx::bytes"
        f"{'.multicast::cluster' * multicast} [to], [entry, {coordinates(rank)}], [bar]"
        f"{offsets if mode == 'im2col' else ''}{', mask' * multicast};"
    )


def load_rows(rng: Random, given: Map, count: int, bytes_: int | None = None) -> list[Any]:
    out = []
    for _ in range(count):
        rank = len(given["dims"])
        offsets = [rng.randint(0, 3) for _ in range(rank - 2)] if given["mode"] == "im2col" else ()
        at = 128 * rng.randint(0, 7)
        size = box_bytes(given) if bytes_ is None else bytes_
        out.append(row(anywhere(rng, given), offsets, shared_at=at, bytes_=size))
    return out


def shared_bytes(given: Map, factor: int = 1) -> int:
    return -(-box_bytes(given) * factor // 256) * 256 + 1024


def load_case(rng: Random, name: str, given: Map, count: int = 8, **more: Any) -> Case:
    mode = "im2col" if given["mode"] == "im2col" else "tile"
    rank = len(given["dims"])
    to = rng.choice(("cluster", "cta"))
    return Case(
        name, (load_statement(rank, mode, to=to),), tuple(load_rows(rng, given, count)),
        shared_bytes(given), extent(given), map=given, **more,
    )  # fmt: skip


def store_case(rng: Random, name: str, given: Map, operation: str = "", count: int = 5,
               negative: bool = False, **more: Any) -> Case:  # fmt: skip
    mode = "im2col_no_offs" if given["mode"] == "im2col" else "tile"
    rank = len(given["dims"])
    opcode = f"cp.async.bulk.tensor.{rank}d.global.shared::cta.{mode}.bulk_group"
    if operation:
        opcode = f"cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{operation}.{mode}.bulk_group"
    place = anywhere if negative else not_negative
    rows = tuple(row(place(rng, given), shared_at=128 * rng.randint(0, 7)) for _ in range(count))
    return Case(
        name, (f"{opcode} [entry, {coordinates(rank)}], [to];", *COMMIT), rows,
        shared_bytes(given), extent(given), turns=True, map=given, **more,
    )  # fmt: skip


def tensor_cases(rng: Random) -> Iterator[Case]:
    turn = 0
    for rank in range(1, 6):
        for swizzle in SWIZZLES:
            for i in range(4):
                turn += 1
                given = draw_map(rng, "tiled", rank, swizzle, DTYPES[turn % len(DTYPES)])
                yield load_case(rng, f"tile load {rank}d {swizzle} {i}", given)
            for i in range(3):
                turn += 1
                given = draw_map(rng, "tiled", rank, swizzle, DTYPES[turn % len(DTYPES)], thin=i == 2)
                yield store_case(rng, f"tile store {rank}d {swizzle} {i}", given)
        given = draw_map(rng, "tiled", rank)
        yield store_case(rng, f"tile store negative {rank}d", given, negative=True)
    for dtype, kind in ELEMENT_TYPES.items():
        given = draw_map(rng, "tiled", 2, dtype=dtype)
        given["fill"] = "nan" if kind.is_float else "zeros"
        yield load_case(rng, f"tile load of {dtype}", given)
        yield load_case(rng, f"tile load of {dtype} numbers", given, values=NUMBERS.get(dtype, "bits"))
        yield store_case(rng, f"tile store of {dtype}", draw_map(rng, "tiled", 2, dtype=dtype))
    for rank in (3, 4, 5):
        for swizzle in SWIZZLES:
            for i in range(4):
                given = draw_map(rng, "im2col", rank, swizzle, thin=i == 3)
                yield load_case(rng, f"im2col load {rank}d {swizzle} {i}", given)
            given = draw_map(rng, "im2col", rank, swizzle, inner=True, thin=False)
            yield store_case(rng, f"im2col store {rank}d {swizzle}", given)
        for i in range(2):
            given = draw_map(rng, "im2col", rank, inner=True, thin=True)
            yield store_case(rng, f"im2col store thin {rank}d {i}", given)
        given = draw_map(rng, "im2col", rank)
        yield store_case(rng, f"im2col store anywhere {rank}d", given, negative=True)
    for operation in ("add", "min", "max", "inc", "dec", "and", "or", "xor"):
        for dtype in DTYPES:
            given = draw_map(rng, "tiled", rng.randint(1, 5), dtype=dtype)
            yield store_case(
                rng, f"tile {operation} of {dtype}", given, operation, values=NUMBERS.get(dtype, "bits")
            )
        given = draw_map(rng, "im2col", rng.randint(3, 5), dtype="uint32", inner=True)
        yield store_case(rng, f"im2col {operation}", given, operation)
        given = draw_map(rng, "tiled", rng.randint(1, 5), dtype="uint32")
        yield store_case(rng, f"tile {operation} negative", given, operation, negative=True)


#: what reductions of a tensor an H200 carries out, by element type
REDUCED = {
    "uint32": ("add", "min", "max", "inc", "dec", "and", "or", "xor"),
    "int32": ("add", "min", "max", "and", "or", "xor"),
    "uint64": ("add", "min", "max", "and", "or", "xor"),
    "int64": ("min", "max", "and", "or", "xor"),
    "float16": ("add", "min", "max"), "bfloat16": ("add", "min", "max"), "float32": ("add",),
    "float32_ftz": ("add",), "float64": ("add",),
}  # fmt: skip


def reduced_cases(rng: Random) -> Iterator[Case]:
    """Reductions of the types that have them, in every rank."""
    for dtype, operations in REDUCED.items():
        for operation in operations:
            rank = rng.randint(1, 5)
            given = draw_map(rng, "tiled", rank, dtype=dtype)
            values = NUMBERS.get(dtype, "bits")
            yield store_case(rng, f"tile {operation} {dtype} {rank}d", given, operation, values=values)
    for rank in range(1, 6):
        for operation, dtype in (("add", "float32"), ("inc", "uint32"), ("max", "float16")):
            given = draw_map(rng, "tiled", rank, dtype=dtype, thin=False)
            yield store_case(rng, f"tile {operation} {dtype} dense {rank}d", given, operation)


def refused_cases(rng: Random) -> Iterator[Case]:
    """Coordinates at which a copy may not begin, one to a launch."""
    for rank in range(1, 6):
        given = draw_map(rng, "tiled", rank, dtype="float16")
        for name, case in (
            ("load", load_case(rng, f"refused load {rank}d", given, 1)),
            ("store", store_case(rng, f"refused store {rank}d", given, count=1)),
        ):
            for shift in (1, 4):
                first = list(case.rows[0])
                first[0] = 8 + shift
                yield Case(**(case.json() | {
                    "name": f"refused {name} {rank}d off by {shift}", "rows": (tuple(first),)
                }))  # fmt: skip
    for interleave in ("none", "16B"):
        for rank in (3, 4, 5):
            given = draw_map(rng, "im2col", rank, "none", interleave=interleave)
            for dimension in range(rank - 2):
                i = spatial(given)[dimension]
                low = given["lower"][dimension]
                high = given["dims"][i] - 1 + given["upper"][dimension]
                for place in (low - 1, high + 1):
                    case = load_case(rng, f"refused {interleave} {rank}d {dimension} {place}", given, 1)
                    first = list(case.rows[0])
                    first[i] = place
                    yield Case(**(case.json() | {"rows": (tuple(first),)}))


def interleaved_cases(rng: Random) -> Iterator[Case]:
    for interleave in ("16B", "32B"):
        for rank in (3, 4, 5):
            for i, dtype in enumerate(("uint32", "float16", "uint8", "float64")):
                swizzle = ("none", "32B")[i % 2] if interleave == "32B" else "none"
                given = draw_map(rng, "tiled", rank, swizzle, dtype, interleave, thin=False)
                more = {"values": "index"} if not i else {}
                yield load_case(rng, f"interleave {interleave} load {rank}d {i}", given, **more)
                yield store_case(rng, f"interleave {interleave} store {rank}d {i}", given)
            for swizzle in SWIZZLES:
                given = draw_map(rng, "tiled", rank, swizzle, "", interleave)
                yield load_case(rng, f"interleave {interleave} load {rank}d thin {swizzle}", given)
            for i in range(3):
                given = draw_map(rng, "im2col", rank, "none", "", interleave, thin=i == 2)
                more = {"values": "index"} if not i else {}
                yield load_case(rng, f"interleave {interleave} im2col {rank}d {i}", given, **more)
            given = draw_map(rng, "im2col", rank, "none", "", interleave, thin=False, inner=True)
            yield store_case(rng, f"interleave {interleave} im2col store {rank}d", given)
            given = draw_map(rng, "tiled", rank, "none", "uint32", interleave, thin=False)
            yield store_case(rng, f"interleave {interleave} add {rank}d", given, "add")


def multicast_cases(rng: Random) -> Iterator[Case]:
    for i in range(16):
        cluster = 2 if i < 6 else 4
        rank = rng.randint(1, 5)
        mode = "im2col" if rank > 2 and rng.random() < 0.4 else "tiled"
        given = draw_map(rng, mode, rank)
        size = box_bytes(given)
        place = -(-size // 128) * 128
        rows = []
        for _ in range(2):
            masks = [rng.randrange(1 << cluster) for _ in range(cluster)]
            for rank_in, mask in enumerate(masks):
                arriving = sum(m >> rank_in & 1 for m in masks)
                [one] = load_rows(rng, given, 1, arriving * size)
                one = list(one)
                one[8], one[10] = rank_in * place, mask
                rows.append(tuple(one))
        statement = load_statement(rank, "im2col" if mode == "im2col" else "tile", True)
        issue = ("setp.ne.u16 more, mask, 0;", f"@more {statement}")
        yield Case(
            f"multicast {cluster} {i}", issue, tuple(rows), -(-cluster * place // 256) * 256 + 1024,
            extent(given), cluster=cluster, map=given,
        )  # fmt: skip


# --- bulk copies ----------------------------------------------------------------------------------


def bulk_rows(rng: Random, cluster: int, sizes: Any, room: int) -> list[Any]:
    """For each block of a cluster a size, places in both memories, and a peer."""
    out = []
    for rank in range(cluster):
        size = sizes[rank]
        at = rank * room
        out.append((size, at, 16 * rng.randint(0, 30)))
    return out


def bulk_cases(rng: Random) -> Iterator[Case]:
    complete = "mbarrier::complete_tx::bytes"
    for to in ("cluster", "cta"):
        for i in range(4):
            sizes = [16 * rng.randint(1, 64) for _ in range(6)]
            rows = [
                row([n], shared_at=16 * rng.randint(0, 60), bytes_=n, global_at=16 * rng.randint(0, 60))
                for n in sizes
            ]
            statement = f"cp.async.bulk.shared::{to}.global.{complete} [to], [place], c0, [bar];"
            yield Case(f"bulk to {to} {i}", (statement,), tuple(rows), 2048, 2048)
    for i in range(4):
        rows = [
            row([16 * rng.randint(1, 64)], shared_at=16 * rng.randint(0, 60), global_at=16 * rng.randint(0, 60))
            for _ in range(5)
        ]
        statement = "cp.async.bulk.global.shared::cta.bulk_group [place], [to], c0;"
        yield Case(f"bulk to global {i}", (statement, *COMMIT), tuple(rows), 2048, 2048, turns=True)
    for i in range(6):
        cluster = 2 if i < 2 else 4
        masks = [rng.randrange(1, 1 << cluster) for _ in range(cluster)]
        sizes = [16 * rng.randint(1, 32) for _ in range(cluster)]
        rows = []
        for rank in range(cluster):
            arriving = sum(n for m, n in zip(masks, sizes, strict=True) if m >> rank & 1)
            rows.append(
                row([sizes[rank]], shared_at=512 * rank, bytes_=arriving, mask=masks[rank],
                    global_at=16 * rng.randint(0, 60))
            )  # fmt: skip
        statement = (
            f"cp.async.bulk.shared::cluster.global.{complete}.multicast::cluster "
            "[to], [place], c0, [bar], mask;"
        )
        yield Case(f"bulk multicast {cluster} {i}", (statement,), tuple(rows), 2048, 2048, cluster=cluster)
    for i in range(4):
        statement = f"cp.async.bulk.shared::cluster.shared::cta.{complete} [far], [there], c0, [farbar];"
        yield to_peer(rng, f"bulk to a peer {i}", statement, 2 if i < 2 else 4)
    yield from reduction_cases(rng)
    yield from prefetch_cases(rng)


#: the block that a row names: its shared memory from `to` on, and its mbarrier
PEERS = (
    "mapa.shared::cluster.u32 far, to, peer;",
    "mov.u32 farbar, bar;",
    "mapa.shared::cluster.u32 farbar, farbar, peer;",
    "add.u32 there, low, c1;",
)


def to_peer(rng: Random, name: str, statement: str, cluster: int, **more: Any) -> Case:
    """Every block sends to another: no two to the same place of one."""
    peers = [(rank + 1 + rng.randrange(cluster - 1)) % cluster for rank in range(cluster)]
    sizes = [16 * rng.randint(1, 32) for _ in range(cluster)]
    rows = []
    for rank in range(cluster):
        arriving = sum(n for p, n in zip(peers, sizes, strict=True) if p == rank)
        rows.append(
            row([sizes[rank], 16 * rng.randint(0, 32)], shared_at=1024 + 512 * rank,
                bytes_=arriving, peer=peers[rank])
        )  # fmt: skip
    return Case(name, (*PEERS, statement), tuple(rows), 3072 + 512, 64, cluster=cluster, **more)


_INTEGERS = (
    ("and", "b32"), ("or", "b32"), ("xor", "b32"), ("add", "u32"), ("add", "s32"), ("add", "u64"),
    ("inc", "u32"), ("dec", "u32"), ("min", "u32"), ("min", "s32"), ("max", "u32"), ("max", "s32"),
)  # fmt: skip
_GLOBAL = (
    *_INTEGERS, ("and", "b64"), ("or", "b64"), ("xor", "b64"), ("add", "f32"), ("add", "f64"),
    *((op, t) for op in ("min", "max") for t in ("u64", "s64", "f16", "bf16")),
    ("add.noftz", "f16"), ("add.noftz", "bf16"),
)  # fmt: skip


def reduction_cases(rng: Random) -> Iterator[Case]:
    complete = "mbarrier::complete_tx::bytes"
    for operation, type_ in _GLOBAL:
        for values in {"bits", type_ if type_ in ("f16", "bf16", "f32", "f64") else "bits"}:
            rows = [
                row([16 * rng.randint(1, 64)], shared_at=16 * rng.randint(0, 60), global_at=16 * rng.randint(0, 60))
                for _ in range(5)
            ]
            statement = (
                f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{operation}.{type_} "
                "[place], [to], c0;"
            )
            yield Case(
                f"bulk {operation} of {type_} {values}", (statement, *COMMIT), tuple(rows), 2048, 2048,
                turns=True, values=values,
            )  # fmt: skip
    for operation, type_ in _INTEGERS:
        statement = (
            f"cp.reduce.async.bulk.shared::cluster.shared::cta.{complete}.{operation}.{type_} "
            "[far], [there], c0, [farbar];"
        )
        yield to_peer(rng, f"bulk {operation} of {type_} to a peer", statement, 2)
    for operation, type_ in _INTEGERS:
        wide = type_.endswith("64")
        read = "ld.shared.b64 d0, [there];" if wide else "ld.shared.b32 w0, [there];"
        statement = (
            f"red.async.relaxed.cluster.shared::cluster.{complete}.{operation}.{type_} "
            f"[far], {'d0' if wide else 'w0'}, [farbar];"
        )
        # Four threads to each place, except where the order would show.
        narrow = "" if operation in ("inc", "dec") else "and.b32 i, tid, 7;"
        yield signalled(rng, f"red.async {operation} of {type_}", 8 if wide else 4, (read, statement), narrow)
    for vector in ("", ".v2", ".v4"):
        for type_ in ("b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"):
            if vector == ".v4" and type_.endswith("64"):
                continue
            count, size = int(vector[-1:] or 1), int(type_[1:]) // 8
            name = {"b": "d" if size == 8 else "w", "u": "d" if size == 8 else "w",
                    "s": "d" if size == 8 else "w", "f": "g" if size == 8 else "f"}[type_[0]]  # fmt: skip
            names = [f"{name}{i}" for i in range(count)]
            words = "{" + ", ".join(names) + "}" if vector else names[0]
            reads = [f"ld.shared.{type_} {one}, [there+{i * size}];" for i, one in enumerate(names)]
            statement = f"st.async.weak.shared::cluster.{complete}{vector}.{type_} [far], {words}, [farbar];"
            yield signalled(rng, f"st.async{vector}.{type_}", size * count, (*reads, statement), "")


def signalled(rng: Random, name: str, size: int, statements: Any, narrow: str) -> Case:
    """All threads of a warp send from their own place to that of the other block."""
    rows = [
        row([size, 16 * rng.randint(0, 20)], shared_at=1024 + 16 * rng.randint(0, 8),
            bytes_=32 * size, peer=1 - rank)
        for rank in range(2)
    ]  # fmt: skip
    issue = (
        *PEERS, "mul.lo.u32 i, tid, c0;", "add.u32 there, there, i;",
        *((narrow, "mul.lo.u32 i, i, c0;") if narrow else ()), "add.u32 far, far, i;", *statements,
    )  # fmt: skip
    return Case(name, issue, tuple(rows), 2048, 64, cluster=2, every=True)


def prefetch_cases(rng: Random) -> Iterator[Case]:
    rows = tuple(row([64], bytes_=64, global_at=16 * rng.randint(0, 60)) for _ in range(4))
    complete = "mbarrier::complete_tx::bytes"
    copy = f"cp.async.bulk.shared::cluster.global.{complete} [to], [place], c0, [bar];"
    yield Case("bulk prefetch", ("cp.async.bulk.prefetch.L2.global [place], c0;", copy), rows, 1024, 2048)
    for rank in range(1, 6):
        for mode in ("tiled", "im2col")[: 1 + (rank > 2)]:
            given = draw_map(rng, mode, rank)
            case = load_case(rng, f"tensor prefetch {mode} {rank}d", given, 4)
            name = "im2col" if mode == "im2col" else "tile"
            offsets = ", {" + ", ".join(f"offset{i}" for i in range(rank - 2)) + "}"
            before = (
                f"cp.async.bulk.prefetch.tensor.{rank}d.L2.global.{name} [entry, {coordinates(rank)}]"
                f"{offsets if mode == 'im2col' else ''};"
            )
            yield Case(**(case.json() | {"issue": (before, *case.issue), "rows": case.rows}))


# --- edited maps ----------------------------------------------------------------------------------


def edit(field: str, value: int, ordinal: int | None, space: str) -> tuple[str, ...]:
    """Statements that copy the map of the parameter, replace a field, and make it the map in use."""
    wide = field in ("global_address", "global_stride")
    type_, name = ("b64", "state") if wide else ("b32", "word")
    if field == "global_address":
        loaded = f"add.u64 state, global, {value};"
    else:
        loaded = f"mov.{type_} {name}, {value};"
    given = name
    if field in ("elemtype", "interleave_layout", "swizzle_mode", "fill_mode"):
        loaded, given = "", str(value)
    at = "edited" if space == "shared::cta" else "spare"
    ordinals = "" if ordinal is None else f"{ordinal}, "
    replace = f"@first tensormap.replace.tile.{field}.{space}.b1024.{type_} [{at}], {ordinals}{given};"
    start = (
        "shl.b32 i, tid, 2;", "cvt.u64.u32 step, i;", "add.u64 place, entry, step;",
        "@warp ld.b32 word, [place];",
    )  # fmt: skip
    if space == "shared::cta":
        return (
            *start, "mov.u32 there, edited;", "add.u32 there, there, i;",
            "@warp st.shared.b32 [there], word;", "bar.sync 0;", loaded, replace, "bar.sync 0;",
            "@warp tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu"
            ".sync.aligned [spare], [edited], 128;",
            "bar.sync 0;", "fence.proxy.tensormap::generic.acquire.gpu [spare], 128;",
            "mov.b64 entry, spare;",
        )  # fmt: skip
    return (
        *start, "add.u64 place, spare, step;", "@warp st.global.b32 [place], word;", "bar.sync 0;",
        loaded, replace, "fence.proxy.tensormap::generic.release.gpu;", "bar.sync 0;",
        "fence.proxy.tensormap::generic.acquire.gpu [spare], 128;", "mov.b64 entry, spare;",
    )  # fmt: skip


def edits(rng: Random) -> Iterator[tuple[str, int, int | None, Map, Map]]:
    """A field, its new value and ordinal, the map before, and the map after."""

    def drawn(rank: int, **more: Any) -> Map:
        return draw_map(rng, "tiled", rank, **more)

    after = drawn(2)
    yield "global_address", 256, None, after, after
    wide = drawn(4, thin=False)
    cut = dict(wide)
    for name in ("dims", "box", "element_strides"):
        cut[name] = wide[name][:3]
    cut["strides"] = wide["strides"][:2]
    yield "rank", 2, None, wide, cut
    small = drawn(3)
    grown = dict(small)
    for name in ("dims", "box", "element_strides"):
        grown[name] = [*small[name], 1]
    grown["strides"] = [*small["strides"], 0]
    yield "rank", 3, None, small, grown
    for ordinal in range(5):
        for field, name in (
            ("box_dim", "box"), ("global_dim", "dims"), ("element_stride", "element_strides"),
            ("global_stride", "strides"),
        ):  # fmt: skip
            after = drawn(5, thin=field == "element_stride")
            before = {k: list(v) if isinstance(v, list) else v for k, v in after.items()}
            if field == "global_stride" and ordinal == 4:
                continue
            if field == "global_stride":
                before[name][ordinal] += 16 * rng.randint(1, 9)
            elif field == "box_dim" and ordinal == 0:
                before[name][0] = 16 // ELEMENT_TYPES[after["dtype"]].bytes
            else:
                before[name][ordinal] = rng.randint(1, 7)
            yield field, after[name][ordinal], ordinal, before, after
    for code, dtype in enumerate(
        ("uint8", "uint16", "uint32", "int32", "uint64", "int64", "float16", "float32",
         "float32_ftz", "float64", "bfloat16", "tfloat32", "tfloat32_ftz")
    ):  # fmt: skip
        size = ELEMENT_TYPES[dtype].bytes
        after = drawn(2, dtype=dtype)
        same = [d for d, t in ELEMENT_TYPES.items() if t.bytes == size and not t.round_to_tf32]
        before = after | {"dtype": rng.choice(same), "fill": "zeros"}
        yield "elemtype", code, None, before, after | {"fill": "zeros"}
    for code, swizzle in enumerate(SWIZZLES):
        after = drawn(2, swizzle="32B") | {"swizzle": swizzle}
        yield "swizzle_mode", code, None, after | {"swizzle": SWIZZLES[code - 1]}, after
    for code, fill in enumerate(("zeros", "nan")):
        after = drawn(2, dtype="float16") | {"fill": fill}
        yield "fill_mode", code, None, after | {"fill": ("nan", "zeros")[code]}, after
    for code, interleave in enumerate(("none", "16B", "32B")):
        after = drawn(3, interleave="32B", swizzle="32B", thin=False) | {"interleave": interleave}
        yield "interleave_layout", code, None, after | {"interleave": ("16B", "none", "none")[code]}, after


def replace_cases(rng: Random) -> Iterator[Case]:
    for i, (field, value, ordinal, before, after) in enumerate(edits(rng)):
        for space in ("shared::cta", "global"):
            case = load_case(rng, f"replace {field} {i} in {space}", after, 4)
            moved = value if field == "global_address" else 0
            yield Case(
                **(
                    case.json()
                    | {
                        "before": tuple(filter(None, edit(field, value, ordinal, space))),
                        "map": before, "rows": case.rows, "issue": case.issue,
                        "data": max(extent(before), extent(after)) + moved,
                    }
                )
            )  # fmt: skip


def draw(seed: int) -> list[Case]:
    """All cases."""
    out: list[Case] = []
    for make in (tensor_cases, reduced_cases, refused_cases, interleaved_cases, multicast_cases, bulk_cases, replace_cases):
        out += make(Random(f"{seed} {make.__name__}"))
    return out


if __name__ == "__main__":
    cases = draw(0)
    print(len(cases), len({case.name for case in cases}))
