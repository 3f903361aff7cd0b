"""README's snippets run: Python blocks in one namespace, commands through the CLI."""

import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_python_blocks_run():
    namespace = {}
    snippets = blocks("python")
    assert len(snippets) >= 3
    for snippet in snippets:
        # A file of that name would be read as Python by whoever looks for the source.
        exec(compile(snippet, "<README>", "exec"), namespace)


COMMANDS = [
    line.removeprefix("python -m emulator ")
    for block in blocks("sh")
    for line in block.splitlines()
    if line.startswith("python -m emulator ")
]


@pytest.mark.parametrize("command", COMMANDS)
def test_command_line_runs(command, capsys, monkeypatch):
    from emulator.__main__ import main

    monkeypatch.chdir(ROOT)
    assert main(shlex.split(command)) == 0
    assert capsys.readouterr().out


def test_every_place_of_the_house_exists():
    table = README.split("## The house")[1].split("## Changes")[0]
    places = re.findall(r"^\| `([^`]+)`", table, re.MULTILINE)
    assert len(places) > 8
    for place in places:
        assert (ROOT / place).exists(), place


def test_first_example_is_ten_lines():
    assert len(blocks("python")[0].strip().splitlines()) <= 12


def test_support_table_is_the_generated_one():
    from emulator.tools.support import support_table

    shown = README.split("<!-- python -m emulator.tools.support -->\n")[1].split("\n\n")[0]
    assert shown.splitlines() == support_table()
