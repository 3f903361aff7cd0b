"""``guide``: the pages of the guide, which the package contains."""

from __future__ import annotations

from importlib.resources import files

from emulator.errors import OperandError, hint, listing, quoted
from emulator.tools.report import Answer, render

#: the pages in the order in which people need them
ORDER = (
    "tutorial", "cuda", "kernels", "programs", "triton", "pytorch", "logits", "faults",
    "checks", "debugger", "launches", "testing", "instructions", "pictures", "matrices",
    "explain", "tma", "descriptors", "tcgen05", "warps", "coverage", "evidence", "speed",
    "sanitizer", "miscompilations", "numerics", "studies", "names", "commands", "house",
)  # fmt: skip


def pages() -> dict[str, str]:
    """The text of every page by its name, in `ORDER`."""
    folder = files("emulator") / "guide"
    return {name: (folder / f"{name}.md").read_text(encoding="utf-8") for name in ORDER}


def title(text: str) -> str:
    """The heading in the first line of a page."""
    return text.partition("\n")[0].removeprefix("# ")


#: arguments of `guide` and what they mean
GUIDE_HELP = {"name PAGE": "kernels, explain, testing, ..."}


def guide_command(name: str | None = None) -> Answer:
    """One page, or with no name the list of all.

    Raises OperandError for a name that no page has.
    """
    held = pages()
    if name is None:
        rows = [[page, title(text)] for page, text in held.items()]
        lines = [*render(["page", ""], rows), "", "python -m emulator guide PAGE shows one"]
        return Answer(lines, {page: title(text) for page, text in held.items()})
    if name not in held:
        raise OperandError(
            f"no page {quoted(name)}; pages are {listing(held, 40)}{hint(name, held)}"
        )
    text = held[name]
    return Answer(text.splitlines(), {"page": name, "title": title(text), "text": text})
