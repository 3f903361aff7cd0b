"""Compares every packing cvt of this machine's GPU with the emulator.

    python tests/hardware/convert.py [--low-halves N] [-o RESULT.json]

f32 sources: all 65,536 upper halves, each with N lower halves (chosen ones, then random), in random
pairs. Packed sources: all 65,536 halves, in random pairs. Exit codes as of capture.py.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

_TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(x) for x in (_TESTS.parent, _TESTS, _TESTS / "oracle")]

from dtypes import Array  # noqa: E402
from emulator import execute  # noqa: E402
from emulator.isa.conversion import Conversion, split_type  # noqa: E402
from emulator.isa.conversion import expand as conversions  # noqa: E402
from hardware.capture import provenance, say, target_of  # noqa: E402
from hardware.driver import Gpu, needs_gpu  # noqa: E402
from hardware.kernels import ptx_version  # noqa: E402

#: lower halves of an f32 word at the edges of what a conversion cuts off
EDGES = (0, 1, 0x0FFF, 0x1000, 0x1001, 0x1FFF, 0x2000, 0x3000, 0x7FFF, 0x8000, 0x8001, 0xFFFF)
BLOCK = 256


def words(low_halves: int, seed: int) -> Array:
    """Inputs: every upper half with `low_halves` lower halves."""
    rng = np.random.default_rng(seed)
    upper = np.arange(1 << 16, dtype=np.uint32)[:, None] << np.uint32(16)
    lower = rng.integers(0, 1 << 16, (1 << 16, low_halves), np.uint32)
    count = min(low_halves, len(EDGES))
    lower[:, :count] = EDGES[:count]
    return (upper | lower).reshape(-1)


def inputs(ins: Conversion, low_halves: int, seed: int) -> list[Array]:
    """Source words, one array for each operand, all of one length."""
    rng = np.random.default_rng(seed)
    if split_type(ins.source)[1] == 1:
        first = words(low_halves, seed)
        return [first, *(rng.permutation(first) for _ in range(ins.sources - 1))]
    halves = np.arange(1 << 16, dtype=np.uint32)
    if ins.source not in ("f16x2", "bf16x2"):
        return [halves]
    return [np.concatenate([halves | rng.permutation(halves) << np.uint32(16) for _ in range(4)])]


def kernel(ins: Conversion, version: str, target: str) -> str:
    """PTX: one thread converts one element and stores the result as a 32-bit word."""
    wide = ins.to in ("f16x2", "bf16x2", "tf32")
    packed = split_type(ins.source)[1] > 1
    halves = packed and ins.source not in ("f16x2", "bf16x2")
    count = ins.sources
    prefix = "%h" if halves else "%w" if packed else "%f"
    pointers = "".join(
        f"ld.param.u64 %p{i}, [in{i}]; add.u64 %p{i}, %p{i}, %o; ld.global.b32 %w{i}, [%p{i}];\n"
        + {"%h": f"cvt.u16.u32 %h{i}, %w{i};\n", "%f": f"mov.b32 %f{i}, %w{i};\n"}.get(prefix, "")
        for i in range(count)
    )
    parameters = ", ".join([".param .u64 out", *(f".param .u64 in{i}" for i in range(count))])
    sources = ", ".join(f"{prefix}{i}" for i in range(count))
    return f""".version {version}
.target {target}
.address_size 64
.visible .entry convert({parameters}) {{
.reg .b64 %p<4>, %q, %o; .reg .b32 %w<4>, %r, %i, %n, %b; .reg .b16 %h<4>, %s; .reg .f32 %f<4>;
mov.u32 %i, %tid.x; mov.u32 %n, %ntid.x; mov.u32 %b, %ctaid.x;
mad.lo.u32 %i, %b, %n, %i; mul.wide.u32 %o, %i, 4;
{pointers}
ld.param.u64 %q, [out]; add.u64 %q, %q, %o;
{ins} {"%r" if wide else "%s"}, {sources};
{"" if wide else "cvt.u32.u16 %r, %s;"}
st.global.b32 [%q], %r;
ret;
}}
"""


@needs_gpu
def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--low-halves", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", dest="out", type=Path, help="where to write the result, RESULT.json")
    given = parser.parse_args(argv)
    gpu = Gpu()
    target = target_of(gpu.capability)
    about = provenance(gpu, target, given.seed) | {"source": "tests/hardware/convert.py"}
    say(", ".join(f"{key} {value}" for key, value in about.items() if key != "licence"))
    rows = []
    for ins in conversions():
        if target not in ins.targets:
            continue
        sources = inputs(ins, given.low_halves, given.seed)
        size = len(sources[0])
        text = kernel(ins, ptx_version(gpu.cuda), target)
        result = np.zeros(size, np.uint32)
        got = gpu.run(text, "convert", size // BLOCK, BLOCK, sources, result)
        want = execute(ins, *sources, target=target).astype(np.uint32)
        wrong = np.flatnonzero(got != want)
        rows.append({"opcode": str(ins), "results": size, "differing": len(wrong)})
        at = ""
        if len(wrong):
            at = f"; {' '.join(f'{x[wrong[0]]:#x}' for x in sources)} gives {got[wrong[0]]:#x}"
            at += f", the emulator says {want[wrong[0]]:#x}"
        say(f"{len(wrong)} of {size} differ: {ins}{at}")
    total = sum(row["results"] for row in rows)
    differing = sum(row["differing"] for row in rows)
    say(f"{len(rows)} conversions, {total} results, {differing} differing")
    if given.out is not None:
        lines = ",\n ".join(json.dumps(row) for row in rows)
        text = f'{{"provenance": {json.dumps(about)},\n"rows": [\n {lines}\n]}}\n'
        given.out.write_text(text, encoding="utf-8")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
