"""For tests of kernels' numerics: comparison of bits, golden files, inputs that aim at the edges.

``assert_bits_equal`` compares arrays or lane registers and says what differs. ``lane_unique`` gives
operands in which every element is told from every other, ``check_swaps`` finds swapped registers
that inputs do not show. ``assert_clean`` runs a kernel with checks, ``check_order`` in other
orders. ``all_forms`` lists the instructions of a target. ``codes``, ``matrices`` and ``operands``
are Hypothesis strategies (they need ``pip install hypothesis``).

As a pytest plugin (by itself where the package is installed, else ``-p emulator.testing``) it adds
the fixtures ``golden``, with ``--update-golden``, ``recorded`` (results of a GPU),
``clean_launches`` and ``tensor_cores`` (matrix products of PyTorch as on a GPU), and the mark
``all_forms(target="sm_90a")``.
PYTEST_DONT_REWRITE.
"""

from importlib.util import find_spec

from emulator.tools.orders import check_order
from emulator.tools.testing.clean import assert_clean
from emulator.tools.testing.difference import Differences, assert_bits_equal, find_differences
from emulator.tools.testing.forms import all_forms
from emulator.tools.testing.lane_inputs import Inputs
from emulator.tools.testing.lane_unique import LaneUnique, lane_unique
from emulator.tools.testing.strategies import codes, matrices, operands
from emulator.tools.testing.swaps import Swap, check_swaps, unnoticed_swaps

__all__ = [
    "Differences",
    "Inputs",
    "LaneUnique",
    "Swap",
    "all_forms",
    "assert_bits_equal",
    "assert_clean",
    "check_order",
    "check_swaps",
    "codes",
    "find_differences",
    "lane_unique",
    "matrices",
    "operands",
    "unnoticed_swaps",
]

_PLUGIN = "emulator.tools.testing.pytest_plugin"
#: what pytest loads with this module; a wheel has that file under the name of its entry point only
pytest_plugins = (_PLUGIN if find_spec(_PLUGIN) else "ptx_mma_emulator_pytest",)
