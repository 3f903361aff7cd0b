"""Twelve planted mistakes, each with a right twin, as an H200 has run them.

The recording holds the kernels (nvcc 13.0, sm_90), the output of each right twin, and whether
compute-sanitizer with all its tools has found the mistake.
"""

import json

import numpy as np
import pytest
from kernel_recordings import KERNELS, REAL, differing_bytes
from paths import GOLDEN

from emulator import KernelError, Module

pytestmark = pytest.mark.sampled(10)

HELD = np.load(GOLDEN / "h200_faults.npz")
MODULE = Module(bytes(HELD["ptx"]).decode(), target="sm_90a")
#: mistake -> kind of the finding, or of the error that ends the kernel, and the statement named
MISTAKES = {
    "cp_async_no_wait": ("read before wait", "ld.volatile.shared"),
    "divergent_barrier": ("deadlock", "bar.sync 1, 128"),
    "mbarrier_never": ("deadlock", "mbarrier.try_wait"),
    "no_proxy_fence": ("missing proxy fence", "cp.async.bulk.global.shared::cta"),
    "null_pointer": ("out of bounds", "ld.volatile.global"),
    "oob_read": ("out of bounds", "ld.global"),
    "oob_shared": ("out of bounds", "st.volatile.shared"),
    "race_atomic": ("race", "st.volatile.shared"),
    "race_raw": ("race", "ld.volatile.shared"),
    "shfl_inactive": ("shuffle", "shfl.sync.idx"),
    "uninit_shared": ("uninitialised memory", "st.global"),
    "wgmma_smem_overwrite": ("overwritten too early", "st.shared"),
}
GRIDS = {"oob_read": 8}


def run(name, kind):
    half = "wgmma" in name
    i = np.arange(512 if half else 1000)
    x = (0x3C003800 + (i % 7) * 0x40 if half else i * 37 % 1009).astype(np.int32)
    o = np.zeros_like(x)
    kernel = MODULE[f"{name}_{kind}"]
    args = [x, o, np.int32(1000)]
    report = kernel.launch(GRIDS.get(name, 1), 128, args, check=True, step_limit=3_000_000)
    return report, o


def test_every_recorded_mistake_is_here():
    assert set(json.loads(bytes(HELD["meta"]))["kernels"]) == set(MISTAKES)


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_is_found(name):
    kind, statement = MISTAKES[name]
    try:
        (found, *_) = run(name, "bad")[0].findings
        text = found.party.place.statement
    except KernelError as error:
        found, text = error, error.place.statement
    assert found.kind == kind
    assert statement in text
    assert found.source.endswith(tuple("0123456789"))
    assert found.block is not None
    assert found.threads


@pytest.mark.parametrize("name", MISTAKES)
def test_right_twin_is_clean(name):
    report, output = run(name, "ok")
    assert report.findings == []
    assert np.array_equal(output.view(np.uint8), HELD[f"{name}/out"])


#: findings in recorded kernels that are true: what they are
TRUE = {
    # Rows of Q behind the end of a sequence are never written; their sums are compared with 0, and
    # what comes of it is not stored.
    "flash_attention_2": {"uninitialised memory"}
}


@pytest.mark.parametrize("path", [*KERNELS, *REAL], ids=lambda path: path.stem)
def test_recorded_kernels_are_clean(path):
    found = []
    assert not any(differing_bytes(path, check=True, findings=found))
    assert {finding.kind for finding in found} == TRUE.get(path.stem, set())
