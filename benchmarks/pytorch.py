"""How fast operators of a simulated GPU are: each beside the CPU's own PyTorch, in this run.

    python benchmarks/pytorch.py [--elements N ...] [--repeat N] [OPERATOR ...]

Both take turns. Times are CPU time of all threads (PyTorch's CPU operators run on one), the least
of N runs after one that compiles and is not counted. A ratio is how many times longer the simulated
H100 takes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

from emulator.adapters.pytorch import simulated_gpu

TYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
_WIDTH = 1024

Operator = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], object]


def _gradient(run: Operator) -> Operator:
    def backward(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> object:
        x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
        made = run(x, weight, bias)
        assert isinstance(made, torch.Tensor)
        return torch.autograd.grad(made, x, torch.ones_like(made))

    return backward


def _embedding_gradient(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> object:
    rows = x[:2048]
    indices = (torch.arange(len(rows)) * 7 % 500).to(x.device)
    return torch.ops.aten.embedding_dense_backward(rows, indices, 500, -1, False)


def _layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, [_WIDTH], weight, bias)


#: of rows of 1,024 elements, and a weight and a bias of them
OPERATORS: dict[str, Operator] = {
    "add": lambda x, w, b: x + x, "mul by a row": lambda x, w, b: x * w,
    "exp": lambda x, w, b: x.exp(), "tanh": lambda x, w, b: x.tanh(),
    "pow": lambda x, w, b: x**1.5, "sin": lambda x, w, b: x.sin(),
    "gelu": lambda x, w, b: F.gelu(x), "gelu gradient": _gradient(lambda x, w, b: F.gelu(x)),
    "gelu tanh": lambda x, w, b: F.gelu(x, approximate="tanh"), "silu": lambda x, w, b: F.silu(x),
    "softmax": lambda x, w, b: x.softmax(-1),
    "softmax gradient": _gradient(lambda x, w, b: x.softmax(-1)),
    "log_softmax": lambda x, w, b: x.log_softmax(-1), "layer norm": _layer_norm,
    "layer norm gradient": _gradient(_layer_norm),
    "RMS norm": lambda x, w, b: F.rms_norm(x, [_WIDTH], w),
    "sum of rows": lambda x, w, b: x.sum(-1), "sum of columns": lambda x, w, b: x.sum(0),
    "sum": lambda x, w, b: x.sum(), "variance": lambda x, w, b: x.var(-1),
    "cumsum": lambda x, w, b: x.cumsum(-1), "largest": lambda x, w, b: x.amax(-1),
    "to f32": lambda x, w, b: x.float(), "to f16": lambda x, w, b: x.half(),
    "embedding gradient": _embedding_gradient,
}  # fmt: skip


def operands(count: int, type_: str, device: str) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = (count // _WIDTH, _WIDTH), (_WIDTH,), (_WIDTH,)
    return [torch.randn(x, generator=generator).to(TYPES[type_]).to(device) for x in shapes]


def seconds(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def ratio(name: str, count: int, type_: str, repeat: int) -> tuple[float, float]:
    """Seconds of the CPU's and of the simulated GPU's."""
    sides = [operands(count, type_, device) for device in ("cpu", "cuda")]
    times: list[list[float]] = [[], []]
    for _ in range(repeat + 1):
        for given, found in zip(sides, times, strict=True):
            found.append(seconds(lambda given=given: OPERATORS[name](*given)))  # type: ignore[misc]
    return min(times[0][1:]), min(times[1][1:])


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("operators", nargs="*", help=", ".join(OPERATORS))
    parser.add_argument("--elements", type=int, nargs="+", default=[1 << 20, 1 << 23])
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    print("| operator | type | elements | CPU, ms | simulated H100, ms | ratio |")
    print("|---|---|---|---|---|---|")
    with simulated_gpu("H100"):
        for name in options.operators or OPERATORS:
            for type_ in TYPES:
                for count in options.elements:
                    own, ours = ratio(name, count, type_, options.repeat)
                    cells = name, type_, f"{count:,}", f"{own * 1e3:.2f}", f"{ours * 1e3:.1f}"
                    print("|", " | ".join(cells), f"| {ours / own:.1f} |", flush=True)


if __name__ == "__main__":
    main()
