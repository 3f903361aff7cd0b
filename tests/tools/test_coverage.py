"""The page `coverage`: it is the one that the tables make, and no opcode is missing."""

import pytest

from emulator.isa.kinds import names
from emulator.tools import coverage
from emulator.tools.coverage import INDEX, coverage_page, forms, name_of
from emulator.tools.guide import pages


@pytest.mark.slow
def test_the_page_is_the_one_that_the_tables_make():
    """`python -m emulator.tools.coverage > emulator/guide/coverage.md` writes it."""
    assert pages()["coverage"] == coverage_page()


def test_every_opcode_of_the_tables_is_on_the_page():
    listed = {name.split(".")[0] for text in INDEX.values() for name in text.split()}
    assert {name.split(".")[0] for name in names()} <= listed
    lines = pages()["coverage"].splitlines()
    for name in " ".join(INDEX.values()).split():
        assert sum(line.startswith(f"| `{name}` ") for line in lines) == 1, name


@pytest.mark.slow
def test_every_form_has_a_line():
    for ins in forms():
        assert name_of(str(ins)).split(".")[0] == str(ins).split(".")[0]


@pytest.mark.parametrize(
    ("opcode", "name"),
    [
        ("mad.lo.cc.u32", "mad.cc"),
        ("ld.global.ca.nc.b32", "ld.nc"),
        ("cp.async.bulk.tensor.1d.global.shared::cta.bulk_group", "cp.async.bulk.tensor"),
        ("mma.sp::ordered_metadata.sync.aligned", "mma.sp"),
        ("tcgen05.mma.ws.sp.cta_group::1.kind::f16", "tcgen05.mma.ws.sp"),
        ("bar.sync", "bar"),
    ],
)
def test_the_longest_name_counts(opcode, name):
    assert name_of(opcode) == name


def test_what_does_not_run_says_why():
    lines = {line.split("`")[1]: line for line in pages()["coverage"].splitlines() if "| `" in line}
    assert "sums of fp8" in lines["multimem.ld_reduce"]
    assert "with .sync" in lines["shfl"] and "endpoints" in lines["fabric.submit"]
    assert "| all | exact |" in lines["popc"]


def test_a_new_name_shows(monkeypatch):
    with pytest.raises(KeyError, match=r"havg\.s32"):
        name_of("havg.s32")
    monkeypatch.setitem(coverage.INDEX, "Other", "havg")
    coverage._names.cache_clear()
    assert name_of("havg.s32") == "havg"
    coverage._names.cache_clear()
