"""PyTorch's products under `tensor_core_matmul`: by hand, and what is told of them."""

import numpy as np
import pytest

from emulator import OperandError, Recipe, UnsupportedError, gemm

torch = pytest.importorskip("torch")
tensor_core_matmul = pytest.importorskip("emulator.adapters.pytorch").tensor_core_matmul

WGMMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.{0}.{0}"


def normal(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def bits(x):
    return x.detach().contiguous().view(torch.uint8).numpy()


@pytest.mark.parametrize(("dtype", "name"), [(torch.float16, "f16"), (torch.bfloat16, "bf16")])
def test_a_product_is_one_chain_rounded_once(dtype, name):
    a, b = normal(64, 128, dtype=dtype), normal(64, 128, dtype=dtype, seed=1).t()
    want = gemm(a, b, instruction=WGMMA.format(name), target="H200")
    with tensor_core_matmul("H200") as used:
        d, wide = a @ b, torch.mm(a, b, out_dtype=torch.float32)
    assert np.array_equal(bits(d), bits(want.to(dtype)))
    assert np.array_equal(bits(wide), bits(want))
    assert [x.operation for x in used] == ["mm", "mm"]
    assert used[0].shape == (64, 64, 128) and used[0].layout == "nt"


def test_a_wrong_bit_would_show():
    a, b = normal(64, 128, dtype=torch.float16), normal(128, 64, dtype=torch.float16, seed=1)
    with tensor_core_matmul("H200"):
        right = a @ b
        a.view(torch.int16)[0, 0] ^= 1
        assert not torch.equal(right, a @ b)


def test_what_linear_does_with_a_bias():
    x, w, bias = (normal(*s, dtype=torch.bfloat16, seed=i) for i, s in
                  enumerate([(32, 64), (48, 64), (48,)]))  # fmt: skip
    acc = gemm(x, w.t(), instruction=WGMMA.format("bf16"), target="H200")
    with tensor_core_matmul("H200") as used:
        y = torch.nn.functional.linear(x, w, bias)
    assert torch.equal(y, (acc + bias.float()).bfloat16())
    assert used[0].operation == "addmm"


def test_a_sum_may_be_wider_than_its_operands():
    a, b = normal(64, 128, dtype=torch.bfloat16), normal(128, 64, dtype=torch.bfloat16, seed=1)
    c = normal(64, 64, dtype=torch.float32, seed=2)
    acc = gemm(a, b, instruction=WGMMA.format("bf16"), target="H200")
    with tensor_core_matmul("H200") as used:
        found = torch.addmm(c, a, b, out_dtype=torch.float32)
        batch = torch.baddbmm(c[None], a[None], b[None], out_dtype=torch.float32)
    assert torch.equal(found, acc + c) and torch.equal(batch[0], found)
    assert used[0].evidence == "rule"


def test_backward_products_are_the_gpus_too():
    x, w = (normal(*s, dtype=torch.float16, seed=i) for i, s in enumerate([(32, 64), (48, 64)]))
    x.requires_grad_(), w.requires_grad_()
    g = normal(32, 48, dtype=torch.float16, seed=2)
    with tensor_core_matmul("H200") as used:
        torch.nn.functional.linear(x, w).backward(g)
    dx = gemm(g, w, instruction=WGMMA.format("f16"), target="H200").half()
    dw = gemm(g.t(), x, instruction=WGMMA.format("f16"), target="H200").half()
    assert torch.equal(x.grad, dx) and torch.equal(w.grad, dw)
    assert len(used) == 3


@pytest.fixture
def tf32():
    torch.backends.cuda.matmul.allow_tf32 = True
    yield
    torch.backends.cuda.matmul.allow_tf32 = False


def test_tf32_by_the_flag(tf32):
    a, b = normal(32, 64), normal(64, 32, seed=1)
    with tensor_core_matmul("H200") as used:
        short = a @ b
        torch.backends.cuda.matmul.allow_tf32 = False
        full = a @ b
    assert not torch.equal(full, short)
    assert [x.types for x in used] == ["tf32 f32 f32", "f32 f32 f32"]


def test_results_go_where_they_shall():
    a, b, c = (normal(8, 8, dtype=torch.float16, seed=i) for i in range(3))
    out = torch.empty(8, 8, dtype=torch.float16)
    with tensor_core_matmul("H200"):
        d = torch.mm(a, b, out=out)
        want = torch.addmm(c, a, b)
        given = c.clone()
        assert given.addmm_(a, b) is given
    assert d is out and torch.equal(out, a @ b)
    assert torch.equal(given, want)


def test_what_is_not_known_is_listed_and_strict_raises():
    x, w = normal(1, 3, 8, 8, 8), normal(4, 3, 3, 3, 3, seed=1)
    with tensor_core_matmul("H200") as used:
        y = torch.nn.functional.conv3d(x, w)
    assert torch.equal(y, torch.nn.functional.conv3d(x, w))
    assert [(p.operation, p.evidence) for p in used] == [("convolution", "none")]
    with (
        pytest.raises(UnsupportedError, match=r"strict=True: convolution .* is not known"),
        tensor_core_matmul("H200", strict=True),
    ):
        torch.nn.functional.conv3d(x, w)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("convolve", ["conv1d", "conv2d"])
def test_a_convolution_and_its_gradients(convolve, last):
    """Numbers whose sums are exact in any order, against PyTorch's own."""
    axes = int(convolve[4])
    g = torch.Generator().manual_seed(1)
    x = torch.randint(-3, 4, (2, 6, *[9] * axes), generator=g).half()
    w = torch.randint(-3, 4, (4, 3, *[3] * axes), generator=g).half()
    bias = torch.randint(-3, 4, (4,), generator=g).half()
    if last and axes == 2:
        x, w = (t.contiguous(memory_format=torch.channels_last) for t in (x, w))
    function = getattr(torch.nn.functional, convolve)

    def run():
        leaves = [t.clone().requires_grad_() for t in (x, w, bias)]
        y = function(*leaves, stride=2, padding=1, groups=2)
        y.backward(torch.ones_like(y))
        return [y, *(t.grad for t in leaves)]

    want = run()
    with tensor_core_matmul("H200") as used:
        found = run()
    assert all(torch.equal(*pair) for pair in zip(found, want, strict=True))
    assert all(one.stride() == two.stride() for one, two in zip(found[:1], want[:1], strict=True))
    assert [p.operation for p in used] == [
        "convolution", "convolution, gradient of the input", "convolution, gradient of the filter",
    ]  # fmt: skip
    assert {p.layout for p in used} == {"nhwc" if last and axes == 2 else "nchw"}


def test_the_flag_of_cudnn_chooses_tf32():
    x, w = normal(1, 8, 6, 6), normal(8, 8, 3, 3, seed=1)
    flags = torch.backends.cudnn
    found = []
    for allowed in (True, False):
        before, flags.allow_tf32 = flags.allow_tf32, allowed
        with tensor_core_matmul("H200") as used:
            found.append(torch.nn.functional.conv2d(x, w))
        flags.allow_tf32 = before
        assert used[0].types == ("tf32 tf32 f32" if allowed else "f32 f32 f32")
    assert not torch.equal(*found)


def test_nothing_is_changed_outside():
    a, b = normal(64, 128, dtype=torch.float16), normal(128, 64, dtype=torch.float16, seed=1)
    before = a @ b
    with tensor_core_matmul("H200"):
        a @ b
    assert torch.equal(a @ b, before)


def test_other_operations_run_as_ever():
    x = normal(5, 5)
    with tensor_core_matmul("A100") as used:
        y = torch.relu(x).sum() + torch.exp(x).mean()
    assert y == torch.relu(x).sum() + torch.exp(x).mean()
    assert len(used) == 0 and "none ran" in str(used)


def test_a_report_tells_alike_products_once():
    a = normal(16, 16, dtype=torch.float16)
    with tensor_core_matmul("H100") as used:
        for _ in range(3):
            a @ a
    assert "softmax and sums, are not listed: they ran on the CPU" in list(used.lines())[-1]
    assert len(list(used.lines())) == 3 and "3 × mm f16 f16 f16 16 × 16 × 16" in used.text()
    assert used.data["products"][0]["m"] == 16


def test_other_generations_are_modelled():
    a, b = normal(64, 256, dtype=torch.float16), normal(256, 64, dtype=torch.float16, seed=1)
    results = []
    for target in ("A100", "H100"):
        with tensor_core_matmul(target) as used:
            results.append(torch.mm(a, b, out_dtype=torch.float32))
        assert used[0].evidence == "modelled"
        assert ("another generation" in used[0].why) == (target == "A100")
    assert not torch.equal(*results)


@pytest.mark.parametrize("chip", ["H200", "h 200", "H100", "H20", "GH200", "H800", "sm_90a"])
def test_what_an_h200_recorded_is_recorded_for_an_h200_alone(chip):
    """A split-K size among them: its parts follow from the number of multiprocessors."""
    a, b = normal(16, 4096, dtype=torch.float16), normal(4096, 4096, dtype=torch.float16, seed=1)
    with tensor_core_matmul(chip) as used:
        a[:, :64] @ b[:64, :64], a @ b[:, :64]
    is_h200 = "200" in chip and not chip.startswith("G")
    assert used.chip == ("H200" if is_h200 else chip)
    assert {x.evidence for x in used} == {"recorded" if is_h200 else "modelled"}
    for product in used:
        assert is_h200 or ("multiprocessors" in product.why and "an H200" in product.why)


@pytest.mark.parametrize(("target", "like"), [
    ("sm_90", "H200"), ("sm_100", "B200"), ("sm_100f", "B200"), ("sm_103", "B300"),
])  # fmt: skip
def test_a_library_picks_by_the_chip(target, like):
    """wgmma and tcgen05 belong to targets with a suffix alone; fp8 has other bits by mma.sync."""
    a, b = (normal(32, 256, seed=i).to(torch.float8_e4m3fn) for i in range(2))
    found = []
    for name in (target, like):
        with tensor_core_matmul(name) as used:
            one = torch.ones(())
            found.append(torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.float32))
        assert used[0].evidence != "recorded" or name == "H200"
        assert ("wgmma" in used[0].order) == (like == "H200")
        assert ("tcgen05" in used[0].order) == (like != "H200")
    assert torch.equal(*found)


def test_tf32_needs_tensor_cores_that_have_it(tf32):
    a, b = normal(8, 64), normal(64, 8, seed=1)
    for target, types in (("T4", "f32 f32 f32"), ("A100", "tf32 f32 f32")):
        with tensor_core_matmul(target) as used:
            a @ b
        assert used[0].types == types


@pytest.mark.parametrize(("target", "differ"), [("H100", True), ("B200", False)])
def test_fp8_sums_are_promoted_where_the_library_does_it(target, differ):
    a, b = (normal(16, 512, seed=i).to(torch.float8_e4m3fn) for i in range(2))
    with tensor_core_matmul(target) as used:
        fast, slow = (
            torch._scaled_mm(a, b.t(), torch.ones(()), torch.ones(()), out_dtype=torch.float32,
                             use_fast_accum=fast)
            for fast in (True, False)
        )  # fmt: skip
    assert torch.equal(fast, slow) != differ
    assert ("tcgen05.mma" in used[0].order) == (target == "B200")


def test_a_factor_goes_into_a_fused_multiply_add():
    a, b, c = (normal(32, 32, dtype=torch.bfloat16, seed=i) for i in range(3))
    acc = gemm(a, b, instruction=WGMMA.format("bf16"), target="H200").double()
    with tensor_core_matmul("H200") as used:
        d = torch.addmm(c, a, b, alpha=0.3, beta=0.7)
    factors = [np.float32(0.3), np.float32(0.7)]
    scaled = (c.float() * factors[1].item()).double()
    # Exact in f64 but for the last bits, which no element here needs.
    assert torch.equal(d, (acc * float(factors[0]) + scaled).float().bfloat16())
    assert used[0].evidence != "recorded" and "alpha" in used[0].why


def test_types_that_no_gpu_multiplies_are_left_alone():
    a = torch.ones(4, 4, dtype=torch.complex64)
    with tensor_core_matmul("H100") as used:
        assert torch.equal(a @ a, a * 4)
    assert [(x.operation, x.evidence) for x in used] == [("mm", "none")]
    with (
        pytest.raises(UnsupportedError, match="sm_70 has no instruction"),
        tensor_core_matmul("V100"),
    ):
        torch.ones(4, 4).bfloat16() @ torch.ones(4, 4).bfloat16()


def test_a_recipe_in_the_place_of_a_target():
    torch.manual_seed(0)
    a, b = torch.randn(64, 256).half(), torch.randn(256, 64).half()
    own = Recipe.of(WGMMA.format("f16"), "H200")
    with tensor_core_matmul("H200"):
        want = torch.mm(a, b, out_dtype=torch.float32)
    with tensor_core_matmul(own):
        assert torch.equal(torch.mm(a, b, out_dtype=torch.float32), want)
    narrow = own.changed(fraction_bits=13, name="13 bits")
    with tensor_core_matmul(narrow) as used:
        found = torch.mm(a, b, out_dtype=torch.float32)
        torch._int_mm(torch.ones(32, 32, dtype=torch.int8), torch.ones(32, 32, dtype=torch.int8))
    direct = gemm(a.numpy(), b.numpy(), instruction=WGMMA.format("f16"), target=narrow)
    assert np.array_equal(found.numpy().view("u4"), direct.view("u4"))
    assert (found != want).float().mean() > 0.5
    assert [product.evidence for product in used] == ["rule", "recorded"]
    assert "13 bits in the order of an H200" in used[0].why and used.target == "13 bits"


def test_a_recipe_that_does_not_suit_a_product_is_refused():
    integers = Recipe.of("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32", "H200")
    with tensor_core_matmul(integers), pytest.raises(OperandError):
        torch.randn(16, 16).half() @ torch.randn(16, 16).half()
    other = Recipe.of(WGMMA.format("f16"), "H200").changed(a="bf16")
    with pytest.raises(OperandError, match="formats of its own"), tensor_core_matmul(other):
        pass
