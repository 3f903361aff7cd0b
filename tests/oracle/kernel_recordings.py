"""Recordings of whole kernels: what was launched, and every byte that an H200 left behind."""

import json

import numpy as np
from paths import GOLDEN

from emulator import Memory, Module, TensorMap

KERNELS = sorted((GOLDEN / "kernels").glob("*.npz"))
REAL = sorted((GOLDEN / "kernels_real").glob("*.npz"))
#: in the order of CUtensorMapDataType, CUtensorMapSwizzle and CUtensorMapFloatOOBfill
_ELEMENTS = (
    "uint8", "uint16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64",
    "bfloat16",
)  # fmt: skip
_SWIZZLES = ("none", "32B", "64B", "128B")
_FILLS = ("zeros", "nan")


def differing_bytes(path, findings=None, **options):
    """For each buffer how many bytes differ from what the H200 wrote; `findings` takes what checks
    find."""
    with np.load(path) as held:
        meta, text = json.loads(bytes(held["meta"])), bytes(held["ptx"]).decode()
        launch = _launch_real if "allocations" in meta else _launch
        kernel = Module(text, target="sm_90a")[meta["entry"]]
        report, wrong = launch(kernel, meta, held, options)
    if findings is not None:
        findings += report.findings
    return wrong


def _launch(kernel, meta, held, options):
    buffers = [held[f"in{i}"].copy() for i in range(sum(x.startswith("in") for x in held.files))]
    arguments = _arguments(meta, buffers, len(kernel.parameters))
    report = kernel.launch(
        meta["grid"], meta["block"], arguments, dynamic_shared=meta["shared"], **options
    )
    return report, [int((b != held[f"out{i}"]).sum()) for i, b in enumerate(buffers)]


def _arguments(meta, buffers, count):
    out = []
    for kind, value in meta["args"]:
        if kind == "buf":
            out.append(buffers[value])
        elif kind == "bytes":
            out.append(bytes.fromhex(value))
        elif kind == "tensormap":
            out.append(TensorMap.tiled(
                buffers[value["buf"]], dtype=_ELEMENTS[value["dt"]], dims=value["dims"],
                strides=value["strides"], box=value["box"], element_strides=value["es"],
                swizzle=_SWIZZLES[value["swizzle"]], fill=_FILLS[value["oob"]],
            ))  # fmt: skip
        elif kind != "scalar":
            out.append(getattr(np, kind)(value))
        elif value != 1 or isinstance(value, float):  # Triton has folded an integer 1 away
            out.append(value)
    if "triton" in meta:  # global scratch and profile scratch come last
        size = int(np.prod(meta["grid"])) * meta["num_ctas"] * max(1, meta["global_scratch"])
        out += [np.zeros(size + 128, np.uint8), 0][: count - len(out)]
    return out


def _launch_real(kernel, meta, held, options):
    memory, arguments, start = Memory(), [], 0
    blocks = [held[f"before{i}"].copy() for i in range(len(meta["allocations"]))]
    for allocation, block in zip(meta["allocations"], blocks, strict=True):
        memory.map(allocation["address"], block)
    for parameter in meta["params"]:
        arguments.append(bytes(held["params"])[start : start + parameter["size"]])
        start += parameter["size"]
    report = kernel.launch(
        meta["grid"], meta["block"], arguments, dynamic_shared=meta["shared"],
        cluster=meta["cluster"], memory=memory, **options,
    )  # fmt: skip
    return report, [int((b != held[f"after{i}"]).sum()) for i, b in enumerate(blocks)]
