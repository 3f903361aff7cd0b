"""The pytest plugin: the fixtures `golden`, `recorded`, `clean_launches` and `tensor_cores`, the
option --update-golden and the marks `all_forms` and `tensor_cores`.

PYTEST_DONT_REWRITE. A wheel has this file as a module outside of the package, which its entry point
names: pytest loads it at every start, and a module inside of the package would bring NumPy with it.
So nothing of ours is imported before a test needs it.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from emulator.isa.instruction import Instruction
    from emulator.layout.fragment import Fragment
    from emulator.tools.pytorch.used import Used
    from emulator.tools.testing.difference_kinds import Nan, SignedZero

_FORMS_HELP = (
    "all_forms(target=None, family=None, type=None, n='sample'): runs the test once for each "
    "instruction form of a target, as the argument `instruction`; n='all' has every N of wgmma"
)
_CORES_HELP = (
    "tensor_cores(target='H100', strict=False): whose matrix products the fixture of that name "
    "gives the test's CPU tensors of PyTorch"
)
_counts = pytest.StashKey[dict[str, int]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("emulator").addoption(
        "--update-golden",
        action="store_true",
        help="write the golden files of the tests that run, instead of comparing with them",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _FORMS_HELP)
    config.addinivalue_line("markers", _CORES_HELP)
    config.stash[_counts] = {}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marks = list(metafunc.definition.iter_markers("all_forms"))
    if not marks:
        return
    from emulator.errors import EmulatorError
    from emulator.tools.testing.forms import all_forms

    where = metafunc.definition.nodeid
    if "instruction" not in metafunc.fixturenames:
        pytest.fail(f"{where}: a test with the mark all_forms takes `instruction`", pytrace=False)
    found: dict[str, Instruction] = {}
    problem = ""
    try:
        # The marks of a function and of its class add up.
        for mark in marks:
            found |= {str(ins): ins for ins in all_forms(*mark.args, **mark.kwargs)}
    except (EmulatorError, TypeError) as error:
        problem = str(error)
    if problem:
        pytest.fail(f"{where}: all_forms: {problem}", pytrace=False)
    metafunc.parametrize("instruction", list(found.values()), ids=list(found))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if counts := config.stash[_counts]:
        words = ", ".join(f"{count} {what}" for what, count in counts.items())
        terminalreporter.write_line(f"golden files: {words}")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> GoldenFiles:
    """Compares arrays with those that an earlier run wrote; see `GoldenFiles.__call__`."""
    return GoldenFiles(request)


@pytest.fixture
def recorded(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Compares a kernel with what a GPU made of it: ``recorded("gemm.json")`` runs the PTX in the
    file, ``recorded("gemm.json", module["gemm"])`` another kernel with the same parameters. The
    path is relative to the test's module; the script of ``emulator record`` writes such files."""

    def compare(path: str, kernel: Any = None) -> None:
        __tracebackhide__ = True
        from emulator.errors import EmulatorError
        from emulator.tools.recording.golden import read_golden

        file = request.node.path.parent / path
        try:
            golden = read_golden(file)
            problems = list(golden.problems(kernel))
        except EmulatorError as error:
            pytest.fail(f"{file}: {error}", pytrace=False)
        if problems:
            pytest.fail("\n".join([f"unlike {file}, of {golden.chip}", *problems]), pytrace=False)

    return compare


@pytest.fixture
def clean_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every launch of the test runs with checks, those of Triton kernels too, and fails the test
    where they find something. A launch with ``check=False`` runs without."""
    from emulator.machine.module import Kernel
    from emulator.tools.testing.clean import clean_launch

    launch = Kernel.launch

    def checked(kernel: Kernel, *args: Any, **options: Any) -> Any:
        __tracebackhide__ = True
        return clean_launch(launch.__get__(kernel), *args, **options)

    monkeypatch.setattr(Kernel, "launch", checked)


@pytest.fixture
def tensor_cores(request: pytest.FixtureRequest) -> Iterator[Used]:
    """Matrix products of the test's CPU tensors have the bits of PyTorch's library on a GPU, which
    the mark `tensor_cores` names; the products are listed in what the test is given."""
    from emulator.errors import EmulatorError

    try:
        from emulator.tools.pytorch.mode import tensor_core_matmul
    except ImportError:
        pytest.skip("the fixture tensor_cores needs PyTorch")
    mark = request.node.get_closest_marker("tensor_cores")
    given = inspect.signature(tensor_core_matmul)
    try:
        bound = given.bind(*mark.args, **mark.kwargs) if mark else given.bind("H100")
        with tensor_core_matmul(*bound.args, **bound.kwargs) as used:
            yield used
    except (EmulatorError, TypeError) as error:
        pytest.fail(f"{request.node.nodeid}: tensor_cores: {error}", pytrace=False)


class GoldenFiles:
    """The golden files of one test: ``golden/MODULE.TEST[.NAME].npz`` beside its module."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._request = request
        self._update = bool(request.config.getoption("--update-golden"))
        self._used: set[Path] = set()
        #: more to tell where the arrays come from: golden.provenance["target"] = "sm_90a"
        self.provenance: dict[str, str] = {}
        self.nan: Nan = "payload"
        self.signed_zero: SignedZero = "differ"

    def __call__(
        self, name: str = "", fragment: Fragment | Instruction | str | None = None, /, **arrays: Any
    ) -> None:
        """Fails where an array has other bits, shape or type than in the file.

        With --update-golden it writes the file. `name` tells the files of one test apart;
        `fragment` (or an Instruction: its d) makes messages name lanes and registers.
        """
        __tracebackhide__ = True
        import numpy as np

        from emulator.errors import EmulatorError
        from emulator.tools.testing.golden_arrays import golden_problem, write_golden

        if not arrays:
            pytest.fail("golden() got no arrays; call it as golden(d=d)", pytrace=False)
        given = {key: np.asarray(value, order="C") for key, value in arrays.items()}
        path, test = self.path(name), self._request.node.nodeid
        if path in self._used:
            pytest.fail(f"{path.name} is used twice in this test: name the second, golden('x', …)")
        self._used.add(path)
        again = f"pytest {shlex.quote(test)} --update-golden"
        try:
            if self._update:
                written = write_golden(path, given, {"test": test} | self.provenance)
                counts = self._request.config.stash[_counts]
                what = "written" if written else "unchanged"
                counts[what] = counts.get(what, 0) + 1
                return
            if not path.exists():
                pytest.fail(
                    f"no golden file {path}\nto make it from the values of this run: {again}",
                    pytrace=False,
                )
            problem = golden_problem(path, given, fragment, self.nan, self.signed_zero)
        except EmulatorError as error:
            problem = str(error)
        else:
            problem = (
                f"unlike {path}\n{problem}\nif the change is meant: {again}" if problem else ""
            )
        if problem:
            pytest.fail(problem, pytrace=False)

    def path(self, name: str = "") -> Path:
        """The file of this test, or of its part `name`."""
        node = self._request.node
        test = node.nodeid.partition("::")[2].replace("::", ".")
        words = [node.path.stem, test, *([name] if name else [])]
        return node.path.parent / "golden" / f"{_file_name('.'.join(words))}.npz"


def _file_name(text: str) -> str:
    """`text` as a file name; what had to change is told apart by a few digits of its hash."""
    plain = re.sub(r"[^\w.,=+\[\]-]", "_", text)[:100]
    return plain if plain == text else f"{plain}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
