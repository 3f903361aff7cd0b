"""The pages of the guide: their blocks run, their links lead somewhere, and `guide` shows them."""

import json
import re
import tokenize

import pytest
from commands import answer, refusal
from paths import ROOT
from snippets import OPTIONAL, blocks, commands, run_command, run_python

from emulator.tools.guide import pages, title

pytestmark = pytest.mark.sampled(7)

PAGES = pages()
#: pages whose blocks build on those before them
JOINED = {"tutorial"}


def codes(name, text):
    found = blocks(text, "python")
    return ["\n".join(found)] if name in JOINED else found


SNIPPETS = {
    f"{name}-{number}": code
    for name, text in PAGES.items()
    for number, code in enumerate(codes(name, text), 1)
}
WGMMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
#: what examples import; the rest of the package is for people who change the code
PUBLIC = re.compile(r"dtypes|emulator|emulator\.testing|emulator\.adapters\.\w+")


@pytest.mark.parametrize("name", SNIPPETS)
def test_a_python_block_runs_alone(name, tmp_path, monkeypatch):
    """In a folder that has nothing but the tests of a checkout."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    run_python(SNIPPETS[name], tmp_path)


@pytest.mark.parametrize("name", [name for name, text in PAGES.items() if commands(text)])
def test_commands_of_a_page_run(name, tmp_path, monkeypatch, capsys):
    """Beside the files that blocks of the page have written."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    if any(line.startswith("torch ") for line in commands(PAGES[name])):
        pytest.importorskip("torch")
    for code in blocks(PAGES[name], "python"):
        if "write_text(" in code or "np.savez(" in code:
            run_python(code, tmp_path)
    for line in commands(PAGES[name]):
        run_command(line, capsys)


@pytest.mark.parametrize("name", SNIPPETS)
def test_examples_import_what_is_public(name):
    for module in re.findall(r"^(?:from|import) ((?:emulator|dtypes)[\w.]*)", SNIPPETS[name], re.M):
        assert PUBLIC.fullmatch(module), module


def test_other_imports_are_found():
    assert not PUBLIC.fullmatch("emulator.tools.pictures.page")
    assert not PUBLIC.fullmatch("emulator.adapters")


def test_a_wrong_block_is_found(tmp_path, capsys):
    with pytest.raises(NameError):
        run_python("print(np.zeros(3))", tmp_path)
    with pytest.raises(AssertionError):
        run_command(f"descriptor 0x7fffffffffffffff {WGMMA}", capsys)


def test_optional_packages_are_named_in_blocks():
    code = "\n".join(SNIPPETS.values())
    for name in OPTIONAL:
        assert re.search(rf"^(?:import|from) {name}\b", code, re.M), name


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_a_title_and_links_to_pages(name):
    text = PAGES[name]
    assert text.startswith("# ") and len(title(text)) <= 75
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)]+)\)", re.sub(r"`[^`]+`", "", prose)):
        assert link.removesuffix(".md") in PAGES, link
    assert max(len(line) for line in prose.splitlines() if not line.startswith("|")) <= 100


def test_pages_have_all_code_in_a_language():
    for text in PAGES.values():
        fences = re.findall(r"^```(\w*)\n.*?^```", text, re.MULTILINE | re.DOTALL)
        assert set(fences) <= {"python", "sh", "text"}


# --- the page of the house ------------------------------------------------------------------------


def rooms():
    return re.findall(r"^\| `([^`]+)`", PAGES["house"], re.MULTILINE)


def test_every_place_of_the_house_exists():
    for place in rooms():
        if not place.startswith("python"):
            assert (ROOT / place).exists(), place


def test_every_package_has_its_place_in_the_house():
    packages = {
        path.parent.relative_to(ROOT).parts[:2]
        for top in ("dtypes", "emulator")
        for path in (ROOT / top).rglob("__init__.py")
    }
    shown = {tuple(place.strip("/").split("/")) for place in rooms()}
    assert {parts for parts in packages if parts != ("emulator",)} <= shown


def test_the_import_test_cites_the_page_of_the_house():
    with tokenize.open(ROOT / "tests/facade/test_imports.py") as source:
        assert "emulator/guide/house.md" in source.read()


# --- the command ----------------------------------------------------------------------------------


def test_guide_lists_the_pages(capsys):
    lines = answer(capsys, "guide")
    for name, text in PAGES.items():
        assert any(line.split()[:1] == [name] and title(text) in line for line in lines)
    assert answer(capsys, "guide", "--json") == {n: title(text) for n, text in PAGES.items()}


def test_guide_shows_a_page(capsys):
    assert answer(capsys, "guide", "kernels") == PAGES["kernels"].splitlines()
    shown = answer(capsys, "guide", "kernels", "--json")
    assert shown["text"] == PAGES["kernels"] and shown["title"].startswith("Run a kernel")
    assert json.dumps(shown)


def test_an_unknown_page_says_the_nearest(capsys):
    message = refusal(capsys, "guide", "kernel")
    assert "no page 'kernel'" in message and "nearest is 'kernels'" in message
    assert len(refusal(capsys, "guide", "x" * 9999)) < 1000
