"""``simulated_gpu(strict=True)`` refuses each operation whose bits on a GPU are not known."""

import pytest

pytest.importorskip("torch")

import torch
import torch.nn.functional as F

from emulator import UnsupportedError
from emulator.adapters.pytorch import simulated_gpu


def _tensors():
    torch.manual_seed(0)
    given = {
        "a": torch.randn(8, 8), "b": torch.randn(8, 8), "v": torch.randn(4096),
        "d": torch.randn(8, 8, dtype=torch.float64), "i": torch.arange(8) % 3,
        "c": torch.randn(8, 8, dtype=torch.complex64), "image": torch.randn(1, 3, 8, 8),
        "volume": torch.randn(1, 2, 4, 4, 4), "seq": torch.randn(5, 2, 8),
        "grid": torch.randn(1, 4, 4, 2), "grid3": torch.randn(1, 2, 2, 2, 3),
        "batch": torch.randn(3, 12, 50), "w": torch.randn(12),
    }  # fmt: skip
    given["pos"] = given["a"] @ given["a"].t() + 8 * torch.eye(8)
    return {name: x.to("cuda") for name, x in given.items()}


#: each with the tensors of `_tensors`
OPERATIONS = {
    "svd": lambda a, **_: torch.linalg.svd(a),
    "eigh": lambda pos, **_: torch.linalg.eigh(pos),
    "eigvals": lambda a, **_: torch.linalg.eigvals(a),
    "cholesky": lambda pos, **_: torch.linalg.cholesky(pos),
    "qr": lambda a, **_: torch.linalg.qr(a),
    "inv": lambda a, **_: torch.linalg.inv(a),
    "det": lambda a, **_: torch.linalg.det(a),
    "slogdet": lambda a, **_: torch.linalg.slogdet(a),
    "solve": lambda a, b, **_: torch.linalg.solve(a, b),
    "lstsq": lambda a, b, **_: torch.linalg.lstsq(a, b),
    "lu": lambda a, **_: torch.linalg.lu_factor(a),
    "matrix_exp": lambda a, **_: torch.linalg.matrix_exp(a),
    "pinv": lambda a, **_: torch.linalg.pinv(a),
    "triangular": lambda a, b, **_: torch.linalg.solve_triangular(a, b, upper=True),
    "fft": lambda v, **_: torch.fft.fft(v),
    "rfft": lambda v, **_: torch.fft.rfft(v),
    "fft2": lambda a, **_: torch.fft.fft2(a),
    "stft": lambda v, **_: torch.stft(v, 64, return_complex=True),
    "erfcx": lambda a, **_: torch.special.erfcx(a),
    "bessel_j0": lambda a, **_: torch.special.bessel_j0(a),
    "bessel_y1": lambda a, **_: torch.special.bessel_y1(a),
    "i0e": lambda a, **_: torch.special.i0e(a),
    "i1e": lambda a, **_: torch.special.i1e(a),
    "polygamma": lambda a, **_: torch.polygamma(2, a),
    "igamma": lambda a, b, **_: torch.igamma(a.abs(), b.abs()),
    "igammac": lambda a, b, **_: torch.igammac(a.abs(), b.abs()),
    "zeta": lambda a, b, **_: torch.special.zeta(a.abs() + 2, b.abs()),
    "airy": lambda a, **_: torch.special.airy_ai(a),
    "chebyshev": lambda a, **_: torch.special.chebyshev_polynomial_t(a, 3),
    "logit_eps": lambda a, **_: torch.logit(a, 1e-3),
    "log_ndtr_f64": lambda d, **_: torch.special.log_ndtr(d),
    "logaddexp2": lambda a, b, **_: torch.logaddexp2(a, b),
    "cumsum_whole": lambda v, **_: v.cumsum(0),
    "cumprod_whole": lambda v, **_: v.cumprod(0),
    "logcumsumexp_whole": lambda v, **_: v.logcumsumexp(0),
    "logspace": lambda **_: torch.logspace(0, 1, 50, device="cuda"),
    "exp_f64": lambda d, **_: d.exp(),
    "sin_f64": lambda d, **_: d.sin(),
    "gelu_f64": lambda d, **_: F.gelu(d),
    "pow_f64": lambda d, **_: d.abs().pow(1.7),
    "div_trunc_f64": lambda d, **_: torch.div(d, 3.0, rounding_mode="trunc"),
    "maximum_f64_nan": lambda d, **_: torch.maximum(d, d.t() * float("nan")),
    "div_f64_nan": lambda d, **_: d.masked_fill(d > 0, float("nan")) / 3,
    "sqrt_f64_nan": lambda d, **_: d.sqrt(),
    "sum_f64": lambda d, **_: d.sum(),
    "softmax_f64": lambda d, **_: d.softmax(-1),
    "exp_complex": lambda c, **_: c.exp(),
    "mul_complex": lambda c, **_: c * c,
    "sum_complex": lambda c, **_: c.sum(),
    "abs_complex": lambda c, **_: c.abs(),
    "index_add": lambda a, b, i, **_: a.clone().index_add_(0, i, b),
    "scatter_add": lambda a, b, i, **_: a.scatter_add(0, i[:, None].expand(8, 8), b),
    "scatter_reduce": lambda a, b, i, **_: a.scatter_reduce(0, i[:, None].expand(8, 8), b, "mean"),
    "index_put": lambda a, i, **_: a.index_put((i,), a, accumulate=True),
    "bincount": lambda i, a, **_: torch.bincount(i, a[0]),
    "histc": lambda v, **_: torch.histc(v, 10),
    "lstm": lambda seq, **_: torch.lstm(
        seq, [torch.zeros(1, 2, 8, device="cuda")] * 2,
        [x.to("cuda") for x in torch.nn.LSTM(8, 8).parameters()],
        True, 1, 0.0, False, False, False),
    "grid_aligned": lambda image, grid, **_: F.grid_sample(image, grid, align_corners=True),
    "grid_3d": lambda volume, grid3, **_: F.grid_sample(volume, grid3, align_corners=False),
    "conv3d": lambda volume, **_: F.conv3d(volume, torch.ones(2, 2, 3, 3, 3, device="cuda")),
    "trilinear": lambda volume, **_: F.interpolate(volume, scale_factor=1.7, mode="trilinear"),
    "antialias": lambda image, **_: F.interpolate(image, (5, 5), mode="bilinear", antialias=True),
    "batch_norm_cudnn": lambda batch, w, **_: F.batch_norm(batch.half(), None, None, w, w, True),
    "vector_norm_3": lambda a, **_: torch.linalg.vector_norm(a, 3, dim=1),
    "cdist_of_products": lambda v, **_: torch.cdist(v.reshape(64, 64), v.reshape(64, 64)),
    "pdist": lambda a, **_: F.pdist(a),
    "prelu": lambda image, **_: F.prelu(image, torch.ones(3, device="cuda") / 3),
    "renorm": lambda a, **_: a.renorm(2, 0, 1.0),
    "embedding_bag": lambda a, i, **_: F.embedding_bag(i[None], a, mode="mean"),
    "addbmm": lambda a, **_: torch.addbmm(a, a[None], a[None]),
    "trace": lambda a, **_: a.trace(),
    "nansum": lambda a, **_: a.nansum(),
    "cross": lambda a, b, **_: torch.linalg.cross(a[:, :3], b[:, :3]),
    "cosh_f64": lambda d, **_: d.cosh(),
}  # fmt: skip


@pytest.fixture(scope="module")
def gpu():
    with simulated_gpu("H200", strict=True) as made:
        yield made


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_outside_the_tables_are_refused(gpu, name):
    given = _tensors()
    gpu.used.clear()
    with pytest.raises(UnsupportedError, match=r"strict=True: .* on H200 is not known"):
        OPERATIONS[name](**given)
    last = gpu.used[-1]
    assert last.evidence == "none" and last.why
    assert all(x.evidence != "none" for x in gpu.used[:-1])


def test_there_are_sixty():
    assert len(OPERATIONS) >= 60
