"""``descriptor``: what the command line asks of matrix descriptors, in words and tiles."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

from emulator.errors import OperandError, hint, listing, quoted, shown
from emulator.isa.kinds import is_tensor
from emulator.layout.descriptor import Descriptor
from emulator.layout.tile import PATTERN_LINE, WINDOW
from emulator.tools.descriptors.description import as_hex, describe_descriptor, span, unused_bits
from emulator.tools.descriptors.difference import diff_descriptors
from emulator.tools.descriptors.tensor import Question, tensor_answer
from emulator.tools.descriptors.tiles import ReadTile, StoredTile, needed_descriptor, read_tile
from emulator.tools.report import Answer, render, together
from emulator.tools.words import sizes, swizzle_width, whole_number

_EXAMPLE = "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"


#: arguments of `descriptor` and what they mean
DESCRIPTOR_HELP = {
    "given WORD|OPCODE": "64-bit words (0x, 0b or decimal), and a wgmma or tcgen05.mma to "
    "check them for; of tcgen05.mma words below 2**32 are instruction descriptors",
    "--idesc WORD": "instruction descriptor of a tcgen05.mma: its operands are checked with it",
    "--target": "of a tcgen05.mma: sm_107a reads a bit more of addresses",
    "--operand": "a or b (default b)",
    "--major": "k (default), or mn where imm-trans is 1",
    "--shared-size BYTES": "of the shared memory (default 2**18)",
    "--need TILE": "name the difference to the word that a tile needs, such as "
    "swizzle=128B,start=0x400: swizzle= none, 32B, 64B, 128B; start= byte address; tile= "
    "ROWSxCOLUMNS as stored (rows are m or n, columns k, whatever the major); row=, column= "
    "where the instruction starts in it; order= rows or columns, which block of 8 lines "
    "follows in memory; leading= bytes between lines, or 64e in elements; major=",
    "--diff": "--need, everything taken from the word",
    "--build TILE": "build the word that such a tile needs; of a tcgen05.mma also an "
    "instruction descriptor: a=bf16,b=bf16,m=128,n=256,transpose_b=1",
}


def descriptor_command(
    given: Sequence[str] = (),
    operand: str = "b",
    major: str | None = None,
    shared_size: str | None = None,
    need: str | None = None,
    diff: bool = False,
    build: str | None = None,
    idesc: str | None = None,
    target: str | None = None,
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
    memory = WINDOW if shared_size is None else whole_number("--shared-size", shared_size)
    if opcodes and is_tensor(opcodes[0]):
        given_idesc = None if idesc is None else _word(idesc)
        question = Question(opcodes[0], given_idesc, operand, memory, target)
        return _of_tensor_cores(question, words, build, need or diff)
    for name, value in (("--idesc", idesc), ("--target", target)):
        if value is not None:
            raise OperandError(f"{name} goes with a tcgen05.mma; give its opcode, too")
    asked = [
        name
        for name, value in (("--need", need), ("--diff", diff or None), ("--build", build))
        if value is not None
    ]
    if len(asked) > 1:
        raise OperandError(f"one of --need, --diff and --build; got {' and '.join(asked)}")
    if build is not None and words:
        raise OperandError("--build makes a word, and one is given; --need compares with it")
    if not words and build is None:
        raise OperandError(
            "no descriptor: give its 64-bit word, such as 0x4000004000010040, or "
            f"--build swizzle=128B,start=0x400 {_EXAMPLE}"
        )
    if not opcodes and asked:
        raise OperandError(f"{asked[0]} takes an opcode, too, such as {_EXAMPLE}")
    if not opcodes:
        return together(
            [_word_answer(*x, None, None, memory) for x in zip(texts, words, strict=True)]
        )
    spec = _spec(build or need or "", major)
    tile = read_tile(opcodes[0], operand, spec["major"])
    if build is not None:
        return _build_answer(tile, _stored(spec, tile), memory)
    return together(
        [
            _word_answer(text, word, tile, _stored(spec, tile, word) if asked else None, memory)
            for text, word in zip(texts, words, strict=True)
        ]
    )


def _of_tensor_cores(
    asked: Question, words: list[int], build: str | None, compared: object
) -> Answer:
    """The answer about descriptors of a tcgen05.mma."""
    if compared:
        raise OperandError("--need and --diff compare words of wgmma; tcgen05 has --build")
    if not words and asked.idesc is None and build is None:
        raise OperandError(
            "no descriptor: give a 64-bit word, an instruction descriptor such as 0x8400490, or "
            "--build a=bf16,b=bf16,m=128,n=256"
        )
    return tensor_answer(asked, words, None if build is None else _pairs(build))


def _pairs(text: str) -> dict[str, str]:
    """``key=value,…`` as it stands."""
    parts = [part.partition("=") for part in text.split(",") if part.strip()]
    if wrong := [key for key, equals, _ in parts if not equals]:
        raise OperandError(f"--build takes key=value, …; got {quoted(wrong[0], 80)}")
    return {key.strip(): value.strip() for key, _, value in parts}


def _word_answer(
    text: str, word: int, tile: ReadTile | None, stored: StoredTile | None, memory: int
) -> Answer:
    """One word, and how it differs from what a stored tile needs; code 1 where either is wrong.

    A note says where a decimal word looks like a hexadecimal one without its 0x.
    """
    which = (tile.ins, tile.operand) if tile else ()
    major = tile.shape.major if tile else "k"
    found = describe_descriptor(word, *which, major=major, shared_size=memory)
    parts = None
    if stored is not None and tile is not None:
        parts = diff_descriptors(word, tile.ins, tile.operand, stored)
        _check_place(parts.stored, parts.needed.size, memory)
        found = replace(found, findings=parts.judged(found.findings))
    lines, data, code = list(found.head(parts is None)), found.data, found.code
    if parts:
        lines += [*([""] if found.findings else []), *parts.lines()]
        data, code = data | parts.data, max(code, parts.code)
    plain = text.strip()
    if re.fullmatch(r"[1-9]\d{0,15}", plain) and _unused(int(plain)) > _unused(int(plain, 16)):
        note = f"read as decimal; the hexadecimal word is 0x{plain}"
        lines.insert(1, f"note: {note}")
        data = data | {"note": note}
    return Answer([*lines, *found.matrices()], data, code)


def _check_place(stored: StoredTile, size: int, memory: int) -> None:
    """OperandError where a stored tile leaves shared memory, whatever word reads it."""
    start = stored.start_address
    if start + size > memory:
        best = (memory - size) // PATTERN_LINE * PATTERN_LINE
        nearest = f"; nearest is start={best:#x}" if best >= 0 else ""
        raise OperandError(
            f"the stored tile takes bytes {start:#x}-{start + size - 1:#x} ({size}), and shared "
            f"memory ends at {memory:#x} ({memory}){nearest}"
        )


def _unused(word: int) -> bool:
    """Whether bits are set that belong to no field."""
    return any(value for _, _, value in unused_bits(word))


def _build_answer(tile: ReadTile, stored: StoredTile, memory: int) -> Answer:
    """The word that a stored tile needs, where the tile lies, and the words along k."""
    placed = needed_descriptor(tile.ins, tile.operand, stored)
    word, major = int(placed.descriptor.encode()), tile.shape.major
    found = describe_descriptor(word, tile.ins, tile.operand, major=major, shared_size=memory)
    last = stored.start_address + placed.size - 1
    lines = [
        *found.head(), "",
        f"the stored tile takes bytes {stored.start_address:#x}-{last:#x} ({placed.size})",
    ]  # fmt: skip
    steps = []
    for column in range(0, (stored.k or tile.k) - tile.k + 1, tile.k):
        step = needed_descriptor(tile.ins, tile.operand, replace(stored, column=column))
        steps.append((column, as_hex(int(step.descriptor.encode()))))
    if len(steps) > 1:
        rows = [[span(column, tile.k), text] for column, text in steps]
        lines += ["", *render(["columns", "word"], rows)]
    data = found.data | {
        "stored": asdict(stored),
        "stored_bytes": [stored.start_address, last],
        "along_k": [{"column": column, "word": text} for column, text in steps],
    }
    return Answer([*lines, *found.matrices()], data, found.code)


# --- what was given -------------------------------------------------------------------------------


def _word(text: str) -> int:
    """A word in hexadecimal, binary or decimal, as C, PTX and debuggers write it."""
    plain = re.sub(r"(?i)(?<=[\da-f])(ull?|ll?u?)$", "", text.strip()).replace("'", "")
    try:
        word = int(plain, 0)
    except ValueError:
        near = f"; nearest is 0x{plain}" if re.fullmatch(r"[\da-fA-F_]{1,16}", plain) else ""
        raise OperandError(
            f"{quoted(text, 80)} is neither a 64-bit word (0x…, 0b… or decimal) nor an opcode{near}"
        ) from None
    # Debuggers show words with the highest bit set as negative numbers.
    if -(1 << 63) <= word < 0:
        word += 1 << 64
    if not 0 <= word < 1 << 64:
        raise OperandError(f"a matrix descriptor has 64 bits; {quoted(text, 80)} does not fit")
    return word


_KEYS: dict[str, Callable[[str], Any]] = {
    "swizzle": swizzle_width,
    "start": lambda text: whole_number("start", text),
    "tile": lambda text: sizes("tile, ROWSxCOLUMNS,", text.lower(), 2, 2),
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
            near = hint(key, _KEYS)
            raise OperandError(
                f"a stored tile is described by {listing(f'{x}=…' for x in _KEYS)}; got "
                f"{quoted(part, 80)}{near[:-1] + '=…' + near[-1] if near else ''}"
            )
        if key in values:
            raise OperandError(f"{key} is given twice in {quoted(text)}")
        values[key] = _KEYS[key](value)
    if major and values.get("major", major) != major:
        raise OperandError(f"--major {shown(major)} contradicts major={values['major']:.80}")
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
    shape, within = tile.shape, own.start_address % PATTERN_LINE % swizzle
    out = {"start_address": own.start_address // PATTERN_LINE * PATTERN_LINE}
    past = within + shape.line_bytes > swizzle
    if not within or past or given & {"tile", "row", "column"}:
        return out
    # A step along the lines of a tile that is as wide as the swizzle.
    rows, k = shape.block(swizzle)
    step = within // shape.element_bytes
    out |= {"rows": max(rows, shape.rows), "k": max(k, shape.k) * tile.per_k}
    return out | ({"column": step * tile.per_k} if shape.major == "k" else {"row": step})


def _leading(text: str, tile: ReadTile) -> int:
    """Bytes of ``128`` (or ``128B``), or of ``64e``, which counts elements."""
    plain = text.lower()
    count = whole_number("leading (128B, or 64e for elements)", plain.rstrip("be"))
    return count * tile.shape.element_bytes // tile.per_k if plain.endswith("e") else count
