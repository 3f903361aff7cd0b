"""Kernels around one asynchronous copy, for recordings: the same text runs on a GPU and here.

A thread block fills its shared memory with its window of `out`, one thread issues the statements
that a case is about, all wait, and the window receives shared memory again: what a copy writes and
what it leaves alone are both seen. A case is plain JSON; bytes are drawn from its name.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from emulator import TensorMap
from emulator.memory.tensor_map_bits import ELEMENT_TYPES

ENTRY = "run"
THREADS = 64
#: words of a row of the table: coordinates, im2col offsets, and the numbers named below
ROW = 16
OFFSETS, SHARED_AT, BYTES, MASK, PEER, GLOBAL_AT = 5, 8, 9, 10, 11, 12
#: after shared memory a window holds whether the wait ended, and the mbarrier
TAIL = 16
MAP_BYTES = 128
#: bits of exponent and significand of the types whose numbers are drawn near 1
_FLOATS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}


@dataclass(frozen=True)
class Case:
    """One launch."""

    name: str
    #: statements that thread 0, or for "every" all of warp 0, issues; names as in `_registers`
    issue: tuple[str, ...]
    #: the table: a row for each block, or several for one block, which takes them in turn
    rows: tuple[tuple[int, ...], ...]
    #: bytes of shared memory, and of the global memory that is copied from or to
    shared: int
    data: int
    cluster: int = 1
    turns: bool = False
    every: bool = False
    #: statements before, by the whole first warp
    before: tuple[str, ...] = ()
    #: arguments of the map, its mode with them
    map: dict[str, Any] = field(default_factory=dict)
    #: what numbers memory holds: bits, index, or a type of _FLOATS
    values: str = "bits"

    @property
    def grid(self) -> int:
        return 1 if self.turns else len(self.rows)

    @property
    def window(self) -> int:
        return self.shared + TAIL

    def json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def of(given: dict[str, Any]) -> Case:
        lists = {k: tuple(given[k]) for k in ("issue", "before")}
        return Case(**(given | lists | {"rows": tuple(map(tuple, given["rows"]))}))


def tensor_map(case: Case, where: Any) -> TensorMap:
    """The map of a case, over an array or an address."""
    given = dict(case.map)
    make = TensorMap.im2col if given.pop("mode") == "im2col" else TensorMap.tiled
    return make(where, **given)


# --- memory ---------------------------------------------------------------------------------------


def buffers(case: Case) -> list[Any]:
    """`out`, the table, `data` and room for a map of every block: what a launch is given."""
    out = drawn(case, "out", case.grid * case.window)
    windows = out.reshape(case.grid, case.window)
    windows[:, case.shared :] = 0
    table = np.array(case.rows, np.int64).astype(np.int32).view(np.uint8).reshape(-1)
    return [out, table, drawn(case, "data", case.data), np.zeros(case.grid * MAP_BYTES, np.uint8)]


def drawn(case: Case, what: str, size: int) -> Any:
    """Bytes that follow from the name of a case alone."""
    if case.values == "index" and what == "data":
        return np.arange(-(-size // 4), dtype=np.uint32).view(np.uint8)[:size].copy()
    raw = hashlib.shake_128(f"{case.name} {what}".encode()).digest(-(-size // 8) * 8)
    bits = np.frombuffer(raw, np.uint8).copy()
    if case.values in _FLOATS:
        _draw_near_one(bits, *_FLOATS[case.values])
    return bits[:size]


def _draw_near_one(bits: Any, exponent: int, fraction: int) -> None:
    """Makes most elements numbers that meet in additions, leaves some zero and some any bits."""
    codes = bits.view(f"u{(1 + exponent + fraction) // 8}")
    kind = codes & 15
    bias = (1 << exponent - 1) - 1
    near = (bias - 4 + (codes >> fraction & 7)) << fraction
    rest = codes & ((1 << fraction) - 1 | 1 << exponent + fraction)
    codes[:] = np.where(kind == 0, codes, np.where(kind == 1, rest * 0, near | rest))


# --- text -----------------------------------------------------------------------------------------

_TEXT = """
.version 8.6
.target sm_90a
.address_size 64
.visible .entry run(.param .u64 out, .param .u64 table, .param .u64 data, .param .u64 scratch{map})
{cluster}
{{
    .shared .align 1024 .b8 box[{shared}];
    .shared .align 128 .b8 edited[128];
    .shared .align 8 .b64 bar;
    .reg .pred first, warp, arrives, more, done;
    .reg .b16 offset<3>, mask;
    .reg .b32 tid, block, i, word, count, c<5>, to, bytes, low, peer, there, far, farbar;
    .reg .b32 w<4>;
    .reg .f32 f<4>;
    .reg .b64 d<4>;
    .reg .f64 g<4>;
    .reg .b64 window, row, global, place, step, spare, entry, state;
    mov.u32 tid, %tid.x;
    mov.u32 block, %ctaid.x;
    setp.eq.u32 first, tid, 0;
    setp.lt.u32 warp, tid, 32;
    ld.param.u64 window, [out];
    mul.wide.u32 step, block, {window};
    add.u64 window, window, step;
    ld.param.u64 row, [table];
    mul.wide.u32 step, block, {row};
    add.u64 row, row, step;
    ld.param.u64 spare, [scratch];
    mul.wide.u32 step, block, 128;
    add.u64 spare, spare, step;
    ld.param.u64 global, [data];
{entry}
    shl.b32 i, tid, 2;
FILL:
    cvt.u64.u32 step, i;
    add.u64 place, window, step;
    ld.global.u32 word, [place];
    mov.u32 there, box;
    add.u32 there, there, i;
    st.shared.u32 [there], word;
    add.u32 i, i, {threads4};
    setp.lt.u32 more, i, {shared};
    @more bra FILL;
    @first mbarrier.init.shared.b64 [bar], 1;
    fence.mbarrier_init.release.cluster;
    fence.proxy.async;
    {barrier}
{before}
    @!{who} bra WAIT;
    mov.u32 count, 0;
TURN:
{operands}
    setp.eq.and.u32 arrives, count, 0, first;
    @arrives mbarrier.arrive.expect_tx.shared.b64 state, [bar], bytes;
{issue}
    add.u32 count, count, 1;
    add.u64 row, row, {row};
    setp.lt.u32 more, count, {turns};
    @more bra TURN;
WAIT:
    mov.u32 count, 0;
AGAIN:
    mbarrier.try_wait.parity.shared.b64 done, [bar], 0;
    @done bra READY;
    add.u32 count, count, 1;
    setp.lt.u32 more, count, 2000;
    @more bra AGAIN;
READY:
    {barrier}
    shl.b32 i, tid, 2;
DUMP:
    cvt.u64.u32 step, i;
    add.u64 place, window, step;
    mov.u32 there, box;
    add.u32 there, there, i;
    ld.shared.u32 word, [there];
    st.global.u32 [place], word;
    add.u32 i, i, {threads4};
    setp.lt.u32 more, i, {shared};
    @more bra DUMP;
    selp.u32 word, 1, 0, done;
    add.u64 place, window, {shared};
    @first st.global.u32 [place], word;
    ret;
}}
"""


@lru_cache(maxsize=64)
def _text(parts: tuple[tuple[str, Any], ...]) -> str:
    return _TEXT.format_map(dict(parts))


def text(case: Case) -> str:
    """PTX of a case; `map` is a parameter where it has one, `entry` its address."""
    near = "bar.sync 0;"
    across = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
    parts = {
        "map": ", .param .align 64 .b8 map[128]" if case.map else "",
        "cluster": f".reqnctapercluster {case.cluster}" if case.cluster > 1 else "",
        "shared": case.shared,
        "window": case.window,
        "row": 4 * ROW,
        "threads4": 4 * THREADS,
        "entry": "mov.b64 entry, map; cvta.param.u64 entry, entry;" if case.map else "",
        "barrier": near if case.cluster == 1 else across,
        "before": _statements(case.before),
        "who": "warp" if case.every else "first",
        "operands": _statements(_operands()),
        "issue": _statements(case.issue),
        "turns": len(case.rows) if case.turns else 1,
    }
    return _text(tuple(parts.items()))


def _statements(lines: Any) -> str:
    return "\n".join(f"    {line}" for line in lines)


def _operands() -> list[str]:
    """Reads of a row of the table: registers of the names that statements use."""
    lines = [f"ld.global.u32 c{i}, [row+{4 * i}];" for i in range(5)]
    lines += [f"ld.global.u16 offset{i}, [row+{4 * (OFFSETS + i)}];" for i in range(3)]
    lines += [
        f"ld.global.u32 to, [row+{4 * SHARED_AT}];",
        "mov.u32 low, box;",
        "add.u32 to, to, low;",
        f"ld.global.u32 bytes, [row+{4 * BYTES}];",
        f"ld.global.u16 mask, [row+{4 * MASK}];",
        f"ld.global.u32 peer, [row+{4 * PEER}];",
        f"ld.global.u32 word, [row+{4 * GLOBAL_AT}];",
        "cvt.u64.u32 step, word;",
        "add.u64 place, global, step;",
    ]
    return lines


def row(
    coordinates: Any = (), offsets: Any = (), *, shared_at: int = 0, bytes_: int = 0,
    mask: int = 0, peer: int = 0, global_at: int = 0,
) -> tuple[int, ...]:  # fmt: skip
    """A row of the table."""
    out = [0] * ROW
    out[: len(coordinates)] = coordinates
    out[OFFSETS : OFFSETS + len(offsets)] = offsets
    out[SHARED_AT], out[BYTES], out[MASK] = shared_at, bytes_, mask
    out[PEER], out[GLOBAL_AT] = peer, global_at
    return tuple(out)


def box_bytes(given: dict[str, Any]) -> int:
    """Bytes that a load with a map of these arguments counts."""
    unit = slice_bytes(given)
    size = unit or ELEMENT_TYPES[given["dtype"]].bytes
    if given["mode"] == "im2col":
        return size * given["pixels"] * (1 if unit else given["channels"])
    steps = list(given["element_strides"])
    counts = [-(-n // s) for n, s in zip(given["box"], steps, strict=True)]
    if unit:
        counts[-2] = 1
    else:
        counts[0] = given["box"][0]
    return size * prod(counts)


def room(given: dict[str, Any]) -> int:
    """Bytes of shared memory that a box with a map of these arguments takes, or a little more.

    Rows narrower than the swizzle lie as far apart as it is wide.
    """
    size, interleaved = ELEMENT_TYPES[given["dtype"]].bytes, slice_bytes(given)
    row = size * (given["channels"] if given["mode"] == "im2col" else given["box"][0])
    width = 0 if given["swizzle"] == "none" else int(given["swizzle"][:-1])
    stretched = box_bytes(given) if interleaved else box_bytes(given) // row * max(row, width)
    return -(-stretched // 128) * 128


def slice_bytes(given: dict[str, Any]) -> int:
    """Bytes of a slice of channels of an interleaved tensor, 0 where there are none."""
    return {"none": 0, "16B": 16, "32B": 32}[given["interleave"]]


# --- results --------------------------------------------------------------------------------------


def results(case: Case, after: list[Any]) -> list[bytes]:
    """What a launch has written: a window for each block, global memory, maps without address."""
    out, _, data, scratch = after
    windows = [bytes(window) for window in out.reshape(case.grid, -1)]
    maps = scratch.reshape(case.grid, -1)[:, 8:]
    return [*windows, bytes(data), bytes(np.ascontiguousarray(maps))]


def digest(written: bytes) -> str:
    """What stands for bytes in a recording."""
    return hashlib.shake_128(written).hexdigest(8)
