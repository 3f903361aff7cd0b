"""Damaged PTX: one or two edits by token, line or character; what still binds is launched."""

import math
import re
import sys
from functools import partial

import numpy as np

from emulator import EmulatorError, Module
from fuzz.guard import attempt, main
from fuzz.texts import accepted, texts

_TOKENS = re.compile(r'"[^"\n]*"|[%$\w.:]+|\s+|.', re.DOTALL)
_JUNK = (
    "", "0", "-1", "1", "3", "7", "31", "32", "33", "64", "255", "4096", "0x7fffffff", "0xffffffff",
    "18446744073709551615", "99999999999999999999", "1.5", "0f7F800000", "0d7FF0000000000000",
    "1e999", "_", "%r0", "%rd1", "%p1", "%f1", "%tid.x", "%laneid", "%clock64", "WARP_SZ", "ret",
    "{", "}", "[", "]", "(", ")", "<", ">", ";", ",", ":", "!", "@", "+", "-", "|", "=", ".b8",
    ".b16", ".b32", ".b64", ".b128", ".f16", ".f32", ".f64", ".pred", ".v2", ".v4", ".shared",
    ".global", ".param", ".local", ".const", ".reg", ".align", ".entry", ".func", ".extern",
    ".visible", "//", "/*", "*/", "\n", "\0", "é", '"', "@%p0", "@!%p1", "bra", "call", "exit",
)  # fmt: skip
#: tokens that stand for each other, so that many mutants still bind
_KINDS = (
    re.compile(r"%?[rfhdpvb]+d?\d+"), re.compile(r"-?\d+|0x[0-9a-fA-F]+"),
    re.compile(r"%\w+\.?\w*"), re.compile(r"\w+(\.[\w:]+)+"), re.compile(r"\.\w+"),
    re.compile(r"\w+"), re.compile(r"."),
)  # fmt: skip
_CHARACTERS = "0123456789%.;,[](){}<>@!+-_:\"'\\/*$ \n\tabrsfux\0é"


def _source(rng, pool):
    """A text to damage: one of the pool, or a kernel around one statement."""
    if rng.random() < 0.65:
        return rng.choice(pool())
    declarations, statement, _, targets = rng.choice(accepted_rows()).split("\t")
    target = rng.choice(targets.split())
    return (
        f".version 9.0\n.target sm_{target}\n.address_size 64\n"
        f".visible .entry k(.param .u64 x) {{\n{declarations}\n{statement}\nret;\n}}\n"
    )


def accepted_rows():
    return [row for row in accepted() if row.count("\t") == 3 and not row.endswith("\t-")]


def _by_token(rng, text):
    tokens = _TOKENS.findall(text)
    tokens = tokens or [""]
    places = [i for i, token in enumerate(tokens) if not token.isspace()] or [0]
    place, how = rng.choice(places), rng.randrange(12)
    if how >= 6:  # another token of the same kind
        kind = next((x for x in _KINDS if x.fullmatch(tokens[place])), _TOKENS)
        tokens[place] = rng.choice([x for x in tokens if kind.fullmatch(x)] or [""])
    elif how == 0:
        tokens[place] = rng.choice(_JUNK)
    elif how == 1:
        tokens[place] = tokens[rng.choice(places)]
    elif how == 2:
        tokens[place] = ""
    elif how == 3:
        tokens[place] = f"{tokens[place]} {tokens[place]}"
    elif how == 4:
        other = rng.choice(places)
        tokens[place], tokens[other] = tokens[other], tokens[place]
    else:  # one word of an opcode, or of a name with dots
        words = tokens[place].split(".")
        others = tokens[rng.choice(places)].split(".")
        words[rng.randrange(len(words))] = rng.choice(others)
        tokens[place] = ".".join(words)
    return "".join(tokens)


def _by_line(rng, text, pool):
    lines = text.split("\n")
    place, other, how = rng.randrange(len(lines)), rng.randrange(len(lines)), rng.randrange(5)
    if how == 0:
        del lines[place]
    elif how == 1:
        lines.insert(place, lines[other])
    elif how == 2:
        lines[place], lines[other] = lines[other], lines[place]
    elif how == 3:
        lines.insert(place, rng.choice(rng.choice(pool()).split("\n")))
    else:
        del lines[place : place + rng.randrange(1, 12)]
    return "\n".join(lines)


def _by_character(rng, text):
    place, how = rng.randrange(len(text) + 1), rng.randrange(3)
    character = rng.choice(_CHARACTERS)
    if how == 0:
        return text[:place] + character + text[place:]
    return text[:place] + (character if how == 1 else "") + text[place + 1 :]


def mutant(rng, pool):
    text = _source(rng, pool)
    by_line = partial(_by_line, pool=pool)
    for _ in range(rng.choice((1, 1, 2))):
        text = rng.choice((_by_token, _by_token, by_line, _by_character))(rng, text)
    return text


def _argument(rng, parameter):
    """Something that the parameter takes: mostly an array where it has the size of a pointer."""
    if parameter.count > 1 or parameter.type not in ("u64", "b64", "s64"):
        raw = bytes(rng.choice((0, 1, 4)) if i == 0 else 0 for i in range(parameter.bytes))
        return raw
    return np.zeros(4096, np.uint32) if rng.random() < 0.9 else rng.choice((0, 1, 4096, None))


def _launch(rng, kernel):
    directives = kernel.bound.function.directives
    block = 32
    if "reqntid" in directives:
        block = [int(x) for x in directives["reqntid"]]
    elif "maxntid" in directives:
        block = min(32, math.prod(int(x) for x in directives["maxntid"]))
    cluster = directives.get("reqnctapercluster")
    grid = [int(x) for x in cluster] if cluster else rng.choice((1, 1, 2))
    arguments = [_argument(rng, x) for x in kernel.parameters]
    engine = rng.choice(("vector", "vector", "vector", "reference", "reference", "auto"))
    options = {"step_limit": 400, "engine": engine}
    if engine != "reference" and rng.random() < 0.3:
        options |= rng.choice(({"check": True}, {"stop_at": "any"}, {"counters": True}))
    if rng.random() < 0.2:
        options |= {"seed": 1, "async_order": rng.choice(("late", "random"))}

    def launch():
        kernel.launch(grid, block, arguments, rng.choice((0, 1024)), **options)

    answer = attempt(launch)
    if isinstance(answer, EmulatorError):
        for array in arguments:
            assert not isinstance(array, np.ndarray) or not array.any(), "an array has changed"
        return "stopped"
    return "ran"


def case(rng, pool=texts):
    """One mutant, of the repository's texts or others: refused, with problems, stopped or run."""
    text = mutant(rng, pool)
    try:
        return _tried(rng, text)
    except BaseException as error:
        error.add_note(text if len(text) < 3000 else f"{text[:500]}…")
        raise


def _tried(rng, text):
    module = attempt(lambda: Module(text))
    if isinstance(module, EmulatorError):
        return "refused"
    problems = attempt(lambda: module.problems)
    if not module.kernels:
        return "no kernel"
    kernel = attempt(lambda: module[rng.choice(module.kernels)])
    if isinstance(problems, EmulatorError) or isinstance(kernel, EmulatorError):
        return "refused"
    assert all(len(str(problem)) <= 4096 for problem in problems)
    if kernel.problems:
        assert isinstance(attempt(lambda: kernel.launch(1, 1, [])), EmulatorError)
        return "problems"
    attempt(lambda: kernel.contracted)
    return _launch(rng, kernel)


if __name__ == "__main__":
    sys.exit(main(case))
