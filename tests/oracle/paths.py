"""Where things lie in a checkout."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TESTS = ROOT / "tests"
#: recordings with their provenance
GOLDEN = TESTS / "golden"
#: kernels in PTX, some with mistakes planted in them
PTX = TESTS / "ptx"
#: kernels in CUDA C++, and what nvcc made of them
CUDA = TESTS / "cuda"
