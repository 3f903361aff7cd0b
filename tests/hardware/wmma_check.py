"""Compares every wmma of this machine's GPU with the emulator, from memory to memory.

    python tests/hardware/wmma_check.py [--cases N] [--match TEXT] [-o RESULT.json]
    python tests/hardware/wmma_check.py --record OUT.npz [--cases N] [--match TEXT]

A case loads A, B and C with wmma.load, multiplies, and stores D with wmma.store; what is compared
is the memory of D. Which lane holds which element is the hardware's own business. Every wmma.mma is
run with all layouts of C and D, dense and with longer strides, through .global and generic
addresses. What is recorded is dense, with random layouts: the probes of tests/oracle/probes.py, and
random cases. Exit codes as of capture.py.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from zlib import crc32

import numpy as np

_TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(x) for x in (_TESTS.parent, _TESTS, _TESTS / "oracle")]

from probes import probe_codes, probes  # noqa: E402

from dtypes import Array, pack, place  # noqa: E402
from emulator import Instruction, execute  # noqa: E402
from emulator.isa.wmma import WmmaMultiply, WmmaTransfer  # noqa: E402
from emulator.isa.wmma_opcodes import expand as wmma_instructions  # noqa: E402
from emulator.targets import find_target  # noqa: E402
from emulator.tools.recordings import Recording, save  # noqa: E402
from hardware.capture import provenance, say, target_of  # noqa: E402
from hardware.driver import CudaError, Gpu, needs_gpu  # noqa: E402
from hardware.kernels import ptx_version  # noqa: E402
from hardware.measure import Device  # noqa: E402
from hardware.operands import REGIMES, Rng, matrices  # noqa: E402

ENTRY = "run"
#: what memory holds where no element lies, and where D will lie
FILL = 0xA5
#: bytes that the matrix of a case starts at a multiple of
GRANULE = 128


@dataclass(frozen=True)
class Plan:
    """A wmma.mma with the loads and the store around it."""

    multiply: WmmaMultiply
    #: by matrix: a, b, c, d
    transfers: dict[str, WmmaTransfer]
    #: in elements; None: left out of the instruction
    strides: dict[str, int | None]

    def size(self, matrix: str) -> int:
        """Bytes of the memory of one case."""
        ins = self.transfers[matrix]
        stride = self.strides[matrix] or ins.default_stride
        return -(-stride * ins.lines * ins.fragment("r").fmt.bits // 8 // GRANULE) * GRANULE

    @property
    def name(self) -> str:
        around = (f"{x} {ins.layout} {self.strides[x]}" for x, ins in self.transfers.items())
        return f"{self.multiply} ({', '.join(around)})"


def plans(ins: WmmaMultiply) -> list[Plan]:
    """The plans of one wmma.mma: dense and strided, and all layouts of C and D."""
    types = {"a": ins.a_type, "b": ins.b_type, "c": ins.c_type, "d": ins.d_type}
    out = []
    for i, (c, d) in enumerate([("row", "row"), ("col", "col"), ("row", "col"), ("col", "row")]):
        layouts = dict(zip("abcd", (*ins.layouts, c, d), strict=True))
        space = ".global" if i % 2 else ""
        transfers, strides = {}, {}
        for x, layout in layouts.items():
            verb = "store" if x == "d" else "load"
            opcode = f"wmma.{verb}.{x}.sync.aligned.{layout}.{ins.shape}{space}.{types[x]}"
            transfer = Instruction.parse(opcode)
            assert isinstance(transfer, WmmaTransfer)
            transfers[x] = transfer
            unit = 8 * transfer.alignment // transfer.fragment("r").fmt.bits
            strides[x] = transfer.default_stride + unit * i if i else None
        out.append(Plan(ins, transfers, strides))
    return out


def dense_plan(ins: WmmaMultiply, rng: Rng) -> Plan:
    """A plan with random layouts of C and D."""
    types = {"a": ins.a_type, "b": ins.b_type, "c": ins.c_type, "d": ins.d_type}
    layouts = (*ins.layouts, *rng.choice(["row", "col"], 2))
    transfers = {}
    for (x, type_), layout in zip(types.items(), layouts, strict=True):
        verb = "store" if x == "d" else "load"
        transfer = Instruction.parse(f"wmma.{verb}.{x}.sync.aligned.{layout}.{ins.shape}.{type_}")
        assert isinstance(transfer, WmmaTransfer)
        transfers[x] = transfer
    return Plan(ins, transfers, dict.fromkeys(types))


def module(plan: Plan, target: str, version: str) -> str:
    """PTX: a block is a warp with one case; parameters are the memories of D, A, B and C."""
    body, declared = [], []
    for x in "dabc":
        fragment = plan.multiply.fragment(x)
        declared.append(f".reg .b{fragment.word_bits} {x}<{fragment.registers}>;")
        body += [
            f"ld.param.u64 at_{x}, [p_{x}];",
            f"mul.wide.u32 offset, case, {plan.size(x)};",
            f"add.u64 at_{x}, at_{x}, offset;",
        ]

    def vector(x: str) -> str:
        return "{" + ", ".join(f"{x}{i}" for i in range(plan.multiply.fragment(x).registers)) + "}"

    def stride(x: str) -> str:
        return "" if plan.strides[x] is None else f", {plan.strides[x]}"

    body += [f"{plan.transfers[x]} {vector(x)}, [at_{x}]{stride(x)};" for x in "abc"]
    body.append(f"{plan.multiply} {', '.join(map(vector, 'dabc'))};")
    body.append(f"{plan.transfers['d']} [at_d], {vector('d')}{stride('d')};")
    parameters = ", ".join(f".param .u64 p_{x}" for x in "dabc")
    lines = "\n  ".join([*declared, "mov.u32 case, %ctaid.x;", *body, "ret;"])
    return f"""\
.version {version}
.target {target}
.address_size 64
.visible .entry {ENTRY}({parameters})
.maxntid 32, 1, 1
{{
  .reg .b32 case;
  .reg .b64 offset, {", ".join(f"at_{x}" for x in "dabc")};
  {lines}
}}
"""


def memories(plan: Plan, rng: Rng, cases: int) -> tuple[dict[str, Array], list[str]]:
    """Memory ``(cases, bytes)`` of each matrix, D not yet written; and each case's regime."""
    ins = plan.multiply
    start = int(rng.integers(len(REGIMES)))
    regimes = [REGIMES[(start + i) % len(REGIMES)] for i in range(cases)]
    # `matrices` asks for what instructions of the mma family have.
    like_mma = SimpleNamespace(
        m=ins.m, n=ins.n, k=ins.k, stored_k=ins.k, is_wgmma=False, is_sparse=False,
        a_type=ins.a_type, b_type=ins.b_type, c_type=ins.c_type, fragment=ins.fragment,
    )  # fmt: skip
    out = {x: np.full((cases, plan.size(x)), FILL, np.uint8) for x in "abcd"}
    for regime in dict.fromkeys(regimes):
        where = np.flatnonzero([r == regime for r in regimes])
        drawn = matrices(like_mma, rng, regime, len(where))  # type: ignore[arg-type]
        for x, codes in zip("abc", drawn, strict=True):
            out[x][where] = written(plan, x, codes)
    return out, regimes


def probe_memories(plan: Plan, target: str) -> dict[str, Array]:
    """Memory of cases that have the probes along the diagonals of D; {} where it has none."""
    ins = plan.multiply
    types = (ins.a_type, ins.b_type, ins.c_type, ins.d_type)
    found = probes("wmma", find_target(target).generation, types, ins.k)
    if not found:
        return {}
    *drawn, _ = probe_codes(found, types, ins.k)
    size = min(ins.m, ins.n)
    cases = -(-len(drawn[0]) // size)
    case, i = np.divmod(np.arange(len(drawn[0])), size)
    matrices_ = [
        np.zeros((cases, *shape), x.dtype)
        for shape, x in zip(((ins.m, ins.k), (ins.k, ins.n), (ins.m, ins.n)), drawn, strict=True)
    ]
    matrices_[0][case, i], matrices_[1][case, :, i], matrices_[2][case, i, i] = drawn
    out = {x: written(plan, x, m) for x, m in zip("abc", matrices_, strict=True)}
    return out | {"d": np.full((cases, plan.size("d")), FILL, np.uint8)}


def written(plan: Plan, matrix: str, codes: Array) -> Array:
    """Memory ``(cases, bytes)`` in which `codes` ``(cases, rows, cols)`` lie."""
    ins = plan.transfers[matrix]
    lines = codes if ins.layout == "row" else np.swapaxes(codes, -1, -2)
    fmt = ins.fragment("r").fmt
    held = pack(lines, place(fmt), 8) if fmt.bits < 8 else np.ascontiguousarray(lines)
    held = held.astype(f"<u{max(1, fmt.bits // 8)}").view(np.uint8)
    out = np.full((len(codes), plan.size(matrix)), FILL, np.uint8)
    step = (plan.strides[matrix] or ins.default_stride) * fmt.bits // 8
    for i in range(ins.lines):
        out[:, i * step : i * step + held.shape[-1]] = held[:, i]
    return out


def in_memory(ins: WmmaTransfer, memory: Array) -> dict[str, Array]:
    """The memory that a load or store accesses, as `execute` takes it."""
    return {ins.signature()["p"].memory: memory}


def emulated(plan: Plan, memory: dict[str, Array], target: str) -> Array:
    """The memory of D as the emulator leaves it."""
    registers = []
    for x in "abc":
        held = in_memory(plan.transfers[x], memory[x])
        registers.append(
            execute(plan.transfers[x], 0, stride=plan.strides[x], target=target, **held)
        )
    d = execute(plan.multiply, *registers, target=target)
    after = memory["d"].copy()
    held = in_memory(plan.transfers["d"], after)
    execute(plan.transfers["d"], 0, d, stride=plan.strides["d"], target=target, **held)
    return after


@dataclass
class Outcome:
    """What one plan gave: elements of D, how many differ, and where the first does."""

    results: int
    differing: int = 0
    first: str = ""


def compare(plan: Plan, got: Array, want: Array, regimes: Sequence[str]) -> Outcome:
    """Memories of D ``(cases, bytes)``, from the GPU and from the emulator, gaps included."""
    fmt = plan.multiply.fragment("d").fmt
    outcome = Outcome(len(got) * plan.multiply.m * plan.multiply.n)
    ours, theirs = (x.view(f"<u{fmt.bits // 8}") for x in (want, got))
    unlike = np.argwhere(ours != theirs)
    outcome.differing = len(unlike)
    if len(unlike):
        case, at = (int(i) for i in unlike[0])
        ins = plan.transfers["d"]
        line, place_in_line = divmod(at, plan.strides["d"] or ins.default_stride)
        outcome.first = (
            f"case {case} ({regimes[case]}), {ins.layout} {line}, element {place_in_line}: GPU "
            f"{int(theirs[case, at]):#x}, emulator {int(ours[case, at]):#x}"
        )
    return outcome


def check(gpu: Device, plan: Plan, target: str, version: str, cases: int, seed: int) -> Outcome:
    """Runs `cases` cases of a plan on the GPU and compares; they depend on seed and plan alone."""
    rng = np.random.default_rng([seed, crc32(plan.name.encode())])
    memory, regimes = memories(plan, rng, cases)
    text = module(plan, target, version)
    got = gpu.run(text, ENTRY, cases, 32, [memory[x] for x in "abc"], memory["d"])
    return compare(plan, got, emulated(plan, memory, target), regimes)


def record(gpu: Device, plan: Plan, target: str, version: str, cases: int, seed: int) -> Recording:
    """The probes and `cases` random cases of a dense plan, and what the GPU made of them."""
    rng = np.random.default_rng([seed, crc32(plan.name.encode())])
    memory, _ = memories(plan, rng, cases)
    for x, more in probe_memories(plan, target).items():
        memory[x] = np.concatenate([more, memory[x]])
    text, count = module(plan, target, version), len(memory["d"])
    got = gpu.run(text, ENTRY, count, 32, [memory[x] for x in "abc"], memory["d"])
    opcodes = {x: str(transfer) for x, transfer in plan.transfers.items()}
    operands = tuple(memory[x] for x in "abcd")
    return Recording("wmma", str(plan.multiply), target, operands, opcodes, got, "wmma")


def a_few(target: str, match: str) -> list[WmmaMultiply]:
    """The wmma.mma of a target with `match` in their opcodes, one for each shape and types; their
    layouts of A and B take turns."""
    groups: dict[tuple[object, ...], list[WmmaMultiply]] = {}
    for ins in wmma_instructions():
        if isinstance(ins, WmmaMultiply) and target in ins.targets and match in str(ins):
            types = (ins.a_type, ins.c_type, ins.d_type)
            what = (ins.shape, *types, ins.satfinite, ins.rounding, ins.form.bit_operation)
            groups.setdefault(what, []).append(ins)
    return [found[i % len(found)] for i, found in enumerate(groups.values())]


@needs_gpu
def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=240, help="of each of the plans")
    parser.add_argument("--match", default="", help="only opcodes that hold this text")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", dest="out", type=Path, help="where to write the result, RESULT.json")
    parser.add_argument("--record", type=Path, help="record here, OUT.npz, and compare nothing")
    given = parser.parse_args(argv)
    gpu = Gpu()
    target = target_of(gpu.capability)
    about = provenance(gpu, target, given.seed) | {"source": "tests/hardware/wmma_check.py"}
    say(", ".join(f"{key} {value}" for key, value in about.items() if key != "licence"))
    version = ptx_version(gpu.cuda)
    if given.record is not None:
        recordings = []
        for ins in a_few(target, given.match):
            plan = dense_plan(ins, np.random.default_rng([given.seed, crc32(str(ins).encode())]))
            recordings.append(record(gpu, plan, target, version, given.cases, given.seed))
        save(given.record, about, sorted(recordings, key=lambda r: r.name))
        say(f"{len(recordings)} recordings in {given.record}")
        return 0
    rows = []
    for ins in wmma_instructions():
        if not isinstance(ins, WmmaMultiply) or target not in ins.targets:
            continue
        if given.match not in str(ins):
            continue
        row = {"opcode": str(ins), "family": "wmma", "a": ins.a_type, "c": ins.c_type,
               "d": ins.d_type, "results": 0, "differing": 0, "failed": 0}  # fmt: skip
        for plan in plans(ins):
            try:
                outcome = check(gpu, plan, target, version, given.cases, given.seed)
            except CudaError as error:
                row["failed"] += 1
                say(f"FAILED {plan.name}: {error}")
                if error.is_fatal:
                    return 1
                continue
            row["results"] += outcome.results
            row["differing"] += outcome.differing
            if outcome.differing:
                say(f"DIFFERS {plan.name}: {outcome.differing} elements; first: {outcome.first}")
        rows.append(row)
        say(f"{row['differing']} of {row['results']} differ: {ins}")
    sums = {x: sum(row[x] for row in rows) for x in ("results", "differing", "failed")}
    say(f"{len(rows)} instructions, " + ", ".join(f"{n} {x}" for x, n in sums.items()))
    if given.out is not None:
        lines = ",\n ".join(json.dumps(row) for row in rows)
        text = f'{{"provenance": {json.dumps(about)},\n"rows": [\n {lines}\n]}}\n'
        given.out.write_text(text, encoding="utf-8")
    return 1 if sums["differing"] or sums["failed"] or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
