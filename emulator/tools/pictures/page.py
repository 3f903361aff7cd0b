"""One self-contained HTML page for an instruction: its operands as the matrix product they form.

The pictures of `layout.picture` are complete without a script; ``page.js`` beside this file
highlights what belongs together, and ``page.css`` is its style. The page loads nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape

from emulator.isa.instruction import Instruction, as_instruction
from emulator.layout.picture import ABOVE, FAMILY, FONT, LEFT, Size, colour, drawing, extent
from emulator.report import Report
from emulator.tools.document import document
from emulator.tools.info import info_command
from emulator.tools.pictures.panels import (
    LEFT_AREAS,
    TOP_AREAS,
    Panel,
    Section,
    SharedMemory,
    are_four_tiles,
    only,
    sections,
)
from emulator.tools.pictures.tiled import Warps, check_warps

#: CSS pixels of a landscape page, without its margins
_PAPER: Size = (1040, 680)
_HELP = (
    "Point at an element or a lane; click to keep it, Escape to let go. Arrow keys move in a "
    "picture and along the lanes."
)


@dataclass(frozen=True, repr=False)
class Page(Report):
    """The page of an instruction, `html()`; its text is what `info` says.

    `operand` restricts it to one, `target` to what one target computes, `memory` says how the tiles
    of wgmma lie, `warps` how many stand side by side along m and n (dense mma). Raises OperandError
    or UnsupportedError where the instruction has none of these.
    """

    #: or its opcode
    instruction: Instruction | str
    operand: str = ""
    target: str | None = None
    memory: SharedMemory = field(default=SharedMemory())
    warps: Warps = (1, 1)

    def __post_init__(self) -> None:
        if self.target is not None:
            self.ins.fidelity(self.target)
        check_warps(self.ins, self.warps)
        self.sections()

    @property
    def ins(self) -> Instruction:
        return as_instruction(self.instruction)

    @property
    def title(self) -> str:
        m, n = self.warps
        return str(self.ins) + (f", {m} x {n} warps" if (m, n) != (1, 1) else "")

    @property
    def lanes(self) -> int:
        return self.ins.lanes * self.warps[0] * self.warps[1]

    def sections(self) -> list[Section]:
        found = sections(self.ins, self.memory, self.warps)
        every = isinstance(self.operand, str) and not self.operand
        return found if every else only(found, self.operand)

    def lines(self) -> Iterator[str]:
        return info_command(str(self.ins), self.target).lines()

    @property
    def data(self) -> dict[str, object]:
        """Places of every element of every picture; arrays are little-endian uint16 in base64."""
        return {"opcode": str(self.ins), **_data(self.lanes, _panels(self.sections()))}

    def html(self) -> str:
        return _html(self.title, self.lanes, list(self.lines()), self.sections())

    def _repr_html_(self) -> str:
        # A frame of its own: neither the page's style nor its script reach the notebook.
        return (
            f'<iframe title="{escape(self.title)}" srcdoc="{escape(self.html())}" '
            'style="width:100%;height:720px;border:0"></iframe>'
        )


#: a panel with the number of its section and the size of its cells
_Shown = tuple[int, Panel, Size]


def _panels(found: list[Section]) -> list[_Shown]:
    return [
        (number, x, size)
        for number, section in enumerate(found)
        for x, size in zip(section.panels, section.cell_sizes(), strict=True)
    ]


def _html(title: str, lanes: int, facts: list[str], found: list[Section]) -> str:
    panels = _panels(found)
    index = {id(x): i for i, (_, x, _) in enumerate(panels)}
    sizes = {id(x): size for _, x, size in panels}
    fit = min(
        1,
        *(
            space / size
            for x in found
            for space, size in zip(_PAPER, _extent(x, sizes), strict=True)
        ),
    )
    body = "\n".join(
        [
            _header(escape(title), lanes, [x for _, x, _ in panels]),
            f'<main class="{_arrangement(found)}">',
            *(_section(x, index, sizes) for x in found),
            # The name is the title already.
            f"</main>\n<footer><pre>{escape(chr(10).join(facts[1:]))}</pre></footer>",
        ]
    )
    style = f":root {{ --fit: {fit:.3f}; }}\n"
    return document(title, body, "emulator.tools.pictures", "page", _data(lanes, panels), style)


def _arrangement(found: Sequence[Section]) -> str:
    """Style-sheet words for the arrangement of several sections."""
    return "several" + (" tiles" if are_four_tiles(found) else "") if len(found) > 1 else ""


def _searches(panels: Sequence[Panel]) -> str:
    memory = any(x.data["kind"] == "memory" for x in panels)
    return "lane 5, 5:0 (lane:register)" + (" or byte 160" if memory else "")


def _header(title: str, lanes: int, panels: Sequence[Panel]) -> str:
    buttons = "".join(
        f'<button type="button" aria-pressed="false" tabindex="{0 if lane == 0 else -1}" '
        f'aria-label="lane {lane}" style="background:{colour(lane)}">{lane}</button>'
        for lane in range(lanes)
    )
    group = "[0]" if max(x.group for x in panels) else ""
    example = f"{panels[-1].name}{group}[3][2], {_searches(panels)}"
    return f"""<header><div class="bar">
<h1>{title}</h1>
<form role="search"><label for="search">Find</label>
<input id="search" autocomplete="off" spellcheck="false" placeholder="{example}">
<button>Show</button>
<button type="button" id="fit" aria-pressed="false" title="see the whole product">Fit</button>
</form>
<div class="lanes" role="group" aria-label="lanes">{buttons}</div>
<div id="readout" role="status" aria-live="polite"><b>{escape(_HELP)}</b></div>
</div></header>"""


def _section(section: Section, index: dict[int, int], sizes: dict[int, Size]) -> str:
    def area(name: str) -> str:
        panels = section.alternatives(name)
        return _area(panels, index, sizes) if panels else ""

    heading = f"<h2>{escape(section.title)}</h2>" if section.title else ""
    left, top = ("".join(map(area, names)) for names in (LEFT_AREAS, TOP_AREAS))
    return (
        f'<section aria-label="{escape(section.title or "operands")}">{heading}'
        f'<div class="product"><div class="top">{top}</div>\n<div class="left">{left}</div>\n'
        f'<div class="right">{area("d")}</div></div></section>'
    )


def _area(panels: Sequence[Panel], index: dict[int, int], sizes: dict[int, Size]) -> str:
    """The alternatives of one area, the first one showing."""
    choice = "".join(f'<option value="{index[id(x)]}">{escape(x.label)}</option>' for x in panels)
    label = f'aria-label="what is shown of {panels[0].name}"'
    select = f'<div class="head"><select {label}>{choice}</select></div>' if panels[1:] else ""
    figures = []
    for number, panel in enumerate(panels):
        cell = sizes[id(panel)]
        width, height = extent(panel.grid, cell)
        caption = escape(panel.grid.caption)
        figures.append(
            f'<figure id="panel{index[id(panel)]}"{" hidden" if number else ""}>'
            f'<figcaption class="head">{caption}</figcaption>{_legend(panel)}'
            f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" '
            f'tabindex="0" aria-label="{caption}" font-size="{FONT}" text-anchor="middle" '
            f'font-family="{FAMILY}">'
            f"{drawing(panel.grid, cell, hover=False)}</svg></figure>\n"
        )
    return f'<div class="area">{select}{"".join(figures)}</div>'


def _legend(panel: Panel) -> str:
    """Legend of a picture whose colours are not those of lanes."""
    words, colours = panel.grid.legend
    swatches = "".join(
        f'<span style="background:{panel.grid.colour(owner)}">{escape(label)}</span>'
        for owner, label in colours
    )
    return f'<div class="legend">{escape(words)} {swatches}</div>' if words else ""


def _extent(section: Section, sizes: dict[int, Size]) -> Size:
    """About the (width, height) of a section on the screen."""

    def largest(name: str, axis: int) -> int:
        found = [extent(x.grid, sizes[id(x)])[axis] for x in section.alternatives(name)]
        return max(found) + 60 if found else 0

    width = sum(largest(x, 0) for x in LEFT_AREAS) + max(largest(x, 0) for x in (*TOP_AREAS, "d"))
    height = sum(largest(x, 1) for x in TOP_AREAS) + max(largest(x, 1) for x in (*LEFT_AREAS, "d"))
    return width, height


def _data(lanes: int, panels: Sequence[_Shown]) -> dict[str, object]:
    """Data for the script of the page."""
    several = {x.name for _, x, _ in panels if x.group}
    every = [
        {"name": x.name, "also": x.also, "area": x.area, "section": section, "group": x.group,
         "several": x.name in several, "rows": x.grid.shape[0], "cols": x.grid.shape[1],
         "w": width, "h": height, "axes": x.axes, "grain": x.grain, **x.data}
        for section, x, (width, height) in panels
    ]  # fmt: skip
    return {
        "lanes": lanes, "left": LEFT, "above": ABOVE, "help": _HELP,
        "also": _searches([x for _, x, _ in panels]), "panels": every,
    }  # fmt: skip
