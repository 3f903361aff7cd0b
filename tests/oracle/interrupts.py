"""Exceptions at random moments of compilation: ``python interrupts.py SEED HITS``, with a folder
of its own as EMULATOR_CACHE_DIR.

Each attempt compiles anew and is stopped by an exception; the same then runs to its end, and must
give the bits of the vector engine. Half of the exceptions come from a signal, as Ctrl-C does, and
half at a line of the package or of llvmlite, which no signal would often meet. Prints how many hit.
"""

import gc
import random
import shutil
import signal
import sys
import time
from collections import Counter
from os import environ
from pathlib import Path

import numpy as np
from kernel_operands import drawn
from llvmlite import binding

import emulator
from dtypes import code_type
from emulator import Instruction, Module, execute, gemm
from emulator.arith import matmul
from emulator.arith.fast import fused_code, fused_decoding
from emulator.machine.compiled import traces
from emulator.targets import find_target
from emulator.warp import native, single

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
FORMS = [
    MMA,
    "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32",
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64",
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16",
]
KERNEL = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry go(.param .u64 data) {
  .reg .b32 %r<9>; .reg .b64 %rd<3>; .reg .f32 %f<5>; .reg .pred %p;
  ld.param.u64 %rd1, [data]; mov.u32 %r1, %tid.x; mad.wide.u32 %rd2, %r1, 4, %rd1;
  ld.global.u32 %r3, [%rd2]; mov.u32 %r2, 0; mov.b32 %f0, 0f3F800000; mov.f32 %f1, %f0;
  mov.f32 %f2, %f0; mov.f32 %f3, %f0;
  BODY
  add.f32 %f0, %f0, %f1; mov.b32 %r4, %f0; xor.b32 %r3, %r3, %r4; st.global.u32 [%rd2], %r3; ret; }
"""
LOOP = "AGAIN: STEP add.u32 %r2, %r2, 1; setp.lt.u32 %p, %r2, 5; @%p bra AGAIN;"
SUMS = "{%f0, %f1, %f2, %f3}"
PRODUCT = f"{MMA} {SUMS}, {{%r3, %r3, %r3, %r3}}, {{%r3, %r2}}, {SUMS};"
BODIES = [
    "mad.lo.u32 %r3, %r3, 1664525, %r1;",
    LOOP.replace("STEP", "mad.lo.u32 %r3, %r3, 1664525, %r1; ex2.approx.ftz.f32 %f0, %f1;"),
    LOOP.replace("STEP", PRODUCT),
]


class Stopped(Exception):
    """An exception that nobody knows."""


#: those that were launched, perhaps in vain
modules = {}


def jobs():
    """Functions of an engine that return arrays."""

    def matrix_product(engine):
        a = np.arange(64 * 64, dtype=np.float16).reshape(64, 64) % 7
        return gemm(a, a.T, instruction=MMA, target="sm_90a", engine=engine)

    def one(ins, operands):
        return lambda engine: execute(ins, target="sm_90a", engine=engine, **operands)

    def kernel(body):
        def run(engine):
            data = np.arange(64, dtype=np.uint32)
            module = modules.setdefault(body, Module(KERNEL.replace("BODY", body)))
            module["go"].launch(1, 64, [data], engine=engine)
            return data

        return run

    def product_of_matrices(opcode):
        ins = Instruction.parse(opcode)
        a = np.arange(4096).reshape(64, 64) % 40
        a, c = (a.astype(code_type(ins.fragment(name).fmt.bits)) for name in "ac")
        recipe = ins.arithmetic(find_target("sm_90a"))
        return lambda engine: matmul(recipe, a, a, c, k=ins.k, engine=engine)

    # The first takes code of Numba, too, which is compiled once in a process.
    yield from map(product_of_matrices, (FORMS[2], FORMS[0]))
    yield matrix_product
    for ins in map(Instruction.parse, FORMS):
        operands = drawn(ins, "sm_90a", np.random.default_rng(1), ["near"])
        yield one(ins, operands)
    yield from map(kernel, BODIES)


def forget(files):
    """Makes whatever runs next compile anew, or load its code where `files` stay."""
    if not files:
        shutil.rmtree(environ["EMULATOR_CACHE_DIR"], ignore_errors=True)
    modules.clear()
    for cached in (
        fused_code.tiles_function, fused_decoding.decoding_function, traces._merge,
        native.kernels._compiled, native.kernels.of_warp, native.warp_function,
        native._remembered, single._plan,
    ):  # fmt: skip
        cached.cache_clear()


def by_signal(job, error, rng, files):
    """Raises while `job` runs, at any time that it takes: of the processor, as others run too."""
    start = time.process_time()
    job("compiled")
    whole = time.process_time() - start
    forget(files)

    def stop(*_):
        raise error

    signal.signal(signal.SIGPROF, stop)
    try:
        signal.setitimer(signal.ITIMER_PROF, rng.uniform(1e-5, whole))
        job("compiled")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


FOLDERS = tuple(str(Path(x.__file__).parent) for x in (emulator, binding))


def by_line(job, error, rng, files):
    """Raises while `job` runs, before any of the lines that it executes."""
    left = [-1]

    def trace(frame, event, _):
        if event == "call" and not frame.f_code.co_filename.startswith(FOLDERS):
            return None
        left[0] -= event == "line"
        if left[0] == 0:
            raise error
        return trace

    try:
        sys.settrace(trace)
        job("compiled")
        sys.settrace(None)
        left[0] = rng.randint(1, -left[0])
        forget(files)
        sys.settrace(trace)
        job("compiled")
    finally:
        sys.settrace(None)


#: attempts for each hit that is wanted; the processor's clock is too coarse for short work
_PATIENCE = 12


def main(seed, wanted):
    """Interrupts until each way has hit so often; it misses where the work ends before."""
    rng = random.Random(seed)
    works = [(job, job("vector")) for job in jobs()]
    hits = Counter()
    sys.unraisablehook = lambda _: hits.update(["while something was freed"])
    for number in range(_PATIENCE * wanted):
        left = [how for how in (by_signal, by_line) if hits[how.__name__] < wanted]
        if not left:
            break
        how = rng.choice(left)
        job, expected = rng.choice(works)
        files = rng.random() < 0.5
        forget(files)
        error = rng.choice([KeyboardInterrupt, Stopped, MemoryError])
        try:
            how(job, error("now"), rng, files)
        except error:
            hits[how.__name__] += 1
        gc.collect()
        found = job("compiled")
        assert np.array_equal(found, expected), (seed, number)
        hits["files left"] += sum(
            len(x.stem) != 64 for x in Path(environ["EMULATOR_CACHE_DIR"]).glob("*")
        )
    print(dict(hits))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
