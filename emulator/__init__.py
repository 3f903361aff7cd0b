"""NVIDIA's PTX on simulated warps, register for register and bit for bit.

``Instruction.parse`` names an instruction, ``execute`` runs it on lane registers, ``mma`` and
``gemm`` on matrices. ``Warp`` and ``Warpgroup`` run PTX statements, ``Module`` whole kernels.
``explain`` and ``compare`` say why a result came out as it did, ``find_faults`` what a kernel did
wrong. Letters: m n k are sizes, A is m × k, B is k × n, C and D are m × n; a *code* is the integer
of one element, a *word* a register. ``python -m emulator guide`` lists the pages of the guide.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

#: the version of the distribution ptx-mma-emulator, which pyproject.toml reads here
__version__ = "0.3.0"


#: public name -> its module, from the stub, which states them once for type checkers and for us
_MODULES = {
    line.split()[-1]: line.split()[1]
    for line in Path(__file__).with_suffix(".pyi").read_text("utf-8").splitlines()
    if line.startswith("from ")
}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first asked for: `import emulator` does not wait."""
    if name not in _MODULES:
        raise AttributeError(f"module 'emulator' has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
