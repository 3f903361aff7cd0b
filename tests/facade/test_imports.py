"""The house rules that a machine can check: import direction, tables, file sizes, import cost."""

import ast
import re
import subprocess
import sys
from functools import cache
from typing import NamedTuple

import pytest
from paths import ROOT

#: Layers from the lowest up: a module imports from its own layer or from lower ones, wherever the
#: statement stands, and under TYPE_CHECKING too. A string names the packages and modules of one
#: layer; those of one tuple are siblings that do not meet.
LAYERS = (
    ("dtypes",),
    ("emulator.errors emulator.targets emulator.arrays emulator.reading emulator.report",),
    ("emulator.layout", "emulator.arith"),
    ("emulator.memory",),
    ("emulator.isa",),
    ("emulator.warp",),
    ("emulator.matrices", "emulator.ptx"),
    ("emulator.machine",),
    ("emulator.tools",),
    ("emulator emulator.__main__ emulator.testing emulator.adapters",),
)
#: modules that may say what a target or a generation does
TABLES = {
    "emulator.targets", "emulator.isa.matrix_forms", "emulator.arith.recipes",
    "emulator.arith.evidence", "emulator.adapters.cuda.chips",
}  # fmt: skip
#: lines of the statements of a function, its docstring apart
MAX_LINES = 60
GENERATIONS = {"volta", "turing", "ampere", "ada", "hopper", "blackwell", "rtx_blackwell"}


def package_files():
    return sorted(path for top in ("dtypes", "emulator") for path in (ROOT / top).rglob("*.py"))


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in package_files()}


#: engines of kernels, which call the checks that a launch gives them
ENGINES = ("emulator.machine.vector", "emulator.machine.compiled", "emulator.machine.reference")
#: room -> what it does not import, and modules that may. What the engines share and the
#: system around a kernel know no engine. What is computed knows nothing of how it is computed fast,
#: but where an engine is chosen, and where a value has a NumPy twin beside its reference.
APART = {
    "emulator.machine.shared": (ENGINES, ""),
    "emulator.machine.system": (ENGINES, ""),
    "emulator.arith": (
        ("emulator.arith.fast",),
        "emulator.arith.fast emulator.arith.engines emulator.arith.matmul "
        "emulator.arith.scalar.arrays emulator.arith.scalar.floating emulator.arith.scalar.fused "
        "emulator.arith.scalar.quotients emulator.arith.scalar.small_floats "
        "emulator.arith.steps.chains emulator.arith.steps.formats",
    ),
    "emulator.arith.fast": (("emulator.arith.engines", "emulator.arith.matmul"), ""),
    **dict.fromkeys(ENGINES, (("emulator.machine.checks",), "")),
}  # fmt: skip


def is_in(module, rooms):
    return any(module == room or module.startswith(room + ".") for room in rooms)


def rooms_met(found, module):
    """What a module imports although its room is apart from it."""
    return sorted(
        name
        for room, (others, excepted) in APART.items()
        if is_in(module, [room]) and not is_in(module, excepted.split())
        for name in found.imported | found.named
        if is_in(name, others)
    )


def test_rooms_are_apart():
    met = {module: rooms_met(found, module) for module, found in all_facts().items()}
    assert {module: names for module, names in met.items() if names} == {}


def test_every_exception_is_needed():
    fast = {
        module for module, found in all_facts().items()
        if is_in(module, ["emulator.arith"])
        and any(is_in(name, ["emulator.arith.fast"]) for name in found.imported | found.named)
    }  # fmt: skip
    excepted = set(APART["emulator.arith"][1].split()) - {"emulator.arith.fast"}
    assert excepted <= fast


@pytest.mark.parametrize(
    ("module", "source", "met"),
    [
        ("emulator.machine.shared.pending", "from emulator.machine.vector.strand import WARP",
         ["emulator.machine.vector.strand"]),
        ("emulator.machine.system.host", "from emulator.machine import compiled",
         ["emulator.machine.compiled"]),
        ("emulator.machine.vector.engine", "from emulator.machine.checks import clocks",
         ["emulator.machine.checks.clocks"]),
        ("emulator.machine.engines", "import emulator.machine.vector.engine", []),
        ("emulator.arith.rounding_modes", "from emulator.arith.fast import wide",
         ["emulator.arith.fast.wide"]),
        ("emulator.arith.engines", "from emulator.arith.fast import wide", []),
        ("emulator.arith.fast.wide", "from emulator.arith.matmul import matmul",
         ["emulator.arith.matmul"]),
    ],
)  # fmt: skip
def test_rooms_that_meet_are_found(module, source, met):
    assert rooms_met(facts(source, module), module) == met


def layer_of(module):
    """(height, sibling) of a module, by the longest name in LAYERS that it belongs to."""
    found = [
        (len(name), height, sibling)
        for height, siblings in enumerate(LAYERS)
        for sibling, names in enumerate(siblings)
        for name in names.split()
        # "emulator" itself is the package's own file: it does not stand for what lies below it.
        if module == name or (module.startswith(name + ".") and name != "emulator")
    ]
    assert found, (
        f"{module} has no layer: give it one in LAYERS of tests/facade/test_imports.py; what each "
        "room is for stands in emulator/guide/house.md"
    )
    return max(found)[1:]


class Facts(NamedTuple):
    """What is judged of one source."""

    #: modules of this project that it imports, and those that it names as text
    imported: set[str]
    named: set[str]
    #: lines that compare something with the name of a target or a generation
    comparisons: list[int]
    #: functions with too many lines of statements, and how many
    long_functions: dict[str, int]
    star_imports: bool


def facts(source, module="emulator", is_package=False):
    nodes = list(ast.walk(ast.parse(source)))
    return Facts(
        imported(nodes, module, is_package), named(nodes), target_comparisons(nodes),
        long_functions(nodes), has_star_imports(nodes),
    )  # fmt: skip


@cache
def all_facts():
    """Module -> what is judged of it."""
    return {
        module: facts(path.read_text(), module, path.name == "__init__.py")
        for module, path in MODULES.items()
    }


def imported(nodes, module, is_package):
    package = module if is_package else module.rpartition(".")[0]
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                kept = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*kept, *([base] if base else [])])
            # "from package import module" imports the module, "from module import name" does not
            inner = {f"{base}.{alias.name}" for alias in node.names} & set(MODULES)
            names |= inner or {base}
    return {name for name in names if name.split(".")[0] in ("dtypes", "emulator")}


def named(nodes):
    """Modules that a source names as text, to import them when they are needed: those of a table
    build on the module that has the table, so that only their layer counts."""
    texts = {x.value for x in nodes if isinstance(x, ast.Constant)}
    return {text for text in texts if isinstance(text, str) and "." in text and text in MODULES}


def wrong_imports(found, module):
    """Imports that go up, or across to a sibling layer."""
    height, sibling = layer_of(module)
    wrong = []
    for name in sorted(found.imported | found.named):
        other_height, other = layer_of(name)
        if other_height > height or (other_height == height and other != sibling):
            wrong.append(name)
    return wrong


def test_imports_go_down():
    wrong = {module: wrong_imports(found, module) for module, found in all_facts().items()}
    assert {module: names for module, names in wrong.items() if names} == {}


@pytest.mark.parametrize(
    ("module", "source", "wrong"),
    [
        ("dtypes.codec", "import emulator.errors", ["emulator.errors"]),
        ("emulator.errors", "from emulator.layout import fragment", ["emulator.layout.fragment"]),
        ("emulator.layout.fragment", "from emulator.arith import dot", ["emulator.arith"]),
        ("emulator.arith.vector", "from ..layout.lanemap import COL", ["emulator.layout.lanemap"]),
        ("emulator.isa.matrix_forms", "def f():\n  from emulator.warp import multiply",
         ["emulator.warp.multiply"]),
        ("emulator.warp.execute", "from emulator import Instruction", ["emulator"]),
        ("emulator.warp.execute", "from emulator.isa.matrix_forms import FORMS; import numpy", []),
        ("emulator.warp.execute", "from .multiply import Undefined", []),
        ("emulator.warp.execute", "LATER = {'x': 'emulator.matrices.mma'}",
         ["emulator.matrices.mma"]),
        ("emulator.warp.execute", "if TYPE_CHECKING:\n  from emulator.machine.warp import Warp",
         ["emulator.machine.warp"]),
        ("emulator.matrices.mma", "from emulator.ptx import module", ["emulator.ptx.module"]),
        ("emulator.tools.info", "from emulator import execute", ["emulator"]),
        ("emulator.tools.info", "import emulator.testing", ["emulator.testing"]),
        ("emulator.adapters.dots", "from emulator import execute", []),
        ("emulator", "from emulator.tools import info", []),
    ],
)  # fmt: skip
def test_wrong_imports_are_found(module, source, wrong):
    assert wrong_imports(facts(source, module), module) == wrong


def test_a_module_without_a_layer_is_found():
    with pytest.raises(AssertionError, match=r"emulator\.helpers has no layer"):
        layer_of("emulator.helpers")


def test_modules_do_not_import_in_circles():
    graph = {module: set(MODULES) & found.imported for module, found in all_facts().items()}
    assert circles(graph) == set()


def test_circles_are_found():
    straight = {"a": {"b", "c"}, "b": {"c"}, "c": set()}
    assert circles(straight) == set()
    assert circles(straight | {"c": {"b"}}) == {frozenset("bc")}
    assert circles(straight | {"c": {"a"}}) == {frozenset("abc")}
    assert circles(straight | {"c": {"c"}}) == {frozenset("c")}


def circles(graph):
    """The modules of every circle of imports: those that reach each other."""
    reached = {module: set(names) for module, names in graph.items()}
    for middle in graph:
        for names in reached.values():
            if middle in names:
                names |= reached[middle]
    return {
        frozenset(x for x in graph if x in reached[module] and module in reached[x])
        for module in graph
        if module in reached[module]
    }


# --- what a target does stands in tables only ---


def names_a_target(node):
    """A string such as "sm_90a" or "hopper", alone or in a tuple, list or set."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return any(names_a_target(element) for element in node.elts)
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return False
    return any(re.fullmatch(r"sm_\d*[af]?", w) or w in GENERATIONS for w in node.value.split())


def target_comparisons(nodes):
    lines = []
    for node in nodes:
        if isinstance(node, ast.Compare):
            compared = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            compared = [node.value]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            compared = node.args if node.func.attr in ("startswith", "endswith") else []
        else:
            continue
        if any(names_a_target(x) for x in compared):
            lines.append(node.value.lineno if isinstance(node, ast.MatchValue) else node.lineno)
    return lines


def test_only_tables_speak_of_targets():
    lines = {module: found.comparisons for module, found in all_facts().items()}
    assert {module for module, found in lines.items() if found} <= TABLES


@pytest.mark.parametrize(
    "source",
    [
        'if target == "sm_90a": pass',
        'x = target.generation != "hopper"',
        'if "blackwell rtx_blackwell" in row: pass',
        'if name in ("sm_80", other): pass',
        'if name not in {"ada"}: pass',
        'x = name.startswith("sm_") or 1',
        'match target:\n  case "sm_75": pass',
    ],
)
def test_target_comparisons_are_found(source):
    assert facts(source).comparisons


@pytest.mark.parametrize(
    "source", ['"""sm_90a alone"""', 'd = find("sm_90a")', 'x == "sm90"', 'x.startswith("sp")']
)
def test_other_lines_are_no_target_comparisons(source):
    assert facts(source).comparisons == []


# --- files ---


def long_functions(nodes):
    found = {}
    for node in nodes:
        if isinstance(node, ast.FunctionDef):
            statements = node.body[1:] if ast.get_docstring(node) else node.body
            lines = node.end_lineno - statements[0].lineno + 1 if statements else 0
            if lines > MAX_LINES:
                found[node.name] = lines
    return found


def test_functions_are_short():
    found = {module: x.long_functions for module, x in all_facts().items() if x.long_functions}
    assert found == {}


def test_long_functions_are_found():
    body = "\n".join(["    x = 1"] * MAX_LINES)
    assert facts(f"def f():\n    'doc'\n{body}").long_functions == {}
    assert facts(f"def f():\n    y = 2\n{body}").long_functions == {"f": MAX_LINES + 1}


@pytest.mark.parametrize("name", ["utils", "helpers", "base", "common", "misc"])
def test_files_have_telling_names(name):
    assert [path for path in package_files() if path.stem == name] == []


def has_star_imports(nodes):
    found = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    return any(alias.name == "*" for node in found for alias in node.names)


def test_no_star_imports():
    assert [module for module, found in all_facts().items() if found.star_imports] == []


def test_star_imports_are_found():
    assert facts("if x:\n  from y import *").star_imports
    assert not facts("from y import z").star_imports


# --- what `import emulator` costs ---


def modules_after(statement):
    code = f"import sys; {statement}; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(run.stdout.split())


#: what one who starts Python for a small question does not wait for
HEAVY = {"numba", "ml_dtypes", "pytest", "hypothesis", "argparse", "asyncio", "unittest"}


def ours(loaded):
    return {name for name in loaded if name.split(".")[0] in ("dtypes", "emulator")}


def test_import_is_cheap():
    loaded = modules_after("import emulator")
    assert ours(loaded) == {"emulator"}
    assert loaded & {"numpy", "difflib", *HEAVY} == set()


def test_what_the_front_page_names_is_cheap():
    loaded = modules_after("from emulator import Instruction, execute, gemm, mma")
    # NumPy's own imports are not ours to judge.
    assert (loaded - modules_after("import numpy")) & HEAVY == set()
    assert "emulator.isa.instruction" in loaded
    # The tables of opcodes come with the first opcode.
    assert {name for name in loaded if name.endswith("_opcodes")} == set()
    assert "ml_dtypes" in modules_after("import ml_dtypes")


def test_where_an_element_lies_needs_no_arithmetic():
    opcode = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    loaded = modules_after(
        f"from emulator import Instruction; Instruction.parse({opcode!r}).fragment('c').lane(3, 3)"
    )
    assert "emulator.layout.fragment" in loaded
    assert [x for x in ours(loaded) if x.startswith(("emulator.arith", "emulator.warp"))] == []
