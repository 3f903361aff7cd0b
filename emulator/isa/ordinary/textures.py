"""Textures: PTX ISA 9.7.10. Handles stand in registers (bindless, independent mode).

ptxas of CUDA 13.5 takes every form: asked on sm_75 with PTX 6.3, sm_90 and sm_120a with 9.5.
"""

from collections.abc import Iterator

from emulator.isa.ordinary.row import Row, doing

#: geometries, the registers that their coordinates take, and their axes with a derivative each
_PLAIN = (("1d", 1, 1), ("a1d", 2, 1), ("2d", 2, 2), ("a2d", 4, 2), ("3d", 4, 4))
#: the components of a texel
_WORDS, _HALVES, _PAIRS = ("v4.type=u32|s32|f32", 4), ("v4.type=f16", 4), ("v2.type=f16x2", 2)
_LEVELS = "levels of detail"


def _fetches() -> Iterator[Row]:
    for words, count in (_WORDS, _HALVES, _PAIRS):
        halves = "" if words == _WORDS[0] else "texels as f16"
        for geometry, given, axes in _PLAIN:
            form = f"geometry={geometry}.{words}.ctype=s32|f32"
            yield from _of_levels(form, count, given, axes, halves)
        form = f"geometry=cube|acube.{words}.ctype=f32"
        yield from _of_levels(form, count, 4, 4, "the faces of a cube")
        form = f"geometry=2dms|a2dms.{words}.ctype=s32"
        yield from _plain(form, count, 4, "several samples in a texel")


def _plain(form: str, count: int, given: int, unmodelled: str) -> Iterator[Row]:
    fetch = f"{{d:type*{count}}}, [t:texture;{given}]"
    yield Row(f"tex.{form}", fetch, unmodelled=unmodelled)
    yield Row(f"tex.base.{form}", fetch, unmodelled=_LEVELS)


def _of_levels(form: str, count: int, given: int, axes: int, unmodelled: str) -> Iterator[Row]:
    """Fetches of the first level, of a given one, and of the one that derivatives lead to."""
    yield from _plain(form, count, given, unmodelled)
    fetch = f"{{d:type*{count}}}, [t:texture;{given}]"
    yield Row(f"tex.level.{form}", f"{fetch}, level:ctype", unmodelled=_LEVELS)
    slopes = f"{{dx:f32*{axes}}}, {{dy:f32*{axes}}}"
    yield Row(f"tex.grad.{form}", f"{fetch}, {slopes}", unmodelled=_LEVELS)


ROWS = tuple(doing("samples", _fetches()))
