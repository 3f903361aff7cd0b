"""Start of every Python process under ``exec``: packages get the GPU when they are imported.

Python imports this file by its name, because its folder is the first of PYTHONPATH. Nothing of the
emulator is imported before the program imports one of them.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType


class _Giving(Loader):
    """Loads a package as its own loader does, and gives it the GPU then."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        try:
            from emulator.adapters.cuda.packages import give

            give(module.__name__)
        except Exception as error:
            # Another package of that name, or another version: the program goes on without.
            said = f"{type(error).__name__}: {error}"
            print(f"emulator: {module.__name__} gets no GPU: {said}", file=sys.stderr)


class _Finder(MetaPathFinder):
    """Finds the packages that get the GPU, once each."""

    def __init__(self) -> None:
        self._waiting = {"torch", "triton", "cuda.pathfinder", "cuda.bindings.runtime"}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self._waiting:
            return None
        # From here on the other finders answer, this call's own question included.
        self._waiting.discard(name)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Giving(spec.loader)
        return spec


def _start() -> None:
    here = Path(__file__).resolve().parent
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if os.environ.get("EMULATOR_CUDA_VERSION") == version:
        sys.path.append(os.environ["EMULATOR_CUDA_HOME"])
        sys.meta_path.insert(0, _Finder())
    # The program's own file of this name, if there is one, comes after this one.
    sys.path[:] = [path for path in sys.path if Path(path).resolve() != here]
    own = sys.modules.pop(__name__)
    if importlib.util.find_spec(__name__) is not None:
        __import__(__name__)
    else:
        sys.modules[__name__] = own


if __name__ == "sitecustomize":
    _start()
