"""Random numbers on the simulated GPU are those that an H200 drew."""

import pytest

pytest.importorskip("torch")

import torch
from random_numbers import CASES, digest, own, read, recorded_cases

from emulator import UnsupportedError
from emulator.adapters.pytorch import simulated_gpu

RECORDED = read()
#: numbers from which a test is slow
LARGE = 1 << 20


def different(fits):
    """Recorded cases whose numbers are not the H200's."""
    with simulated_gpu("H200"):
        cases = {name: call for name, call in recorded_cases() if name in RECORDED["results"]}
        return [
            name for name, call in cases.items()
            if fits(int(name.split(".")[-1].split("#")[0]))
            and digest(call()) != RECORDED["results"][name]
        ]  # fmt: skip


def test_numbers_have_the_recorded_bits():
    assert different(lambda n: n < LARGE) == []


@pytest.mark.slow
@pytest.mark.parametrize("size", [LARGE, 3000001])
def test_numbers_of_many_steps_have_the_recorded_bits(size):
    assert different(lambda n: n == size) == []


@pytest.mark.slow
def test_numbers_and_offsets_of_our_own_cases():
    with simulated_gpu("H200"):
        assert [name for name in CASES if own(name) != RECORDED["own"][name]] == []


def test_another_bit_is_noticed():
    name = "rng.rand.f16.1000"
    with simulated_gpu("H200"):
        made = dict(recorded_cases())[name]().cpu()
    assert digest(made) == RECORDED["results"][name]
    made.view(torch.int16)[999] ^= 1
    assert digest(made) != RECORDED["results"][name]


def test_provenance():
    assert RECORDED["about"]["gpu"] == "NVIDIA H200" and len(RECORDED["results"]) == 63
    assert set(RECORDED["own"]) == set(CASES)


def test_the_threads_are_those_of_the_chip():
    def drawn(chip, count):
        with simulated_gpu(chip) as gpu:
            torch.manual_seed(1)
            made = torch.rand(count, device="cuda")
            evidence = gpu.used[-1].evidence
            return made.cpu(), torch.cuda.default_generators[0].get_offset(), evidence

    h200, offset, evidence = drawn("H200", 300_000)
    assert (offset, evidence) == (4, "recorded")
    h100, _, evidence = drawn("H100", 300_000)
    assert torch.equal(h100, h200) and evidence == "modelled"
    t4, offset, _ = drawn("T4", 300_000)
    # 40 multiprocessors of 1,024 threads, whose first draw has four numbers.
    assert offset == 8 and torch.equal(t4[:40960], h200[:40960])
    assert torch.equal(drawn("L4", 300_000)[0][:89088], h200[:89088])
    assert not torch.equal(t4[40960:81920], h200[40960:81920])
    assert drawn("sm_90", 5)[2] == "none"


def test_generators_count_what_was_drawn():
    with simulated_gpu("H200") as gpu:
        default = torch.cuda.default_generators[0]
        torch.cuda.manual_seed(3)
        assert (default.initial_seed(), default.get_offset()) == (3, 0)
        torch.randperm(9, device="cuda")
        assert default.get_offset() == 4 + 12
        torch.empty(0, device="cuda").normal_()
        assert default.get_offset() == 16
        state = torch.cuda.get_rng_state()
        assert bytes(state.numpy()) == bytes([3, *[0] * 7, 16, *[0] * 7])
        default.set_offset(8)
        assert default.clone_state().get_offset() == 8
        with pytest.raises(RuntimeError, match="multiple of 4"):
            default.set_offset(3)
        with pytest.raises(RuntimeError, match="wrong size"):
            torch.cuda.set_rng_state(torch.zeros(5, dtype=torch.uint8))
        torch.cuda.set_rng_state(state)
        before = torch.rand(8, device="cuda")
        with torch.random.fork_rng():
            torch.rand(100, device="cuda")
        torch.cuda.set_rng_state(state)
        assert torch.equal(torch.rand(8, device="cuda"), before)
        assert default.manual_seed(-1).initial_seed() == (1 << 64) - 1
        assert default.seed() == default.initial_seed()
        assert isinstance(torch.Generator(), torch.Generator)
        assert torch.Generator().device.type == "cpu"
        gpu.used.clear()
        # What only the CPU draws is repeatable all the same.
        four = torch.full((50,), 4.0, device="cuda")
        drawn = [torch.poisson(four, torch.Generator("cuda").manual_seed(5)) for _ in range(2)]
        assert ("poisson", "none") in {(x.operation, x.evidence) for x in gpu.used}
        assert torch.equal(*drawn)


def test_strict_refuses_distributions_without_a_rule():
    with simulated_gpu("H200", strict=True):
        x = torch.zeros(4, device="cuda")
        x.normal_()
        torch.nn.functional.dropout(x, 0.5)
        for refused in (
            lambda: x.cauchy_(), lambda: x.geometric_(0.5), lambda: x.double().normal_(),
            lambda: torch.bernoulli(x.uniform_()), lambda: torch.poisson(x),
            lambda: torch.multinomial(x.uniform_(), 4, replacement=True),
        ):  # fmt: skip
            with pytest.raises(UnsupportedError, match="not known"):
                refused()


def test_wrong_arguments_are_pytorchs():
    with simulated_gpu("H200"):
        x = torch.zeros(4, device="cuda")
        for wrong, message in (
            (lambda: x.normal_(0, -1), "std"), (lambda: x.uniform_(2, 1), "from"),
            (lambda: x.bernoulli_(1.5), "p"), (lambda: x.exponential_(-1), "lambda"),
            (lambda: x.random_(5, 5), "from"), (lambda: x.to(torch.int8).random_(0, 300), "bounds"),
            (lambda: torch.multinomial(x, 2), "invalid|probability"),
            (lambda: torch.randperm(-1, device="cuda"), "n"),
        ):  # fmt: skip
            with pytest.raises(RuntimeError, match=message):
                wrong()
