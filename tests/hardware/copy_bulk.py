"""Draws copies without tensor maps for copy_record.py: bulk copies, st.async, red.async."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from copy_kernels import Case, row

COMMIT = ("cp.async.bulk.commit_group;", "cp.async.bulk.wait_group 0;")


def bulk_cases(rng: Random) -> Iterator[Case]:
    complete = "mbarrier::complete_tx::bytes"
    for to in ("cluster", "cta"):
        for i in range(4):
            sizes = [16 * rng.randint(1, 64) for _ in range(6)]
            rows = [
                row(
                    [n],
                    shared_at=16 * rng.randint(0, 60),
                    bytes_=n,
                    global_at=16 * rng.randint(0, 60),
                )
                for n in sizes
            ]
            statement = f"cp.async.bulk.shared::{to}.global.{complete} [to], [place], c0, [bar];"
            yield Case(f"bulk to {to} {i}", (statement,), tuple(rows), 2048, 2048)
    for i in range(4):
        rows = [
            row(
                [16 * rng.randint(1, 64)],
                shared_at=16 * rng.randint(0, 60),
                global_at=16 * rng.randint(0, 60),
            )
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
        yield Case(
            f"bulk multicast {cluster} {i}", (statement,), tuple(rows), 2048, 2048, cluster=cluster
        )
    for i in range(4):
        statement = (
            f"cp.async.bulk.shared::cluster.shared::cta.{complete} [far], [there], c0, [farbar];"
        )
        yield to_peer(rng, f"bulk to a peer {i}", statement, 2 if i < 2 else 4)
    yield from reduction_cases(rng)


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


#: what numbers memory holds, for types of which any bits would mostly be far apart
_VALUES = {
    "f32": ("f32", "bits"), "f64": ("f64", "bits"), "f16": ("bits", "f16"),
    "bf16": ("bits", "bf16"),
}  # fmt: skip


def reduction_cases(rng: Random) -> Iterator[Case]:
    complete = "mbarrier::complete_tx::bytes"
    for operation, type_ in _GLOBAL:
        for values in _VALUES.get(type_, ("bits",)):
            rows = [
                row(
                    [16 * rng.randint(1, 64)],
                    shared_at=16 * rng.randint(0, 60),
                    global_at=16 * rng.randint(0, 60),
                )
                for _ in range(5)
            ]
            statement = (
                f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{operation}.{type_} "
                "[place], [to], c0;"
            )
            name = f"bulk {operation} of {type_} {values}"
            issue = (statement, *COMMIT)
            yield Case(name, issue, tuple(rows), 2048, 2048, turns=True, values=values)
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
        yield signalled(
            rng, f"red.async {operation} of {type_}", 8 if wide else 4, (read, statement), narrow
        )
    for vector in ("", ".v2", ".v4"):
        for type_ in ("b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"):
            if vector == ".v4" and type_.endswith("64"):
                continue
            count, size = int(vector[-1:] or 1), int(type_[1:]) // 8
            name = ("wd", "fg")[type_[0] == "f"][size == 8]
            names = [f"{name}{i}" for i in range(count)]
            words = "{" + ", ".join(names) + "}" if vector else names[0]
            reads = [f"ld.shared.{type_} {one}, [there+{i * size}];" for i, one in enumerate(names)]
            statement = (
                f"st.async.weak.shared::cluster.{complete}{vector}.{type_} "
                f"[far], {words}, [farbar];"
            )
            yield signalled(rng, f"st.async{vector}.{type_}", size * count, (*reads, statement), "")


def signalled(rng: Random, name: str, size: int, statements: Any, narrow: str) -> Case:
    """All threads of a warp of two blocks send from their own place to the same block."""
    peer = rng.randrange(2)
    rows = [
        row([size, 16 * rng.randint(0, 20)], shared_at=1024 + 640 * rank + 16 * rng.randint(0, 8),
            bytes_=64 * size * (rank == peer), peer=peer)
        for rank in range(2)
    ]  # fmt: skip
    issue = (
        *PEERS, "mul.lo.u32 i, tid, c0;", "add.u32 there, there, i;",
        *((narrow, "mul.lo.u32 i, i, c0;") if narrow else ()), "add.u32 far, far, i;", *statements,
    )  # fmt: skip
    return Case(name, issue, tuple(rows), 2304, 64, cluster=2, every=True)
