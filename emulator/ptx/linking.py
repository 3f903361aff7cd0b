"""Several PTX texts linked to one program (PTX ISA 11.6, linking directives).

The rules are those of ptxas 13.0 with ``-c`` and nvlink 13.0 behind it, which were asked about
every pair of declarations that the tests list.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from emulator.errors import UnsupportedError
from emulator.ptx import tree
from emulator.ptx.mentions import items_of, names_in, symbols_in
from emulator.ptx.redeclaration import Conflict, Declared, faults, line_of, name_of
from emulator.ptx.source import Source
from emulator.ptx.variables import ELEMENT_BYTES, extent, is_incomplete

#: linkages of a definition, the one that wins first; of two weak or common ones the first wins
_STRENGTH = {"visible": 0, "weak": 1, "common": 2}
_WORDS = {"global": "a variable of .global", "const": "a variable of .const",
          "shared": "a variable of .shared", "func": "a function", "entry": "a kernel"}  # fmt: skip


class Linked(NamedTuple):
    """One module made of several, and what keeps them from being one."""

    module: tree.Module
    conflicts: tuple[Conflict, ...]


class _Entity(NamedTuple):
    """A name of one text: all that the text says of it."""

    name: str
    text: int
    #: the definition; the first declaration where there is none
    node: Declared
    nodes: tuple[Declared, ...]
    #: "visible", "weak" or "common"; "extern" of a declaration; None: the text's own
    linkage: str | None
    #: whether the linker sees it: nothing is left of a function that is declared and not used
    counts: bool

    @property
    def is_defined(self) -> bool:
        return self.linkage in _STRENGTH

    @property
    def place(self) -> str:
        node = self.node
        return node.kind if isinstance(node, tree.Function) else node.space


def link(modules: Sequence[tree.Module], supplied: Sequence[str] = ()) -> Linked:
    """One program of several texts that `parse_texts` read from one source.

    Functions that are `supplied` need no definition. What nvlink refuses is a conflict of the name
    that it concerns. A name that a text keeps for itself gets the label of the text behind it,
    ``x@b.ptx``, where another text has it too.
    """
    conflicts = [conflict for module in modules for conflict in faults(module)]
    entities = [entity for i, module in enumerate(modules) for entity in _entities(i, module)]
    shared: dict[str, list[_Entity]] = {}
    for entity in entities:
        if entity.linkage is not None and entity.counts:
            shared.setdefault(entity.name, []).append(entity)
    source = modules[0].source
    chosen: dict[str, _Entity] = {}
    for name, found in shared.items():
        chosen[name] = min(found, key=lambda entity: _STRENGTH.get(entity.linkage or "", 3))
        conflicts += _conflicts(found, name in supplied, source)
    own = _own_names(entities, chosen, [source.part(m.header.at).label for m in modules])
    return Linked(_merged(modules, entities, chosen, own), tuple(sorted(conflicts)))


# --- the names of a text --------------------------------------------------------------------------


def _entities(text: int, module: tree.Module) -> Iterator[_Entity]:
    """The names that a text declares outside of functions."""
    used = {x.name for v in module.variables for x in symbols_in(v.initialiser)}
    for function in module.functions:
        used |= names_in(function.body)
        lists = (x for x in items_of(function.body) if isinstance(x, tree.TargetList))
        used |= {target.text for x in lists for target in x.targets}
    nodes: dict[str, list[Declared]] = {}
    declared: list[Declared] = [*module.variables, *module.functions]
    for node in sorted(declared, key=lambda node: node.at):
        nodes.setdefault(name_of(node), []).append(node)
    aliases = {alias.name for alias in module.aliases}
    for name, found in nodes.items():
        # No other text sees an alias: nvlink 13.0 finds it undefined, or ends with an error.
        made = [node for node in found if _defines(node)]
        words = {node.linkage for node in found} - {None}
        linkage = next((word for word in _STRENGTH if word in words and made), None)
        if not made and "extern" in words and name not in aliases and not _is_dynamic(found[0]):
            linkage = "extern"
        is_variable = isinstance(found[0], tree.Variable)
        counts = bool(made) or is_variable or name in used
        yield _Entity(name, text, (made or found)[0], tuple(found), linkage, counts)


def _defines(node: Declared) -> bool:
    if isinstance(node, tree.Function):
        return node.body is not None
    return node.linkage != "extern"


def _is_dynamic(node: Declared) -> bool:
    """True if it is the dynamic part of shared memory, which each text declares for itself."""
    return isinstance(node, tree.Variable) and node.space == "shared" and is_incomplete(node)


# --- two texts that share a name ------------------------------------------------------------------


def _conflicts(found: list[_Entity], is_supplied: bool, source: Source) -> Iterator[Conflict]:
    """The reasons why nvlink refuses the entities of one name."""
    for first, second in combinations(found, 2):
        if reason := _pair(first, second):
            where = line_of(source, first.node.at)
            yield Conflict(second.node.at, second.name, f"{second.name!r} {reason} ({where})")
            return
    if not is_supplied and not any(entity.is_defined for entity in found):
        at, name = found[0].node.at, found[0].name
        label = source.part(at).label
        yield Conflict(at, name, f"Undefined reference to {name!r} in {label!r}")


def _pair(first: _Entity, second: _Entity) -> str:
    """Why two texts cannot share a name; "" where they can."""
    if first.place != second.place:
        return f"is {_WORDS[second.place]} here and {_WORDS[first.place]} elsewhere"
    if not first.is_defined and not second.is_defined and first.place in ("func", "entry"):
        return ""
    if isinstance(first.node, tree.Function) and isinstance(second.node, tree.Function):
        same = first.place == "entry" or _prototype(first.node) == _prototype(second.node)
        reason = "" if same else "takes or returns something else here than elsewhere"
    else:
        assert isinstance(first.node, tree.Variable) and isinstance(second.node, tree.Variable)
        reason = _sizes(first.node, second.node)
    return reason or _twice(first, second)


def _sizes(first: tree.Variable, second: tree.Variable) -> str:
    if first.linkage == second.linkage == "common" or is_incomplete(first) or is_incomplete(second):
        return ""
    sizes = [extent(v).bytes if v.type in ELEMENT_BYTES else 0 for v in (first, second)]
    return "" if sizes[0] == sizes[1] else f"has {sizes[1]} bytes here and {sizes[0]} elsewhere"


def _twice(first: _Entity, second: _Entity) -> str:
    if first.linkage != "visible" or second.linkage == "weak" or not second.is_defined:
        return ""
    # nvlink 13.0 takes a .common behind a variable with a value, and in the other order.
    has_value = isinstance(first.node, tree.Variable) and first.node.initialiser is not None
    return "" if second.linkage == "common" and has_value else "is defined already"


def _prototype(function: tree.Function) -> tuple[object, ...]:
    """By which nvlink compares two functions: f32 and f64 differ from integers, f16 does not;
    alignment, and whether a parameter is a register, do not matter."""

    def of(variable: tree.Variable) -> tuple[object, ...]:
        number = variable.type if variable.type in ("f32", "f64") else "bits"
        sizes = tuple(size or 0 for size in variable.dimensions)
        return number, ELEMENT_BYTES.get(variable.type, 0), variable.vector, sizes

    return tuple(map(of, function.returns)), tuple(map(of, function.parameters))


# --- one module -----------------------------------------------------------------------------------


def _own_names(
    entities: Sequence[_Entity], chosen: dict[str, _Entity], labels: Sequence[str]
) -> list[dict[str, str]]:
    """For each text, what the names are called that it keeps for itself and others have too."""
    taken = {*chosen}
    out: list[dict[str, str]] = [{} for _ in labels]
    for entity in entities:
        if entity.linkage is not None:
            continue
        name, number = entity.name, 1
        while name in taken:
            again = f"#{number}" if number > 1 else ""
            name, number = f"{entity.name}@{labels[entity.text]}{again}", number + 1
        taken.add(name)
        if name != entity.name:
            out[entity.text][entity.name] = name
    return out


def _merged(
    modules: Sequence[tree.Module],
    entities: Sequence[_Entity],
    chosen: dict[str, _Entity],
    own: Sequence[dict[str, str]],
) -> tree.Module:
    kept = [
        {
            id(node)
            for entity in entities
            if entity.text == i and (entity.linkage is None or chosen.get(entity.name) is entity)
            for node in entity.nodes
        }
        for i in range(len(modules))
    ]
    variables: list[tree.Variable] = []
    functions: list[tree.Function] = []
    aliases: list[tree.Alias] = []
    for module, names, mine, rewriter in zip(
        modules, own, kept, _rewriters(entities, chosen, own), strict=True
    ):
        variables += [rewriter.variable(v) for v in module.variables if id(v) in mine]
        functions += [rewriter.function(f) for f in module.functions if id(f) in mine]
        kept_names = {f.name for f in module.functions if id(f) in mine}
        aliases += [
            alias._replace(name=names.get(alias.name, alias.name), of=names.get(alias.of, alias.of))
            for alias in module.aliases
            if alias.name in kept_names
        ]
    largest = _largest_commons(entities, chosen)
    header = modules[0].header._replace(
        version=max(m.header.version or (0, 0) for m in modules),
        options=tuple(dict.fromkeys(o for m in modules for o in m.header.options)),
    )
    return tree.Module(
        modules[0].source,
        header,
        tuple(file for m in modules for file in m.files),
        tuple(largest.get(v.name.text, v) if v.linkage == "common" else v for v in variables),
        tuple(functions),
        tuple(aliases),
    )


def _largest_commons(
    entities: Sequence[_Entity], chosen: dict[str, _Entity]
) -> dict[str, tree.Variable]:
    """The variables of .common that several texts have: the largest, at the largest alignment."""
    out: dict[str, tree.Variable] = {}
    for entity in entities:
        node = entity.node
        if chosen.get(entity.name, entity).linkage != "common" or entity.linkage != "common":
            continue
        assert isinstance(node, tree.Variable)
        before = out.get(entity.name, node)
        bigger = node if extent(node).bytes > extent(before).bytes else before
        alignment = max(extent(node).alignment, extent(before).alignment)
        out[entity.name] = bigger._replace(alignment=alignment)
    return out


def _rewriters(
    entities: Sequence[_Entity], chosen: dict[str, _Entity], own: Sequence[dict[str, str]]
) -> Iterator[_Rewriter]:
    for text, names in enumerate(own):
        steps = {}
        for entity in entities:
            winner = chosen.get(entity.name)
            if entity.text == text and entity.linkage is not None and winner is not None:
                size = _element(entity.node)
                if size != _element(winner.node):
                    steps[entity.name] = size
        yield _Rewriter(names, steps)


def _element(node: Declared) -> int:
    known = isinstance(node, tree.Variable) and node.type in ELEMENT_BYTES
    return extent(node).element_bytes if known else 0  # type: ignore[arg-type]


#: the fields of nodes that hold a name which a text may keep for itself
_NAMED: dict[type, str] = {
    tree.Name: "text", tree.Element: "register", tree.Offset: "name", tree.Index: "name",
    tree.SymbolAddress: "name", tree.DeclaredName: "text", tree.Label: "name",
    tree.Prototype: "name", tree.TargetList: "name", tree.Guard: "name", tree.Function: "name",
}  # fmt: skip


class _Rewriter(NamedTuple):
    """Gives the names that a text keeps for itself other ones, wherever they stand in it."""

    names: dict[str, str]
    #: bytes of an element of the variables that this text declares with other ones than their
    #: definition has
    steps: dict[str, int]

    def variable(self, variable: tree.Variable) -> tree.Variable:
        renamed: tree.Variable = self._node(variable) if self.names else variable
        return renamed

    def function(self, function: tree.Function) -> tree.Function:
        if not self.names and not self.steps:
            return function
        for item in items_of(function.body):
            for declared in item.names if isinstance(item, tree.RegisterDeclaration) else ():
                if declared.numbered is not None and any(
                    name.startswith(declared.text) and name[len(declared.text) :].isdigit()
                    for name in (*self.names, *self.steps)
                ):
                    raise UnsupportedError(
                        f"registers {declared.text}<{declared.numbered}> of {function.name!r} hide "
                        "a variable that several texts have: legal PTX, not modelled here"
                    )
        renamed: tree.Function = self._node(function)
        return renamed

    def _node(self, node: object) -> Any:
        """A node with other names; what is none as it is."""
        if not isinstance(node, tuple):
            return node
        if isinstance(node, tree.Index) and node.name in self.steps:
            node = tree.Offset(node.name, node.subscript * self.steps[node.name], node.at)
        parts = [self._node(part) for part in node]
        if not hasattr(node, "_fields"):
            return tuple(parts)
        field = _NAMED.get(type(node))
        if field and not (isinstance(node, tree.DeclaredName) and node.numbered is not None):
            at = node._fields.index(field)
            parts[at] = self.names.get(parts[at], parts[at])
        return type(node)(*parts)
