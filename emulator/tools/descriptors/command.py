"""``descriptor``: what the command line asks of matrix descriptors, in words and tiles."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from emulator.errors import OperandError, listing, nearest, quoted
from emulator.layout.addressing import WINDOW
from emulator.layout.descriptor import Descriptor
from emulator.layout.validation import PATTERN_LINE, block_shape
from emulator.tools.answer import Answer
from emulator.tools.descriptors.checks import ReadTile, read_tile, unused_bits
from emulator.tools.descriptors.description import (
    Description,
    StoredTile,
    describe_descriptor,
    diff_descriptors,
    needed_descriptor,
)
from emulator.tools.descriptors.numbers import swizzle_width, whole_number
from emulator.tools.descriptors.text import build_answer, word_answer

_EXAMPLE = "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"


def descriptor(
    given: Sequence[str],
    operand: str = "b",
    major: str | None = None,
    shared_size: str | None = None,
    need: str | None = None,
    diff: bool = False,
    build: str | None = None,
) -> Answer:
    """Words are decoded, checked against an opcode among them, and compared with a stored tile.

    `need` and `build` describe a stored tile: ``swizzle=128B,start=0x400,tile=128x64``; `diff`
    compares with a tile that lies where the word points. Code 1 where a word has errors or reads
    other bytes than needed. Raises an EmulatorError for what cannot be understood.
    """
    opcodes = [text for text in given if "." in text]
    texts = [text for text in given if "." not in text]
    words = [_word(text) for text in texts]
    if len(opcodes) > 1:
        raise OperandError(f"one opcode for all words; got {listing(map(quoted, opcodes), 4)}")
    opcode = opcodes[0] if opcodes else None
    memory = WINDOW if shared_size is None else whole_number("--shared-size", shared_size)
    asked = [name for name, value in (("--need", need), ("--diff", diff or None),
                                      ("--build", build)) if value is not None]  # fmt: skip
    if len(asked) > 1:
        raise OperandError(f"one of --need, --diff and --build; got {' and '.join(asked)}")
    if build is not None and words:
        raise OperandError("--build makes a word, and one is given; --need compares with it")
    if not words and build is None:
        raise OperandError("no descriptor: give its 64-bit word, such as 0x4000004000010040, or "
                           f"--build swizzle=128B,start=0x400 {_EXAMPLE}")  # fmt: skip
    if opcode is None:
        if asked:
            raise OperandError(f"{asked[0]} takes an opcode, too, such as {_EXAMPLE}")
        plain = [word_answer(describe_descriptor(x, shared_size=memory)) for x in words]
        return _several([_noted(x, y) for x, y in zip(texts, plain, strict=True)])
    spec = _spec(build or need or "", major)
    tile = read_tile(opcode, operand, spec["major"])

    def describe(word: int) -> Description:
        return describe_descriptor(
            word, tile.ins, operand, major=spec["major"], shared_size=memory
        )  # fmt: skip

    if build is not None:
        stored = _stored(spec, tile)
        placed = needed_descriptor(tile.ins, operand, stored)
        found = describe(int(placed.descriptor.encode()))
        return build_answer(found, stored, placed, _along_k(tile, stored))
    answers = []
    for text, word in zip(texts, words, strict=True):
        parts = None
        if asked:
            parts = diff_descriptors(word, tile.ins, operand, _stored(spec, tile, word))
        answers.append(_noted(text, word_answer(describe(word), parts)))
    return _several(answers)


def _several(answers: list[Answer]) -> Answer:
    if len(answers) == 1:
        return answers[0]
    lines = [line for one in answers for line in ("", *one.lines)][1:]
    return Answer(lines, [one.data for one in answers], max(one.code for one in answers))


def _noted(text: str, answer: Answer) -> Answer:
    """With a note where a decimal word looks like a hexadecimal one without its 0x."""
    plain = text.strip()
    if not re.fullmatch(r"[1-9]\d{0,15}", plain):
        return answer
    if not _unused(int(plain)) or _unused(int(plain, 16)):
        return answer
    note = f"read as decimal; the hexadecimal word is 0x{plain}"
    assert isinstance(answer.data, dict)
    first, *rest = answer.lines
    return Answer([first, f"note: {note}", *rest], answer.data | {"note": note}, answer.code)


def _unused(word: int) -> bool:
    """Whether bits are set that belong to no field."""
    return any(word >> low & (1 << high - low + 1) - 1 for high, low in unused_bits())


def _along_k(tile: ReadTile, stored: StoredTile) -> list[tuple[int, int]]:
    """(column, word) of each step that a kernel takes along k through a stored tile."""
    step = tile.shape.k * tile.per_k
    out = []
    for column in range(0, (stored.k or step) - step + 1, step):
        placed = needed_descriptor(tile.ins, tile.operand, replace(stored, column=column))
        out.append((column, int(placed.descriptor.encode())))
    return out


# --- what was given -------------------------------------------------------------------------------


def _word(text: str) -> int:
    """A word in hexadecimal, binary or decimal, as C, PTX and debuggers write it."""
    plain = re.sub(r"(?i)(?<=[\da-f])(ull?|ll?u?)$", "", text.strip()).replace("'", "")
    try:
        word = int(plain, 0)
    except ValueError:
        hint = f"; nearest is 0x{plain}" if re.fullmatch(r"[\da-fA-F_]{1,16}", plain) else ""
        raise OperandError(
            f"{quoted(text, 80)} is neither a 64-bit word (0x…, 0b… or decimal) nor an opcode{hint}"
        ) from None
    # Debuggers show words with the highest bit set as negative numbers.
    if -(1 << 63) <= word < 0:
        word += 1 << 64
    if not 0 <= word < 1 << 64:
        raise OperandError(f"a matrix descriptor has 64 bits; {quoted(text, 80)} does not fit")
    return word


def _sizes(text: str) -> tuple[int, int]:
    rows, times, k = text.lower().partition("x")
    if not times:
        raise OperandError(f"tile is ROWSxCOLUMNS, such as 128x64; got {quoted(text, 80)}")
    return whole_number("tile", rows), whole_number("tile", k)


_KEYS: dict[str, Callable[[str], Any]] = {
    "swizzle": swizzle_width,
    "start": lambda text: whole_number("start", text),
    "tile": _sizes,
    "order": str,
    "row": lambda text: whole_number("row", text),
    "column": lambda text: whole_number("column", text),
    "leading": str,
    "major": str,
}


def _spec(text: str, major: str | None) -> dict[str, Any]:
    """The values of ``swizzle=128B,start=0x400,…`` by their keys; always with a major."""
    values: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = (x.strip() for x in part.partition("="))
        if key not in _KEYS or not equals:
            raise OperandError(
                f"a stored tile is described by {listing(f'{x}=…' for x in _KEYS)}; got "
                f"{quoted(part, 80)}; nearest is {nearest(key[:80], _KEYS)[0]}=…"
            )
        if key in values:
            raise OperandError(f"{key} is given twice in {quoted(text)}")
        values[key] = _KEYS[key](value)
    if major and values.get("major", major) != major:
        raise OperandError(f"--major {major} contradicts major={values['major']}")
    return values | {"major": values.get("major", major or "k")}


def _stored(spec: dict[str, Any], tile: ReadTile, word: int | None = None) -> StoredTile:
    """The stored tile that a spec describes, with what it leaves out taken from the word."""
    own = None if word is None else Descriptor.decode(word)
    swizzle = spec.get("swizzle", own.swizzle_bytes if own else 128)
    rows, k = spec.get("tile", (None, None))
    values = {
        "swizzle_bytes": swizzle, "major": spec["major"], "rows": rows, "k": k,
        "start_address": spec.get("start", 0), "order": spec.get("order", "rows"),
        "row": spec.get("row", 0), "column": spec.get("column", 0),
        "leading_bytes": _leading(spec["leading"], tile) if "leading" in spec else None,
    }  # fmt: skip
    if own and "start" not in spec:
        values |= _where(own, tile, swizzle, set(spec))
    return StoredTile(**values)


def _where(own: Descriptor, tile: ReadTile, swizzle: int, given: set[str]) -> dict[str, int]:
    """The start of the stored tile that a word points into, and how far into a line it points."""
    if not swizzle:
        return {"start_address": own.start_address}
    within = own.start_address % PATTERN_LINE % swizzle
    out = {"start_address": own.start_address // PATTERN_LINE * PATTERN_LINE}
    shape = tile.shape
    reads = (shape.k if shape.major == "k" else shape.rows) * shape.element_bytes
    if not within or within + reads > swizzle or given & {"tile", "row", "column"}:
        return out
    # A step along the lines of a tile that is as wide as the swizzle.
    rows, k = block_shape(shape, swizzle)
    step = within // shape.element_bytes
    out |= {"rows": max(rows, shape.rows), "k": max(k, shape.k) * tile.per_k}
    return out | ({"column": step * tile.per_k} if shape.major == "k" else {"row": step})


def _leading(text: str, tile: ReadTile) -> int:
    """Bytes of ``128`` (or ``128B``), or of ``64e``, which counts elements."""
    plain = text.lower()
    count = whole_number("leading (128B, or 64e for elements)", plain.rstrip("be"))
    return count * tile.shape.element_bytes // tile.per_k if plain.endswith("e") else count
