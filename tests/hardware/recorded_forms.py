"""The forms that were recorded on hardware: writes emulator/arith/recorded_forms.txt.

    PYTHONPATH=tests/oracle:tests python -m hardware.recorded_forms

reads tests/golden alone. A test compares the file with what this makes of the recordings.
"""

import gzip
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import surface_jobs
from paths import GOLDEN, ROOT
from scalar_recordings import forms, special_forms, updates

from emulator import Instruction
from emulator.isa.catalogue import instructions
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.targets import TARGETS
from emulator.tools.recordings import recordings
from hardware.texture_cases import BLOCK

FILE = ROOT / "emulator" / "arith" / "recorded_forms.txt"
_HEAD = """\
# The forms that were recorded on hardware or compared with it, and none of their results differed.
# Written by tests/hardware/recorded_forms.py from tests/golden: do not edit.
# [generation: source], then results and form; {8..256} stands for every multiple of 8.
"""
#: results of each published GPU and form; tests/golden keeps a part of them
_PUBLISHED = 5_000
_PUBLISHED_ON = {
    "volta": "a V100", "ampere": "an A100 and an A2", "ada": "an Ada card", "blackwell": "a B200",
}  # fmt: skip
#: arrays of the L40S are byte for byte those of the other Ada card; Hopper was compared here
_NOT_COUNTED = ("NVIDIA L40S", "NVIDIA H100", "NVIDIA H200")

Section = tuple[str, Counter[str]]


def _compared(name: str) -> list[dict]:
    result = json.loads((GOLDEN / "compared" / f"{name}.json").read_text())
    assert "H200" in result["provenance"]["gpu"]
    assert not any(row["differing"] or row.get("failed") for row in result["rows"])
    return result["rows"]


def _products() -> Iterator[Section]:
    """The result file counts by family, types and shape; all forms of each were compared."""
    of_row = defaultdict(list)
    for ins in instructions():
        if isinstance(ins, MatrixInstruction) and "sm_90a" in ins.targets:
            shape = re.sub(r"(m64n)\d+", r"\1N", ins.shape)
            form = re.sub(r"(m64n)\d+", r"\1{8..256}", str(ins))
            of_row[ins.form.family, ins.a_type, ins.d_type, shape].append(form)
    counts: dict[bool, Counter[str]] = {False: Counter(), True: Counter()}
    for row in _compared("h200"):
        forms_of_row = of_row[row["family"], row["a"], row["d"], row["shape"]]
        assert len(forms_of_row) == row["instructions"], row
        for form in set(forms_of_row if row["d"] != "s32" else ()):
            counts["wgmma" in form][form] = row["registers"] // len(set(forms_of_row))
    yield "hopper: result registers compared on an H200", counts[False]
    yield "hopper: result registers of every n compared on an H200", counts[True]


def _others() -> Iterator[Section]:
    wmma = {row["opcode"]: row["results"] for row in _compared("h200_wmma") if row["d"] != "s32"}
    cvt = {row["opcode"]: row["results"] for row in _compared("h200_cvt")}
    yield "hopper: results compared on an H200", Counter(wmma | cvt)
    moved = defaultdict(Counter)
    for variant in recordings("h200_move"):
        noun = "bytes" if variant.kind == "memory" else "registers"
        moved[noun][variant.opcode] += variant.expected.size
    for noun, counts in moved.items():
        yield f"hopper: {noun} recorded on an H200", counts


def _ordinary() -> Section:
    # Without an operand that the tensor copies mark, .oob shows nothing of its own.
    found = [(x.opcode, x.results) for x in (*forms(), *special_forms()) if ".oob" not in x.opcode]
    found += [(update.opcode, [update.new]) for update in updates()]
    counts: Counter[str] = Counter()
    for opcode, results in found:
        ins = Instruction.parse(opcode)
        # The packing conversions were compared as a whole.
        if isinstance(ins, OrdinaryInstruction) and ins.fidelity("sm_90a").level != "exact":
            counts[ins.value_form] += sum(array.size for array in results)
    return "hopper: results recorded on an H200", counts


def _fetches() -> Section:
    """What test_texture.py and test_texture_forms.py in tests/memory replay."""
    counts: Counter[str] = Counter()
    text = gzip.decompress((GOLDEN / "h200_textures.jsonl.gz").read_bytes())
    for family in map(json.loads, text.splitlines()[1:]):
        axes = sum(bool(family[axis]) for axis in "whd") - family["layered"]
        kind = "f32" if family["nread"] else {"u": "u32", "s": "s32", "f": "f32"}[family["fmt"][0]]
        given = "s32" if family["args"][-1][0] == 2 else "f32"
        counts[f"tex.{'a' * family['layered']}{axes}d.v4.{kind}.{given}"] += family["n"]
    for name in ("h200_texture_forms.jsonl.gz", "h100_texture_levels.jsonl.gz"):
        text = gzip.decompress((GOLDEN / name).read_bytes())
        for line in map(json.loads, text.splitlines()[1:]):
            if "digests" in line:
                counts[line["opcode"]] += BLOCK * len(line["digests"])
    return "hopper: fetches recorded on an H200 or an H100", counts


def _accesses() -> Section:
    """What tests/machine/test_surfaces.py replays; faults have no results."""
    counts: Counter[str] = Counter()
    text = gzip.decompress((GOLDEN / "h200_surfaces.json.gz").read_bytes())
    for job, result in zip(surface_jobs.jobs()[0], json.loads(text)["results"], strict=True):
        if isinstance(result, str) and job["kernel"].startswith("su"):
            body = surface_jobs.kernel(job["kernel"]).partition("ld.param")[2]
            (opcode,) = re.findall(r"(?<![\w.])su(?:ld|st|red|q)\.[\w.]+", body)
            counts[Instruction.parse(opcode).value_form] += len(job["places"])
    return "hopper: accesses to surfaces recorded on an H200", counts


def _published() -> Iterator[Section]:
    counts = defaultdict(Counter)
    for variant in recordings("published_dots"):
        if variant.provenance["gpu"] not in _NOT_COUNTED:
            counts[TARGETS[variant.target].generation][variant.opcode] += _PUBLISHED
    for generation, of_it in counts.items():
        gpu = _PUBLISHED_ON[generation]
        words = f"dots recorded by Khattak and Mikaitis, finite operands, on {gpu}"
        yield f"{generation}: {words}", of_it


def recorded_forms() -> str:
    """The text of the file."""
    lines = [_HEAD]
    for title, counts in (
        *_products(),
        *_others(),
        _ordinary(),
        _fetches(),
        _accesses(),
        *_published(),
    ):
        lines.append(f"\n[{title}]\n")
        lines += [f"{count} {form}\n" for form, count in sorted(counts.items())]
    return "".join(lines)


if __name__ == "__main__":
    Path(FILE).write_text(recorded_forms(), encoding="utf-8")
