"""Random numbers of PyTorch that a GPU drew, by name; and digests of what came out."""

import gzip
import hashlib
import json
from pathlib import Path

import torch
import torch.nn.functional as F

RECORDED = Path(__file__).resolve().parent.parent / "golden" / "h200_random.json.gz"
TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
SIZES = (1, 5, 1000, 40000, 1 << 20, 3000001)
_DRAWS = {
    "rand": lambda n, t: torch.rand(n, dtype=t, device="cuda"),
    "randn": lambda n, t: torch.randn(n, dtype=t, device="cuda"),
    "bernoulli": lambda n, t: torch.empty(n, dtype=t, device="cuda").bernoulli_(0.3),
    "expo": lambda n, t: torch.empty(n, dtype=t, device="cuda").exponential_(),
    "dropout": lambda n, t: F.dropout(torch.ones(n, dtype=t, device="cuda"), 0.1),
    "normal": lambda n, t: torch.empty(n, dtype=t, device="cuda").normal_(0.5, 2.0),
    "uniform": lambda n, t: torch.empty(n, dtype=t, device="cuda").uniform_(-2, 3),
}


def _after_seven(draw, n, dtype):
    torch.manual_seed(1234 + n)
    draw(7, dtype)
    return draw(n, dtype)


def _integers(n, low, high):
    torch.manual_seed(99 + n)
    first = torch.randint(0, 1000, (n,), device="cuda")
    return first if low == 0 else torch.randint(low, high, (n,), device="cuda")


def _permutation(n):
    torch.manual_seed(7 + n)
    return torch.randperm(min(n, 100000), device="cuda")


def recorded_cases():
    """Name and call of what the recordings hold."""
    for n in SIZES:
        for name, dtype in TYPES.items():
            for kind, draw in _DRAWS.items():
                yield f"rng.{kind}.{name}.{n}", lambda d=draw, n=n, t=dtype: _after_seven(d, n, t)
        yield f"rng.randint.{n}#0", lambda n=n: _integers(n, 0, 1000)
        yield f"rng.randint.{n}#1", lambda n=n: _integers(n, -5, 1 << 40)
        yield f"rng.randperm.{n}", lambda n=n: _permutation(n)


def digest(result):
    """The digest of a result's bytes, and that of the shared recordings."""
    raw = result.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(raw).hexdigest()[:32]


# --- cases of our own, for the GPU and for the simulated one --------------------------------------


def _grown(n):
    return torch.arange(n, device="cuda").float() / 7 - 3


def _strided(draw):
    x = torch.zeros(40, 30, 6, device="cuda")
    draw(x.permute(1, 2, 0)[::2, :, 3:])
    return x


def _dropped(x, p):
    x = x.detach().requires_grad_()
    made = F.dropout(x, p)
    made.backward(torch.full_like(made, 1.7))
    return torch.cat([made.detach().reshape(-1), x.grad.reshape(-1)])


def _without(n):
    return torch.multinomial(_grown(n).abs().reshape(2, -1) + 0.1, 5)


def _kept():
    """A state that is kept, moved and set again."""
    state = torch.cuda.get_rng_state()
    first = torch.rand(3, device="cuda")
    torch.cuda.set_rng_state(state)
    generator = torch.Generator("cuda").manual_seed(11)
    own = torch.randn(9, device="cuda", generator=generator)
    return torch.cat([first, torch.rand(3, device="cuda"), own])


def _random(dtype, *bounds):
    return torch.empty(5000, dtype=dtype, device="cuda").random_(*bounds)


CASES = {
    "strided.uniform": lambda: _strided(lambda x: x.uniform_(1, 5)),
    "strided.normal": lambda: _strided(lambda x: x.normal_()),
    "transposed": lambda: torch.empty(70, 50, device="cuda").t().normal_(),
    "bernoulli.int": lambda: _random(torch.int64, 2).bernoulli_(0.25),
    "log": lambda: torch.empty(999, device="cuda").exponential_(0.3),
    "uniform.bf16": lambda: torch.empty(4000, device="cuda").bfloat16().uniform_(0.3, 0.4),
    "uniform.f16": lambda: torch.empty(4000, device="cuda").half().uniform_(-7.7, 900.1),
    "random.int8": lambda: _random(torch.int8), "random.uint8": lambda: _random(torch.uint8),
    "random.bool": lambda: _random(torch.bool), "random.int32": lambda: _random(torch.int32),
    "random.int64": lambda: _random(torch.int64), "random.f32": lambda: _random(torch.float32),
    "random.f16": lambda: _random(torch.float16), "random.bf16": lambda: _random(torch.bfloat16),
    "random.to": lambda: _random(torch.int32, 77),
    "random.from": lambda: _random(torch.int16, -300, 300),
    "random.from on": lambda: _random(torch.int16, 32000, None),
    "random.edge": lambda: _random(torch.int64, 0, 1 << 28),
    "random.below": lambda: _random(torch.int64, 0, (1 << 28) - 1),
    "dropout.of 4": lambda: _dropped(_grown(4000), 0.5),
    "dropout.of 2": lambda: _dropped(_grown(4002), 0.3),
    "dropout.of 1": lambda: _dropped(_grown(4001), 0.3),
    "dropout.of 8": lambda: _dropped(_grown(4000).half(), 0.3),
    "dropout.unaligned": lambda: _dropped(_grown(4001)[1:], 0.3),
    "dropout.half aligned": lambda: _dropped(_grown(4004).bfloat16()[4:], 0.3),
    "dropout.transposed": lambda: _dropped(_grown(4000).reshape(50, 80).t(), 0.3),
    "dropout.odd transposed": lambda: _dropped(_grown(3999).reshape(31, 129).t(), 0.3),
    "dropout.strided": lambda: _dropped(_grown(4000).reshape(50, 80)[:, ::3], 0.3),
    "multinomial": lambda: _without(400),
    "multinomial.once": lambda: torch.multinomial(_grown(400).abs().half(), 1),
    "kept": _kept,
    # Those of 100 to 2,048 have a pair of equal keys each.
    **{f"randperm.{n}": lambda n=n: torch.randperm(n, device="cuda")
       for n in (1, 2, 3, *range(100, 112), 2048, 30000, 50021)},
    "randperm.int16": lambda: torch.randperm(300, dtype=torch.int16, device="cuda"),
}  # fmt: skip


def own(name):
    """The digest of a case, and the generator's offset after it."""
    torch.manual_seed(len(name))
    return [digest(CASES[name]()), torch.cuda.default_generators[0].get_offset()]


def read(path=RECORDED):
    """Digests by name: of the shared recordings, and of our own; and where they come from."""
    return json.loads(gzip.decompress(path.read_bytes()))
