"""Machine code of f32 arithmetic on rows gives what NumPy gives."""

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("llvmlite")

from emulator.tools.pytorch.device import arithmetic, native, norms
from emulator.tools.pytorch.device.reductions import Magnitudes, Squares, Sum, Welford


def rows(*shape):
    rng = np.random.default_rng(7)
    return (rng.standard_normal(shape) * 2.0 ** rng.integers(-30, 30, shape)).astype(np.float32)


@pytest.fixture
def on_numpy(monkeypatch):
    """Calls a function as where llvmlite is not installed."""

    def call(run):
        with monkeypatch.context() as patch:
            patch.setattr(native, "find_spec", lambda name: None)
            return run()

    return call


@pytest.mark.parametrize("steps", [Sum, Squares, Magnitudes, Welford, norms._Moments])
@pytest.mark.parametrize("vector", [1, 4])
@pytest.mark.parametrize(("threads", "length"), [(128, 2048), (128, 768), (32, 68), (512, 4)])
def test_turns(on_numpy, steps, vector, threads, length):
    values = rows(5, length)

    def run():
        state = steps().start((5, threads))
        native.take_turns(steps(), state, values, vector)
        return state

    made, wanted = run(), on_numpy(run)
    for x, y in zip(made, wanted, strict=True):
        assert np.array_equal(x.view(np.uint32), y.view(np.uint32))
    values[3, length // 2] = 1e18
    assert not np.array_equal(run()[0], wanted[0])


@pytest.mark.parametrize("columns", [1, 15, 16, 100])
def test_expressions_of_rows_columns_and_numbers(on_numpy, columns):
    given = rows(7, 1), rows(7, columns), rows(7, 1), rows(columns), rows(1, columns)

    def run():
        return native.on_rows(norms._FORMS[True, True], *given)

    assert np.array_equal(run().view(np.uint32), on_numpy(run).view(np.uint32))


def test_fused_products(on_numpy):
    a, b, c = rows(3, 100, 100), rows(100, 100), rows(3, 1, 100)
    c[0, 0, :50] = -(a[0, 0, :50] * b[0, :50])

    def run():
        return arithmetic.fma(a, b, c)

    assert np.array_equal(run().view(np.uint32), on_numpy(run).view(np.uint32))
    assert not np.array_equal(run(), a * b + c)
