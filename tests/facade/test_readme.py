"""README's blocks run, each Python block alone; its tables say what the package says."""

import re

import pytest
from paths import ROOT
from snippets import blocks, commands, run_command, run_python

from emulator import Instruction, __version__
from emulator.targets import ALIASES, TARGETS
from emulator.tools.guide import pages

README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("code", blocks(README, "python"), ids=["lines", "kernel"])
def test_a_python_block_runs_alone(code, tmp_path):
    run_python(code, tmp_path)


@pytest.mark.parametrize("command", commands(README))
def test_command_line_runs(command, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    run_command(command, capsys)


def test_first_example_is_ten_lines():
    assert len(blocks(README, "python")[0].strip().splitlines()) <= 12


def test_readme_is_short_and_names_two_commands():
    assert len(README.splitlines()) <= 250
    assert len(re.findall(r"^python3 -m venv", README, re.MULTILINE)) == 2


def test_readme_names_the_distribution_and_the_version():
    project = (ROOT / "pyproject.toml").read_text()
    name = re.search(r'^name = "(.+)"$', project, re.MULTILINE)[1]
    assert f"`{name}`" in README
    assert f"* **{__version__}**" in README.split("## Changes")[1]


def test_readme_links_to_every_page_of_the_guide():
    links = re.findall(r"\]\(emulator/guide/(\w+)\.md\)", README)
    assert set(links) == set(pages())
    assert {x.stem for x in (ROOT / "emulator" / "guide").glob("*.md")} == set(pages())


def test_the_table_has_the_pages_in_the_order_of_the_guide():
    table = README.split("## I want to")[1].split("## What it knows")[0]
    assert re.findall(r"\]\(emulator/guide/(\w+)\.md\)", table) == list(pages())


def test_the_picture_is_the_one_that_the_package_draws():
    ins = Instruction.parse("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    picture = ROOT / "emulator" / "guide" / "fragment_a.svg"
    assert picture.read_text(encoding="utf-8") == ins.fragment("a")._repr_svg_()
    assert "](emulator/guide/fragment_a.svg)" in README


def test_readme_names_the_accepted_devices():
    rows = re.findall(r"^\| [\w ]+ \| sm_.*", README, re.MULTILINE)
    cells = [row.split("|")[2:4] for row in rows]
    assert [name for targets, _ in cells for name in targets.split()] == list(TARGETS)
    shown = {}
    for _, names in cells:
        for target, held in re.findall(r"(sm_\w+): ([\w ]+)", names):
            shown |= dict.fromkeys(held.split(), target)
    assert shown == ALIASES


def test_support_table_is_the_generated_one():
    from emulator.tools.support import support_table

    shown = README.split("<!-- python -m emulator.tools.support -->\n")[1].split("\n\n")[0]
    assert shown.splitlines() == support_table()
