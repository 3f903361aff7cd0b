"""Runs command lines in this process; for the tests of ``python -m emulator``."""

import json

from emulator.__main__ import main


def answer(capsys, *argv):
    """A command that must succeed without a message: its lines, or its JSON."""
    assert main([str(word) for word in argv]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out) if "--json" in argv else out.splitlines()


def refusal(capsys, *argv):
    """A command that must exit with 2 and print nothing but one line on stderr: that line."""
    assert main([str(word) for word in argv]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    line, *excerpt = err.splitlines()
    assert line.startswith("error: ") and err.endswith("\n")
    assert not excerpt or (len(excerpt) == 2 and excerpt[1].strip() == "^")
    return err
