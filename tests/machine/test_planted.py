"""Mistakes planted in kernels: each is found where it stands, and nothing is said of right twins.

Mistakes that the checks do not find have no entry in golden/planted/found.json.
"""

import pytest
from planted_kernels import PLANTED, edited, expected, planted, recorded, table, tally

from emulator import KernelError

pytestmark = pytest.mark.sampled(12)

EXPECTED = expected()
RECORDED = recorded()
PLANTS = {case.name: case for case in planted()}
EDITS = {case.name: case for case in edited()}
TWINS = {case.ok: case for case in PLANTS.values()}

PAGE = PLANTED.parents[2] / "emulator" / "guide" / "sanitizer.md"


def slow(name):
    """Kernels of CUTLASS and FlashAttention take about twenty seconds with checks."""
    marks = [pytest.mark.slow] if name.startswith(("cutlass", "flash")) else []
    return pytest.param(name, marks=marks)


def mistakes(run, module=None):
    """What the checks find, or the error that ends the kernel; and the digest of what it wrote."""
    try:
        report, written = run.launch(module, check=True, step_limit=50_000_000)
    except KernelError as error:
        return [error], None
    return list(report.findings), written


def places(found):
    """The places that a finding or an error names."""
    if isinstance(found, KernelError):
        return [found.place]
    return [party.place for party in (found.party, found.earlier) if party is not None]


def names_line_of_source(found, case):
    wanted = {f"{case.file}:{line}" for line in case.lines}
    return any(wanted & set(place.source) for place in places(found))


@pytest.mark.parametrize("name", [name for name in PLANTS if name in EXPECTED])
def test_a_planted_mistake_is_found(name):
    case = PLANTS[name]
    found, _ = mistakes(case.run(case.bad), case.module())
    assert any(x.kind == EXPECTED[name] and names_line_of_source(x, case) for x in found)


@pytest.mark.parametrize("name", TWINS)
def test_a_right_twin_is_clean_and_writes_what_the_h200_writes(name):
    found, written = mistakes(TWINS[name].run(name), TWINS[name].module())
    assert not found
    assert written == RECORDED[name]["alone"]


@pytest.mark.parametrize("name", [slow(name) for name in EDITS if name in EXPECTED])
def test_a_mistake_in_a_recorded_kernel_is_found(name):
    found, _ = mistakes(EDITS[name].run("bad"))
    lines = set(EDITS[name].lines)
    assert any(
        x.kind == EXPECTED[name] and lines & {place.line for place in places(x)} for x in found
    )


@pytest.mark.parametrize("name", ["llmc_softmax", "scan"])
def test_a_kernel_without_the_mistake_is_clean_and_writes_what_the_h200_writes(name):
    """The other recorded kernels are those of test_faults.py."""
    case = next(case for case in EDITS.values() if case.recording == f"planted/{name}")
    found, written = mistakes(case.run("ok"))
    assert not found
    assert written == RECORDED[f"{case.name}_ok"]["alone"]


def test_there_are_enough():
    warp_specialised = [name for name in PLANTS if name.startswith("pipeline_")]
    assert len(PLANTS) >= 30 and len(warp_specialised) >= 8 and len(EDITS) >= 6
    assert set(EXPECTED) <= set(PLANTS) | set(EDITS)
    assert all(case.lines and case.mistake for case in PLANTS.values())


def test_another_place_is_noticed():
    """The planted error of these tests: a finding about another kernel's lines is not taken."""
    case, other = PLANTS["refilled"], PLANTS["last_steps"]
    found, _ = mistakes(case.run(case.bad), case.module())
    assert found and all(names_line_of_source(x, case) for x in found)
    assert not any(names_line_of_source(x, other) for x in found)


def test_the_guide_has_the_table():
    page = PAGE.read_text()
    assert "\n".join(table()) in page
    assert tally() in page
