"""Finds the form that an mma or wgmma opcode names, and lists all of them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import NoReturn

from emulator.errors import ParseError, UnsupportedError, listing, nearest_opcode, quoted, runs
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.modifiers import ROUNDINGS, Slots, split
from emulator.isa.table import FORMS, Form


def matrix_instructions(family: str = "") -> Iterator[MatrixInstruction]:
    """Every instruction of the table, with all type pairs, N, layouts and modifiers.

    `family` restricts them to one of mma, mma.sp, wgmma, wgmma.sp.
    """
    seen = set()
    for form in FORMS:
        if family in ("", form.family):
            for instruction in _expand(form):
                if str(instruction) not in seen:
                    seen.add(str(instruction))
                    yield instruction


def _expand(form: Form) -> Iterator[MatrixInstruction]:
    m, k = (int(x) for x in re.findall(r"[mk](\d+)", form.shape))
    sizes = form.n or (int(re.findall(r"n(\d+)", form.shape)[0]),)
    pairs = [(a, b) for a in form.a.split() for b in form.b.split() or [a]]
    choices = itertools.product(
        sizes,
        (dc.split(".") for dc in form.dc.split()),
        pairs,
        (tuple(layouts.split(".")) for layouts in form.layouts.split()),
        (scale.split(".") for scale in form.scales.split() or ["."]),
        _ordered_choices(form),
        (False, True)[: 1 + form.satfinite],
        ROUNDINGS if form.rounding else ("rn",),
    )
    for n, (d, c), (a, b), layouts, (vec, stype), ordered, satfinite, rounding in choices:
        yield MatrixInstruction(
            form, m, n, k, d, a, b, c, layouts,  # type: ignore[arg-type]
            satfinite, rounding, vec, stype, ordered,  # type: ignore[arg-type]
        )  # fmt: skip


def _ordered_choices(form: Form) -> tuple[bool, ...]:
    if form.family != "mma.sp":
        return (False,)
    return (True,) if form.ordered_only else (False, True)


@lru_cache(maxsize=4096)
def parse_matrix(text: str) -> MatrixInstruction:
    """The mma, mma.sp or wgmma that `text` names; see `Instruction.parse`."""
    slots = split(text)
    wgmma = slots.mnemonic == "wgmma"
    # ptxas takes a wgmma without .aligned, and the manual's own examples leave it out.
    needed = ("sync",) if wgmma else ("sync", "aligned")
    if missing := [f".{word}" for word in needed if word not in slots.words]:
        family = slots.mnemonic + (".sp" if slots.sparse else "")
        known = [str(ins) for ins in matrix_instructions(family)]
        raise ParseError(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing in "
            f"{quoted(text)}; nearest is {nearest_opcode(text, known)}"
        )
    if not slots.shape:
        raise ParseError(f"{quoted(text)} has no shape such as .m16n8k16")
    if wgmma and slots.layouts:
        raise ParseError(f"wgmma takes no .row or .col (ptxas ignores them): {quoted(text)}")
    return _Search(text, slots, slots.mnemonic + (".sp" if slots.sparse else "")).result()


class _Search:
    """Narrows the table down slot by slot, so that an error can name the slot that failed."""

    def __init__(self, text: str, slots: Slots, family: str) -> None:
        self.text, self.slots, self.family = text, slots, family
        self.forms = [form for form in FORMS if form.family == family]

    def result(self) -> MatrixInstruction:
        slots, wgmma = self.slots, self.family.startswith("wgmma")
        m, n, k = (int(x) for x in re.findall(r"\d+", slots.shape))
        shape = f"m{m}k{k}" if wgmma else slots.shape
        self._narrow("shape", slots.shape, lambda f: f.shape == shape, lambda f: [f.shape])
        d, a, b, c, stype = self._types(wgmma)
        self._narrow(
            "types",
            ".".join(slots.types),
            lambda f: f.accepts_types(d, a, b, c),
            lambda f: [f"{dc.split('.')[0]} with {f.a} × {f.b or 'the same'}"
                       for dc in f.dc.split()],
        )  # fmt: skip
        if wgmma:
            self._narrow("N", str(n), lambda f: n in f.n, lambda f: [runs(f.n)])
        self._narrow("kind", slots.kind or "none", lambda f: f.kind == slots.kind,
                     lambda f: [f.kind or "none"])  # fmt: skip
        form, scale_vec = self._scale(stype)
        layouts = ("row", "col") if wgmma else tuple(slots.layouts)
        if ".".join(layouts) not in form.layouts.split():
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
        return MatrixInstruction(
            form, m, n, k, d, a, b, c, layouts,  # type: ignore[arg-type]
            "satfinite" in slots.words, slots.rounding or "rn",  # type: ignore[arg-type]
            scale_vec, stype, ordered,
        )  # fmt: skip

    def _types(self, wgmma: bool) -> tuple[str, str, str, str, str]:
        types = self.slots.types
        wanted = 3 if wgmma else 5 if "block_scale" in self.slots.words else 4
        if len(types) != wanted:
            names = "D, A, B" + ("" if wgmma else ", C") + (", scale" if wanted == 5 else "")
            raise UnsupportedError(
                f"{quoted(self.text)} names {len(types)} types; {wanted} are needed: {names}"
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

    def _narrow(
        self,
        slot: str,
        given: str,
        keep: Callable[[Form], bool],
        show: Callable[[Form], Iterable[object]],
    ) -> None:
        left = [form for form in self.forms if keep(form)]
        if not left:
            self._refuse(slot, given, dict.fromkeys(x for form in self.forms for x in show(form)))
        self.forms = left

    def _refuse(self, slot: str, given: str, legal: Iterable[object]) -> NoReturn:
        known = [str(ins) for ins in matrix_instructions(self.family)]
        raise UnsupportedError(
            f"no {self.family} instruction has {slot} {quoted(given)} in {quoted(self.text)}; "
            f"legal here: {listing(legal, 24)}; nearest is {nearest_opcode(self.text, known)}"
        )
