"""Triton for a whole process: launches as a program writes them, on a GPU that is not there."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
if triton.knobs.runtime.interpret:
    # Triton decides once for a process, when it is imported; test_triton.py needs the interpreter.
    pytest.skip("Triton interprets in this process", allow_module_level=True)

import triton.language as tl  # noqa: E402
from triton.runtime.driver import driver as config  # noqa: E402

from emulator import KernelError, OperandError, UnsupportedError  # noqa: E402
from emulator.adapters.triton import gpu, on  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*TRITON_DEFAULT_FP_FUSION"),
    pytest.mark.filterwarnings("ignore:.*fp fusion"),
]


@triton.jit
def doubled(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n) * 2, i < n)


@triton.jit
def scaled(x, out, factor, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i) * factor)


@triton.jit
def summed(pair, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(pair[0] + i) + pair[1][0])


@triton.jit
def shown(x):
    tl.device_print("held", tl.load(x))


def test_a_program_launches_as_it_would_on_a_gpu():
    x, out = torch.arange(100.0), torch.zeros(100)
    with gpu("H100") as driver:
        for _ in range(2):
            doubled[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x, out, 100, BLOCK=32)
        assert config.active is driver
        config._default = config._active = None  # as a program does that wants the GPU anew
        assert triton.runtime.driver.active is driver
        assert isinstance(driver, triton.backends.driver.DriverBase)
        assert triton.runtime.driver.active.get_current_target().arch == 90
        assert driver.get_benchmarker()(None, quantiles=(0.5, 0.2)) == [1.0, 1.0]
    assert torch.equal(out, 2 * x)
    assert driver.report.counters["blocks"] == 4


def test_the_second_launch_binds_no_module(monkeypatch):
    from emulator.adapters import triton as adapter

    made = []
    monkeypatch.setattr(adapter, "Module", lambda *a: made.append(a) or Module(*a))
    Module = __import__("emulator").Module
    x, out = torch.arange(64.0), torch.zeros(64)
    for _ in range(3):
        on("H100", doubled)[(1,)](x, out, 63, BLOCK=64)
    with gpu("H100"):
        doubled[(1,)](x, out, 63, BLOCK=64)
    assert len(made) <= 1
    on("A100", doubled)[(1,)](x, out, 63, BLOCK=64)
    assert len(made) <= 2


def test_everything_is_as_before_when_a_context_ends():
    from triton.backends import backends
    from triton.runtime.autotuner import Autotuner

    def replaced():
        return config._active, Autotuner._bench, backends["nvidia"]

    before = replaced()
    with pytest.raises(ZeroDivisionError), gpu("H100"):
        assert all(new is not old for new, old in zip(replaced(), before, strict=True))
        raise ZeroDivisionError
    assert all(new is old for new, old in zip(replaced(), before, strict=True))
    with pytest.raises(RuntimeError, match="0 active drivers"):
        config.active.get_current_target()
    config.reset_active()
    config._active = None


def test_no_blocks_and_hooks():
    x, seen = torch.zeros(8), []
    hooks = triton.knobs.runtime.launch_enter_hook, triton.knobs.runtime.launch_exit_hook
    with gpu("H100") as driver:
        for hook in hooks:
            hook.add(lambda metadata: seen.append(metadata.get()["name"]))
        try:
            doubled[(0,)](x, x, 8, BLOCK=8)
            assert driver.report is None
            doubled[(1,)](x, x, 8, BLOCK=8)
        finally:
            for hook in hooks:
                hook.remove(*hook.calls)
    assert seen == ["doubled"] * 4


@pytest.mark.parametrize(("kind", "want"), [("fp16", 0.0999755859375), ("bf16", 0.099609375)])
def test_scalars_of_16_bits(kind, want):
    """Of bf16 Triton's launcher cuts the lower half off: 0.1 rounds to 0.10009765625."""
    kernel = triton.jit(scaled.fn)
    kernel.params[2].__dict__["annotation_type"] = kind
    x, out = torch.ones(8), torch.zeros(8)
    on("H100", kernel)[(1,)](x, out, 0.1, BLOCK=8)
    assert out.tolist() == [want] * 8


def test_tuples_and_reinterpreted_tensors():
    x, out = torch.arange(8), torch.zeros(8, dtype=torch.int64)
    on("H100", summed)[(1,)]((x, (5,)), out, BLOCK=8)
    assert torch.equal(out, x + 5)
    codes = torch.tensor([0x38, 0x40], dtype=torch.int8)
    values = torch.zeros(2)
    on("H100", scaled)[(1,)](triton.reinterpret(codes, tl.float8e4nv), values, 3.0, BLOCK=2)
    assert values.tolist() == [3.0, 6.0]


class Strided:
    """A view as flag-gems makes its own: memory, and little of what tensors have."""

    def __init__(self, tensor):
        for name in ("data_ptr", "untyped_storage", "element_size", "dtype", "device", "numel"):
            setattr(self, name, getattr(tensor, name))


def test_a_view_that_is_no_tensor():
    x, out = torch.arange(8.0), torch.zeros(8)
    on("H100", doubled)[(1,)](Strided(x[4:]), Strided(out), 4, BLOCK=4)
    assert out.tolist() == [8, 10, 12, 14, 0, 0, 0, 0]


def test_a_number_is_a_grid_too():
    x, out = torch.arange(8.0), torch.zeros(8)
    on("H100", doubled)[1](x, out, 8, BLOCK=8)
    assert torch.equal(out, 2 * x)


def test_a_kernel_prints_to_the_standard_output(capsys):
    with gpu("H100"):
        shown[(1,)](torch.tensor([7]), num_warps=1)
    assert "held: 7" in capsys.readouterr().out


def test_overlapping_memory_is_one():
    whole = np.arange(8, dtype=np.float32)
    on("H100", doubled)[(1,)](whole[:6], whole[2:], 4, BLOCK=4)
    assert whole.tolist() == [0, 1, 0, 2, 4, 6, 6, 7]


# --- autotuning -----------------------------------------------------------------------------------


def tuned(blocks, function=doubled.fn):
    """A kernel that picks BLOCK among `blocks`."""
    configs = [triton.Config({"BLOCK": block}, num_warps=1) for block in blocks]
    return triton.autotune(configs, key=["n"])(triton.jit(function))


def used_block(kernel, **options):
    x, out = torch.arange(64.0), torch.zeros(64)
    on("H100", kernel, **options)[lambda meta: (64 // meta["BLOCK"],)](x, out, 64)
    assert torch.equal(out, 2 * x)
    return kernel.best_config.kwargs["BLOCK"]


@triton.jit
def bounded(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n) + BLOCK // 32, i < n)


def test_the_first_configuration_is_taken():
    assert used_block(tuned([32, 16])) == 32
    assert used_block(tuned([16, 32]), autotune="all agree") == 16
    assert used_block(tuned([16, 32]), autotune={"BLOCK": 32}) == 32


@triton.jit
def row_sums(descriptor, out, n, ROWS: tl.constexpr):
    row = tl.program_id(0) * ROWS
    tl.store(out + row + tl.arange(0, ROWS), tl.sum(descriptor.load([row, 0]), 1))


@pytest.mark.parametrize("choice", ["first", "all agree", {"ROWS": 8}])
def test_a_configuration_prepares_its_descriptors(choice):
    from triton.tools.tensor_descriptor import TensorDescriptor

    def prepare(given):
        given["descriptor"].block_shape = [given["ROWS"], 16]

    configs = [triton.Config({"ROWS": rows}, pre_hook=prepare) for rows in (16, 8)]
    kernel = triton.autotune(configs, key=["n"])(triton.jit(row_sums.fn))
    x, out = torch.arange(256.0).reshape(16, 16), torch.zeros(16)
    descriptor = TensorDescriptor(x, [16, 16], [16, 1], [1, 1])
    on("H100", kernel, autotune=choice)[lambda meta: (16 // meta["ROWS"],)](descriptor, out, 16)
    assert torch.equal(out, x.sum(1))


def test_a_configuration_that_does_not_fit_is_passed_over():
    """A thread block has at most 1,024 threads."""
    configs = [triton.Config({"BLOCK": 64}, num_warps=n) for n in (64, 2)]
    kernel = triton.autotune(configs, key=["n"])(triton.jit(doubled.fn))
    assert used_block(kernel) == 64 and kernel.best_config.num_warps == 2


def test_configurations_that_disagree_are_found():
    x, out = torch.arange(64.0), torch.zeros(64)
    with pytest.raises(UnsupportedError, match=r"do not agree.*BLOCK: 16.*BLOCK: 32"):
        kernel = tuned([16, 32], bounded.fn)
        on("H100", kernel, autotune="all agree")[(2,)](x, out, 64)
    assert not out.any()


def test_a_configuration_that_no_one_has():
    with pytest.raises(OperandError, match=r"no configuration has .*BLOCK: 16"):
        used_block(tuned([16, 32]), autotune={"BLOCK": 64})
    with pytest.raises(OperandError, match=r"all agree"):
        used_block(tuned([16, 32]), autotune="best")


def test_a_kernel_error_leaves_tensors_and_the_driver():
    x = torch.zeros(8)
    with gpu("H100"):
        with pytest.raises(KernelError, match="out of bounds"):
            doubled[(1,)](x, x, 4096, BLOCK=4096)
        doubled[(1,)](x + 1, x, 8, BLOCK=8)
    assert x.tolist() == [2.0] * 8
