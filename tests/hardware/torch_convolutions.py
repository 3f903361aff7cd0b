"""Adds recorded convolutions to the table of the library.

    python tests/hardware/torch_convolutions.py RECORDED.npz

The recording is what ``torch_record.py cases`` wrote for convolutions. The names of the kernels say
in which order they sum, as trees of torch_trees.py showed; a result is in the table with that order
where its bits are those recorded, or else as one that no known order gives.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from emulator.adapters.pytorch import tensor_core_matmul
from emulator.matrices.library import convolution
from emulator.matrices.library.convolution import WHATS, Walk, Way, convolution_key
from emulator.matrices.library.recorded import Choice
from emulator.matrices.library.rules import Order
from hardware.torch_cases import digest, run

TABLE = Path(convolution.__file__).with_name("h200_convolutions.npz")
UNKNOWN = -1
_CORES, _TENSOR = Order(fma=True), Order()
#: kernels and their orders, of which the first that fits counts
_KERNELS: tuple[tuple[str, Walk, Order], ...] = (
    ("implicit_convolve_sgemm|(fprop|dgrad).*ffma", Walk(1), _CORES),
    ("fprop.*wo_smem.*tilesize128x32x16", Walk(), _TENSOR),
    ("fprop.*wo_smem", Walk(32, whole=True, interleaved=True), _TENSOR),
    (r"(fprop|dgrad).*(tilesize\d+x\d+x64|_64x\d_nhwc)", Walk(64, whole=True), _TENSOR),
    ("(fprop|dgrad)_(optimized|implicit|indexed)", Walk(32, whole=True), _TENSOR),
    ("wgrad2d_grouped_direct", Walk(), Order(shares=32, tile=1, fma=True, sums="by halves")),
    ("wgrad_alg1_engine", Walk(), _CORES),
    ("wgrad_alg0_engine", Walk(), Order(64, fma=True)),
)
#: words in the names of kernels of the output and of the gradients
_WORDS = {"output": "fprop|convolve_sgemm", "input": "dgrad", "filter": "wgrad"}
_RESULTS = dict(zip(WHATS, ("y", "dx", "dw"), strict=True))


def way_of(what: str, kernels: list[Any]) -> Way:
    """The order that the names of kernels tell; none of kernels that are not known."""
    for pattern, walk, order in _KERNELS:
        for name, _, _ in kernels:
            if re.search(_WORDS[what], name) and re.search(pattern, name):
                return Way(walk, Choice(order, "recorded", ""))
    return Way(Walk(), Choice(_TENSOR, "none", ""))


def found(row: Any) -> dict[tuple[int, ...], Way | None]:
    """For every result the way that gives its bits; None where none does."""
    keys: dict[str, tuple[int, ...]] = {}

    def choose(what: Any, *args: Any) -> Way:
        keys[what] = convolution_key(what, *args)
        return way_of(what, row["kernels"])

    with (
        patch("emulator.tools.pytorch.convolutions.choose_way", choose),
        tensor_core_matmul("H200"),
    ):
        made = run(row["case"])
    rows = {}
    for what, key in keys.items():
        name, way = _RESULTS[what], way_of(what, row["kernels"])
        right = digest(made[name]) == row["results"][name][2]
        rows[key] = way if right and way.choice.evidence != "none" else None
        print(row["case"]["dtype"], key[3:], name, rows[key] and str(way), flush=True)
    return rows


def main() -> None:
    with np.load(sys.argv[1]) as file:
        recorded = json.loads(bytes(file["meta"]))["rows"]
    with np.load(TABLE) as file:
        rows = {tuple(row[:-1]): row[-1] for row in file["rows"].tolist()}
        ways = [json.dumps(x) for x in json.loads(bytes(file["ways"]))]
    counts = Counter[bool]()
    for key, way in (pair for row in recorded for pair in found(row).items()):
        place = UNKNOWN
        if way is not None:
            text = json.dumps([list(way.walk), list(way.choice.order)])
            ways += [text] * (text not in ways)
            place = ways.index(text)
        if rows.get(key, UNKNOWN) == UNKNOWN:
            rows[key] = place
        counts[way is not None] += 1
    text = f"[{','.join(ways)}]".encode()
    table = np.array([[*key, place] for key, place in rows.items()], np.int16)
    np.savez_compressed(TABLE, rows=table, ways=np.frombuffer(text, np.uint8))
    print(f"{counts[True]} of {counts.total()} results have a known order")


if __name__ == "__main__":
    main()
