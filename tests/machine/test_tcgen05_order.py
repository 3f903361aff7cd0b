"""When an operation of tcgen05 takes effect: at its issue, at what waits for it, or in between."""

import numpy as np
import pytest
from test_tcgen05 import ENGINES, moved, multiplied, product, registers, run

from emulator import KernelError
from emulator.machine import tensor_cores
from emulator.machine.tensor_cores import Operation

ORDERS = [("late", None), ("random", 0), ("random", 1)]
POISON = -1
WAIT = """WAIT:
 mbarrier.try_wait.parity.shared::cta.b64 %q, [%r252], 0;
 @!%q bra WAIT;
"""


def sums(body, engine="vector", order="late", seed=None, b=None):
    """D ``(128, 64)`` of A and B full of ones."""
    out = np.zeros((128, 64), np.int32)
    arrays = [np.ones((128, 32), np.int8), np.ones((64, 32), np.int8) if b is None else b, out]
    run(body, arrays, engine=engine, async_order=order, seed=seed)
    return out


def both(body, order="late", seed=None, **more):
    vector, reference = (sums(body, engine, order, seed, **more) for engine in ENGINES)
    assert (vector == reference).all()
    return vector


def changed(old, new, body=None):
    body = product("i8", 1) if body is None else body
    assert body.count(old) == 1
    return body.replace(old, new)


MMA, COMMIT = (line.strip() for line in product("i8", 1).splitlines() if "@%q tcgen05" in line)
#: the same, adding to D
ADD = MMA.replace(", 0;", ", 1;")


@pytest.fixture(autouse=True)
def fast_arithmetic(monkeypatch):
    """Both engines multiply by the same arithmetic: only the moments matter here."""
    monkeypatch.setattr("emulator.machine.reference.engine.ARITHMETIC", "auto")


# --- kernels that wait ----------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("order, seed", ORDERS)
@pytest.mark.parametrize("group", [1, 2])
def test_who_waits_gets_the_product(group, order, seed, engine):
    out, want = multiplied("i8", group, engine, async_order=order, seed=seed)
    assert np.array_equal(out, want)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("order, seed", ORDERS)
def test_who_waits_gets_what_was_stored(order, seed, engine):
    out = np.zeros((128, 8), np.uint32)
    run(moved("32x32b", 8, 8), [out], engine=engine, async_order=order, seed=seed)
    assert (out == 1000 * np.arange(128)[:, None] + np.arange(8)).all()


@pytest.mark.parametrize("order, seed", ORDERS)
def test_sums_of_one_accumulator_follow_each_other(order, seed):
    body = changed(MMA, "\n".join([MMA, ADD, ADD, ADD, COMMIT, ADD, ADD]))
    body = body.replace("b64 [%r252], 1", "b64 [%r252], 2")
    assert (both(body, order, seed) == 6 * 32).all()


def test_without_their_order_sums_are_wrong(monkeypatch):
    monkeypatch.setattr(tensor_cores, "PIPELINES", frozenset())
    monkeypatch.setattr(tensor_cores, "ordered", lambda first, second: second.name == "commit")
    body = changed(MMA, "\n".join([MMA, ADD, ADD, ADD]))
    assert any((sums(body, order="random", seed=seed) != 4 * 32).any() for seed in range(4))


def test_a_register_dependency_keeps_its_order():
    body = changed("tcgen05.wait::ld.sync.aligned;", "")
    assert (both(body) == 32).all()


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_test_wait_sees_the_commit_in_the_end(engine):
    assert (sums(changed("mbarrier.try_wait", "mbarrier.test_wait"), engine) == 32).all()


# --- kernels that do not --------------------------------------------------------------------------


def test_d_without_a_wait():
    assert (both(changed(WAIT, "bar.sync 0;")) == POISON).all()
    assert (both(changed(WAIT, "bar.sync 0;"), "early") == 32).all()


def test_a_st_without_a_wait():
    body = moved("32x32b", 8, 8).replace("tcgen05.wait::st.sync.aligned;", "")
    for engine in ENGINES:
        out = np.zeros((128, 8), np.int32)
        run(body, [out], engine=engine, async_order="late")
        assert (out == POISON).all()


def test_a_ld_reads_no_sooner_than_it_must():
    """What it reads is stored over before the wait."""
    late = "tcgen05.st.sync.aligned.32x32b.x64.b32 [%r6], " + registers(64, 100)
    body = changed(
        "tcgen05.wait::ld.sync.aligned;",
        "\n".join(f" mov.b32 %r{100 + i}, 7;" for i in range(64))
        + f"{late}; tcgen05.wait::st.sync.aligned; tcgen05.wait::ld.sync.aligned;",
    )
    assert (both(body) == 7).all()
    assert (both(body, "early") == 32).all()


def test_shared_memory_that_is_overwritten_too_early():
    over = " bar.sync 0; mov.b32 %r13, 0; st.shared.b32 [%r11+4096], %r13; bar.sync 0;"
    body = changed(COMMIT, f"{COMMIT}\n{over}")
    assert (both(body, "early") == 32).all()
    assert (both(body) != 32).any()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_mistake_is_told_where_it_was_made(engine):
    """The descriptor is read when the operation takes effect; its line is that of the issue."""
    wrong = "@%q tcgen05.cp.cta_group::1.128x256b [%r5], 0x3ff1;"
    body = changed(COMMIT, f"{wrong}\n{COMMIT}")
    lines = []
    for order in ("early", "late"):
        with pytest.raises(KernelError, match="tcgen05") as caught:
            sums(body, engine, order)
        lines.append(str(caught.value))
    assert lines[0] == lines[1]


# --- the rules ------------------------------------------------------------------------------------

#: PTX ISA 9.7.16.6.2: all other pairs of one thread have no order
ORDERED = {
    ("mma", "mma"), ("cp", "mma"), ("cp.4x256b", "mma"), ("shift", "mma"), ("mma", "shift"),
    ("shift", "cp.4x256b"), ("mma", "commit"), ("cp", "commit"), ("cp.4x256b", "commit"),
    ("shift", "commit"),
}  # fmt: skip
NAMES = ("mma", "cp", "cp.4x256b", "shift", "commit", "ld", "st")


def operation(name, lane=0, cta_group=1, accumulator=(0, 128, 64)):
    if name != "mma":
        accumulator = ()
    return Operation(lane, lambda: None, name=name, cta_group=cta_group, accumulator=accumulator)


def test_what_follows_what():
    pairs = {(a, b) for a in NAMES for b in NAMES if operation(b).follows(operation(a))}
    assert pairs == ORDERED
    for a, b in ORDERED:
        assert not operation(b, lane=32).follows(operation(a))
        assert not operation(b, cta_group=2).follows(operation(a))
    for other in ((64, 128, 64), (0, 64, 64), (0, 128, 32)):
        assert not operation("mma", accumulator=other).follows(operation("mma"))
