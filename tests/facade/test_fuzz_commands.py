"""Command lines that are right are answered; damaged ones are in `test_fuzz_seeded`."""

import json

import pytest
from fuzz.commands import RIGHT, fill, inside, outcome

from emulator.__main__ import COMMANDS

#: what commands that would take too much here are refused for
REFUSED = {"selftest": "reference", "torch": "cannot read", "exec": "which program"}


def test_every_command_is_tried():
    assert RIGHT.keys() == COMMANDS.keys()


@pytest.mark.parametrize("command", RIGHT)
def test_right_lines_are_answered(command, tmp_path, capsys):
    fill(tmp_path)
    for line in RIGHT[command]:
        with inside(tmp_path):
            code = outcome(line.split())
        out, err = capsys.readouterr()
        if message := REFUSED.get(command):
            assert code == 2 and message in err
            continue
        assert code in (0, 1) and out and not err, (line, err)
        if "--json" in line:
            json.loads(out)
