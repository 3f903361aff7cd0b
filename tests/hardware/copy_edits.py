"""Draws loads through tensor maps that the kernel has edited, for copy_record.py."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from copy_kernels import Case

from emulator.memory.tensor_map_bits import ELEMENT_TYPES, SWIZZLES
from hardware.copy_maps import Map, draw_map, extent
from hardware.copy_tensors import load_case


def edit(field: str, value: int, ordinal: int | None, space: str) -> tuple[str, ...]:
    """Statements that copy the map, replace a field of the copy, and make it the map in use."""
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
    replace = (
        f"@first tensormap.replace.tile.{field}.{space}.b1024.{type_} [{at}], {ordinals}{given};"
    )
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
        yield (
            "interleave_layout",
            code,
            None,
            after | {"interleave": ("16B", "none", "none")[code]},
            after,
        )


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
