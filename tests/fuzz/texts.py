"""PTX of this repository: files, recordings, the guide, and what tests have in quotes."""

import ast
import gzip
import json
import lzma
import re
from functools import cache

import numpy as np
from paths import GOLDEN, ROOT

from emulator import EmulatorError, Module

#: characters of a text that is worth damaging: of longer ones nearly all edits are alike
_LONGEST = 40_000
_ENTRY = re.compile(r"\.entry\s+[\w$]+")


def _quoted(code):
    """The string constants of Python code."""
    try:
        nodes = list(ast.walk(ast.parse(code)))
    except SyntaxError:
        return []
    return [x.value for x in nodes if isinstance(x, ast.Constant) and isinstance(x.value, str)]


def _candidates():
    for path in sorted((ROOT / "tests").rglob("*.ptx")):
        yield path.read_text()
    for path in sorted(GOLDEN.rglob("*.ptx.xz")):
        yield lzma.decompress(path.read_bytes()).decode()
    for path in sorted((GOLDEN / "kernels").glob("*.npz")):
        with np.load(path) as held:
            yield bytes(held["ptx"]).decode()
    for path in sorted((ROOT / "tests").rglob("*.py")):
        yield from _quoted(path.read_text())
    for path in sorted((ROOT / "emulator/guide").glob("*.md")):
        for language, block in re.findall(r"^```(\w*)\n(.*?)^```", path.read_text(), re.M | re.S):
            yield from _quoted(block) if language == "python" else [block]


def _kernels(text):
    """Each kernel of a long text with what stands before the first: short texts of their own."""
    starts = [m.start() for m in re.finditer(r"^(\.visible |\.weak )?\.entry ", text, re.M)]
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        yield text[: starts[0]] + text[start:end]


@cache
def texts():
    """Different texts with a kernel that binds, in a fixed order."""
    out = {}
    for text in _candidates():
        if not _ENTRY.search(text) or ".version" not in text:
            continue
        for one in [text] if len(text) <= _LONGEST else _kernels(text):
            if len(one) <= _LONGEST and one not in out:
                try:
                    out[one] = bool(Module(one).kernels)
                except EmulatorError:
                    out[one] = False
    return [text for text, binds in out.items() if binds]


@cache
def accepted():
    """Statements that ptxas takes, each with its declarations."""
    held = gzip.decompress((GOLDEN / "ptxas_statements.txt.gz").read_bytes())
    return held.decode().splitlines()


if __name__ == "__main__":
    print(json.dumps({"texts": len(texts()), "characters": sum(map(len, texts()))}))
