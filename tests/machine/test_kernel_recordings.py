"""Kernels of nvcc, CUTLASS, FlashAttention and Triton end with the H200's bytes."""

import numpy as np
import pytest
from kernel_recordings import KERNELS, REAL, differing_bytes

pytestmark = pytest.mark.sampled(8)

ALL = [*KERNELS, *REAL]


def name_of(path):
    return path.stem


@pytest.mark.parametrize("path", ALL, ids=name_of)
def test_every_byte_is_the_h200s(path):
    assert not any(differing_bytes(path))


@pytest.mark.slow
@pytest.mark.parametrize("path", ALL, ids=name_of)
@pytest.mark.parametrize("order, seed", [("late", None), ("random", 1), ("random", 2)])
def test_asynchronous_operations_at_any_time(path, order, seed):
    assert not any(differing_bytes(path, async_order=order, seed=seed))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("path", REAL, ids=name_of)
def test_rules_that_are_traced_at_once_change_nothing(path, monkeypatch):
    monkeypatch.setattr("emulator.machine.vector.compute._OFTEN", 1)
    assert not any(differing_bytes(path, engine="vector"))


@pytest.mark.slow
def test_contraction_shows():
    (path,) = [path for path in ALL if path.stem == "flash_attention_2"]
    assert any(differing_bytes(path, contract="none"))


@pytest.mark.parametrize("key, path", [("out0", KERNELS[0]), ("after0", REAL[0])])
def test_a_changed_byte_is_noticed(key, path, tmp_path):
    held = dict(np.load(path))
    held[key] = held[key].copy()
    held[key][7] ^= 1
    np.savez(tmp_path / "changed.npz", **held)
    assert sum(differing_bytes(tmp_path / "changed.npz")) == 1


def test_a_changed_instruction_is_noticed(tmp_path):
    (path,) = [path for path in KERNELS if path.stem == "attention"]
    held = dict(np.load(path))
    text = bytes(held["ptx"]).replace(b"ex2.approx.ftz.f32", b"lg2.approx.ftz.f32")
    held["ptx"] = np.frombuffer(text, np.uint8)
    np.savez(tmp_path / "changed.npz", **held)
    assert any(differing_bytes(tmp_path / "changed.npz"))
