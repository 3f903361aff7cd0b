"""Draws tensor copies for copy_record.py: loads, stores, reductions, multicasts, prefetches."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from copy_kernels import Case, box_bytes, room, row

from emulator.memory.tensor_map_bits import ELEMENT_TYPES, SWIZZLES
from hardware.copy_bulk import COMMIT
from hardware.copy_maps import DTYPES, Map, anywhere, draw_map, extent, not_negative, walks

#: element type -> what numbers its reductions meet
NUMBERS = {
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "float32_ftz": "f32",
    "tfloat32": "f32", "tfloat32_ftz": "f32",
}  # fmt: skip


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


def shared_bytes(given: Map, boxes: int = 1) -> int:
    """Shared memory for boxes that start within the first 1024 bytes."""
    return -(-room(given) * boxes // 256) * 256 + 1024


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
        opcode = (
            f"cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{operation}.{mode}.bulk_group"
        )
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
                given = draw_map(
                    rng, "tiled", rank, swizzle, DTYPES[turn % len(DTYPES)], thin=i == 2
                )
                yield store_case(rng, f"tile store {rank}d {swizzle} {i}", given)
        given = draw_map(rng, "tiled", rank)
        yield store_case(rng, f"tile store negative {rank}d", given, negative=True)
    for dtype, kind in ELEMENT_TYPES.items():
        given = draw_map(rng, "tiled", 2, dtype=dtype)
        given["fill"] = "nan" if kind.is_float else "zeros"
        yield load_case(rng, f"tile load of {dtype}", given)
        yield load_case(
            rng, f"tile load of {dtype} numbers", given, values=NUMBERS.get(dtype, "bits")
        )
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
                rng,
                f"tile {operation} of {dtype}",
                given,
                operation,
                values=NUMBERS.get(dtype, "bits"),
            )
        given = draw_map(rng, "im2col", rng.randint(3, 5), dtype="uint32", inner=True)
        yield store_case(rng, f"im2col {operation}", given, operation)
        given = draw_map(rng, "tiled", rng.randint(1, 5), dtype="uint32")
        yield store_case(rng, f"tile {operation} negative", given, operation, negative=True)


#: what reductions of a tensor an H200 carries out, by element type
REDUCED = {
    "uint32": ("add", "min", "max", "inc", "dec", "and", "or", "xor"),
    "int32": ("add", "min", "max", "and", "or", "xor"),
    "uint64": ("add", "min", "max", "and", "or", "xor"), "int64": ("min", "max"),
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
            yield store_case(
                rng, f"tile {operation} {dtype} {rank}d", given, operation, values=values
            )
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
        for i in range(rank):
            case = store_case(rng, f"refused store {rank}d below {i}", given, count=1)
            first = list(case.rows[0])
            first[i] = -8
            yield Case(**(case.json() | {"rows": (tuple(first),)}))
    for rank in (3, 4, 5):
        for corner, change in (("lower", -1), ("upper", 1)):
            given = draw_map(rng, "im2col", rank, "none", inner=True)
            given[corner] = [*given[corner][:-1], change]
            yield store_case(rng, f"refused im2col store {rank}d {corner}", given, count=1)
    for interleave in ("none", "16B"):
        for rank in (3, 4, 5):
            given = draw_map(rng, "im2col", rank, "none", interleave=interleave)
            for dimension, (i, low, high) in enumerate(walks(given)):
                for place in (low - 1, high + 1):
                    name = f"refused {interleave} {rank}d {dimension} {place}"
                    case = load_case(rng, name, given, 1)
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
        place = room(given)
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
            f"multicast {cluster} {i}", issue, tuple(rows), shared_bytes(given, cluster),
            extent(given), cluster=cluster, map=given,
        )  # fmt: skip


def prefetch_cases(rng: Random) -> Iterator[Case]:
    rows = tuple(row([64], bytes_=64, global_at=16 * rng.randint(0, 60)) for _ in range(4))
    complete = "mbarrier::complete_tx::bytes"
    copy = f"cp.async.bulk.shared::cluster.global.{complete} [to], [place], c0, [bar];"
    yield Case(
        "bulk prefetch", ("cp.async.bulk.prefetch.L2.global [place], c0;", copy), rows, 1024, 2048
    )
    for rank in range(1, 6):
        for mode in ("tiled", "im2col")[: 1 + (rank > 2)]:
            given = draw_map(rng, mode, rank)
            case = load_case(rng, f"tensor prefetch {mode} {rank}d", given, 4)
            name = "im2col" if mode == "im2col" else "tile"
            offsets = ", {" + ", ".join(f"offset{i}" for i in range(rank - 2)) + "}"
            opcode = f"cp.async.bulk.prefetch.tensor.{rank}d.L2.global.{name}"
            place = f"[entry, {coordinates(rank)}]{offsets if mode == 'im2col' else ''}"
            before = f"{opcode} {place};"
            yield Case(**(case.json() | {"issue": (before, *case.issue), "rows": case.rows}))
