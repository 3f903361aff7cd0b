"""``Instruction``: one legal matrix instruction, parsed from and printed to PTX by the table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

from dtypes import FORMATS, Place, place
from emulator.arith.evidence import Fidelity, find_fidelity
from emulator.arith.recipes import Arithmetic, Row, find_recipe
from emulator.errors import OperandError, ParseError, UnsupportedError, listing, nearest
from emulator.isa.fragments import fragments_of
from emulator.isa.modifiers import Slots, split
from emulator.isa.table import FORMS, Form
from emulator.layout.fragment import Fragment
from emulator.targets import Target, find_target

#: elements of a metadata chunk, by bits of an A element: 2:4, 1:2 for tf32, pair-wise 4:8
CHUNK = {32: 2, 16: 4, 8: 4, 6: 4, 4: 8}


@dataclass(frozen=True)
class Instruction:
    """One matrix instruction, all its modifiers settled.

    ``Instruction.parse(text)`` makes one; ``str()`` gives the canonical spelling, which parses to
    an equal instruction. A is m × k, B is k × n, C and D are m × n.
    """

    form: Form
    m: int
    n: int
    k: int
    d_type: str
    a_type: str
    b_type: str
    c_type: str
    layouts: tuple[str, str] = ("row", "col")
    satfinite: bool = False
    rounding: Literal["rn", "rz", "rm", "rp"] = "rn"
    scale_vec: str = ""
    scale_type: str = ""
    ordered_metadata: bool = False

    # --- text ---

    @staticmethod
    def parse(text: str) -> Instruction:
        """The instruction that an opcode such as ``mma.sync.aligned.m16n8k16…`` names.

        Modifiers may stand in any order that ptxas takes. Raises ParseError where the text is not
        a matrix instruction of PTX, UnsupportedError where PTX has no such form of it.
        """
        if not isinstance(text, str):
            raise ParseError(f"an opcode is a string; got {type(text).__name__}")
        return _parse(text)

    def __str__(self) -> str:
        family = self.form.family
        words = ["wgmma.mma_async" if self.is_wgmma else "mma"]
        if self.is_sparse:
            words.append("sp::ordered_metadata" if self.ordered_metadata else "sp")
        words += ["sync", "aligned", self.shape]
        if not self.is_wgmma:
            words += self.layouts
        if self.form.kind:
            words.append(f"kind::{self.form.kind}")
        if self.scale_vec:
            words += ["block_scale", f"scale_vec::{self.scale_vec}"]
        if self.satfinite:
            words.append("satfinite")
        words += [self.d_type, self.a_type, self.b_type]
        if family.startswith("mma"):
            words.append(self.c_type)
        if self.scale_type:
            words.append(self.scale_type)
        if self.rounding != "rn":
            words.append(self.rounding)
        if self.form.bit_operation:
            words += [self.form.bit_operation, "popc"]
        return ".".join(words)

    def __repr__(self) -> str:
        return f"Instruction.parse({str(self)!r})"

    # --- facts ---

    @property
    def shape(self) -> str:
        return f"m{self.m}n{self.n}k{self.k}"

    @property
    def family(self) -> str:
        """mma, mma.sp, mma.sp::ordered_metadata, wgmma or wgmma.sp."""
        return self.form.family + ("::ordered_metadata" if self.ordered_metadata else "")

    @property
    def is_sparse(self) -> bool:
        return bool(self.form.metadata)

    @property
    def is_wgmma(self) -> bool:
        return bool(self.form.n)

    @property
    def lanes(self) -> int:
        """Lanes that execute it together: a warp of 32 or a warpgroup of 128."""
        return 128 if self.is_wgmma else 32

    @property
    def is_block_scaled(self) -> bool:
        return bool(self.scale_type)

    @property
    def targets(self) -> tuple[str, ...]:
        """Every target whose assembler takes the instruction."""
        return self.form.targets

    @property
    def stored_k(self) -> int:
        """Columns of A that are stored: k, or k / 2 of a sparse A."""
        return self.k // 2 if self.is_sparse else self.k

    @property
    def chunk(self) -> int:
        """Columns of A that one metadata nibble describes (sparse instructions)."""
        return CHUNK[self.a_place.width if self.form.container is None else 8]

    @property
    def scale_chunks(self) -> int:
        """Scales of a row of A and of a column of B: 1, 2 or 4; 0 without block scaling."""
        return int(self.scale_vec[0]) if self.scale_vec else 0

    @property
    def a_place(self) -> Place:
        return place(FORMATS[self.a_type], self.form.container)

    @property
    def b_place(self) -> Place:
        return place(FORMATS[self.b_type], self.form.container)

    # --- layout ---

    @property
    def operands(self) -> tuple[str, ...]:
        """Names of the operands that registers hold, in PTX order."""
        names = ["d", "a"] if self.is_wgmma else ["d", "a", "b", "c"]
        names += ["e"] if self.is_sparse else []
        names += ["scale_a", "scale_b"] if self.is_block_scaled else []
        return tuple(names)

    def fragment(self, operand: str) -> Fragment:
        """How lanes hold operand a, b, c, d, e (sparsity metadata), scale_a or scale_b.

        The accumulator of wgmma is d, and c is another name for it. Its B is in shared memory and
        has no fragment; its A has one, for the form that takes A from registers. A of a sparse
        instruction is the compressed m × k/2 matrix. Raises OperandError for any other name.
        """
        if self.is_wgmma and operand == "c":
            operand = "d"
        fragment = self._fragments.get(operand)
        if fragment is None:
            raise OperandError(
                f"{self} has no fragment {operand!r}; its register operands are "
                f"{listing(self.operands)}"
            )
        return fragment

    @cached_property
    def _fragments(self) -> dict[str, Fragment]:
        return fragments_of(self)

    # --- arithmetic ---

    def recipe(self, target: str | Target) -> Row:
        """The recipe that `target` computes the instruction by.

        Raises UnsupportedError where the target lacks the instruction.
        """
        chosen = find_target(target)
        if chosen.name not in self.targets:
            raise UnsupportedError(
                f"{self} is not available on {chosen}; its targets are {listing(self.targets, 30)}"
            )
        kind = self.form.kind if self.is_block_scaled else None
        row = find_recipe(self.form.pipe, chosen.generation, self.a_type, self.d_type, kind)
        if row is None:
            raise UnsupportedError(f"no recipe tells what {self} computes on {chosen}")
        return row

    def fidelity(self, target: str | Target) -> Fidelity:
        """How sure the result on `target` is: exact, validated or modelled, and why.

        Raises UnsupportedError where the target lacks the instruction.
        """
        source = self.recipe(target).source
        generation = find_target(target).generation
        return find_fidelity(
            generation, self.form.family, self.shape, self.a_type, self.d_type, source
        )

    def arithmetic(self, target: str | Target) -> Arithmetic:
        """What an engine needs to compute the instruction's dot products on `target`."""
        return _arithmetic(self, find_target(target))


@lru_cache(maxsize=1024)
def _arithmetic(ins: Instruction, target: Target) -> Arithmetic:
    return Arithmetic(
        FORMATS[ins.a_type],
        FORMATS[ins.b_type],
        FORMATS[ins.c_type],
        FORMATS[ins.d_type],
        ins.recipe(target).steps,
        FORMATS[ins.scale_type] if ins.scale_type else None,
        ins.rounding,
        ins.satfinite,
        ins.form.bit_operation or None,  # type: ignore[arg-type]
    )


# --- finding the form ---


def instructions(family: str = "") -> Iterator[Instruction]:
    """Every instruction of the table, with all type pairs, N, layouts and modifiers.

    `family` restricts them to one of mma, mma.sp, wgmma, wgmma.sp.
    """
    seen = set()
    for form in FORMS:
        if family and form.family != family:
            continue
        for instruction in _expand(form):
            if str(instruction) not in seen:
                seen.add(str(instruction))
                yield instruction


def _expand(form: Form) -> Iterator[Instruction]:
    m, k = (int(x) for x in re.findall(r"[mk](\d+)", form.shape))
    sizes = form.n or (int(re.findall(r"n(\d+)", form.shape)[0]),)
    for n in sizes:
        for dc in form.dc.split():
            d, c = dc.split(".")
            for a in form.a.split():
                for b in form.b.split() or [a]:
                    for layouts in form.layouts.split():
                        for scale in form.scales.split() or ["."]:
                            vec, stype = scale.split(".")
                            for ordered in _ordered_choices(form):
                                for sat in (False, True)[: 1 + form.satfinite]:
                                    for rnd in ("rn", "rz", "rm", "rp")[: 1 + 3 * form.rounding]:
                                        yield Instruction(
                                            form, m, n, k, d, a, b, c,
                                            tuple(layouts.split(".")),  # type: ignore[arg-type]
                                            sat, rnd, vec, stype, ordered,  # type: ignore[arg-type]
                                        )  # fmt: skip


def _ordered_choices(form: Form) -> tuple[bool, ...]:
    if form.family != "mma.sp":
        return (False,)
    return (True,) if form.ordered_only else (False, True)


@lru_cache(maxsize=4096)
def _parse(text: str) -> Instruction:
    slots = split(text)
    family = _family(slots, text)
    wgmma = family.startswith("wgmma")
    for word in ("sync", "aligned"):
        if word not in slots.words and not (wgmma and word == "aligned"):
            raise ParseError(f".{word} is missing in {text!r}")
    if not slots.shape:
        raise ParseError(f"{text!r} has no shape such as .m16n8k16")
    if wgmma and slots.layouts:
        raise ParseError(f"wgmma takes no .row or .col: {text!r} (ptxas ignores them)")
    return _Search(text, slots, family).result()


def _family(slots: Slots, text: str) -> str:
    if slots.mnemonic == "wgmma" and "mma_async" in slots.words:
        family = "wgmma"
    elif slots.mnemonic == "mma" and "mma_async" not in slots.words:
        family = "mma"
    else:
        known = ("mma", "wgmma.mma_async")
        head = text.strip().split(".")[0]
        raise ParseError(
            f"{text!r} is no matrix instruction; they start with {listing(known)}; "
            f"nearest to {head!r} is {nearest(head, known)[0]!r}"
        )
    return f"{family}.sp" if slots.sparse else family


class _Search:
    """Narrows the table down slot by slot, so that an error can name the slot that failed."""

    def __init__(self, text: str, slots: Slots, family: str) -> None:
        self.text, self.slots, self.family = text, slots, family
        self.forms = [form for form in FORMS if form.family == family]

    def result(self) -> Instruction:
        slots, wgmma = self.slots, self.family.startswith("wgmma")
        m, n, k = (int(x) for x in re.findall(r"\d+", slots.shape))
        shape = f"m{m}k{k}" if wgmma else slots.shape
        self._narrow(
            "shape", slots.shape, lambda f: f.shape == shape and (not wgmma or n in f.n), _shapes
        )
        d, a, b, c, stype = self._types(wgmma)
        self._narrow(
            "types",
            ".".join(slots.types),
            lambda f: f.accepts_types(d, a, b, c),
            lambda f: [
                f"{dc.split('.')[0]} with {f.a} × {f.b or 'the same'}" for dc in f.dc.split()
            ],
        )
        self._narrow("kind", slots.kind or "none", lambda f: f.kind == slots.kind,
                     lambda f: [f.kind or "none"])  # fmt: skip
        form, scale_vec = self._scale(stype)
        layouts = tuple(slots.layouts)
        if not wgmma and ".".join(layouts) not in form.layouts.split():
            self._refuse("layout", ".".join(layouts) or "none", form.layouts.split())
        if "satfinite" in slots.words and not form.satfinite:
            self._refuse("modifier", ".satfinite", ["none"])
        if slots.rounding and not form.rounding:
            self._refuse("rounding", slots.rounding, ["none"])
        ordered = slots.sparse == "ordered"
        if ordered and wgmma:
            self._refuse("sparse modifier", "sp::ordered_metadata", ["sp"])
        if form.ordered_only and not ordered:
            self._refuse("sparse modifier", "sp", ["sp::ordered_metadata"])
        return Instruction(
            form, m, n, k, d, a, b, c,
            layouts if not wgmma else ("row", "col"),  # type: ignore[arg-type]
            "satfinite" in slots.words,
            slots.rounding or "rn",  # type: ignore[arg-type]
            scale_vec, stype, ordered,
        )  # fmt: skip

    def _types(self, wgmma: bool) -> tuple[str, str, str, str, str]:
        types = self.slots.types
        wanted = 3 if wgmma else 5 if "block_scale" in self.slots.words else 4
        if len(types) != wanted:
            names = "D, A, B" + ("" if wgmma else ", C") + (", scale" if wanted == 5 else "")
            raise UnsupportedError(
                f"{self.text!r} names {len(types)} types; {wanted} are needed: {names}"
            )
        d, a, b, *rest = types
        c, stype = (d, "") if wgmma else (rest[0], rest[1] if wanted == 5 else "")
        return d, a, b, c, stype

    def _scale(self, stype: str) -> tuple[Form, str]:
        """The form left, and the scale_vec meant."""
        slots = self.slots
        self._narrow(
            "block scaling",
            "block_scale" if stype else "none",
            lambda f: bool(f.scales) == bool(stype),
            lambda f: ["block_scale" if f.scales else "none"],
        )
        operation = slots.bit_operation
        self._narrow("bit operation", operation or "none", lambda f: f.bit_operation == operation,
                     lambda f: [f.bit_operation or "none"])  # fmt: skip
        form = self.forms[0]
        if not stype:
            if slots.scale_vec:
                self._refuse("modifier", f".scale_vec::{slots.scale_vec}", ["none"])
            return form, ""
        legal = form.scales.split()
        vec = slots.scale_vec or (legal[0].split(".")[0] if form.scale_vec_optional else "")
        if f"{vec}.{stype}" not in legal:
            spelled = [f"scale_vec::{x.replace('.', ' with ')}" for x in legal]
            self._refuse("scale", f"scale_vec::{vec or 'none'} with {stype}", spelled)
        return form, vec

    def _narrow(self, slot, given, keep, show) -> None:  # type: ignore[no-untyped-def]
        left = [form for form in self.forms if keep(form)]
        if not left:
            legal = dict.fromkeys(text for form in self.forms for text in show(form))
            self._refuse(slot, given, list(legal))
        self.forms = left

    def _refuse(self, slot: str, given: str, legal: list[str]) -> None:
        known = [str(ins) for ins in instructions(self.family)]
        raise UnsupportedError(
            f"no {self.family} instruction has {slot} {given!r} in {self.text!r}; legal here: "
            f"{listing(legal)}; nearest instruction: {nearest(self.text, known)[0]}"
        )


def _shapes(form: Form) -> list[str]:
    if not form.n:
        return [form.shape]
    return [form.shape.replace("k", f"n{form.n[0]}…{form.n[-1]}k")]
