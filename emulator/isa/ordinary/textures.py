"""Textures: PTX ISA 9.7.10. Handles stand in registers, or are named by variables.

Legality is that of ptxas of CUDA 13.5. In place of offsets it takes an integer without braces, on
every geometry, and drops it and what stands behind it; a register is the depth, where there is one.
"""

from collections.abc import Iterator
from functools import partial

from emulator.isa.ordinary.row import Row, doing

_DEPTH = "c:f32/u32/s32?"
_COMPARED = f"{{{{e~:s32*{{axes}}}}}}?, {_DEPTH}"
#: geometries; the registers that their coordinates take, "a" where the number of a layer leads;
#: the registers of offsets and of derivatives; what may stand behind floating-point coordinates
_FLAT = (("2d", "2", 2, _COMPARED), ("a2d", "a4", 2, _COMPARED))
_PLAIN = (
    ("1d", "1", 1, _COMPARED),
    ("a1d", "a2", 1, _COMPARED),
    *_FLAT,
    ("3d", "4", 4, "{{e~:s32*{axes}}}?"),
)
_ON_A_CUBE = f"{{{{e~:s32*0}}}}?, {_DEPTH}"
_CUBES = (("cube", "4", 4, _ON_A_CUBE), ("acube", "a4", 4, _ON_A_CUBE))
#: the components of a texel, and the registers that they take
_RESULTS = (("v4.type=u32|s32|f32", 4), ("v4.type=f16", 4), ("v2.type=f16x2", 2))
_Fetch = partial(Row, later_operands=(("p", "7.1"),), dropped="uni")
#: the driver of an H200 drops a kernel that asks for them, without a word
_UNKNOWN_ANSWER = "properties but width, height and depth, which CUDA's driver has no answer to"


def _fetches() -> Iterator[Row]:
    for words, count in _RESULTS:
        d = f"{{d:type*{count}}}|p?"
        for geometry, given, axes, more in (*_PLAIN, *_CUBES):
            slopes = f"{{dx:f32/*{axes}}}, {{dy:f32/*{axes}}}"
            of_types = {"f32": more.format(axes=axes)}
            if (geometry, given, axes, more) in _PLAIN:
                of_types["s32"] = f"{{e~~:s32*{axes}}}?"
            for ctype, behind in of_types.items():
                form = f"geometry={geometry}.{words}.ctype={ctype}"
                fetch = f"{d}, [t:texture;{given}]"
                yield _Fetch(f"tex.{form}", f"{fetch}, {behind}")
                yield _Fetch(f"tex.base!.{form}", f"{fetch}, {behind}")
                yield _Fetch(f"tex.level!.{form}", f"{fetch}, level$:ctype, {behind}")
                yield _Fetch(f"tex.grad!.{form}", f"{fetch}, {slopes}, {behind}")
        for base in ("", "base!."):
            # A sample's number leads; textures of CUDA have no other than sample 0.
            for geometry, given in (("2dms", "4"), ("a2dms", "a4")):
                form = f"{base}geometry={geometry}.{words}.ctype=s32"
                operands = f"{d}, [t:texture;{given}], {{e~~:s32*2}}?"
                yield _Fetch(f"tex.{form}", operands)


def _gathers() -> Iterator[Row]:
    for geometry, given, axes, more in (*_FLAT, *_CUBES):
        form = f"component=r|g|b|a.geometry={geometry}.v4.type=u32|s32|f32.ctype=f32"
        operands = f"{{d:type*4}}|p?, [t:texture;{given}], {more.format(axes=axes)}"
        yield _Fetch(f"tld4.{form}", operands)


def _queries() -> Iterator[Row]:
    yield Row("txq.query=width|height|depth.type=b32", "d, [t:texture]")
    yield Row("txq.level!.query=width|height|depth.type=b32", "d, [t:texture], level$:s32")
    others = (
        "array_size|num_mipmap_levels|num_samples|channel_data_type|channel_order|filter_mode|"
        "normalized_coords|addr_mode_0|addr_mode_1|addr_mode_2|force_unnormalized_coords|"
        "memory_layout"
    )
    yield Row(f"txq.query={others}.type=b32", "d, [t:texture]", unmodelled=_UNKNOWN_ANSWER)


ROWS = (
    *doing("samples", (*_fetches(), *_gathers(), *_queries())),
    Row("istypep.kind=texref|samplerref|surfref", "p, a:u64", rule="bits.istypep"),
)
