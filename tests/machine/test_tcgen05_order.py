"""When an operation of tcgen05 takes effect: at its issue, at what waits for it, or in between."""

import numpy as np
import pytest
from test_tcgen05 import ENGINES, moved, multiplied, product, registers, run

from emulator import InstructionDescriptor, KernelError
from emulator.machine.shared import tensor_order
from emulator.machine.shared.tensor_order import TensorOperation

pytestmark = pytest.mark.sampled(9)

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
    monkeypatch.setattr(tensor_order, "PIPELINES", frozenset())
    monkeypatch.setattr(tensor_order, "ordered", lambda first, second: second.name == "commit")
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


def test_what_is_under_way_ends_with_its_columns():
    """A ld, or a st, that is waited for when its columns have been given back."""
    for name, text in (("ld", "{%r20}, [%r6]"), ("st", "[%r6], {%r20}")):
        for engine in ENGINES:
            operation = f"tcgen05.{name}.sync.aligned.32x32b.x1.b32 {text};"
            again = "@%p tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r5, 64;"
            alloc = "@%p tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 64;"
            body = f"{operation} bar.sync 0; {again} bar.sync 0; tcgen05.wait::{name}.sync.aligned;"
            run(body + alloc, [], engine=engine, async_order="late")


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


# --- pairs of blocks ------------------------------------------------------------------------------

GIVE_UP = "@%p tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;"
BY_RANK = "mov.u32 %r20, %cluster_ctarank; setp.eq.u32 %q, %r20, 1;"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "body",
    [
        f"{GIVE_UP} barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",
        f"{BY_RANK} @%q bra ODD; {GIVE_UP} bra DONE; ODD: bar.sync 0; {GIVE_UP} DONE:",
    ],
)
def test_warps_of_a_pair_wait_for_each_other(body, engine):
    run(body, [], engine=engine, group=2, blocks=4)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("body", "there", "missing"),
    [
        (
            f"{BY_RANK} @%q bra ODD; {GIVE_UP} ODD:",
            "relinquish_alloc_permit",
            r"block \(1, 0, 0\)\n",
        ),
        (f"{BY_RANK} @%q exit;", "dealloc", r"block \(1, 0, 0\), which has ended\n"),
    ],
)
def test_who_waits_for_a_peer_in_vain(body, there, missing, engine):
    message = rf"(?s)deadlock.*waits for a warp of the other block.*: {missing}.*{there}"
    with pytest.raises(KernelError, match=message):
        run(body, [], engine=engine, group=2, blocks=2)


# --- findings -------------------------------------------------------------------------------------

ZEROS = f"tcgen05.st.sync.aligned.32x32b.x64.b32 [%r6], {registers(64, 100)};"
STORED, LOADED = (f"tcgen05.wait::{x}.sync.aligned;" for x in ("st", "ld"))
BEFORE, AFTER = (f"tcgen05.fence::{x}_thread_sync;" for x in ("before", "after"))
#: a fence of a sort where it orders nothing: the kernel has them
SOMEWHERE = {AFTER: f"@%p {AFTER}", BEFORE: f"@%p {BEFORE}"}
MEET = "fence.proxy.async; bar.sync 0;"
COPY = "@%q tcgen05.cp.cta_group::1.128x256b [%r5], %rd1;"
FIRST = "setp.eq.u32 %q, %r0, 0;"
AGAIN = WAIT.replace("WAIT", "AGAIN").replace("], 0;", "], 1;")
BULK = """.shared .align 8 .b64 two; mov.u32 %r251, two; add.u32 %r250, %r10, 4096;
 @%q mbarrier.init.shared::cta.b64 [%r251], 1; @%q fence.mbarrier_init.release.cluster;
 @%q mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r251], 16;
 @%q cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r250], [%x], 16, [%r251];
 bar.sync 0;
BULK:
 mbarrier.try_wait.parity.shared::cta.b64 %q, [%r251], 0;
 @!%q bra BULK;
"""
LAST = WAIT.replace("WAIT", "LAST")
#: all warps have loaded D, and the first thread goes on to use its columns
MORE = f"{LOADED} {BEFORE} bar.sync 0; {AFTER} {FIRST}"
WORD = InstructionDescriptor("i8", a="s8", b="s8", m=128, n=64).encode()
#: the same mma with half of its columns
NARROW = MMA.replace(
    str(WORD), str(InstructionDescriptor("i8", a="s8", b="s8", m=128, n=32).encode())
)
OVER = "mov.b32 %r13, 0; st.shared.b32 [%r11+4096], %r13;"
LOAD = next(x.strip() for x in product("i8", 1).splitlines() if "tcgen05.ld" in x)
ADDED = product("i8", 1).replace(MMA, ADD)
FILLED = f"{ZEROS} {STORED} {BEFORE} {MEET} {AFTER}"


def replaced(body, *pairs):
    for old, new in pairs:
        body = changed(old, new, body)
    return body


#: what is wrong -> (right, wrong, kind of the finding, statement that it is told of, words of it)
PLANTED = {
    "no wait for the commit": (
        product("i8", 1), changed(WAIT, "bar.sync 0;"), "tcgen05 in flight", LOAD,
        "its tcgen05.commit has not been waited for",
    ),
    "no commit": (
        product("i8", 1), replaced(product("i8", 1), (COMMIT, ""), (WAIT, "bar.sync 0;")),
        "tcgen05 in flight", LOAD, "its thread has executed no tcgen05.commit since",
    ),
    "no fence behind the wait": (
        product("i8", 1), changed(AFTER, SOMEWHERE[AFTER]), "missing tcgen05 fence", LOAD,
        "no tcgen05.fence::after_thread_sync stands behind the wait",
    ),
    "no fence between a barrier and the mma": (
        replaced(ADDED, (MEET, FILLED)), replaced(ADDED, (MEET, FILLED.replace(AFTER, ""))),
        "missing tcgen05 fence", ADD, "no tcgen05.fence::after_thread_sync stands behind the wait",
    ),
    "no fence before a barrier": (
        replaced(ADDED, (MEET, FILLED)),
        replaced(ADDED, (MEET, FILLED.replace(BEFORE, "") + SOMEWHERE[BEFORE])),
        "missing tcgen05 fence", ADD, "no tcgen05.fence::before_thread_sync stands before",
    ),
    "no wait::st": (
        replaced(ADDED, (MEET, FILLED)), replaced(ADDED, (MEET, FILLED.replace(STORED, ""))),
        "tcgen05 in flight", ADD, "its warp has executed no tcgen05.wait::st since",
    ),
    "no barrier between st and mma": (
        replaced(ADDED, (MEET, FILLED)),
        replaced(ADDED, (MEET, f"{MEET} {ZEROS} {STORED} {BEFORE} {AFTER}")),
        "race", ADD, "nothing orders them",
    ),
    "no wait::ld before others write": (
        changed(LOADED, f"{MORE} {COPY} {COMMIT} {AGAIN}"),
        changed(LOADED, f"{BEFORE} bar.sync 0; {AFTER} {FIRST} {COPY} {COMMIT} {AGAIN} {LOADED}"),
        "tcgen05 in flight", COPY, "its warp has executed no tcgen05.wait::ld since",
    ),
    "shared memory is written before the commit is over": (
        changed(AFTER, f"{AFTER} {OVER}"), changed(COMMIT, f"{COMMIT} bar.sync 0; {OVER}"),
        "overwritten too early", "st.shared", "which an asynchronous operation may still read",
    ),
    "a copy is issued before the commit is over": (
        changed(AFTER, f"{AFTER} {FIRST} {BULK}"), changed(COMMIT, f"{COMMIT} {BULK}"),
        "overwritten too early", "cp.async.bulk", "which an asynchronous operation may still read",
    ),
    "a register is written before wait::ld": (
        changed(LOADED, f"{LOADED} mov.b32 %r20, 0;"),
        changed(LOADED, f"mov.b32 %r20, 0; {LOADED}"),
        "tcgen05 in flight", "mov.b32 %r20, 0", "its warp has executed no tcgen05.wait::ld since",
    ),
    "mma of two shapes have no order": (
        changed(LOADED, f"{MORE} {MMA} {COMMIT} {AGAIN} {AFTER} {FIRST} {NARROW} {COMMIT} {LAST}"),
        changed(LOADED, f"{MORE} {MMA} {NARROW} {COMMIT} {AGAIN}"),
        "tcgen05 in flight", NARROW,
        "writes columns 0-31 of tensor memory, which a tcgen05.mma under way writes",
    ),
    "columns are given back under an mma": (
        changed(LOADED, f"{MORE} {MMA} {COMMIT} {AGAIN}"),
        changed(LOADED, f"{MORE} {MMA} {COMMIT}"),
        "tcgen05 in flight", "tcgen05.dealloc", "gives back columns 0-63",
    ),
}  # fmt: skip


def found_in(body, order="early", **more):
    arrays = [np.ones((256, 32), np.int8), np.ones((64, 32), np.int8), np.zeros((256, 64))]
    return run(body, arrays, check=True, async_order=order, **more).findings


@pytest.mark.parametrize("order", ["early", "late"])
@pytest.mark.parametrize("mistake", PLANTED)
def test_findings(mistake, order):
    right, wrong, kind, statement, text = PLANTED[mistake]
    assert not found_in(right, order)
    first, *others = found_in(wrong, order)
    assert first.kind == kind and text in first.reason
    assert statement.removeprefix("@%q ")[:40] in first.party.place.statement
    assert all(other.kind == kind for other in others)


def test_a_wait_is_that_of_its_warp():
    """All warps but the second wait for their loads before columns are written."""
    wait = f"shr.u32 %r250, %r0, 5; setp.ne.u32 %q, %r250, 1; @%q {LOADED}"
    copy = f"{BEFORE} bar.sync 0; {AFTER} {FIRST} {COPY} {COMMIT} {AGAIN} {LOADED}"
    (first,) = found_in(changed(LOADED, f"{wait} {copy}"))
    assert first.kind == "tcgen05 in flight"
    assert "its warp has executed no tcgen05.wait::ld since" in first.reason


def test_a_copy_over_the_address_that_alloc_wrote():
    """PTX does not say by which proxy it was written; what a thread wrote needs a fence."""
    wide = ".shared .align 16 .b32 wide[4];"
    alloc = "@%p tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [wide], 32; bar.sync 0;"
    free = (
        "ld.shared.b32 %r249, [wide]; @%p tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r249, 32;"
    )
    over = BULK.replace("add.u32 %r250, %r10, 4096;", "mov.u32 %r250, wide;")
    body = f"{LOADED} {wide} {alloc} {free} bar.sync 0; {FIRST}"
    assert not found_in(changed(LOADED, f"{body} {over}"))
    (found,) = found_in(changed(LOADED, f"{body} @%q st.shared.b32 [wide], %r5; {over}"))
    assert found.kind == "missing proxy fence"


@pytest.mark.parametrize("order", ["early", "late"])
def test_findings_of_a_pair(order):
    """The mma of one block reads the shared memory of both."""
    body, pair = product("i8", 2), {"group": 2, "blocks": 2}
    meet = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
    assert not found_in(body, order, **pair)
    found = found_in(body.replace(f"bar.sync 0; {meet}", "bar.sync 0;"), order, **pair)
    assert {x.kind for x in found} == {"race", "mbarrier"}
    assert found[0].block == (0, 0, 0) and found[0].earlier.block == (1, 0, 0)


# --- the rules ------------------------------------------------------------------------------------

#: PTX ISA 9.7.16.6.2, and (cp behind mma and cp) what block-scaled main loops rely on: all other
#: pairs of one thread have no order
ORDERED = {
    ("mma", "cp"), ("cp", "cp"),
    ("mma", "mma"), ("cp", "mma"), ("cp.4x256b", "mma"), ("shift", "mma"), ("mma", "shift"),
    ("shift", "cp.4x256b"), ("mma", "commit"), ("cp", "commit"), ("cp.4x256b", "commit"),
    ("shift", "commit"),
}  # fmt: skip
NAMES = ("mma", "cp", "cp.4x256b", "shift", "commit", "ld", "st")


def operation(name, lane=0, cta_group=1, accumulator=(0, 128, 64)):
    if name != "mma":
        accumulator = ()
    return TensorOperation(
        lane, lambda: None, name=name, cta_group=cta_group, accumulator=accumulator
    )


def test_what_follows_what():
    pairs = {(a, b) for a in NAMES for b in NAMES if operation(b).follows(operation(a))}
    assert pairs == ORDERED
    for a, b in ORDERED:
        assert not operation(b, lane=32).follows(operation(a))
        assert not operation(b, cta_group=2).follows(operation(a))
    for other in ((64, 128, 64), (0, 64, 64), (0, 128, 32)):
        assert not operation("mma", accumulator=other).follows(operation("mma"))
