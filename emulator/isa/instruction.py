"""``Instruction``: what all instructions have in common, and how any of them is parsed."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from emulator.errors import (
    EmulatorError,
    OperandError,
    ParseError,
    UnsupportedError,
    hint,
    listing,
    quoted,
    shown,
)
from emulator.isa.kinds import ALIASES, kinds_of, names, why_not_modelled
from emulator.isa.signature import LANES, Scope, Signature
from emulator.targets import Target, find_target

if TYPE_CHECKING:
    from emulator.arith.evidence import Fidelity
    from emulator.layout.fragment import Fragment


#: What an instruction does besides computing its results: the words of the column `effects`.
EFFECTS = {
    "pure": "writes registers and does nothing else",
    "reads": "loads registers from memory",
    "samples": "reads texels of a texture or surface",
    "paints": "writes texels of a surface",
    "writes": "stores to memory",
    "exchanges": "reads and writes memory that other blocks see, as one action",
    "reduces": "combines memory with its operands, and gives nothing back",
    "asynchronous": "takes effect later than its place in the program",
    "copies": "leaves its accesses of memory to a copy engine, which performs them later",
    "bulk": "copies in bulk, through the async proxy",
    "commits": "makes a group of the asynchronous operations before it",
    "waits": "goes on when asynchronous operations are complete",
    "allocates": "writes the address of columns of tensor memory to shared memory",
    "maps": "edits or copies a tensor map",
    "barrier": "arrives at a barrier of its block or cluster, or waits there",
    "aligned": "all lanes of a warp come to the same such statement",
    "mbarrier": "changes an mbarrier or looks at it",
    "jumps": "may go on elsewhere than with the next statement",
    "ends": "never goes on with the next statement",
    "leaves": "ends its function",
    "calls": "runs a function, and goes on behind it",
    "returns": "goes on behind the call of its function",
    "cancels": "takes over the work of blocks that have not started",
    "lanes": "takes values from other lanes of the warp",
    "active": "tells which lanes execute it together",
    "registers": "changes how many registers a warp has",
    "carry": "reads the carry flag",
    "stack": "changes the size of the stack",
    "arrives": "brings registers what loads of tensor memory have read",
    "orders": "orders accesses, or waits for asynchronous ones",
    "before": "orders tensor memory before what threads synchronise by",
    "after": "orders tensor memory after what threads synchronise by",
    "polls": "looks at what others may change: a loop around it may be a wait",
    "hint": "changes no value, where every access takes effect at once",
    "moves": "its result is one of its operands, bit for bit",
    "special": "reads special registers",
    "selects": "its last operand says which of the others is its result",
    "points": "an address computed from one of a variable lies in that variable",
    "packs": "puts operands beside each other in one word",
    "zero": "an operand of 0 decides its result",
    "one": "an operand of 1 decides its result",
    "gathers": "tells each lane something of the operands of all lanes",
    "shuffles": "gives each lane the operand of another lane",
    "splits": "ptxas makes several basic blocks of it, or ends one there",
}


class Form:
    """One row of the table of a kind: what the rows of all tables have."""

    #: words of `EFFECTS`, with ``@word|word`` behind one that only forms with such a word have
    effects: str = ""

    #: why kernels cannot run it; "" where they can, or where nothing can be said but that
    unmodelled: str = ""

    #: targets whose assembler takes the form
    targets: tuple[str, ...]
    #: lanes that execute it together
    scope: Scope
    #: the PTX version that introduced it, where that is not the target's own
    version: str
    #: operands that came later, and the PTX versions that introduced them
    later_operands: tuple[tuple[str, str], ...] = ()


@lru_cache(maxsize=4096)
def _effects(text: str, opcode: str) -> frozenset[str]:
    words = opcode.split(".")
    given = (effect.partition("@") for effect in text.split())
    return frozenset(
        effect
        for effect, _, only in given
        if not only or not set(only.split("|")).isdisjoint(words)
    )


# Of one that is no instruction, too: to find the names that are like it takes 0.5 ms.
@lru_cache(maxsize=4096)
def effects_of(opcode: str) -> frozenset[str]:
    """The effects of an opcode; none of one that is no instruction."""
    try:
        return Instruction.parse(opcode).effects
    except EmulatorError:
        return frozenset()


def opcode_of(given: object) -> str:
    """The opcode of a text or an instruction; "" for anything else, which a caller may give."""
    return str(given) if isinstance(given, (str, Instruction)) else ""


def version_numbers(version: str) -> tuple[int, int]:
    """PTX versions as they compare: "8.7" is (8, 7)."""
    major, _, minor = version.partition(".")
    return int(major), int(minor)


class Instruction:
    """One legal instruction, all its modifiers settled.

    ``Instruction.parse(text)`` makes one; ``str()`` gives the canonical spelling, which parses to
    an equal instruction.
    """

    #: the row of the table that it is of
    form: Form
    #: sizes of the matrices, of instructions that multiply: A is m × k, B is k × n
    m: int
    n: int
    k: int

    @staticmethod
    def parse(text: str) -> Instruction:
        """The instruction that an opcode such as ``mma.sync.aligned.m16n8k16…`` names.

        Modifiers may stand in any order that ptxas takes. CuTe's atoms, such as
        ``SM80_16x8x16_F32F16F16F32_TN``, and MMA-Sim's ``m16n8k16.f32.f16.f16.f32`` name
        instructions too. Raises ParseError where the text is no instruction of PTX,
        UnsupportedError where PTX has no such form of it, or this package does not model it.
        """
        if not isinstance(text, str):
            raise ParseError(f"an opcode is a string; got {type(text).__name__}")
        opcode = text.strip()
        # Of a long one ptxas takes a word again and again: those are not kept.
        return _parsed(opcode) if len(opcode) <= _KEPT_LENGTH else _parse(opcode)

    @property
    def name(self) -> str:
        """The words that its opcode starts with, as ``wmma.load.a``."""
        raise NotImplementedError

    @property
    def opcode_words(self) -> dict[str, str]:
        """The words behind the name, by the slots of the kind's grammar and in the order of the
        canonical spelling: several words of a slot with dots between them, "" for none."""
        raise NotImplementedError

    def __str__(self) -> str:
        """The canonical spelling."""
        return ".".join([self.name, *filter(None, self.opcode_words.values())])

    def __repr__(self) -> str:
        """Python that gives the instruction again, and how sure its results are, as a comment."""
        levels: dict[str, list[str]] = {}
        for target in self.targets:
            levels.setdefault(self.fidelity(target).level, []).append(target)
        known = "; ".join(f"{level} on {listing(names, 4)}" for level, names in levels.items())
        return f"Instruction.parse({str(self)!r})  # {known}"

    @property
    def family(self) -> str:
        """The instruction's name, with .sp and ::ordered_metadata where it has them."""
        raise NotImplementedError

    @property
    def scope(self) -> Scope:
        """The group that executes it together: a thread, a warp, a warpgroup."""
        return self.form.scope

    @property
    def effects(self) -> frozenset[str]:
        """Its effects, as words of `EFFECTS`."""
        return _effects(self.form.effects, str(self))

    @property
    def is_move(self) -> bool:
        """True if its result is its operand, bit for bit."""
        return "moves" in self.effects and "selects" not in self.effects

    @property
    def lanes(self) -> int:
        """Lanes that execute it together: 1, a warp of 32, or a warpgroup of 128."""
        return LANES[self.scope]

    @property
    def targets(self) -> tuple[str, ...]:
        """Every target whose assembler takes the instruction."""
        return self.form.targets

    @property
    def ptx_version(self) -> tuple[int, int]:
        """The PTX version that introduced the form: (7, 8) for 7.8. A target may need a later one,
        see `Target.version`."""
        return version_numbers(self.form.version)

    def check_target(self, target: str | Target) -> Target:
        """The target of that name; raises UnsupportedError where it lacks the instruction."""
        chosen = find_target(target)
        if chosen.name not in self.targets:
            raise UnsupportedError(
                f"{self} is not available on {chosen}; its targets are {listing(self.targets, 30)}"
            )
        return chosen

    # --- operands ---

    def signatures(self, target: str | Target | None = None) -> tuple[Signature, ...]:
        """The operands in PTX order, once for every way to write them; the fullest one first.

        With a `target` the register types are those that its assembler takes, else those that most
        take. Raises UnsupportedError where the target lacks the instruction.
        """
        if target is not None:
            self.check_target(target)
        return (self._signature,)

    @property
    def _signature(self) -> Signature:
        """The operands, of a kind that has one way to write them and the same on all targets."""
        raise NotImplementedError

    def signature(self, target: str | Target | None = None) -> Signature:
        """The first of `signatures`."""
        return self.signatures(target)[0]

    @property
    def operands(self) -> tuple[str, ...]:
        """Names of the operands, in PTX order."""
        return self.signature().names

    @property
    def options(self) -> tuple[str, ...]:
        """Names of what `execute` takes by keyword, besides its own parameters."""
        return self.signature().options

    @property
    def fragments(self) -> dict[str, Fragment]:
        """The lane maps of operands that are matrices in registers, in PTX order."""
        return {}

    def fragment(self, operand: str) -> Fragment:
        """The lane map of an operand; raises OperandError where it is no matrix in registers."""
        found = self.fragments.get(operand) if isinstance(operand, str) else None
        if found is None:
            legal = (
                f"its operands in registers are {listing(self.fragments)}"
                f"{hint(shown(operand), self.fragments)}"
                if self.fragments
                else "its operands are plain registers"
            )
            raise OperandError(f"{self} has no fragment {shown(operand)}: {legal}")
        return found

    # --- evidence ---

    def fidelity(self, target: str | Target) -> Fidelity:
        """Fidelity of the result on `target`: exact, validated or modelled, and why.

        Raises UnsupportedError where the target lacks the instruction.
        """
        raise NotImplementedError


def unknown_opcode(opcode: str) -> EmulatorError:
    """The error for an opcode that no kind has: UnsupportedError for one of PTX, ParseError
    for any other."""
    first = opcode.split(".")[0]
    if why := why_not_modelled(opcode):
        return UnsupportedError(f"{quoted(opcode)} is legal PTX, not modelled here: {why}")
    alike = [name for name in names() if name.split(".")[0] == first]
    if alike:
        given = ".".join(opcode.split(".")[: 1 + max(name.count(".") for name in alike)])
        return ParseError(
            f"no instruction is {quoted(given)}; names are {listing(alike)}{hint(given, alike)}"
        )
    close = hint(first.lower(), names()).replace("nearest", f"nearest to {quoted(first)}")
    return ParseError(
        f"{quoted(opcode)} is no instruction; they start with {listing(names(), 24)}{close}"
    )


def _parse(opcode: str) -> Instruction:
    """Parses an opcode without spaces around it; raises what `Instruction.parse` raises."""
    refusals: list[EmulatorError] = []
    for kind in kinds_of(opcode):
        try:
            found: Instruction = kind.load().parse(opcode)
        except EmulatorError as error:
            refusals.append(error)
        else:
            return found
    if refusals and not why_not_modelled(opcode):
        # That of a kind which knows all the words says more than that of one which does not.
        raise min(refusals, key=lambda error: isinstance(error, ParseError))
    pattern, aliases = ALIASES
    if pattern.match(opcode):
        aliased: Instruction = aliases.load().parse(opcode)
        return aliased
    raise unknown_opcode(opcode)


# So that a loop of small calls does not pay for reading the same opcode again and again.
_KEPT_LENGTH = 200
_parsed = lru_cache(maxsize=1024)(_parse)


def as_instruction(given: object, what: str = "an Instruction") -> Instruction:
    """`given`, an Instruction or its opcode as text; raises OperandError for anything else.

    `what` says in that message what is needed.
    """
    if isinstance(given, Instruction):
        return given
    if isinstance(given, str):
        return Instruction.parse(given)
    raise OperandError(f"{what}, or its opcode, is needed; got {type(given).__name__}")
