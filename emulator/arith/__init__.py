"""Arithmetic of tensor cores: recipes as data, and engines that run them.

`recipes` says which steps an instruction takes on a generation, `steps` what each step means.
`reference` is the specification, one dot product at a time in Python integers; `vector` computes
whole arrays with NumPy, `compiled` runs machine code of LLVM, and both equal it bit for bit.
``dot`` computes dot products of any arrangement, ``matmul`` matrices, for which most recipes have a
fast path.
"""

from emulator.arith.engines import ENGINES, Engine
from emulator.arith.matmul import dot, matmul, ordinary

__all__ = ["ENGINES", "Engine", "dot", "matmul", "ordinary"]
