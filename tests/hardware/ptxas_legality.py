"""Asks ptxas whether `Instruction.targets` is right: one kernel per (instruction, target).

    PYTHONPATH=. python tests/hardware/ptxas_legality.py [--all | --sample N] [--targets sm_88 …]

By default one instruction of every variant of a form: accumulator types, block scales, metadata
kinds. Prints the disagreements; the exit status is their number, at most 99, or 100 without ptxas.
Every operand is loaded and every result stored, so that an accepted instruction has gone through
code generation; `--keep DIR` leaves the assembled files there, for nvdisasm.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from emulator.isa.instruction import Instruction
from emulator.isa.matrix_opcodes import expand as instructions

PTXAS = shutil.which("ptxas") or "/usr/local/cuda/bin/ptxas"
#: of PTX, that the files are written for
VERSION = (9, 0)
#: f16 accumulators are pairs in .b32 registers, as are all multiplicands but those of f64
REGISTER_TYPE = {"f32": "f32", "s32": "s32", "f64": "f64"}


def kernel(ins: Instruction, name: str) -> str:
    """PTX of a kernel that loads the operands, executes `ins` and stores the result."""
    body: list[str] = []
    offset = 0

    def load(operand: str, count: int, type_: str) -> list[str]:
        nonlocal offset
        body.append(f".reg .{type_} %{operand}<{count}>;")
        names = [f"%{operand}{i}" for i in range(count)]
        for register in names:
            body.append(f"ld.global.{type_} {register}, [%p+{offset}];")
            offset += 8
        return names

    def vector(operand: str, element: str) -> str:
        type_ = REGISTER_TYPE.get(element, "b32")
        return braces(load(operand, ins.fragment(operand).registers, type_))

    def braces(names: Iterable[str]) -> str:
        return "{" + ", ".join(names) + "}"

    d = vector("d", ins.d_type)
    if ins.is_wgmma:
        operands = [d, load("da", 1, "b64")[0], load("db", 1, "b64")[0]]
    else:
        operands = [d, vector("a", ins.a_type), vector("b", ins.b_type), vector("c", ins.c_type)]
    if ins.is_sparse:
        operands += [load("e", 1, "b32")[0], "0"]
    if ins.is_block_scaled:
        for operand in ("sa", "sb"):
            operands += [load(operand, 1, "b32")[0], "{0, 0}"]
    text = f"{ins} {', '.join(operands)}"
    if ins.is_wgmma:
        text += ", 1"  # scale-d
        if ins.d_type != "s32":
            text += ", 1, 1" + (", 0, 0" if ins.a_type in ("f16", "bf16") else "")
        body.append("wgmma.fence.sync.aligned;")
    body.append(f"{text};")
    if ins.is_wgmma:
        body += ["wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"]
    store = REGISTER_TYPE.get(ins.d_type, "b32")
    for i in range(ins.fragment("d").registers):
        body.append(f"st.global.{store} [%q+{8 * i}], %d{i};")
    start = [
        f".visible .entry {name}(.param .u64 data, .param .u64 result)",
        "{",
        ".reg .b64 %p; .reg .b64 %q; .reg .b32 %t; .reg .b64 %w;",
        "ld.param.u64 %p, [data]; ld.param.u64 %q, [result];",
        # Addresses depend on the lane: uniform operands could take another path.
        "mov.u32 %t, %tid.x; mul.wide.u32 %w, %t, 4096; add.u64 %p, %p, %w; add.u64 %q, %q, %w;",
    ]
    return "\n".join([*start, *body, "ret;", "}"])


def gpu_names() -> list[str]:
    """The targets that ptxas lists."""
    text = subprocess.run([PTXAS, "--help"], capture_output=True, text=True, check=True).stdout
    about = text[text.index("--gpu-name") :]
    return sorted(
        set(re.findall(r"'(sm_\d+[af]?)'", about)), key=lambda x: (len(x.rstrip("af")), x)
    )


def accepted(target: str, kernels: dict[str, str], folder: Path) -> set[str]:
    """Names of the kernels that ptxas assembles for `target`, once those in error are left out."""
    left = dict(kernels)
    while left:
        lines = [".version {}.{}".format(*VERSION), f".target {target}", ".address_size 64"]
        owner: list[str] = [""] * len(lines)
        for name, text in left.items():
            lines += text.split("\n")
            owner += [name] * (len(lines) - len(owner))
        source = folder / f"{target}.ptx"
        source.write_text("\n".join(lines) + "\n")
        run = subprocess.run(
            [PTXAS, "-arch", target, "-o", str(folder / f"{target}.cubin"), str(source)],
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode == 0:
            break
        wrong = {owner[int(n) - 1] for n in re.findall(r"line (\d+); error", run.stderr)} - {""}
        if not wrong:
            raise RuntimeError(
                f"ptxas for {target} failed without naming a line: {run.stderr[:500]}"
            )
        for name in wrong:
            del left[name]
    return set(left)


def variants() -> list[Instruction]:
    """One instruction of every form, accumulator types, block scale and metadata kind."""
    found: dict[object, Instruction] = {}
    for ins in instructions():
        key = (
            ins.form,
            ins.d_type,
            ins.c_type,
            ins.scale_vec,
            ins.scale_type,
            ins.ordered_metadata,
        )
        found.setdefault(key, ins)
    return list(found.values())


def disagreements(chosen: list[Instruction], targets: list[str], folder: Path) -> list[str]:
    """A line for every (instruction, target) where ptxas and the table differ."""
    kernels = {f"k{i}": kernel(ins, f"k{i}") for i, ins in enumerate(chosen)}
    out = []
    for target in targets:
        taken = accepted(target, kernels, folder)
        for i, ins in enumerate(chosen):
            by_ptxas, by_table = f"k{i}" in taken, target in ins.targets
            if by_ptxas != by_table:
                says = "takes" if by_ptxas else "refuses"
                out.append(f"{target}: ptxas {says} {ins}")
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--all", action="store_true", help="every instruction of the table")
    parser.add_argument("--sample", type=int, help="that many instructions at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--match", default="", help="only opcodes that contain this text")
    parser.add_argument("--targets", nargs="+", help="default: all that ptxas lists")
    parser.add_argument("--keep", type=Path, help="folder for the .ptx and .cubin files")
    args = parser.parse_args()
    if not Path(PTXAS).exists():
        print("no ptxas here")
        return 100
    chosen = list(instructions()) if args.all or args.sample else variants()
    chosen = [ins for ins in chosen if ins.ptx_version <= VERSION]
    if args.sample:
        chosen = random.Random(args.seed).sample(chosen, args.sample)
    chosen = [ins for ins in chosen if args.match in str(ins)]
    targets = args.targets or gpu_names()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        found = disagreements(chosen, targets, folder)
    print("\n".join(found))
    print(f"{len(chosen)} instructions on {len(targets)} targets: {len(found)} disagreements")
    return min(len(found), 99)


if __name__ == "__main__":
    raise SystemExit(main())
