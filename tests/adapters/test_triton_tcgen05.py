"""Which tcgen05.mma a ``tl.dot`` becomes on sm_100; needs neither Triton nor torch."""

import pytest

from emulator import UnsupportedError
from emulator.adapters.triton_lowering import DotCall, plan_dot
from emulator.targets import find_target

B200 = find_target("sm_100a")


@pytest.mark.parametrize(
    ("a", "b", "d", "kind", "k"),
    [
        ("f16", "f16", "f32", "f16", 16),
        ("f16", "f16", "f16", "f16", 16),
        ("bf16", "bf16", "f32", "f16", 16),
        ("f32", "f32", "f32", "tf32", 8),
        ("e4m3", "e5m2", "f32", "f8f6f4", 32),
    ],
)
@pytest.mark.parametrize(("m", "n", "shape"), [(64, 8, (64, 8)), (256, 96, (128, 32)),
                                               (192, 512, (64, 256))])  # fmt: skip
def test_dots_of_whole_tiles(a, b, d, kind, k, m, n, shape):
    found = plan_dot(DotCall(a, b, d, m, n, 64), B200).instruction
    assert str(found).startswith(f"tcgen05.mma.cta_group::1.kind::{kind} (idesc")
    types = ("tf32", "tf32") if a == "f32" else (a, b)
    assert (found.a_type, found.b_type, found.d_type) == (*types, d)
    assert (found.m, found.n, found.k) == (*shape, k)
    assert "sm_100a" in found.targets


@pytest.mark.parametrize("call", [
    DotCall("f16", "f16", "f32", 32, 64, 64), DotCall("f16", "f16", "f32", 64, 64, 64, True),
    DotCall("f16", "f16", "f32", 64, 64, 64, num_warps=16),
])  # fmt: skip
def test_other_dots_are_mma_sync(call):
    assert str(plan_dot(call, B200).instruction).startswith("mma.sync")


def test_integers_are_refused():
    with pytest.raises(UnsupportedError, match="not chosen here"):
        plan_dot(DotCall("s8", "s8", "s32", 64, 64, 64), B200)
