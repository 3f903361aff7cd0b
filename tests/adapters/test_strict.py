"""`tensor_core_matmul(strict=True)` refuses every product whose bits on a GPU are not known."""

import re
import warnings

import pytest

from emulator import UnsupportedError

torch = pytest.importorskip("torch")
tensor_core_matmul = pytest.importorskip("emulator.adapters.pytorch").tensor_core_matmul

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from emulator.tools.pytorch.composites import is_composite  # noqa: E402
from emulator.tools.pytorch.mode import COMPUTED  # noqa: E402
from emulator.tools.pytorch.unknown import COMPOSITES, UNKNOWN, unknown_kind  # noqa: E402

torch.manual_seed(0)
X = torch.randn(4, 8, 8)
A, B = torch.randn(8, 8), torch.randn(8, 8)
# PyTorch itself reads beyond the rows of narrower int8 weights on some processors.
WIDE = torch.randn(32, 64).bfloat16()
POSITIVE = A @ A.t() + 8 * torch.eye(8)
HALF = A.half()
COMPLEX = torch.complex(A, B)
IMAGE, VOLUME = torch.randn(1, 3, 8, 8), torch.randn(1, 3, 8, 8, 8)
Q = torch.randn(1, 2, 8, 8)
ENCODER = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
LINEAR = nn.Sequential(nn.Linear(8, 8))


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    QUANTISED = torch.ao.quantization.quantize_dynamic(LINEAR, {nn.Linear}, torch.qint8)
    CSR, CSC, COO = A.to_sparse_csr(), A.to_sparse_csc(), A.to_sparse()


@torch.library.custom_op("emulator_tests::own_product", mutates_args=())
def own_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b


def layer(make, *args):
    made = make().eval()
    return lambda: made(*args)


#: what a person might run that multiplies, and that no table of orders has
ATTACKS = {
    "encoder layer": lambda: ENCODER.eval()(X),
    "encoder": layer(lambda: nn.TransformerEncoder(ENCODER, 2, enable_nested_tensor=False), X),
    "encoder in training": lambda: ENCODER.train()(X),
    "decoder": layer(lambda: nn.TransformerDecoderLayer(8, 2, 16), X, X),
    "transformer": layer(lambda: nn.Transformer(8, 2, 1, 1, 16, batch_first=True), X, X),
    "attention layer": layer(lambda: nn.MultiheadAttention(8, 2, batch_first=True), X, X, X),
    "sdpa": lambda: functional.scaled_dot_product_attention(Q, Q, Q),
    "causal sdpa": lambda: functional.scaled_dot_product_attention(Q, Q, Q, is_causal=True),
    "sdpa with dropout": lambda: functional.scaled_dot_product_attention(Q, Q, Q, dropout_p=0.5),
    "sdpa with a mask": lambda: functional.scaled_dot_product_attention(Q, Q, Q, torch.ones(8, 8)),
    "half sdpa": lambda: functional.scaled_dot_product_attention(*[Q.half()] * 3),
    "lstm": layer(lambda: nn.LSTM(8, 8), X),
    "half lstm": layer(lambda: nn.LSTM(8, 8).half(), X.half()),
    "bidirectional lstm": layer(lambda: nn.LSTM(8, 8, 2, bidirectional=True), X),
    "double lstm": layer(lambda: nn.LSTM(8, 8).double(), X.double()),
    "lstm with projection": layer(lambda: nn.LSTM(8, 8, proj_size=4), X),
    "packed lstm": lambda: nn.LSTM(8, 8)(nn.utils.rnn.pack_sequence([X[0], X[1, :4]])),
    "gru": layer(lambda: nn.GRU(8, 8), X),
    "half gru": layer(lambda: nn.GRU(8, 8).half(), X.half()),
    "rnn tanh": layer(lambda: nn.RNN(8, 8), X),
    "rnn relu": layer(lambda: nn.RNN(8, 8, nonlinearity="relu"), X),
    "complex mm": lambda: COMPLEX @ COMPLEX,
    "complex bmm": lambda: torch.bmm(COMPLEX[None], COMPLEX[None]),
    "complex mv": lambda: COMPLEX @ COMPLEX[0],
    "complex dot": lambda: torch.dot(COMPLEX[0], COMPLEX[1]),
    "vdot": lambda: torch.vdot(A[0], A[1]),
    "integer mm": lambda: A.long() @ A.long(),
    "int32 mm": lambda: A.int() @ A.int(),
    "int8 mm": lambda: A.to(torch.int8) @ A.to(torch.int8),
    "sparse mm": lambda: torch.sparse.mm(COO, A),
    "sparse sparse": lambda: torch.sparse.mm(COO, COO),
    "sparse addmm": lambda: torch.sparse.addmm(A, COO, B),
    "coo matmul": lambda: COO @ A,
    "csr matmul": lambda: CSR @ A,
    "dense csr": lambda: A @ CSR,
    "csr mv": lambda: CSR @ A[0],
    "csr csr": lambda: CSR @ CSR,
    "csc matmul": lambda: CSC @ A,
    "sampled addmm": lambda: torch.sparse.sampled_addmm(CSR, A, B),
    "sparse reduce": lambda: torch.sparse.mm(CSR, A, reduce="amax"),
    "smm": lambda: torch.smm(COO, A),
    "hspmm": lambda: torch.hspmm(COO, A),
    "sspaddmm": lambda: torch.sspaddmm(COO, COO, A),
    "quantised linear": lambda: QUANTISED(A),
    "int8 weights": lambda: torch.ops.aten._weight_int8pack_mm(
        WIDE, WIDE.to(torch.int8), WIDE[:, 0].contiguous()
    ),
    "conv3d": lambda: functional.conv3d(VOLUME, torch.randn(4, 3, 3, 3, 3)),
    "transposed conv": lambda: functional.conv_transpose2d(IMAGE, torch.randn(3, 4, 3, 3)),
    "complex conv": lambda: functional.conv2d(IMAGE.cfloat(), torch.randn(4, 3, 3, 3).cfloat()),
    "conv_tbc": lambda: torch.conv_tbc(X, torch.randn(3, 8, 4), torch.zeros(4)),
    "integer conv": lambda: functional.conv2d(IMAGE.long(), torch.ones(4, 3, 3, 3).long()),
    "bilinear": lambda: functional.bilinear(A, B, torch.randn(4, 8, 8)),
    "addbmm": lambda: torch.addbmm(A, X, X),
    "cdist": lambda: torch.cdist(torch.randn(64, 8), torch.randn(64, 8)),
    "small cdist": lambda: torch.cdist(A, B),
    "matrix_exp": lambda: torch.matrix_exp(A),
    "inverse": lambda: torch.inverse(POSITIVE),
    "det": lambda: torch.det(A),
    "slogdet": lambda: torch.slogdet(A),
    "solve": lambda: torch.linalg.solve(POSITIVE, B),
    "lstsq": lambda: torch.linalg.lstsq(A, B),
    "cholesky": lambda: torch.linalg.cholesky(POSITIVE),
    "cholesky_solve": lambda: torch.cholesky_solve(A, torch.eye(8)),
    "qr": lambda: torch.linalg.qr(A),
    "svd": lambda: torch.linalg.svd(A),
    "pca": lambda: torch.pca_lowrank(A, 2),
    "eigh": lambda: torch.linalg.eigh(POSITIVE),
    "eig": lambda: torch.linalg.eig(A),
    "lu": lambda: torch.linalg.lu_factor(A),
    "pinv": lambda: torch.linalg.pinv(A),
    "triangular": lambda: torch.linalg.solve_triangular(POSITIVE.triu(), B, upper=True),
    "householder": lambda: torch.linalg.householder_product(A, A[0]),
    "matrix rank": lambda: torch.linalg.matrix_rank(A),
    "nuclear norm": lambda: torch.linalg.norm(A, "nuc"),
    "fft": lambda: torch.fft.fft(A),
    "rfft": lambda: torch.fft.rfft2(A),
    "nested mm": lambda: torch.bmm(*[torch.nested.nested_tensor([A, B])] * 2),
    "nested matmul": lambda: torch.matmul(*[torch.nested.nested_tensor([A, B])] * 2),
    "operator of another": lambda: own_product(A, B),
    "vmap of inverses": lambda: torch.func.vmap(torch.linalg.inv)(X),
    "out": lambda: torch.mm(COMPLEX, COMPLEX, out=torch.empty_like(COMPLEX)),
    "in place": lambda: COMPLEX.clone().addmm_(COMPLEX, COMPLEX),
    "integer einsum": lambda: torch.einsum("ij,jk", A.long(), A.long()),
    "complex power": lambda: torch.linalg.matrix_power(COMPLEX, 3),
    "activation": lambda: torch._addmm_activation(A[0], A, B),
    "grouped mm": lambda: functional.grouped_mm(X.bfloat16(), X.bfloat16()),
    "mkldnn linear": lambda: functional.linear(A.to_mkldnn(), B.to_mkldnn()),
    "onednn linear": lambda: torch.ops.mkldnn._linear_pointwise(A, B, None, "none", [], ""),
}  # fmt: skip


def quietly(attack):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return attack()


def is_refused(attack):
    try:
        with tensor_core_matmul("H200", strict=True):
            quietly(attack)
    except UnsupportedError as error:
        return "strict=True" in str(error)
    return False


@pytest.mark.parametrize("grad", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_strict_refuses_what_no_table_has(grad):
    with grad():
        passed = [name for name, attack in ATTACKS.items() if not is_refused(attack)]
    assert len(ATTACKS) >= 60 and not passed


#: what PyTorch has no kernel for on a CPU, inside the mode or outside
IMPOSSIBLE = ("integer conv",)


@pytest.mark.slow
def test_without_strict_all_of_them_run_and_are_listed():
    for name, attack in ATTACKS.items():
        if name not in IMPOSSIBLE:
            with tensor_core_matmul("H200") as used:
                quietly(attack)
            assert used.evidence.get("none"), name


#: operators whose names look like products, and that multiply no matrices: parts of names
_NO_PRODUCTS = re.compile(
    "quantize|quantized_(batch|max)|affine_quant|per_channel_|per_tensor_|sqrt|relu|glu|elu_|silu"
    "|gamma|pack|exp|cumm|logaddexp|upsample|pool|histogram|window|fftfreq|sparse_(c|b|s|t|r|d|m"
    "|l|t|p)|to_(sparse|mkldnn)|_to_copy|copy_sparse|resize_as|mkldnn_(resh|transp|reorder)"
    "|weight_norm|thnn_fused|detach|dequant|vector_norm|_powsum|linalg_cross|check_errors"
    "|lu_unpack|slice_inverse|per_sample_weights|_fused_sdp_choice|jagged_dummy|prelu|flatten"
    "|sparse_indices|convert_indices|empty_quant|apply|tile|mvlgamma|frexp|semi_structured$"
)
_LIKE_PRODUCTS = re.compile(
    "mm|matmul|conv|dot|linear|attention|lstm|gru|rnn|einsum|cdist|_dist|cov|corrcoef|linalg"
    "|cholesky|svd|qr|lu_|_lu|solve|inverse|det|matrix|multi_head|transformer|fft|lobpcg|eig|lstsq"
    "|mv|kron|inner|geqrf|pinv|gemm|mkldnn|cell|mha|sdp|stft|tensordot|fbgemm|int4|int8"
)


def test_every_operator_of_torch_that_looks_like_a_product_has_its_place():
    missing, seen = set(), set()
    for full in torch._C._dispatch_get_all_op_names():
        if full.startswith("aten::"):
            name, _, overload = full.removeprefix("aten::").partition(".")
            base = name.rstrip("_")
            seen.add(base)
            if _LIKE_PRODUCTS.search(base) and not _NO_PRODUCTS.search(base):
                function = getattr(getattr(torch.ops.aten, name), overload or "default")
                placed = base in COMPUTED or unknown_kind(base) or is_composite(function)
                missing |= set() if placed else {base}
    assert not missing
    listed = [name for names in UNKNOWN.values() for name in names.split()]
    assert len(listed) == len(set(listed)) and not set(listed) & set(COMPUTED)
    assert set(COMPOSITES) <= set(listed)
    # Other versions of torch have other operators.
    if torch.__version__.startswith("2.13"):
        assert set(listed) <= seen


# --- bits -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", [
    lambda a, b: a @ b, functional.linear, lambda a, b: torch.einsum("ij,jk", a, b),
    lambda a, b: functional.conv1d(a[None], b[:, :, None]),
])  # fmt: skip
def test_inference_mode_has_the_bits_of_the_gpu(run):
    a, b = torch.randn(64, 64).half(), torch.randn(64, 64).half()
    with tensor_core_matmul("H200") as used:
        want = run(a, b)
        with torch.inference_mode():
            found = run(a, b)
    assert torch.equal(found, want) and used[0] == used[1] and len(used) == 2


def test_gradients_of_what_is_unknown_are_unknown():
    """PyTorch's LSTM of halves consists of products, whose gradients the GPU computes otherwise."""
    x = X.half().requires_grad_()
    w = HALF.clone().requires_grad_()
    with tensor_core_matmul("H200") as used:
        y = nn.LSTM(8, 8).half()(x @ w)[0] @ w
        y.sum().backward()
    unknown = [x for x in used if x.evidence == "none"]
    assert unknown[0].operation == "lstm" and len(unknown) > 5
    assert all("gradient of lstm" in x.why for x in unknown[1:])
    assert len(used) - len(unknown) == 2 + 4, "x·w and y·w, forward and backward"


def test_attention_by_products_is_that_of_products():
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with tensor_core_matmul("H200") as used, sdpa_kernel(SDPBackend.MATH):
        functional.scaled_dot_product_attention(Q.half(), Q.half(), Q.half())
    assert [x.operation for x in used] == ["bmm", "bmm"]


def test_autocast_of_cuda_is_refused():
    with tensor_core_matmul("H200"):
        with pytest.raises(UnsupportedError, match="does not cast CPU tensors"):
            torch.autocast("cuda", dtype=torch.float16)
        with pytest.raises(UnsupportedError, match="autocast"):
            torch.autocast("cuda", torch.bfloat16)
        with torch.autocast("cuda", enabled=False), torch.autocast("cpu", torch.bfloat16):
            assert (A @ B).dtype == torch.bfloat16
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        torch.autocast("cuda")


def test_hooks_go_when_the_last_mode_ends():
    lstm, gru = nn.LSTM(8, 8).half(), nn.GRU(8, 8).half()
    with tensor_core_matmul("H200") as outer:
        with tensor_core_matmul("A100") as used:
            lstm(X.half())
        gru(X.half())
    lstm(X.half())
    assert [x.operation for x in used] == ["lstm"] and outer[-1].operation == "gru"
