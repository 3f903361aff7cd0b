"""PyTorch on the CPU with the bits of a GPU: ``with tensor_core_matmul("H100") as used: …``"""

from emulator.tools.pytorch.mode import tensor_core_matmul
from emulator.tools.pytorch.used import Used, UsedProduct

__all__ = ["Used", "UsedProduct", "tensor_core_matmul"]
