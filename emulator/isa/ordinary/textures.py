"""Textures: PTX ISA 9.7.10. Handles stand in registers (bindless, independent mode)."""

from collections.abc import Iterator

from emulator.isa.ordinary.row import Row, doing

#: geometries, and the registers that their coordinates take
_COORDINATES = (("1d", 1), ("2d|a1d", 2), ("3d|a2d", 4))
_CUBES = "cube|acube"
_TYPES = "type=u32|s32|f32"


def _fetches() -> Iterator[Row]:
    for geometries, count in _COORDINATES:
        form = f"geometry={geometries}.v4.{_TYPES}.ctype=s32|f32"
        fetch = f"{{d:type*4}}, [t:texture;{count}]"
        yield Row(f"tex.{form}", fetch)
        yield Row(f"tex.level.{form}", f"{fetch}, level:ctype", version="2.0", unmodelled=_LEVELS)
    cube = f"geometry={_CUBES}.v4.{_TYPES}.ctype=f32"
    fetch = "{d:type*4}, [t:texture;4]"
    yield Row(f"tex.{cube}", fetch, version="3.0", unmodelled="the faces of a cube")
    yield Row(f"tex.level.{cube}", f"{fetch}, level:ctype", version="3.0", unmodelled=_LEVELS)


_LEVELS = "levels of detail"

ROWS = tuple(doing("samples", _fetches()))
