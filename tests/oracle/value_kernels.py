"""Kernels of many statements each that together spell every ordinary instruction.

What a statement leaves in its part of memory is compared as a digest with that of an H200.
"""

import hashlib
import zlib
from functools import cache
from random import Random

from one_instruction import OneInstruction, kernel_of, memory_of, parts_of

from emulator import EmulatorError, Module
from emulator.isa.ordinary.instruction import expand, parse

TARGET, VERSION = "sm_90a", (9, 0)
THREADS, STATEMENTS = 128, 250
#: values are of these effects; of loads and stores a sample is taken
_VALUES = {
    "pure", "carry", "lanes", "gathers", "active", "shuffles", "reads", "writes", "exchanges",
    "reduces", "polls", "splits", "points", "packs", "moves", "special", "selects", "zero", "one",
}  # fmt: skip
_SAMPLED = {"ld": 2500, "st": 1500, "atom": 5000, "red": 3000}
#: spaces that the threads have memory in
_SPACES = ("", "global", "shared", "shared::cta", "shared::cluster")
#: how often a form is spelled that is no access of memory
_TURNS = 3
#: the share of operands that are no registers of their own
_VARIETY = 0.3


def _is_asked(ins):
    has_values = ins.rule or ins.row.name in ("ld", "ldu", "st")
    return (
        has_values
        and TARGET in ins.targets
        and ins.ptx_version <= VERSION
        and set(ins.effects) <= _VALUES
        and ins.row.name != "multimem"  # which needs addresses of several devices
        and ins.modifiers.get("space", "") in _SPACES
    )


@cache
def spelled():
    """Every statement that is asked for: "opcode turn", in an order that mixes them."""
    rng = Random(27)
    pools = {}
    for ins in filter(_is_asked, expand()):
        pools.setdefault(ins.row.name, []).append(ins)
    out = []
    for name, pool in pools.items():
        turns = _TURNS
        if name in _SAMPLED:
            pool, turns = rng.sample(pool, _SAMPLED[name]), 1
        out += [f"{ins} {turn}" for ins in pool for turn in range(turns)]
    rng.shuffle(out)
    return out


def fresh(seed, count):
    """About so many statements that no recording has, of each instruction alike."""
    rng, pools = Random(seed), {}
    for opcode in sorted({name.split()[0] for name in spelled()}):
        pools.setdefault(opcode.partition(".")[0], []).append(opcode)
    share, out = count // len(pools), []
    for pool in pools.values():
        chosen = rng.sample(pool, min(len(pool), share))
        turns = -(-share // len(chosen))
        out += [f"{opcode} {seed}-{turn}" for turn in range(turns) for opcode in chosen][:share]
    rng.shuffle(out)
    return out


@cache
def _binds(text):
    try:
        return not Module(text).problems
    except EmulatorError:
        return False


def statements(names):
    """The statements of a kernel, each from its name alone; later turns have constants, selectors
    and the like, where they bind."""
    out, start = [], 0
    for name in names:
        opcode, turn = name.split()
        ins, seed = parse(opcode), zlib.crc32(name.encode())
        one = OneInstruction(ins, THREADS, seed, start, _VARIETY)
        if turn == "0" or not _binds(kernel_of([one])):
            one = OneInstruction(ins, THREADS, seed, start)
        out.append(one)
        start += len(one.memory)
    return out


def kernels(names):
    """The names in each kernel."""
    return [names[i : i + STATEMENTS] for i in range(0, len(names), STATEMENTS)]


def text(given):
    return kernel_of(given, f"{VERSION[0]}.{VERSION[1]}")


def digest(held):
    return hashlib.blake2b(held, digest_size=6).hexdigest()


def run(given, **options):
    """What each statement leaves, here."""
    held = memory_of(given)
    Module(text(given), TARGET)["go"].launch(1, THREADS, [held], **options)
    return parts_of(given, held)
