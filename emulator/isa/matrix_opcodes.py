"""The opcodes of mma and wgmma: their words, the form that they name, and the list of all.

``.sp`` belongs to the name, ``mma.sp``. ptxas takes it anywhere; of mma it may stand elsewhere here
only in an opcode with a ``.kind``, which is how CUTLASS spells those. ptxas drops the layouts of a
wgmma.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from functools import lru_cache

from emulator.errors import ParseError, UnsupportedError, quoted, runs
from emulator.isa.grammar import Grammar, Slot, Words
from emulator.isa.matrix import ROUNDINGS, MatrixInstruction
from emulator.isa.matrix_forms import FORMS, MatrixForm
from emulator.isa.search import Search

#: names of the element types
TYPES = tuple(
    dict.fromkeys(
        word
        for form in FORMS
        for word in f"{form.a} {form.b} {form.dc} {form.scales}".replace(".", " ").split()
        if not word.endswith("X")
    )
)


# --- all of them ----------------------------------------------------------------------------------


def expand(family: str = "") -> Iterator[MatrixInstruction]:
    """Every instruction of the table, with all type pairs, N, layouts and modifiers.

    `family` restricts them to one of mma, mma.sp, wgmma, wgmma.sp.
    """
    seen = set()
    for form in FORMS:
        if family in ("", form.family):
            for instruction in _of_form(form):
                if str(instruction) not in seen:
                    seen.add(str(instruction))
                    yield instruction


def _of_form(form: MatrixForm) -> Iterator[MatrixInstruction]:
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
        ROUNDINGS if form.rounding else ROUNDINGS[:1],
    )
    for n, (d, c), (a, b), layouts, (vec, stype), ordered, satfinite, rounding in choices:
        yield MatrixInstruction(
            form, m, n, k, d, a, b, c, layouts,  # type: ignore[arg-type]
            satfinite, rounding, vec, stype, ordered,
        )  # fmt: skip


def _ordered_choices(form: MatrixForm) -> tuple[bool, ...]:
    if form.family != "mma.sp":
        return (False,)
    return (True,) if form.ordered_only else (False, True)


@lru_cache(maxsize=8)
def _spelled(family: str) -> tuple[str, ...]:
    return tuple(str(ins) for ins in expand(family))


# --- words ----------------------------------------------------------------------------------------

_SHAPE = "m{0}n{0}k{0}".format("(?:0|[1-9][0-9]{0,3})")


def _grammar(name: str, family: str) -> Grammar:
    kinds = dict.fromkeys(form.kind for form in FORMS if form.kind)
    return Grammar(
        name,
        (
            Slot("sparse modifier", ("sp", "sp::ordered_metadata")),
            Slot("sync", ("sync",), needed=True, repeatable=True),
            # ptxas takes a wgmma without .aligned, and the manual's own examples leave it out.
            Slot("aligned", ("aligned",), needed=name == "mma"),
            Slot("shape", pattern=_SHAPE, example="m16n8k16", needed=True),
            Slot("layout", ("row", "col"), most=2),
            Slot("kind", tuple(f"kind::{kind}" for kind in kinds)),
            Slot("block_scale", ("block_scale",)),
            Slot("scale_vec", ("scale_vec::1X", "scale_vec::2X", "scale_vec::4X")),
            Slot("satfinite", ("satfinite",), repeatable=True),
            Slot("types", TYPES, most=5),
            Slot("rounding", ROUNDINGS),
            Slot("bit operation", ("xor", "and"), brings="popc"),
            Slot("popc", ("popc",), after="bit operation"),
        ),
        lambda: _spelled(family),
    )


_GRAMMARS = {
    (name, sparse): _grammar(name, name.partition(".")[0] + sparse)
    for name in ("mma", "wgmma.mma_async")
    for sparse in ("", ".sp")
}


@lru_cache(maxsize=4096)
def parse(opcode: str) -> MatrixInstruction:
    """The mma, mma.sp or wgmma that `opcode` names; see `Instruction.parse`."""
    name = "wgmma.mma_async" if opcode.startswith("wgmma") else "mma"
    rest = opcode.removeprefix(f"{name}.").split(".")
    sparse = ".sp" if any(word.startswith("sp") for word in rest) else ""
    words = _GRAMMARS[name, sparse].split(opcode)
    if sparse and name == "mma" and not words["kind"] and not rest[0].startswith("sp"):
        raise ParseError(
            f".sp is part of the name: write {name}.sp… instead of {quoted(opcode)} (ptxas takes "
            "it in other places too)"
        )
    family = name.partition(".")[0] + sparse
    return _find(opcode, family, words)


def _find(opcode: str, family: str, words: Words) -> MatrixInstruction:
    """The instruction with those words, or UnsupportedError for the first that no form has."""
    given = {slot: ".".join(found) for slot, found in words.items()}
    m, n, k = (int(x) for x in re.findall(r"\d+", given["shape"]))
    rows = [form for form in FORMS if form.family == family]
    search = Search(opcode, family, rows, lambda: _spelled(family))
    ranges = any(form.n for form in rows)
    shape = f"m{m}k{k}" if ranges else given["shape"]
    search.keep("shape", given["shape"], lambda f: f.shape == shape, lambda f: [f.shape])
    d, a, b, c, stype = _types(opcode, words, updates_d=rows[0].updates_d)
    search.keep(
        "types",
        given["types"],
        lambda f: f.accepts_types(d, a, b, c),
        lambda f: [f"{dc.split('.')[0]} with {f.a} × {f.b or 'the same'}" for dc in f.dc.split()],
    )
    if ranges:
        search.keep("N", str(n), lambda f: n in f.n, lambda f: [runs(f.n)])
    search.keep_equal("kind", given["kind"].removeprefix("kind::"), lambda f: f.kind)
    search.keep_equal(
        "block scaling", "block_scale" if stype else "", lambda f: "block_scale" if f.scales else ""
    )
    search.keep_equal("bit operation", given["bit operation"], lambda f: f.bit_operation)
    form = search.rows[0]
    scale_vec = _scale_vec(search, form, given["scale_vec"], stype)
    layouts = words["layout"] if not form.updates_d else ("row", "col")
    if ".".join(layouts) not in form.layouts.split():
        search.refuse("layout", ".".join(layouts) or "none", form.layouts.split())
    if words["satfinite"] and not form.satfinite:
        search.refuse("modifier", ".satfinite", ["none"])
    if words["rounding"] and not form.rounding:
        search.refuse("rounding", given["rounding"], ["none"])
    ordered = given["sparse modifier"] == "sp::ordered_metadata"
    if ordered not in _ordered_choices(form):
        legal = ["sp::ordered_metadata" if x else "sp" for x in _ordered_choices(form)]
        search.refuse("sparse modifier", given["sparse modifier"], legal)
    return MatrixInstruction(
        form,
        m,
        n,
        k,
        d,
        a,
        b,
        c,
        layouts,  # type: ignore[arg-type]
        bool(words["satfinite"]),
        given["rounding"] or "rn",  # type: ignore[arg-type]
        scale_vec,
        stype,
        ordered,
    )


def _types(opcode: str, words: Words, *, updates_d: bool) -> tuple[str, str, str, str, str]:
    """The types of D, A, B, C, and of the block scales, "" without them."""
    types = words["types"]
    names = ["D", "A", "B", *([] if updates_d else ["C"])]
    names += ["scale"] if words["block_scale"] else []
    if len(types) != len(names):
        raise UnsupportedError(
            f"{quoted(opcode)} names {len(types)} types; {len(names)} are needed: "
            f"{', '.join(names)}"
        )
    d, a, b, *rest = types
    c = d if updates_d else rest[0]
    return d, a, b, c, rest[-1] if words["block_scale"] else ""


def _scale_vec(search: Search[MatrixForm], form: MatrixForm, given: str, stype: str) -> str:
    """The number of scales that is meant: the one that is written, or that of the form."""
    legal = form.scales.split()
    vec = given.removeprefix("scale_vec::")
    if not stype:
        if given:
            search.refuse("modifier", f".{given}", ["none"])
        return ""
    if not vec and form.scale_vec_optional:
        vec = legal[0].split(".")[0]
    if f"{vec}.{stype}" not in legal:
        spelled = [f"scale_vec::{x.replace('.', ' with ')}" for x in legal]
        search.refuse("scale", f"scale_vec::{vec or 'none'} with {stype}", spelled)
    return vec
