"""Records texture fetches of this machine's GPU: the families of texture_cases.py.

    python tests/hardware/texture_record.py -o OUT.jsonl.gz [--raw RAW.xz] [--seed N] [--match TEXT]

The first line says where it was recorded; each further one is a family with a digest for every
4,096 fetches, or the error that the driver gave. What `txq` and `istypep` answer follows. `--raw`
keeps results of the first fetches of each quarter, to find rules in. Exit codes as of capture.py.
"""

from __future__ import annotations

import argparse
import ctypes
import gzip
import hashlib
import io
import json
import lzma
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import byref, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path
from typing import Any

_TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(x) for x in (_TESTS.parent, _TESTS)]

import numpy as np  # noqa: E402

from hardware.driver import CudaError, Gpu, NoGpuError, needs_gpu  # noqa: E402
from hardware.texture_cases import (  # noqa: E402
    BLOCK,
    Family,
    arguments,
    coordinates,
    families,
    shape_of,
    texel_codes,
)

_FORMATS = {"uint8": 1, "uint16": 2, "uint32": 3, "int8": 8, "int16": 9, "int32": 10,
            "float16": 16, "float32": 32}  # fmt: skip
_ADDRESSES = {"wrap": 0, "clamp": 1, "mirror": 2, "border": 3}
_LAYERED, _CUBEMAP, _GATHER, _DEPTH = 1, 4, 8, 16
_AS_INTEGERS, _UNIT_COORDINATES, _SRGB, _UNOPTIMIZED, _SEAMLESS = 1, 2, 16, 32, 64
_HOST, _ARRAY = 1, 3
#: bytes of raw results, after which no more are kept
_MOST_RAW = 7_400_000


class _ArrayDescriptor(ctypes.Structure):
    _fields_ = [("width", c_size_t), ("height", c_size_t), ("depth", c_size_t), ("format", c_int),
                ("channels", c_uint), ("flags", c_uint)]  # fmt: skip


class _Side(ctypes.Structure):
    _fields_ = [("x", c_size_t), ("y", c_size_t), ("z", c_size_t), ("level", c_size_t),
                ("kind", c_int), ("host", c_void_p), ("device", c_uint64), ("array", c_void_p),
                ("reserved", c_void_p), ("pitch", c_size_t), ("height", c_size_t)]  # fmt: skip


class _Copy(ctypes.Structure):
    _fields_ = [("source", _Side), ("target", _Side), ("width", c_size_t), ("height", c_size_t),
                ("depth", c_size_t)]  # fmt: skip


class _Resource(ctypes.Structure):
    _fields_ = [("kind", c_int), ("array", c_void_p), ("reserved", c_uint64 * 15),
                ("flags", c_uint)]  # fmt: skip


class _Sampling(ctypes.Structure):
    _fields_ = [("address", c_int * 3), ("filter", c_int), ("flags", c_uint),
                ("anisotropy", c_uint), ("levels_filter", c_int), ("bias", c_float),
                ("least", c_float), ("most", c_float), ("border", c_float * 4),
                ("reserved", c_int * 12)]  # fmt: skip


class Textures(Gpu):
    """A GPU with texture objects."""

    @contextmanager
    def texture(self, family: Family, seed: int) -> Iterator[int]:
        """The handle of a family's texture."""
        self._use_context()
        array, handle = c_void_p(), c_uint64()
        free = "cuMipmappedArrayDestroy" if family.levels else "cuArrayDestroy"
        descriptor = _descriptor(family)
        if family.levels:
            self._call("cuMipmappedArrayCreate", byref(array), byref(descriptor),
                       c_uint(family.levels))  # fmt: skip
        else:
            self._call("cuArray3DCreate_v2", byref(array), byref(descriptor))
        try:
            self._fill(family, array, seed)
            resource = _Resource(kind=int(bool(family.levels)), array=array.value)
            sampling = _sampling(family)
            self._call("cuTexObjectCreate", byref(handle), byref(resource), byref(sampling), None)
            yield handle.value
            self._cuda.cuTexObjectDestroy(handle)
        finally:
            getattr(self._cuda, free)(array)

    def _fill(self, family: Family, array: c_void_p, seed: int) -> None:
        for level in range(max(1, family.levels)):
            target = c_void_p(array.value)
            if family.levels:
                self._call("cuMipmappedArrayGetLevel", byref(target), array, c_uint(level))
            codes = np.ascontiguousarray(texel_codes(family, level, seed))
            depth, height, width = shape_of(family, level)
            row = width * family.channels * codes.itemsize
            copy = _Copy(width=row, height=height, depth=depth)
            copy.source = _Side(kind=_HOST, host=codes.ctypes.data, pitch=row, height=height)
            copy.target = _Side(kind=_ARRAY, array=target.value)
            self._call("cuMemcpy3D_v2", byref(copy))

    def fetch(self, family: Family, seed: int) -> Any:
        """What the fetches of a family write: four words and the predicate of each."""
        i = np.arange(family.fetches, dtype=np.uint32)
        words = np.stack(coordinates(family, i, seed), axis=-1)
        out = np.zeros((family.fetches, 5), np.uint32)
        with self.texture(family, seed) as handle:
            return self._read(kernel(family), handle, words, out)

    def _read(self, ptx: str, handle: int, words: Any, out: Any) -> Any:
        def given(addresses: Sequence[int]) -> list[bytes]:
            return [x.to_bytes(8, "little") for x in (*addresses, handle)]

        return self.call(ptx, "fetch", max(1, len(out) // 256), 256, [words, out], given)[1]


def _descriptor(family: Family) -> _ArrayDescriptor:
    width, height, depth = family.size
    flags = _DEPTH * family.depth_flag
    if family.layered:
        flags, depth = flags | _LAYERED, family.layers
    if "cube" in family.geometry:
        flags, depth = flags | _CUBEMAP, 6 * max(1, family.layers)
    elif "tld4" in family.words and not family.layered:
        flags |= _GATHER
    return _ArrayDescriptor(width, height, depth, _FORMATS[family.format], family.channels, flags)


def _sampling(family: Family) -> _Sampling:
    integers = not family.format.startswith("float") and not family.unit_values
    flags = (
        _AS_INTEGERS * integers
        | _UNIT_COORDINATES * family.unit_coordinates
        | _SRGB * family.srgb
        | _UNOPTIMIZED * (not family.trilinear_optimized)
        | _SEAMLESS * family.seamless
    )
    least, most = family.clamp
    return _Sampling(
        (c_int * 3)(*[_ADDRESSES[family.address]] * 3), int(family.linear), flags, 0,
        int(family.linear_levels), family.bias, least, most, (c_float * 4)(*family.border),
    )  # fmt: skip


# --- kernels --------------------------------------------------------------------------------------

_FRAME = """.version 9.0
.target sm_90
.address_size 64
.visible .entry fetch(.param .u64 from, .param .u64 to, .param .u64 texture)
{{
    .reg .b64 %a, %out, %t, %offset; .reg .b32 %w<20>, %d<5>, %i, %n; .reg .b16 %h<5>;
    .reg .pred %p;
    ld.param.u64 %a, [from]; ld.param.u64 %out, [to]; ld.param.u64 %t, [texture];
    mov.u32 %i, %ctaid.x; mov.u32 %n, %tid.x; mad.lo.u32 %i, %i, 256, %n;
    mul.wide.u32 %offset, %i, {step}; add.u64 %a, %a, %offset;
    mul.wide.u32 %offset, %i, 20; add.u64 %out, %out, %offset;
    mov.u32 %d0, 0; mov.u32 %d1, 0; mov.u32 %d2, 0; mov.u32 %d3, 0; mov.u32 %d4, 0;
    mov.u32 %w19, 0;
    {loads}
    {body}
    st.global.u32 [%out], %d0; st.global.u32 [%out+4], %d1; st.global.u32 [%out+8], %d2;
    st.global.u32 [%out+12], %d3; st.global.u32 [%out+16], %d4;
    ret;
}}
"""


def frame(count: int, body: str) -> str:
    """A kernel that loads `count` words, %w0 and further, and stores %d0 to %d4."""
    loads = " ".join(f"ld.global.u32 %w{k}, [%a+{4 * k}];" for k in range(count))
    return _FRAME.format(step=4 * count, loads=loads, body=body)


def kernel(family: Family) -> str:
    """The kernel of a family."""
    count = len(arguments(family))
    words = iter(f"%w{k}" for k in range(count))

    def vector(number: int, size: int) -> str:
        return "{" + ", ".join([*(next(words) for _ in range(number)),
                                *["%w19"] * (size - number)]) + "}"  # fmt: skip

    axes, given = family.axes, family.coordinates
    size = 4 if given > 2 else given
    halves, pairs = "f16" in family.words, "f16x2" in family.words
    results = "%d0, %d1" if pairs else ", ".join(f"%{'hd'[not halves]}{k}" for k in range(4))
    where = "|%p" if family.resident else ""
    text = f"{family.opcode} {{{results}}}{where}, [%t, {vector(given, size)}]"
    padded = 4 if axes > 2 else axes
    if "level" in family.words:
        text += f", {next(words)}"
    if "grad" in family.words:
        text += f", {vector(axes, padded)}, {vector(axes, padded)}"
    if family.offsets:
        text += f", {vector(axes, padded)}"
    if family.compare:
        text += f", {next(words)}"
    text += ";"
    if halves:
        text += "".join(f" cvt.u32.u16 %d{k}, %h{k};" for k in range(4))
    if family.resident:
        text += " selp.u32 %d4, 1, 0, %p;"
    return frame(count, text)


# --- queries --------------------------------------------------------------------------------------

_QUERIES = ("width", "height", "depth", "array_size", "num_mipmap_levels", "num_samples",
            "channel_data_type", "channel_order", "normalized_coords", "filter_mode", "addr_mode_0",
            "addr_mode_1", "addr_mode_2", "force_unnormalized_coords")  # fmt: skip


def _queried() -> Iterator[Family]:
    """Textures that are asked for their properties."""
    for format_ in _FORMATS:
        yield Family(f"txq.{format_}", "tex.2d.v4.f32.f32", (16, 8, 0), format_, linear=False)
    for channels in (1, 2):
        yield Family(f"txq.channels{channels}", "tex.2d.v4.f32.f32", (16, 8, 0), channels=channels)
    yield Family("txq.unit", "tex.2d.v4.f32.f32", (16, 8, 0), "uint8", unit_values=True)
    yield Family("txq.srgb", "tex.2d.v4.f32.f32", (16, 8, 0), "uint8", unit_values=True, srgb=True)
    yield Family("txq.texels", "tex.2d.v4.f32.f32", (16, 8, 0), unit_coordinates=False)
    for geometry, size, layers in (
        ("1d", (16, 0, 0), 0), ("3d", (16, 8, 4), 0), ("a1d", (16, 0, 0), 3),
        ("a2d", (16, 8, 0), 3), ("cube", (8, 8, 0), 0), ("acube", (8, 8, 0), 2),
    ):  # fmt: skip
        for levels in (0, 3):
            yield Family(f"txq.{geometry}.{levels}", f"tex.{geometry}.v4.f32.f32", size,
                         layers=layers, levels=levels, address="clamp")  # fmt: skip
    yield Family("txq.2d.3", "tex.2d.v4.f32.f32", (16, 8, 0), levels=3, clamp=(1.0, 1.5))


def _answers(gpu: Textures, family: Family, seed: int) -> dict[str, Any]:
    out: dict[str, Any] = {}
    levels = np.array([0, 1, 2, 3, 4, 17, 0xFFFFFFFF, 100], np.uint32).repeat(32)[:, None]
    with gpu.texture(family, seed) as handle:
        asked = {q: f"txq.{q}.b32 %d0, [%t];" for q in _QUERIES}
        for q in ("width", "height", "depth"):
            asked[f"level.{q}"] = f"txq.level.{q}.b32 %d0, [%t], %w0;"
        for q in ("texref", "samplerref", "surfref"):
            asked[q] = f"istypep.{q} %p, %t; selp.u32 %d0, 1, 0, %p;"
        for q, body in asked.items():
            try:
                found = gpu._read(frame(1, body), handle, levels, np.zeros((256, 5), np.uint32))
                out[q] = found[::32, 0].tolist() if "level." in q else int(found[0, 0])
            except CudaError as error:
                out[q] = str(error)[:300]
                if error.is_fatal:
                    raise
    return out


# --- recording ------------------------------------------------------------------------------------


def digests(found: Any) -> list[str]:
    """A digest of each block of fetches ``uint32 (n, 5)``."""
    return [hashlib.blake2b(np.ascontiguousarray(found[k : k + BLOCK]).tobytes(),
                            digest_size=6).hexdigest()
            for k in range(0, len(found), BLOCK)]  # fmt: skip


def _kept(family: Family, found: Any) -> Any:
    """The first fetches of each quarter, the components that say something, one after the other."""
    quarters = found.reshape(4, -1, 5)[:, : family.raw]
    count = 5 if family.resident or "tld4" in family.words or family.compare else family.channels
    return quarters[:, :, :count].transpose(2, 0, 1)


@needs_gpu
def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--raw")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--match", default="")
    options = parser.parse_args(argv)
    gpu = Textures()
    lines: list[dict[str, Any]] = [
        {"gpu": gpu.name, "driver": gpu.driver, "cuda": gpu.cuda, "seed": options.seed}
    ]
    raw, size = {}, 0
    for family in families():
        if options.match not in family.name:
            continue
        line = family.record()
        try:
            found = gpu.fetch(family, options.seed)
        except CudaError as error:
            line["error"] = str(error)[:300]
            print(family.name, line["error"], file=sys.stderr)
            if error.is_fatal:
                lines.append(line)
                break
        else:
            line["digests"] = digests(found)
            if options.raw and size < _MOST_RAW:
                raw[family.name] = _pack(_kept(family, found))
                size += len(raw[family.name])
        lines.append(line)
    for family in _queried():
        if options.match in family.name:
            try:
                lines.append(family.record() | {"answers": _answers(gpu, family, options.seed)})
            except CudaError as error:
                lines.append(family.record() | {"error": str(error)[:300]})
    with gzip.open(options.output, "wt") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    if options.raw:
        names = {name: len(data) for name, data in raw.items()}
        head = json.dumps(names).encode()
        Path(options.raw).write_bytes(
            len(head).to_bytes(4, "little") + head + b"".join(raw.values())
        )
    return 0


def _pack(words: Any) -> bytes:
    """An array, its bytes of one weight together."""
    file = io.BytesIO()
    np.save(file, np.ascontiguousarray(np.moveaxis(words[..., None].view(np.uint8), -1, 0)))
    return lzma.compress(file.getvalue())


def unpack(path: Path) -> dict[str, Any]:
    """What `--raw` has kept: family -> ``uint32 (components, 4, fetches)``."""
    data = path.read_bytes()
    start = 4 + int.from_bytes(data[:4], "little")
    out = {}
    for name, size in json.loads(data[4:start]).items():
        planes = np.load(io.BytesIO(lzma.decompress(data[start : start + size])))
        out[name] = np.ascontiguousarray(np.moveaxis(planes, 0, -1)).view(np.uint32)[..., 0]
        start += size
    return out


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NoGpuError as error:
        print(error, file=sys.stderr)
        sys.exit(4)
