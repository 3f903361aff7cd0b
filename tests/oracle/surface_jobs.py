"""Kernels and places of tests/golden/h200_surfaces.json.gz: what tests/hardware/record_surfaces.py
asked an H200, and tests/machine/test_surfaces.py replays.

A job is one launch, or one launch for each place, on a surface whose bytes come from its format.
"""

import itertools
import zlib

import numpy as np

COORDINATES = {
    "1d": "%x", "a1d": "{%x,%y}", "2d": "{%x,%y}", "a2d": "{%x,%y,%z,%w}", "3d": "{%x,%y,%z,%w}",
}  # fmt: skip
LANES = {"": 1, "v2": 2, "v4": 4}
BYTES = {"b8": 1, "b16": 2, "b32": 4, "b64": 8}
TYPES = [(v, b) for v in LANES for b in BYTES if (v, b) != ("v4", "b64")]
QUERIES = (
    "width", "height", "depth", "channel_data_type", "channel_order", "array_size",
    "memory_layout",
)  # fmt: skip
#: width, height and depth or layers; 0: it has none
SIZES = {
    "1d": (13, 0, 0), "2d": (13, 7, 0), "3d": (13, 7, 5), "a1d": (13, 0, 5), "a2d": (13, 7, 5),
    "cube": (7, 7, 6),
}  # fmt: skip
GEOMETRIES = ("1d", "2d", "3d", "a1d", "a2d")
#: CUarray_format and bytes of a channel
FORMATS = {
    "u8": (1, 1), "u16": (2, 2), "u32": (3, 4), "s8": (8, 1), "s16": (9, 2), "s32": (10, 4),
    "f16": (0x10, 2), "f32": (0x20, 4),
}  # fmt: skip
FAR = (2**31 - 1, -(2**31), 65536, -65536, 2**30, 1 << 24)

# --- kernels --------------------------------------------------------------------------------------

HEAD = """.version 8.1
.target sm_90
.address_size 64
.visible .entry {name}(.param .u64 surface, .param .u64 places, .param .u64 data, .param .u32 count)
{{ .reg .b32 %x, %y, %z, %w, %i, %n, %c, %t, %r<4>; .reg .b64 %s, %p, %d, %o, %e<4>; .reg .pred %q;
ld.param.u64 %s,[surface]; ld.param.u64 %p,[places]; ld.param.u64 %d,[data];
ld.param.u32 %n,[count]; mov.u32 %i,%tid.x; mov.u32 %c,%ctaid.x; mov.u32 %t,%ntid.x;
mad.lo.u32 %i,%c,%t,%i; setp.ge.u32 %q,%i,%n; @%q ret;
mul.wide.u32 %o,%i,16; add.u64 %p,%p,%o; mul.wide.u32 %o,%i,32; add.u64 %d,%d,%o;
ld.global.v4.u32 {{%x,%y,%z,%w}},[%p];
{body}
ret; }}
"""


def kernel(name):
    """The PTX of a kernel: ``suld_2d_v4_b32_zero``, ``suredp_1d_add_b32_trap``, ``suq_width``."""
    kind, *words = name.split("_", 4)
    if kind == "suq":
        query = name.partition("_")[2]
        body = f"suq.{query}.b32 %r0,[%s]; cvt.u64.u32 %e0,%r0; st.global.u64 [%d],%e0;"
        return HEAD.format(name=name, body=body)
    if kind == "istypep":
        body = f"istypep.{words[0]} %q,%s; selp.u64 %e0,1,0,%q; st.global.u64 [%d],%e0;"
        return HEAD.format(name=name, body=body)
    geometry, *others, mode = words
    vec, bits = ("", others[1]) if kind.startswith("sured") else others
    wide = "e" if bits.endswith("64") else "r"
    registers = [f"%{wide}{i}" for i in range(LANES[vec])]
    listed = f"{{{','.join(registers)}}}" if vec else registers[0]
    place = f"[%s, {COORDINATES[geometry]}]"
    opcode = {"suld": "suld.b", "sust": "sust.b", "sustp": "sust.p"}.get(kind, f"sured.{kind[-1]}")
    if kind.startswith("sured"):
        opcode += f".{others[0]}"
    opcode = ".".join(filter(None, (opcode, geometry, vec, bits, mode)))
    loads = "".join(f"ld.global.u{64 if wide == 'e' else 32} {x},[%d+{8 * i}]; "
                    for i, x in enumerate(registers))  # fmt: skip
    if kind != "suld":
        return HEAD.format(name=name, body=f"{loads}\n{opcode} {place}, {listed};")
    kept = "".join(
        ("" if wide == "e" else f"cvt.u64.u32 %e{i}, {x}; ") + f"st.global.u64 [%d+{8 * i}], %e{i};"
        for i, x in enumerate(registers)
    )
    return HEAD.format(name=name, body=f"{opcode} {listed}, {place};\n{kept}")


def start(job):
    """The bytes ``(depth or layers, height, bytes of a row)`` of a job's surface."""
    key = job["fmt"], job["channels"], job["geo"]
    w, h, d = SIZES[job["geo"]]
    shape = (max(d, 1), max(h, 1), w * FORMATS[job["fmt"]][1] * job["channels"])
    rng = np.random.default_rng(zlib.crc32(repr(key).encode()))
    return rng.integers(0, 256, shape, dtype=np.uint8)


# --- places ---------------------------------------------------------------------------------------


def places(geo, xs, few=False):
    """Coordinates ``int32 (n, 4)`` in the instruction's order."""
    _, h, d = SIZES[geo]
    h, d = max(1, h), max(1, d)
    ys = [-1, 0, h - 1, h] if few else [-2, -1, 0, 1, h // 2, h - 1, h, h + 1]
    zs = [-1, 0, d - 1, d] if few else [-1, 0, 1, d - 1, d]
    if geo == "1d":
        out = [(x, 0, 0, 0) for x in xs]
    elif geo == "2d":
        out = [(x, y, 0, 0) for y in ys for x in xs] + [(0, y, 0, 0) for y in FAR]
    elif geo == "3d":
        out = [(x, y, z, -1) for z in zs for y in ys[:4] for x in xs]
        out += [(0, 0, z, 0) for z in FAR]
    elif geo == "a1d":
        out = [(layer, x, 0, 0) for layer in zs for x in xs] + [(layer, 0, 0, 0) for layer in FAR]
    else:
        out = [(layer, x, y, -1) for layer in zs for y in ys[:4] for x in xs]
        out += [(layer, 0, 0, 0) for layer in FAR]
    return np.array(out, np.int64).astype(np.int32)


def one(*place):
    return np.array([place], np.int32)


class Jobs:
    """Collects jobs."""

    def __init__(self):
        self.out = []

    def add(self, kernel, fmt, channels, geo, where, data=None, single=False, what="surface"):
        self.out.append(
            {"kernel": kernel, "fmt": fmt, "channels": channels, "geo": geo, "places": where,
             "data": data, "single": single, "what": what}
        )  # fmt: skip


def jobs():
    """All jobs, in the order of the recording."""
    made, rng = Jobs(), np.random.default_rng(1)
    _plain(made, rng)
    _formatted(made, rng)
    _reductions(made, rng)
    _queries(made)
    _cubes(made, rng)
    _misaligned(made, rng)
    _traps(made)
    first = len(made.out)
    rng = np.random.default_rng(5)
    _winners(made, rng)
    _edges(made, rng)
    return made.out, first


def _plain(made, rng):
    texels = (("u8", 1), ("u16", 1), ("u8", 4), ("u32", 1), ("f32", 2), ("f32", 4))
    for fmt, ch in texels:
        texel = FORMATS[fmt][1] * ch
        W = 13 * texel
        for geo, (vec, bits), mode in itertools.product(GEOMETRIES, TYPES, ("clamp", "zero")):
            n = LANES[vec] * BYTES[bits]
            xs = sorted(
                {x for x in range(-2 * n - 2 * texel, W + 2 * n + 2 * texel + 1) if x % n == 0}
                | {x for x in FAR if x % n == 0}
            )
            if geo != "2d" and len(xs) > 24:
                xs = xs[:6] + xs[len(xs) // 2 : len(xs) // 2 + 3] + xs[-12:]
            made.add(f"suld_{geo}_{vec}_{bits}_{mode}", fmt, ch, geo, places(geo, xs))
            # stores: one place after the other
            x1 = sorted(
                {
                    x // n * n
                    for x in (
                        -n,
                        -1,
                        0,
                        n,
                        W // 2,
                        W - n,
                        W - 1,
                        W,
                        W + texel,
                        W + n,
                        FAR[0],
                        FAR[1],
                        FAR[2],
                    )
                }
            )
            if (fmt, ch) in (("u16", 1), ("f32", 2)):
                continue
            where = places(geo, x1, few=True)
            if geo in ("3d", "a2d"):
                where = where[(np.arange(len(where)) % 2 == 0) | (where[:, :2] < 0).any(1)]
            data = rng.integers(0, 2**63, (len(where), 4)).astype(np.uint64)
            made.add(f"sust_{geo}_{vec}_{bits}_{mode}", fmt, ch, geo, where, data, True)


def _formatted(made, rng):
    # formatted stores
    for fmt, ch, geo, vec, mode in itertools.product(
        FORMATS, (1, 2, 4), GEOMETRIES, LANES, ("clamp", "zero")
    ):
        xs = [-1, 0, 1, 6, 12, 13, 14, FAR[0], FAR[1]] if geo == "2d" else [0, 5, 13, -1]
        where = places(geo, xs, few=True)
        if geo != "2d":
            where = where[::3] if geo != "1d" else where
        data = rng.integers(0, 2**63, (len(where), 4)).astype(np.uint64)
        if fmt[0] == "f":
            edges = np.array(
                [
                    0,
                    0x80000000,
                    0x7F800000,
                    0xFF800000,
                    0x7FC12345,
                    0x7F812345,
                    0x477FE000,
                    0x477FF000,
                    0x477FEFFF,
                    0x33000000,
                    0x33000001,
                    0x38800000,
                    0x387FFFFF,
                    1,
                    0x3F801000,
                    0x3F803000,
                    0x3F801001,
                ],
                np.uint64,
            )
            pick = rng.integers(0, 3, data.shape)
            data = np.where(
                pick == 0,
                rng.choice(edges, data.shape),
                np.where(
                    pick == 1,
                    rng.normal(0, 1, data.shape)
                    .astype(np.float32)
                    .view(np.uint32)
                    .astype(np.uint64),
                    data & np.uint64(0xFFFFFFFF),
                ),
            )
        else:
            pick = rng.integers(0, 3, data.shape)
            data = np.where(
                pick == 0,
                rng.choice(
                    np.array(
                        [
                            0,
                            1,
                            127,
                            128,
                            255,
                            256,
                            32767,
                            32768,
                            65535,
                            65536,
                            2**31 - 1,
                            2**31,
                            2**32 - 1,
                            2**32 - 128,
                            2**32 - 129,
                        ],
                        np.uint64,
                    ),
                    data.shape,
                ),
                data & np.uint64(0xFFFFFFFF),
            )
        made.add(f"sustp_{geo}_{vec}_b32_{mode}", fmt, ch, geo, where, data, True)
    # many values of f16 and f32 through one format
    for fmt, ch, vec in (
        ("f16", 4, "v4"),
        ("u8", 4, "v4"),
        ("s8", 4, "v4"),
        ("s16", 2, "v2"),
        ("u16", 1, ""),
    ):
        where = np.array([(i % 13, i // 13, 0, 0) for i in range(91)], np.int32)
        for _ in range(8):
            data = rng.integers(0, 2**32, (91, 4)).astype(np.uint64)
            if fmt == "f16":
                data = (
                    rng.integers(0, 2**32, (91, 4)) & 0x8FFFFFFF | rng.integers(3, 5, (91, 4)) << 28
                ).astype(np.uint64)
            made.add(f"sustp_2d_{vec}_b32_clamp", fmt, ch, "2d", where, data)


def _reductions(made, rng):
    # reductions
    for geo, mode in itertools.product(("1d", "2d", "3d"), ("clamp", "zero")):
        forms = [("b", op, t) for op in ("min", "max") for t in ("u32", "s32", "u64", "s64")]
        forms += [("b", "add", t) for t in ("u32", "s32", "u64")] + [
            ("b", op, "b32") for op in ("and", "or")
        ]
        forms += [("p", op, "b32") for op in ("add", "min", "max", "and", "or")] + [
            ("p", op, "b64") for op in ("min", "max")
        ]
        for kind, op, t in forms:
            n = int(t[1:]) // 8
            kinds = (
                ("u32", 1),
                ("s32", 1),
                ("u8", 4),
                ("f32", 2),
                ("u8", 1),
                ("u16", 2),
                ("f32", 1),
                ("u32", 4),
                ("s32", 2),
            )
            for fmt, ch in kinds if geo == "2d" else kinds[:2]:
                texel = FORMATS[fmt][1] * ch
                unit, W = (1, 13) if kind == "p" else (n, 13 * texel)
                xs = sorted(
                    {x // unit * unit for x in (-unit, 0, unit, W // 2, W - unit, W, W + unit)}
                )
                where = places(geo, xs, few=True)
                if geo == "3d":
                    where = where[::4]
                data = rng.integers(0, 2**63, (len(where), 4)).astype(np.uint64) * np.uint64(
                    2
                ) + np.uint64(1)
                made.add(f"sured{kind}_{geo}_{op}_{t}_{mode}", fmt, ch, geo, where, data, True)


def _queries(made):
    # queries
    for what in ("surface", "texture"):
        for geo, (fmt, ch), q in itertools.product(
            GEOMETRIES, (("u8", 4), ("f32", 1), ("s16", 2), ("f16", 4)), QUERIES
        ):
            if what == "texture" and (geo, fmt) != ("2d", "u8"):
                continue
            made.add(f"suq_{q}", fmt, ch, geo, np.zeros((1, 4), np.int32), what=what)
    for what, kind in itertools.product(
        ("surface", "texture", "zero", "number"), ("texref", "samplerref", "surfref")
    ):
        made.add(f"istypep_{kind}", "u32", 1, "2d", np.zeros((1, 4), np.int32), what=what)


def _cubes(made, rng):
    # cube maps as layers
    for mode in ("clamp", "zero"):
        where = np.array(
            [(n, 4 * x, y, 0) for n in range(-1, 8) for x in (-1, 0, 6, 7) for y in (-1, 0, 6, 7)],
            np.int32,
        )
        made.add(f"suld_a2d__b32_{mode}", "u32", 1, "cube", where)
        data = rng.integers(0, 2**31, (len(where), 4)).astype(np.uint64)
        made.add(f"sust_a2d__b32_{mode}", "u32", 1, "cube", where, data, True)


def _misaligned(made, rng):
    # places that are not aligned
    for (fmt, ch), (vec, bits), mode in itertools.product(
        (("u8", 1), ("u8", 4), ("f32", 4)), TYPES, ("clamp", "zero")
    ):
        n, texel = LANES[vec] * BYTES[bits], FORMATS[fmt][1] * ch
        xs = [x for x in range(-20, 13 * texel + 21) if x % n]
        if xs:
            made.add(f"suld_2d_{vec}_{bits}_{mode}", fmt, ch, "2d", places("2d", xs, few=True))
    for (vec, bits), mode in itertools.product(
        (("", "b16"), ("", "b32"), ("v2", "b32"), ("v4", "b8"), ("v4", "b32")), ("clamp", "zero")
    ):
        n = LANES[vec] * BYTES[bits]
        where = np.array(
            [(x, 1, 0, 0) for x in (n - 1, n // 2, 1, 52 - n // 2, 52 - 1, -1) if x % n], np.int32
        )
        data = rng.integers(0, 2**63, (len(where), 4)).astype(np.uint64)
        made.add(f"sust_2d_{vec}_{bits}_{mode}", "u8", 4, "2d", where, data, True)
    for t, mode in itertools.product(("u32", "u64"), ("clamp", "zero")):
        where = np.array([(x, 1, 0, 0) for x in (1, 2, 3, 6, 50)], np.int32)
        made.add(
            f"suredb_2d_add_{t}_{mode}",
            "u32",
            1,
            "2d",
            where,
            rng.integers(0, 2**63, (5, 4)).astype(np.uint64),
            True,
        )


def _traps(made):
    # traps: each ends its process where it faults
    for geo, where in (
        ("1d", [(0, 0, 0, 0), (-4, 0, 0, 0), (52, 0, 0, 0), (2, 0, 0, 0)]),
        (
            "2d",
            [
                (48, 6, 0, 0),
                (-4, 0, 0, 0),
                (52, 0, 0, 0),
                (0, -1, 0, 0),
                (0, 7, 0, 0),
                (2, 0, 0, 0),
            ],
        ),
        ("3d", [(48, 6, 4, 0), (0, 0, 5, 0), (0, 0, -1, 0)]),
        ("a1d", [(4, 48, 0, 0), (5, 0, 0, 0), (-1, 0, 0, 0)]),
        ("a2d", [(4, 48, 6, 0), (5, 0, 0, 0), (0, 52, 0, 0)]),
    ):
        for place in where:
            made.add(f"suld_{geo}__b32_trap", "u32", 1, geo, np.array([place], np.int32))
            made.add(
                f"sust_{geo}__b32_trap",
                "u32",
                1,
                geo,
                np.array([place], np.int32),
                np.full((1, 4), 7, np.uint64),
                True,
            )
    for place in ((48, 6, 0, 0), (52, 0, 0, 0), (0, 7, 0, 0), (2, 0, 0, 0)):
        made.add(
            "suredb_2d_add_u32_trap",
            "u32",
            1,
            "2d",
            np.array([place], np.int32),
            np.full((1, 4), 7, np.uint64),
            True,
        )
        made.add(
            "suld_2d_v4_b32_trap", "u32", 1, "2d", np.array([(place[0] - 12, *place[1:])], np.int32)
        )


def _winners(made, rng):
    # which lane wins, of several at one place
    for kind, (vec, bits), (fmt, ch), geo in itertools.product(
        ("sust", "sustp"),
        TYPES,
        (("u8", 1), ("u8", 4), ("f32", 2), ("u32", 4)),
        ("2d", "1d", "a2d", "3d"),
    ):
        if kind == "sustp" and bits != "b32":
            continue
        if geo != "2d" and (fmt, ch) != ("u8", 4):
            continue
        n = LANES[vec] * BYTES[bits]
        unit = 1 if kind == "sustp" else n
        count = 13 if kind == "sustp" else FORMATS[fmt][1] * ch * 13 // n
        if not count:
            continue
        for spread in (1, 2, 5):
            x = rng.integers(0, min(spread, count), 32) * unit
            where = np.zeros((32, 4), np.int32)
            where[:, 1 if geo == "a2d" else 0] = x
            made.add(
                f"{kind}_{geo}_{vec}_{bits}_zero",
                fmt,
                ch,
                geo,
                where,
                (rng.integers(0, 2**63, (32, 4)).astype(np.uint64) >> np.uint64(3)),
            )


def _edges(made, rng):
    # NaN of f32 as f16; x out of range that is not aligned
    where = np.array([(i % 13, i // 13, 0, 0) for i in range(91)], np.int32)
    data = (
        rng.integers(0, 2**23, (91, 4)) >> rng.integers(0, 23, (91, 4))
        | 0x7F800000
        | rng.integers(0, 2, (91, 4)) << 31
    ).astype(np.uint64)
    made.add("sustp_2d_v4_b32_clamp", "f16", 4, "2d", where, data)
    for mode, x in itertools.product(("clamp", "zero"), (-1, -2, -3, 53, 54, 2, 51)):
        made.add(f"suld_2d__b32_{mode}", "u32", 1, "2d", np.array([(x, 1, 0, 0)], np.int32))
        made.add(
            f"sust_2d__b32_{mode}",
            "u32",
            1,
            "2d",
            np.array([(x, 1, 0, 0)], np.int32),
            np.full((1, 4), 7, np.uint64),
            True,
        )
        made.add(
            f"suredb_2d_add_u32_{mode}",
            "u32",
            1,
            "2d",
            np.array([(x, 1, 0, 0)], np.int32),
            np.full((1, 4), 7, np.uint64),
            True,
        )
    for y in (-1, 7):
        for mode in ("clamp", "zero", "trap"):
            made.add(f"suld_2d__b32_{mode}", "u32", 1, "2d", np.array([(2, y, 0, 0)], np.int32))
    for geo in GEOMETRIES:
        where = np.array(
            [(x, y, z, 0) for x in (0, 4, 48) for y in (0, 4) for z in (0, 4)], np.int32
        )
        made.add(f"suld_{geo}__b32_trap", "u32", 1, geo, where)
