"""tcgen05: the fifth generation's tensor core and its tensor memory (PTX ISA 9.7.16).

The rows are written as those of ordinary instructions; an address in tensor memory is one in the
state space ``tensor``, of 32 bits. Legality, targets and versions were compared with ptxas of CUDA
13.5. ptxas looks at neither descriptor's contents, and nor do these rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from emulator.errors import ParseError, hint, listing, quoted
from emulator.isa.ordinary.instruction import OrdinaryInstruction, refusal
from emulator.isa.ordinary.row import Needs, Row, operand_patterns, settle
from emulator.isa.signature import Operand, Signature
from emulator.layout.mma_kinds import KINDS
from emulator.targets import Target, having

if TYPE_CHECKING:
    from emulator.arith.evidence import Fidelity

_ALL, _EXACT = having("tcgen05"), having("tcgen05.scale_vec")
_INTEGER, _TI16 = having("tcgen05.i8"), having("tcgen05.ti16")
_REDUCING, _COMPRESSING = having("tcgen05.ld.red"), having("tcgen05.ld.spcompress")

_GROUP = "cta_group=cta_group::1|cta_group::2"
_OPERATIONS = ("fill", "use", "lastuse", "discard")
_NUMBERS = (1, 2, 4, 8, 16, 32, 64, 128)


# --- mma ------------------------------------------------------------------------------------------

_A_COLLECTORS = "|".join(f"collector::a::{x}" for x in _OPERATIONS)
#: with .ashift the collector of A can neither be filled nor used
_SHIFTED_COLLECTORS = "|".join(f"collector::a::{x}" for x in ("lastuse", "discard"))
_B_COLLECTORS = tuple(f"collector::b::{x}" for x in _OPERATIONS)
_B_BUFFERS = "|".join(f"collector::b{n}::{x}" for n in range(4) for x in _OPERATIONS)
_COLLECTOR_B = f"{{.collector_b={'|'.join(_B_COLLECTORS)}}}"
_COLLECTING_B = tuple(Needs(word, _TI16, "9.4") for word in _B_COLLECTORS)

_MASKS = "{mask:b32*4}@cta_group::1?, {mask:b32*8}@cta_group::2?"
#: where A is written as a descriptor; it may be an address in tensor memory, too
_MATRICES = "[d:tensor], a:u64, b:u64, [lut:tensor]@decompress::lut::b, [e:tensor]@sp, idesc:u32"
_PLAIN = f"{_MATRICES}, {_MASKS}, enable:pred"
_SCALED = f"{_MATRICES}, [scale_a:tensor], [scale_b:tensor], enable:pred"
_STATIONARY = f"{_MATRICES}, enable:pred, zero_mask:u64?"
_SCALE_D = "scale_input_d=0..15?"


def _products() -> Iterator[Row]:
    """mma and mma.sp of the kinds without block scales, and mma.ws."""
    for kinds, targets, version, more, collector_b in (
        ("f16|tf32", _ALL, "8.6", _SCALE_D, _COLLECTOR_B),
        ("f8f6f4", _ALL, "8.6", "", _COLLECTOR_B),
        ("i8", _INTEGER, "8.6", "", ""),
        ("ti16", _TI16, "9.4", "", _COLLECTOR_B),
    ):
        kind = "kind=" + "|".join(f"kind::{name}" for name in kinds.split("|"))
        operands = ", ".join(filter(None, (_PLAIN, more)))
        for shift, collectors in (("", _A_COLLECTORS), (".ashift", _SHIFTED_COLLECTORS)):
            yield Row(
                f"tcgen05.mma{{.sp}}.{_GROUP}.{kind}{shift}{{.collector_a={collectors}}}{collector_b}",
                operands, "", targets, version, needs=_COLLECTING_B,
            )  # fmt: skip
        yield Row(
            f"tcgen05.mma.ws!{{.sp}}.cta_group=cta_group::1.{kind}{{.collector={_B_BUFFERS}}}",
            _STATIONARY, "", targets, version,
        )  # fmt: skip
    yield Row(
        f"tcgen05.mma.{_GROUP}.kind=kind::f8f6f4.decompress::lut::b{{.collector_a={_A_COLLECTORS}}}"
        f"{_COLLECTOR_B}",
        _PLAIN, "", _TI16, "9.4",
    )  # fmt: skip


def _scaled_products() -> Iterator[Row]:
    """mma and mma.sp with block scales: a vector of scales by name, or by the block's size."""
    for kind, vectors, targets, version in (
        ("mxf8f6f4", "", _ALL, "8.6"),
        ("mxf8f6f4", ".scale_vec=scale_vec::1X", _EXACT, "8.6"),
        ("mxf8f6f4", ".scale_vec=block32", _ALL, "8.8"),
        ("mxf4", "", _ALL, "8.6"),
        ("mxf4", ".scale_vec=scale_vec::2X", _EXACT, "8.6"),
        ("mxf4", ".scale_vec=block32", _ALL, "8.8"),
        ("mxf4nvf4", ".scale_vec=scale_vec::2X|scale_vec::4X", _EXACT, "8.7"),
        ("mxf4nvf4", ".scale_vec=block16|block32", _ALL, "8.8"),
    ):
        collectors = f"{{.collector_a={_A_COLLECTORS}}}{_COLLECTOR_B}"
        needs = _COLLECTING_B
        if kind != "mxf8f6f4":
            needs += (Needs("sp", _EXACT),)
        yield Row(
            f"tcgen05.mma{{.sp}}.{_GROUP}.kind=kind::{kind}.block_scale{vectors}{collectors}",
            _SCALED, "", targets, version, needs=needs,
        )  # fmt: skip
        if kind == "mxf8f6f4":
            yield Row(
                f"tcgen05.mma.{_GROUP}.kind=kind::{kind}.block_scale.decompress::lut::b{vectors}"
                f"{collectors}",
                _SCALED, "", tuple(t for t in _TI16 if t in targets), "9.4",
            )  # fmt: skip


# --- moving data ----------------------------------------------------------------------------------

#: shape -> 32-bit registers of .x1
_SHAPES = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}
_MOST = 128


def _counts(registers: int, least: int = 1) -> str:
    return "num=" + "|".join(f"x{n}" for n in _NUMBERS if n >= least and n * registers <= _MOST)


def _transfers() -> Iterator[Row]:
    """ld and st; the two halves of 16x32bx2 are so many columns apart as its offset says."""
    for shape, registers in _SHAPES.items():
        vector = f"b32*num*{registers}"
        split = ", split_off=" if shape == "16x32bx2" else ""
        opcode = f"sync.aligned.shape={shape}.{_counts(registers)}"
        yield Row(
            f"tcgen05.ld.{opcode}{{.pack::16b}}.type=b32",
            f"{{d:{vector}}}, [taddr:tensor+]{split}", "", _ALL, "8.6", scope="warp",
        )  # fmt: skip
        yield Row(
            f"tcgen05.st.{opcode}{{.unpack::16b}}.type=b32",
            f"[taddr:tensor+]{split}, {{src%:{vector}}}", "", _ALL, "8.6", scope="warp",
        )  # fmt: skip
        if shape in ("32x32b", "16x32bx2"):
            reduced = f"sync.aligned.shape={shape}.{_counts(1, 2)}.operation=min|max"
            for types in ("{.abs}{.NaN}.type=f32", ".type=u32|s32"):
                yield Row(
                    f"tcgen05.ld.red!.{reduced}{types}",
                    f"{{d:b32*num}}, redval!:b32, [taddr:tensor+]{split}",
                    "", _REDUCING, "8.8", scope="warp",
                )  # fmt: skip
    for number in _NUMBERS[2:]:
        shape = f"sync.aligned.shape=32x32b.num=x{number}.operation=min|max.sp=sp::2:4{{.abs}}"
        kept = f"{{mdata!:b32*{-(-number // 32)}}}, {{cdata!:b32*{number // 2}}}"
        yield Row(
            f"tcgen05.ld.spcompress!.{shape}.type=f32.index=b2", f"{kept}, [taddr:tensor+]",
            "", _COMPRESSING, "9.4", scope="warp",
        )  # fmt: skip
        yield Row(
            f"tcgen05.ld.red.spcompress!.{shape}{{.NaN}}.type=f32.index=b2",
            f"{kept}, redval!:b32, [taddr:tensor+]", "", _COMPRESSING, "9.4", scope="warp",
        )  # fmt: skip


def _copies() -> Iterator[Row]:
    for shapes, lanes in (
        ("128x256b|4x256b|128x128b", ""),
        ("64x128b", ".lanes=warpx2::02_13|warpx2::01_23"),
        ("32x128b", ".lanes=warpx4"),
    ):
        for unpacked in ("", ".to=b8x16.from=b6x16_p32|b4x16_p64"):
            yield Row(
                f"tcgen05.cp.{_GROUP}.shape={shapes}{lanes}{unpacked}",
                "[taddr:tensor++], s_desc:u64", "", _ALL, "8.6",
            )  # fmt: skip


def _transfers_and_copies() -> Iterator[Row]:
    """Those of which ptxas drops layouts, words of mma."""
    return (replace(row, dropped="row|col*2") for row in (*_transfers(), *_copies()))


# --- allocation and order -------------------------------------------------------------------------

#: PTX has 512 columns; with .exclusive ptxas takes every multiple of 32
_COLUMNS, _EXCLUSIVE = "columns:u32<32,64,128,256,512>", "columns:u32<32..18446744073709551584/32>"


def _allocations() -> Iterator[Row]:
    for exclusive, columns, version in (("", _COLUMNS, "8.6"), (".exclusive", _EXCLUSIVE, "9.4")):
        group = f"{exclusive}.{_GROUP}.sync.aligned"
        yield Row(
            f"tcgen05.alloc{group}{{.space=shared::cta}}.type=b32", f"[dst:space+], {columns}",
            "", _ALL, version, scope="warp", effects="allocates",
        )  # fmt: skip
        yield Row(
            f"tcgen05.dealloc{group}.type=b32",
            f"taddr:u32, {columns}",
            "",
            _ALL,
            version,
            scope="warp",
        )


def _commits() -> Iterator[Row]:
    space = f"{_GROUP}.mbarrier::arrive::one{{.space=shared::cluster}}"
    restricted = "sync_restrict::shared::read::mma::a"
    needs = (
        Needs("multicast::cluster::16b", _ALL, "9.4"),
        Needs("multicast::cluster::32b", _TI16, "9.4"),
        Needs(restricted, _TI16, "9.4"),
    )
    mask = (
        "mask:u16<0..65535>@multicast::cluster, mask:u16<0..65535>@multicast::cluster::16b, "
        "mask:u32<0..4294967295>@multicast::cluster::32b"
    )
    multicast = "|".join(f"multicast::cluster{x}" for x in ("", "::16b", "::32b"))
    yield Row(
        f"tcgen05.commit.{space}{{.{restricted}}}{{.multicast={multicast}}}.type=b64",
        f"[mbarrier:space+], {mask}", "", _ALL, "8.6", needs=needs,
    )  # fmt: skip


_ORDER = (
    Row(f"tcgen05.relinquish_alloc_permit.{_GROUP}.sync.aligned", "", "", _ALL, "8.6",
        scope="warp"),
    *(Row(f"tcgen05.wait::{x}.sync.aligned", "", "", _ALL, "8.6", scope="warp", effects=effects)
      for x, effects in (("ld", "waits arrives"), ("st", "waits"))),
    *(Row(f"tcgen05.fence::{x}_thread_sync", "", "", _ALL, "8.6", effects=f"hint orders {x}")
      for x in ("before", "after")),
    Row(f"tcgen05.shift.{_GROUP}.down", "[taddr:tensor++]", "", _EXACT, "8.6"),
)  # fmt: skip

ROWS: tuple[Row, ...] = (
    *_products(), *_scaled_products(), *_transfers_and_copies(), *_allocations(), *_commits(),
    *_ORDER,
)  # fmt: skip


#: operations that move data between registers, shared and tensor memory
_MOVING = ("ld", "st", "cp", "shift")


# --- instructions ---------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Tcgen05(OrdinaryInstruction):
    """One tcgen05 instruction. `modifiers` has its words by slot: kind, cta_group, shape, num …"""

    def __str__(self) -> str:
        return self.row.spell(self.words)

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return parse, (str(self),)

    @property
    def operation(self) -> str:
        """mma, ld, st, cp, shift, alloc, dealloc, commit …"""
        return self.row.grammar.slots[0].name

    @property
    def family(self) -> str:
        """Its name with the words that make it another instruction: tcgen05.mma.ws.sp."""
        given = (word for word in ("ws", "red", "spcompress", "sp") if word in self.words)
        return ".".join(["tcgen05", self.operation, *given])

    @property
    def cta_group(self) -> int:
        """CTAs that take part; 1 where the opcode says nothing."""
        return int((self.modifiers.get("cta_group") or "1")[-1])

    def fidelity(self, target: str | Target) -> Fidelity:
        from emulator.arith.evidence import find_fidelity

        family = {"mma": "tcgen05.mma", **dict.fromkeys(_MOVING, "tcgen05.move")}
        generation = self.check_target(target).generation
        d = self.element_types.get("d", "")
        return find_fidelity(generation, family.get(self.operation, "tcgen05"), d=d)

    @property
    def element_types(self) -> dict[str, str]:
        """Of mma the types that its descriptor may choose for each operand, separated by spaces."""
        if self.operation != "mma":
            return {}
        kind = KINDS[(self.modifiers["kind"] or "").removeprefix("kind::")]
        types = {"d": kind.d, "a": kind.types, "b": kind.types, "scale": kind.scales}
        return {name: " ".join(each) for name, each in types.items() if each}

    def signatures(self, target: str | Target | None = None) -> tuple[Signature, ...]:
        """The operands; of mma twice, with A in shared memory (a descriptor) and in tensor memory.

        Raises UnsupportedError where `target` lacks the instruction.
        """
        if target is None or "tcgen05.scale_input_d" in self.check_target(target).features:
            return self._signatures
        return tuple(
            Signature(tuple(x for x in each.operands if x.name != "scale_input_d"), each.scope)
            for each in self._signatures
        )

    @cached_property
    def _signatures(self) -> tuple[Signature, ...]:
        texts = [self.row.operands]
        if self.operation == "mma":
            texts.append(self.row.operands.replace(", a:u64", ", [a:tensor]"))
            if self.modifiers.get("ashift"):
                del texts[0]
        return tuple(Signature(tuple(self._operands(text)), self.scope) for text in texts)

    def _operands(self, text: str) -> Iterator[Operand]:
        slots = zip(self.row.grammar.slots, self.words, strict=True)
        words = {slot.name: word for slot, word in slots}
        default = self.types[0] if self.types else "b32"
        for pattern in operand_patterns(text):
            if (operand := settle(pattern, words, default)) is not None:
                yield operand


def expand() -> Iterator[Tcgen05]:
    """Every form of every row; collectors, which change no values, once each."""
    for row in ROWS:
        for words in row.expand():
            yield Tcgen05(row, words)


@lru_cache(maxsize=1024)
def parse(opcode: str) -> Tcgen05:
    """The instruction that `opcode` names, its modifiers in any order.

    Raises ParseError for a word that no form has, UnsupportedError for modifiers that do not go
    together.
    """
    _, *words = opcode.strip().split(".")
    operation = words[0] if words else ""
    rows = tuple(row for row in ROWS if row.grammar.slots[0].name == operation)
    if not rows:
        known = dict.fromkeys(row.grammar.slots[0].name for row in ROWS)
        raise ParseError(
            f"{quoted(opcode)} names no operation of tcgen05; there are {listing(known)}"
            f"{hint(operation, known)}"
        )
    for row in rows:
        if (found := row.grammar.match(words)) is not None:
            return Tcgen05(row, found)
    raise refusal(opcode, words, rows)
