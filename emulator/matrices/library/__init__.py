"""The order in which a GPU library multiplies matrices, as data, and products computed in it.

cuBLAS picks a kernel by types, sizes and layouts; kernels differ in the instruction of their main
loop and in how they cut k. `rules` has what is alike for all sizes, `recorded` which order an H200
took for the sizes that were recorded, `product` computes. Measured with cuBLAS 13.1 under PyTorch
2.11 on an H200.
"""

from emulator.matrices.library.product import multiply, multiply_add, result_codes
from emulator.matrices.library.recorded import Choice, choose_order
from emulator.matrices.library.rules import RULES, Order, Rule, find_rule, usual_order

__all__ = [
    "RULES", "Choice", "Order", "Rule", "choose_order", "find_rule", "multiply", "multiply_add",
    "result_codes", "usual_order",
]  # fmt: skip
