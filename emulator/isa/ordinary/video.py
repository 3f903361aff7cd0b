"""Video instructions: PTX ISA 9.7.18."""

from collections.abc import Iterator

from emulator.isa.ordinary.row import Row

_TYPES = ".to=u32|s32.atype=u32|s32.btype=u32|s32"
_WORD = "u32/f16x2"
_COMPARE = "compare=eq|ne|lt|le|gt|ge"
_SECOND = ".operation=add|min|max"
_ONE = "d.part:to, a.part:atype, b.part:btype, c:to?"
_THREE = "d:to, a.part:atype, b.part:btype, c:to"


def _with_secondary(form: str, rule: str) -> tuple[Row, Row]:
    """Without a secondary operation c is there where d is a part of a word."""
    return (
        Row(form, _ONE, rule, version="2.0"),
        Row(f"{form}{_SECOND}", _THREE, rule, version="2.0"),
    )


_SCALAR = (
    *(
        row
        for name in ("vadd", "vsub", "vabsdiff", "vmin", "vmax")
        for row in _with_secondary(f"{name}{_TYPES}{{.sat}}", "video.arithmetic")
    ),
    *(
        row
        for name in ("vshl", "vshr")
        for row in _with_secondary(
            f"{name}.to=u32|s32.atype=u32|s32.btype=u32{{.sat}}.mode=clamp|wrap", "video.shift"
        )
    ),
    # The manual has no u32 of signed factors; ptxas takes them.
    *(
        Row(
            f"vmad{_TYPES}{po}{{.sat}}{{.scale=shr7|shr15}}",
            "d:to, a.part:atype, b.part:btype, c:to",
            "video.multiply",
            version="2.0",
        )
        for po in ("", ".po")
    ),
    Row(
        f"vset.atype=u32|s32.btype=u32|s32.{_COMPARE}",
        _ONE.replace(":to", ":u32"),
        "video.compare",
        version="2.0",
    ),
    Row(
        f"vset.atype=u32|s32.btype=u32|s32.{_COMPARE}{_SECOND}",
        _THREE.replace(":to", ":u32"),
        "video.compare",
        version="2.0",
    ),
)

#: the types of sums of four lanes; of the first ptxas makes dp4a, which takes no f16x2 for c
_SUM_TYPES = (
    (".to=u32.atype=u32.btype=u32", "u32"),
    (".to=u32.atype=u32.btype=s32", _WORD),
    (".to=u32.atype=s32.btype=u32|s32", _WORD),
    (".to=s32.atype=u32|s32.btype=u32|s32", _WORD),
)


def _added(name: str, count: int, operands: str) -> Iterator[Row]:
    """The forms whose lanes are added up."""
    of_dp4a = count == 4 and name in ("vadd", "vsub")
    for types, c in _SUM_TYPES if of_dp4a else ((_TYPES, _WORD),):
        form = f"{name}{count}{types}.operation=add"
        yield Row(form, operands.replace(f"c%:{_WORD}", f"c%:{c}"), "video.lanes", version="3.0")


_LANES = tuple(
    row
    for count, mask, parts in ((2, "half_mask", "halves"), (4, "byte_mask", "bytes"))
    for operands in (f"d.{mask}:{_WORD}, a.{parts}%:{_WORD}, b.{parts}%:{_WORD}, c%:{_WORD}",)
    for name in ("vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax")
    for row in (
        Row(f"{name}{count}{_TYPES}{{.sat}}", operands, "video.lanes", version="3.0"),
        *_added(name, count, operands),
    )
) + tuple(
    Row(
        f"vset{count}.atype=u32|s32.btype=u32|s32.{_COMPARE}{{.operation=add}}",
        f"d.{mask}:u32, a.{parts}%:{_WORD}, b.{parts}%:{_WORD}, c%:u32",
        "video.compare_lanes",
        version="3.0",
    )
    for count, mask, parts in ((2, "half_mask", "halves"), (4, "byte_mask", "bytes"))
)

ROWS = (*_SCALAR, *_LANES)
