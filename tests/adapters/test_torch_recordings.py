"""Products and layers of PyTorch on an H200, replayed on the CPU; what claims an order must have
every bit."""

import gzip
import json

import numpy as np
import pytest
from paths import ROOT

torch = pytest.importorskip("torch")

from hardware.torch_cases import codes_of, digest, run  # noqa: E402
from hardware.torch_orders import SweepBlock  # noqa: E402

from emulator.adapters.pytorch import tensor_core_matmul  # noqa: E402
from emulator.matrices.library import Order, choose_order, usual_order  # noqa: E402
from emulator.matrices.library.recorded import LAYOUTS  # noqa: E402

GOLDEN = ROOT / "tests" / "golden"
CASES, NETS = (
    json.loads(gzip.decompress((GOLDEN / f"h200_{name}.json.gz").read_bytes()))["cases"]
    for name in ("torch", "layers")
)
#: multiply-adds of a case that a test may take
LARGEST = 2e7


def is_quick(case):
    """Cases that torch itself does not have to compute for long."""
    if case["op"] == "conv":
        return np.prod(case["x"]) // case["x"][1] * np.prod(case["w"]) <= LARGEST
    return case["op"] != "attention" and np.prod(case.get("mnk", (1,))) <= LARGEST


QUICK = [row for row in CASES if is_quick(row["case"])]
SMALL = [row for row in QUICK if np.prod(row["case"].get("mnk", (1,))) <= 1e6]


def replayed(row):
    """For each result, whether it has the recorded bits; and the evidence of the products."""
    with tensor_core_matmul("H200") as used:
        results = run(row["case"])
    right = {name: digest(results[name]) == row["results"][name][2] for name in results}
    first = {
        name: codes_of(x).reshape(-1)[:8].tolist() == row["results"][name][3]
        for name, x in results.items()
    }
    assert all(first[name] for name in results if right[name])
    return right, list(used)


#: what an operation is called that makes a result of a convolution
GRADIENTS = {"dx": "gradient of the input", "dw": "gradient of the filter"}


def check(row):
    """Results whose order is claimed have the recorded bits; how many there are."""
    right, used = replayed(row)
    if row["case"]["op"] == "conv":
        names = {name: GRADIENTS.get(name, "convolution") for name in right}
        known = {
            name for name, words in names.items() for x in used
            if x.operation.endswith(words) and x.evidence == "recorded"
        }  # fmt: skip
    else:
        known = set(right) if used and all(x.evidence != "none" for x in used) else set()
    assert all(right[name] for name in known), row["case"]
    return len(known)


@pytest.mark.parametrize("row", SMALL[::50], ids=lambda row: row["case"]["op"])
def test_some_recorded_cases(row):
    check(row)


def test_scales_of_rows_are_multiplied_one_after_the_other():
    """The product of both scales would be other bits."""
    (row,) = [
        row for row in CASES if row["case"].get("scales") == "rows"
        and row["case"]["mnk"] == [256, 64, 4096] and row["case"]["fast"]
    ]  # fmt: skip
    assert all(replayed(row)[0].values())


@pytest.mark.slow
@pytest.mark.parametrize("category", sorted({row["case"]["category"] for row in QUICK}))
def test_recorded_cases(category):
    for row in [row for row in QUICK if row["case"]["category"] == category][::6]:
        check(row)


def test_some_convolutions_of_nets():
    assert sum(map(check, NETS[::7])) == 12


@pytest.mark.slow
def test_convolutions_of_nets():
    """Every kernel whose order is known."""
    assert sum(map(check, NETS)) == 72


def test_another_stride_is_noticed():
    row = json.loads(json.dumps(NETS[8]))
    assert all(replayed(row)[0].values())
    row["case"]["options"] = {"stride": 3}
    assert not any(replayed(row)[0].values())


def test_a_planted_error_is_found():
    row = next(row for row in QUICK if row["case"]["op"] == "mm" and row["case"]["dtype"] == "bf16")
    row = json.loads(json.dumps(row))
    assert all(replayed(row)[0].values())
    row["case"]["mnk"][2] += 8
    assert not any(replayed(row)[0].values())


with np.load(GOLDEN / "h200_torch.npz") as file:
    SWEEPS = {
        kind: [file[f"{kind}/{name}"] for name in ("layout", "shape", "first")]
        for kind in sorted({name.partition("/")[0] for name in file.files})
    }


def sizes(kind, count):
    """(layout, batch, m, n, k, digest of the first block of D) of a sweep."""
    layouts, shapes, first = SWEEPS[kind]
    for i in range(0, len(first), max(1, len(first) // count)):
        yield layouts[i].decode(), *map(int, shapes[i]), int(first[i])


def wrong_sizes(kind, count, order_of):
    """Sizes whose order gives other bits than were recorded."""
    block, wrong = SweepBlock(kind), []
    for layout, *shape, want in sizes(kind, count):
        order = order_of(layout, *shape)
        if order is not None and block.digest(shape, order) & 0xFFFFFFFF != want:
            wrong.append((layout, *shape))
    return wrong


def recorded_order(kind):
    def order_of(layout, batch, m, n, k):
        choice = choose_order(kind, layout, batch, m, n, k)
        return choice.order if choice.evidence == "recorded" else None

    return order_of


@pytest.mark.parametrize("kind", ["bf16.f32", "linear f16", "e4m3"])
def test_some_orders_of_the_table(kind):
    assert wrong_sizes(kind, 6, recorded_order(kind)) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", SWEEPS)
def test_orders_of_the_table(kind):
    assert wrong_sizes(kind, 80, recorded_order(kind)) == []


def test_a_wrong_order_is_found():
    assert wrong_sizes("bf16.f32", 8, lambda *size: Order(part=16))


def test_layouts_are_told_apart():
    assert len({choose_order("tf32", x, 0, 64, 64, 4096).order for x in LAYOUTS[:3]}) >= 1
    assert choose_order("tf32", "tt", 0, 64, 64, 4096).evidence == "none"


def test_what_is_said_where_nothing_was_recorded():
    nothing = choose_order("no such sweep", "nt", 0, 64, 64, 64, usual_order("addmm", "f16"))
    assert nothing.evidence == "none" and nothing.order.addend == "rounded"
    far = choose_order("bf16", "nt", 0, 5, 100_000, 3)
    assert far.evidence == "none"
    assert choose_order("s8", "nt", 0, 5, 7, 9).evidence == "recorded"


def test_between_recorded_sizes():
    choice = choose_order("bf16", "nt", 0, 72, 136, 200)
    assert choice.evidence == "rule" and "8 recorded sizes" in choice.why
    # Rows that are not aligned take other kernels.
    assert choose_order("bf16", "nt", 0, 71, 135, 201).evidence == "none"
