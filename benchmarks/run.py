"""How fast, and how much memory: every line measured in this run.

    python benchmarks/run.py [--quick] [--repeat N] [SECTION ...]

- gemm: GMAC/s are 1e9 multiply-adds a second of `gemm` on N × N × N matrices (of a sparse
  instruction all of k counts), the median of some runs after one that does not count. "NumPy is"
  says how many times faster NumPy's float32 matmul of the same size is, measured just before.
- batches: `execute` on many warps or warpgroups. "gemm is" says how many times faster `gemm` does
  the same multiply-adds, measured in turns with each batch, by the clock and in CPU time; "one by
  one": than one call for each warpgroup.
- recorded: launches of the kernels in tests/golden in CPU seconds. "cold" and "warm" are the first
  launch of a process with an empty and with a filled cache; "ratio" compares later launches with
  those of engine "vector". "check" is engine "vector" with check=True.
- single, first, threads, start: latencies, the first gemm of a process, threads, and start-up.
- memory: the peak of a process of its own, beside 4 times its arrays and 200 MB.
- others: ordinary.py, with caches cold and warm, and pytorch.py, whose first lines say what they
  measure. MMA-Sim, where it is installed.

--quick measures small sizes once.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import date
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dtypes import FORMATS, Format, code_type, encode
from emulator import Instruction, Kernel, Module, Warp, execute, gemm, mma
from emulator.arith import Engine
from emulator.isa.matrix_opcodes import expand as instructions
from emulator.layout.descriptor import Descriptor
from emulator.memory.descriptors import store_tile

F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
BF16 = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
#: a matrix descriptor of wgmma
WORD = "0x4000004000010000"
S8 = "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"


ROOT = Path(__file__).parent.parent
HAS_LLVM = importlib.util.find_spec("llvmlite") is not None
#: of batches and of gemm beside them: "auto" would make its code only after some runs
ENGINE: Engine = "compiled" if HAS_LLVM else "auto"


class Line(NamedTuple):
    """One gemm of the table."""

    opcode: str
    target: str
    #: by engine: N as a share of --size
    engines: dict[str, float]
    #: what A holds: "ordinary" numbers; one in a hundred a "NaN" or an "infinity"; "overflow":
    #: numbers whose products leave the accumulator
    holds: str = "ordinary"


FULL = {"compiled": 1, "vector": 0.5, "reference": 0.03125}
QUICK = {"compiled": 1, "vector": 0.5}
COMPILED = {"compiled": 1}
MMA, MMA_SP = "mma.sync.aligned.", "mma.sp::ordered_metadata.sync.aligned."
HALF = MMA + "m16n8k16.row.col.f16.f16.f16.f16"
MXF8 = MMA + "m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0"
NVF4 = "row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"
LINES = (
    Line(F16, "sm_90a", FULL),
    Line(F16, "sm_80", QUICK),
    Line(BF16, "sm_90a", QUICK),
    Line(BF16, "sm_80", QUICK),
    Line("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "sm_90a", QUICK),
    Line(HALF, "sm_90a", QUICK),
    Line("wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3", "sm_90a", QUICK),
    Line("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_90a", QUICK),
    Line("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", "sm_90a",
         {"compiled": 1, "vector": 0.125}),
    Line("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64.rz", "sm_90a", COMPILED),
    Line(MMA_SP + "m16n8k32.row.col.f32.f16.f16.f32", "sm_90a", COMPILED),
    Line(MXF8, "sm_120a", COMPILED),
    Line(f"{MMA}m16n8k64.{NVF4}", "sm_120a", {"vector": 0.5}),
    *(Line(F16, "sm_90a", COMPILED, holds) for holds in ("NaN", "infinity")),
    Line(HALF, "sm_90a", COMPILED, "overflow"),
    Line(S8, "sm_90a", {"compiled": 1, "vector": 1}),
    Line("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32", "sm_80", {"vector": 1}),
    Line("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc", "sm_80",
         {"compiled": 1, "vector": 1}),
)  # fmt: skip


def seconds(work: Callable[[], object], repeat: int) -> list[float]:
    """Wall-clock times of `repeat` runs, after one that is not counted."""
    work()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return times


def warm(work: Callable[[], object]) -> tuple[float, float]:
    """The time of one run after others that have taken 20 ms: by the clock, and of processors."""
    until = time.perf_counter() + 0.02
    while time.perf_counter() < until:
        work()
    start, spent = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - spent


def in_turns(works: Sequence[Callable[[], object]], repeat: int) -> np.ndarray:
    """Median times ``(works, 2)``, by the clock and of processors, of works that are run in turns,
    so that a processor whose speed changes changes the times of all; warm, or the time of a short
    one would be mostly that of memory which the others have taken its caches from."""
    return np.median([[warm(work) for work in works] for _ in range(repeat)], axis=0)


def operands(
    ins: Instruction, m: int, n: int, k: int, holds: str = "ordinary"
) -> tuple[np.ndarray, np.ndarray]:
    """Codes of ordinary numbers, normally distributed floats and integers of the whole range; A of
    a sparse instruction satisfies the pattern of all of them."""
    rng = np.random.default_rng(0)
    fmt = ins.fragment("a").fmt
    a, b = random_codes(rng, fmt, (m, k)), random_codes(rng, fmt, (k, n))
    if ins.is_sparse:
        a[:, np.arange(k) % 4 >= 2] = 0
    if holds == "overflow":
        a = encode(fmt, 3000 * rng.standard_normal((m, k)))
    elif holds != "ordinary":
        a[rng.random((m, k)) < 0.01] = fmt.nan if holds == "NaN" else fmt.infinity
    return a, b


def ones(ins: Instruction, size: int) -> dict[str, np.ndarray]:
    """Scales of matrices of `size`, where the instruction has some: all of them 1."""
    if not ins.is_block_scaled:
        return {}
    fmt, count = FORMATS[ins.scale_type], size * ins.scale_chunks // ins.k
    one = encode(fmt, np.ones((size, count)))
    return {"scale_a": one, "scale_b": one.T.copy()}


def random_codes(rng: np.random.Generator, fmt: Format, shape: tuple[int, ...]) -> np.ndarray:
    if fmt.is_float:
        return encode(fmt, rng.standard_normal(shape))
    codes = rng.integers(0, fmt.code_mask, shape, np.uint64, endpoint=True)
    return codes.astype(code_type(fmt.bits))


def numpy_seconds(size: int, repeat: int) -> float:
    a = np.random.default_rng(0).standard_normal((size, size)).astype(np.float32)
    return statistics.median(seconds(lambda: a @ a, repeat))


def gemms(size: int, repeat: int) -> None:
    print(f"{'gemm':84} {'engine':10} {'N':>5} {'GMAC/s':>8} {'NumPy is':>9}")
    for line in LINES:
        ins = Instruction.parse(line.opcode)
        for engine, share in line.engines.items():
            if engine == "compiled" and not HAS_LLVM:
                continue
            n = max(16, int(size * share))
            a, b = operands(ins, n, n, n, line.holds)
            scales = ones(ins, n)

            def work(engine=engine, ins=ins, line=line, a=a, b=b, scales=scales) -> object:
                return gemm(
                    a, b, instruction=ins, target=line.target, codes=True, engine=engine, **scales
                )

            ideal = numpy_seconds(n, repeat)
            took = statistics.median(seconds(work, 1 if engine == "reference" else repeat))
            name = short(line.opcode) + (f", {line.holds}" if line.holds != "ordinary" else "")
            print(
                f"{name:76} {line.target:7} {engine:10} {n:5} {n**3 / took / 1e9:8.3f} "
                f"{took / ideal:8.1f}×",
                flush=True,
            )


def short(opcode: str) -> str:
    return opcode.replace(".sync.aligned", "").replace(".mma_async", "")


class Batch(NamedTuple):
    """One line of the batches: an instruction, and the dense one that gemm runs beside it."""

    opcode: str
    target: str
    beside: str
    count: int = 4000
    #: of wgmma: the swizzle of its tiles, and whether A lies in shared memory, too
    swizzle: int = 0
    a_in_memory: bool = False


WGMMA, WGMMA_SP = "wgmma.mma_async.sync.aligned.", "wgmma.mma_async.sp.sync.aligned."
TF32 = MMA + "m16n8k8.row.col.f32.tf32.tf32.f32"
F16_D = MMA + "m16n8k16.row.col.f16.f16.f16.f16"
F64 = MMA + "m8n8k4.row.col.f64.f64.f64.f64"
F64_DOWN = F64 + ".rm"
S4 = MMA + "m16n8k64.row.col.s32.s4.s4.s32"
B1 = MMA + "m16n8k256.row.col.s32.b1.b1.s32.and.popc"
E4M3 = MMA + "m16n8k32.row.col.f32.e4m3.e4m3.f32"
UNSCALED = MMA + "m16n8k32.row.col.kind::f8f6f4.f32.{0}.{0}.f32"
BATCHES = (
    Batch(F16, "sm_90a", F16, 20_000),
    *(Batch(x, "sm_90a", x) for x in (BF16, TF32, E4M3, S8, F16_D, F64, F64_DOWN, S4, B1)),
    Batch(UNSCALED.format("e3m2"), "sm_120a", UNSCALED.format("e3m2")),
    Batch(MXF8, "sm_120a", UNSCALED.format("e4m3")),
    Batch(f"{MMA}m16n8k64.{NVF4}", "sm_120a", UNSCALED.format("e2m1")),
    Batch(MMA_SP + "m16n8k32.row.col.f32.f16.f16.f32", "sm_90a", F16),
    Batch(MMA_SP + "m16n8k64.row.col.f32.e4m3.e4m3.f32", "sm_90a", E4M3),
    Batch(MMA_SP + "m16n8k64.row.col.s32.s8.s8.s32", "sm_90a", S8),
    Batch(MMA_SP + "m16n8k16.row.col.f32.tf32.tf32.f32", "sm_90a", TF32),
    *(
        Batch(x, "sm_90a", x, 256, swizzle, inside)
        for x in [WGMMA + "m64n128k16.f32.f16.f16"]
        for swizzle in (0, 32, 64, 128)
        for inside in (False, True)
    ),
    *(
        Batch(given, "sm_90a", WGMMA + beside, 256, 64, inside)
        for given, beside in (
            (WGMMA + "m64n128k32.f32.e4m3.e4m3", "m64n128k32.f32.e4m3.e4m3"),
            (WGMMA + "m64n128k8.f32.tf32.tf32", "m64n128k8.f32.tf32.tf32"),
            (WGMMA + "m64n128k32.s32.s8.s8", "m64n128k32.s32.s8.s8"),
            (WGMMA + "m64n128k256.s32.b1.b1.and.popc", "m64n128k256.s32.b1.b1.and.popc"),
            (WGMMA_SP + "m64n128k32.f32.f16.f16", "m64n128k16.f32.f16.f16"),
            (WGMMA_SP + "m64n128k64.f32.e4m3.e4m3", "m64n128k32.f32.e4m3.e4m3"),
            (WGMMA_SP + "m64n128k64.s32.s8.s8", "m64n128k32.s32.s8.s8"),
        )
        for inside in (False, True)
    ),
)


def batch_works(batch: Batch) -> tuple[list[Callable[[], object]], int]:
    """What runs a batch of warps with operands of their own, and if they are warpgroups, what runs
    one after the other; and its multiply-adds."""
    ins, count = Instruction.parse(batch.opcode), batch.count
    rng = np.random.default_rng(0)
    given: dict[str, object] = {}

    def codes(type_: str, shape: tuple[int, ...]) -> np.ndarray:
        return random_codes(rng, FORMATS[type_], (count, *shape))

    for name in "dab" if ins.is_wgmma else "abc":
        if (name == "b" and ins.is_wgmma) or (name == "a" and batch.a_in_memory):
            continue
        fragment = ins.fragment(name)
        given[name] = fragment.scatter(codes(fragment.fmt.name, fragment.shape))
    if ins.is_wgmma:
        shared = given["shared"] = np.zeros((count, 1 << 16), np.uint8)
        tiles = {"b": (ins.n, ins.k, ins.b_type, 0)}
        if batch.a_in_memory:
            tiles["a"] = (ins.m, ins.stored_k, ins.a_type, 1 << 15)
        for name, (rows, k, type_, start) in tiles.items():
            placed = Descriptor.for_tile(
                rows, k, type_, swizzle_bytes=batch.swizzle, start_address=start
            )
            word = int(placed.descriptor.encode())
            store_tile(shared, word, codes(type_, (rows, k)), type_)
            given[f"descriptor_{name}"] = np.full(count, word, np.uint64)
    if ins.is_sparse:
        # 0100 everywhere: the first two of four.
        given["e"] = np.full((count, ins.lanes), 0x44444444, np.uint32)
    if ins.is_block_scaled:
        one = 0x7F7F7F7F if ins.scale_type == "ue8m0" else 0x38383838
        given["scale_a"] = given["scale_b"] = np.full((count, 32), one, np.uint32)
    run = partial(execute, ins, target=batch.target, engine=ENGINE)
    works: list[Callable[[], object]] = [partial(run, **given)]
    if ins.is_wgmma:
        single = [{name: x[i] for name, x in given.items()} for i in range(count)]
        works.append(lambda: [run(**one) for one in single])
    return works, count * ins.m * ins.n * ins.k


def batches(size: int, repeat: int) -> None:
    heads = f"{'count':>6} {'GMAC/s':>8} {'gemm is':>8} {'CPU':>8}   one by one"
    print(f"{'execute on batches':92} {heads}")
    for batch in BATCHES:
        works, multiply_adds = batch_works(batch)
        ins = Instruction.parse(batch.beside)
        a, b = operands(ins, size, size, size)

        def beside(ins=ins, a=a, b=b, target=batch.target) -> object:
            return gemm(a, b, instruction=ins, target=target, codes=True, engine=ENGINE)

        ideal, *took = in_turns((beside, *works), 2 * repeat)
        where = f" {batch.swizzle}-byte swizzle" if "wgmma" in batch.opcode else ""
        name = short(batch.opcode) + where
        name += ", A in memory" if batch.a_in_memory else ""
        ratios = (" ".join(f"{x:7.1f}×" for x in y / multiply_adds * size**3 / ideal) for y in took)
        rate = multiply_adds / took[0][0] / 1e9
        print(f"{name:92} {batch.count:6} {rate:8.3f} {'   '.join(ratios)}", flush=True)


# --- recorded kernels -----------------------------------------------------------------------------


def recorded(repeat: int) -> None:
    """Kernels of tests/golden in CPU seconds: first and later launches, and those with checks."""
    sys.path += [str(ROOT / "tests" / "oracle"), str(ROOT / "tests")]
    from kernel_recordings import REAL

    print(f"{'recorded kernel, CPU s':28} {'engine':10} {'cold':>7} {'warm':>7} {'later':>7} ratio")
    for path in REAL:
        base = 0.0
        for engine in ("vector", "auto", "compiled", "check"):
            if engine == "compiled" and not HAS_LLVM:
                continue
            with tempfile.TemporaryDirectory() as folder:
                command = LAUNCHES, str(path), engine, str(repeat)
                cold, _ = in_a_process(*command, EMULATOR_CACHE_DIR=folder)
                warm, later = in_a_process(*command, EMULATOR_CACHE_DIR=folder)
            base = base or later
            print(
                f"{path.stem:28} {engine:10} {cold:7.2f} {warm:7.2f} {later:7.3f} "
                f"{later / base:5.1f}",
                flush=True,
            )


#: prints the CPU seconds of the first launch of a recorded kernel, and of a later one
LAUNCHES = """
import functools, sys, time
sys.path += ["tests/oracle", "tests"]
import kernel_recordings
from emulator import Module
spent = []
class Timed:
    def __init__(self, held): self.held = held
    def __getitem__(self, name): return Timed(self.held[name])
    def __getattr__(self, name): return getattr(self.held, name)
    def launch(self, *given, **options):
        start = time.process_time()
        report = self.held.launch(*given, **options)
        spent.append(time.process_time() - start)
        return report
kernel_recordings.Module = functools.cache(lambda text, target: Timed(Module(text, target=target)))
path, engine, count = sys.argv[1:]
options = dict(engine="vector", check=True) if engine == "check" else dict(engine=engine)
for _ in range(1 + int(count)):
    assert not any(kernel_recordings.differing_bytes(path, **options))
print(spent[0], sorted(spent[1:])[int(count) // 2])
"""


# --- single instructions, processes ---------------------------------------------------------------

#: adds one to numbers, a thread each
KERNEL = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry add_one(.param .u64 numbers)
{
    .reg .b64 %rd<4>;
    .reg .b32 %r<4>;
    .reg .f32 %f<3>;
    ld.param.u64 %rd1, [numbers];
    cvta.to.global.u64 %rd1, %rd1;
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mad.lo.u32 %r1, %r2, %r3, %r1;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.f32 %f1, [%rd3];
    add.f32 %f2, %f1, 0f3F800000;
    st.global.f32 [%rd3], %f2;
    ret;
}
"""


def single() -> None:
    """Latencies of what tests and notebooks do one at a time."""
    opcodes = [str(ins) for ins in instructions() if ins.family == "mma"]
    start = time.perf_counter()
    for opcode in opcodes:
        Instruction.parse(opcode)
    each = (time.perf_counter() - start) / len(opcodes)
    print(f"{'Instruction.parse, opcodes of mma that are new':54} {each * 1e6:8.1f} µs")
    for name, work in small_works().items():
        took = statistics.median(seconds(work, 1000 if "parse" in name else 200))
        print(f"{name:54} {took * 1e6:8.1f} µs", flush=True)


def small_works() -> dict[str, Callable[[], object]]:
    """By name: one instruction of one warp, one small matrix, one statement, one small launch."""
    rng, target, works = np.random.default_rng(0), "sm_90a", {}
    works["Instruction.parse of a known opcode"] = lambda: Instruction.parse(F16)
    for opcode, name in ((F16, "m16n8k16 f16"), (S8, "m16n8k32 s8"), (F64, "m8n8k4 f64")):
        ins = Instruction.parse(opcode)
        registers = [
            fragment.scatter(random_codes(rng, fragment.fmt, fragment.shape))
            for fragment in map(ins.fragment, "abc")
        ]
        for engine in ("compiled", "vector"):
            if engine == "vector" or HAS_LLVM:
                works[f"execute {name}, one warp, {engine}"] = partial(
                    execute, ins, *registers, target=target, engine=engine
                )
    words = rng.integers(0, 0x40000000, (2, 32), np.uint32)
    convert = Instruction.parse("cvt.rn.bf16x2.f32")
    works["execute cvt.rn.bf16x2.f32, one warp"] = partial(execute, convert, *words, target=target)
    load = Instruction.parse("ldmatrix.sync.aligned.m8n8.x4.shared.b16")
    rows, shared = np.arange(0, 512, 16, dtype=np.uint32), np.zeros(512, np.uint8)
    works["execute ldmatrix.x4, one warp"] = partial(
        execute, load, rows, shared=shared, target=target
    )
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((16, 16), (16, 8)))
    works["mma of 16 x 8 x 16"] = partial(mma, F16, a, b, target=target, engine="vector")
    works["gemm of 16 x 8 x 16"] = partial(gemm, F16, a, b, target=target, engine="vector")
    warp = Warp(target)
    warp.run(".reg .u32 %r<3>; mov.u32 %r1, %laneid;")
    works["Warp.run of one statement"] = partial(warp.run, "add.u32 %r2, %r1, 7;")
    numbers = np.zeros(32, np.float32)

    def launch(kernel: Kernel) -> object:
        return kernel.launch(grid=1, block=32, args=[numbers], engine="vector")

    kernel = Module(KERNEL)["add_one"]
    works["launch of 12 statements, 32 threads"] = partial(launch, kernel)
    works["the same from its text"] = lambda: launch(Module(KERNEL)["add_one"])
    return works


#: by name: a program that sets `arrays`, bytes, and `work`
MEMORY = {
    "gemm f16 {size}³": """
from emulator import gemm
a, b = (rng.integers(0, 0x3C00, ({size}, {size}), np.uint16).view(np.float16) for _ in "ab")
arrays = 8 * {size} ** 2
work = lambda: gemm(a, b, instruction="{opcode}", target="sm_90a")
""",
    "kernel of 2^20 threads{suffix}": """
from emulator import Module
numbers = np.zeros(1 << 20, np.float32)
arrays = numbers.nbytes
work = lambda: Module({text!r})["add_one"].launch(1 << 12, 256, [numbers], **{options})
""",
    "FlashAttention-3, causal, {tokens} tokens{suffix}": """
import sys
sys.path.append("benchmarks")
import attention
def work():
    global arrays
    found, arrays = attention.launch({tokens}, **{options})
    assert attention.error(found, range(0, {tokens}, 97)) < 1e-3
""",
}
#: by name: options of its launches, which names are followed by
LAUNCHED: dict[str, tuple[dict[str, object], ...]] = {
    "kernel of 2^20 threads{suffix}": ({}, {"check": True}),
    "FlashAttention-3, causal, {tokens} tokens{suffix}": ({"engine": "vector"}, {}),
}


def memory(size: int) -> None:
    """Peak memory (Linux) of a process of its own, beside the most that it may be: 4 times its
    arrays and 200 MB."""
    for name, text in MEMORY.items():
        for options in LAUNCHED.get(name, ({},)):
            given = {"size": size, "tokens": size // 2, "opcode": F16, "text": KERNEL}
            given |= {
                "options": options,
                "suffix": "".join(f", {k}={x}" for k, x in options.items()),
            }
            arrays, peak = in_a_process(PEAK.format(text.format(**given)))
            print(
                f"peak memory, {name.format(**given)}: {peak / 1e6:.0f} MB, arrays "
                f"{arrays / 1e6:.0f} MB, {peak / (4 * arrays + 2e8):.2f} of the most it may be",
                flush=True,
            )


PEAK = """
import re, numpy as np
rng = np.random.default_rng(0)
{}
work()
# ru_maxrss would be that of the process which started this one, if that is larger.
print(arrays, 1024 * int(re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1]))
"""


#: prints the seconds of a first gemm of an opcode on a target, of a size, and of a later one
FIRST = """
import os, sys, time
if "PROCESSORS" in os.environ:
    mine = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, mine[: int(os.environ["PROCESSORS"])])
start = time.perf_counter()
import numpy as np
from dtypes import encode
from emulator import Instruction, gemm
opcode, target, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
ins, rng = Instruction.parse(opcode), np.random.default_rng(0)
fmt = ins.fragment("a").fmt
a, b = (encode(fmt, rng.standard_normal((size, size))) for _ in "ab")
times = [time.perf_counter()]
for _ in range(6):
    gemm(a, b, instruction=ins, target=target, codes=True, engine="compiled")
    times.append(time.perf_counter())
took = [y - x for x, y in zip(times, times[1:])]
print(took[0], sorted(took[1:])[2])
"""


def in_a_process(*command: str, **environment: str) -> list[float]:
    """The numbers that a program prints."""
    out = subprocess.run(
        [sys.executable, "-c", *command], check=True, stdout=subprocess.PIPE, text=True,
        env={**os.environ, **environment}, cwd=ROOT,
    )  # fmt: skip
    return [float(x) for x in out.stdout.split()]


def first_use() -> None:
    """The first compiled gemm of a process, with no compiled code on disk, and with it."""
    f64 = "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"
    for opcode, target in ((F16, "sm_90a"), (E4M3, "sm_89"), (f64, "sm_80")):
        with tempfile.TemporaryDirectory() as folder:
            cache = {"EMULATOR_CACHE_DIR": folder}
            empty, full = (in_a_process(FIRST, opcode, target, "256", **cache)[0] for _ in "ab")
        print(
            f"first compiled gemm of a process, 256³, {short(opcode)} {target}: {empty:.2f} s with "
            f"empty caches, {full:.2f} s after that",
            flush=True,
        )


def threads(size: int) -> None:
    """f16 gemm by the number of threads, each in a process of its own."""
    cores = len(os.sched_getaffinity(0))
    for count in sorted({1, min(2, cores), cores}):
        _, took = in_a_process(FIRST, F16, "sm_90a", str(size), PROCESSORS=str(count))
        print(f"gemm f16 {size}³, threads: {count}: {size**3 / took / 1e9:.2f} GMAC/s", flush=True)


def others(repeat: int, quick: bool) -> None:
    """Kernels of CUDA C++ beside C++, with caches cold and warm, and on more processors; PyTorch's
    operators: see ordinary.py and pytorch.py."""
    here = Path(__file__).parent
    if shutil.which("g++") is None:
        print("kernels of CUDA C++: no g++ to compile the same jobs in C++")
    else:
        with tempfile.TemporaryDirectory() as folder:
            held = {**os.environ, "EMULATOR_CACHE_DIR": folder}
            command = [sys.executable, here / "ordinary.py", "--repeat", str(repeat)]
            for state in ("cold", "warm"):
                print(f"kernels of CUDA C++, cache {state}", flush=True)
                subprocess.run(command, check=True, env=held)
            if not quick:
                subprocess.run([*command, "--scaling", "--engine", ENGINE], check=True, env=held)
    version = "import torch; print(int(torch._C._has_cuda))"
    if importlib.util.find_spec("torch") is None or in_a_process(version)[0]:
        print("PyTorch's operators: torch for the CPU is not installed")
        return
    size = ["--elements", str(1 << 20)] if quick else []
    command = [sys.executable, here / "pytorch.py", "--repeat", str(repeat), *size]
    subprocess.run(command, check=True)


def start_up(repeat: int) -> None:
    """CPU seconds of processes: the wall time of such short ones is mostly that of others."""

    def took(*command: str) -> float:
        times = []
        for _ in range(repeat):
            before = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
            subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
            times.append(sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]) - before)
        return statistics.median(times)

    for name, text in (
        ("Python", "pass"),
        ("import numpy", "import numpy"),
        ("import emulator", "import emulator"),
        ("from emulator import gemm", "from emulator import Instruction, execute, gemm"),
    ):
        print(f"start: {name} {took('-c', text):.3f} s")
    for command in ("--help", f"lane {F16} a 9 2", f"info {F16}", "list", f"descriptor {WORD}"):
        name = command.split()[0]
        print(f"python -m emulator {name} … {took('-m', 'emulator', *command.split()):.3f} s")


def mma_sim(repeat: int) -> None:
    """MMA-Sim's m16n8k16, if the user has it (pip install mmasim)."""
    if importlib.util.find_spec("mmasim") is None:
        print("MMA-Sim: not installed")
        return
    import torch
    from mmasim.nv_ptx.sim import MMA

    a, b, c = torch.randn(16, 16).half(), torch.randn(16, 8).half(), torch.zeros(16, 8)
    compute = MMA("Hopper", "m16n8k16.f32.f16.f16.f32")
    took = min(seconds(lambda: compute(a, b, c), repeat))
    print(f"MMA-Sim m16n8k16 f16: {took * 1e6:.0f} µs, {2048 / took / 1e9:.6f} GMAC/s")


#: by name: what is measured; of a number of runs, and whether on small sizes alone
SECTIONS: dict[str, Callable[[int, bool], None]] = {
    "gemm": lambda repeat, quick: gemms(256 if quick else 1024, repeat),
    "batches": lambda repeat, quick: batches(256 if quick else 512, repeat),
    "recorded": lambda repeat, quick: recorded(repeat),
    "single": lambda repeat, quick: single(),
    "first": lambda repeat, quick: first_use(),
    "threads": lambda repeat, quick: threads(256 if quick else 1024),
    "memory": lambda repeat, quick: memory(1024 if quick else 8192),
    "start": lambda repeat, quick: start_up(3 if quick else 7),
    "others": others,
    "mmasim": lambda repeat, quick: mma_sim(repeat),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", help=f"all, or some of {', '.join(SECTIONS)}")
    parser.add_argument("--repeat", type=int, default=5, help="runs of each (default 5)")
    parser.add_argument("--quick", action="store_true", help="small sizes, each measured once")
    options = parser.parse_args()
    if unknown := set(options.sections) - SECTIONS.keys():
        parser.error(f"no section {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    print(
        f"{date.today()}, {platform.machine()}, {len(os.sched_getaffinity(0))} cores, Python "
        f"{platform.python_version()}, NumPy {np.__version__}"
    )
    for name in options.sections or SECTIONS:
        if HAS_LLVM or name not in ("first", "threads"):
            SECTIONS[name](1 if options.quick else options.repeat, options.quick)


if __name__ == "__main__":
    main()
