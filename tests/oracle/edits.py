"""Single edits of the package, each of which a fast test must notice, and who looks whether one
does."""

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from typing import NamedTuple

from paths import ROOT, TESTS


class Edit(NamedTuple):
    """A text that stands once in a file, a wrong one in its place, and the file in tests/ that must
    fail."""

    file: str
    old: str
    new: str
    tests: str


EDITS = [
    Edit("dtypes/arrays.py", "np.maximum(code - 1, 0)",
         "np.maximum(code - 2, 0)", "dtypes/test_rounding.py"),
    Edit("dtypes/codec.py", "if shift > 0:", "if shift > 1:", "dtypes/test_rounding.py"),
    Edit("dtypes/formats.py", "return (1 << (self.exponent_bits - 1)) - 1",
         "return (1 << (self.exponent_bits - 1)) - 2", "dtypes/test_formats.py"),
    Edit("dtypes/packing.py", "((1 << self.width) - 1) & ~",
         "((1 << self.width) - 1) | ~", "dtypes/test_packing.py"),
    Edit("emulator/arith/ieee.py", "and r.sign != sign:",
         "and r.sign == sign:", "arith/test_fused_multiply_add.py"),
    Edit("emulator/arith/scalar/bits.py", "selector = c >> 4 * i",
         "selector = c >> 3 * i", "arith/test_scalar_rules.py"),
    Edit("emulator/arith/scalar/carry.py", "return a - b, a >= b",
         "return a - b, a > b", "arith/test_scalar_rules.py"),
    Edit("emulator/arith/scalar/comparison.py", "x, y = a >> i * e.bits",
         "x, y = a << i * e.bits", "arith/test_scalar_rules.py"),
    Edit("emulator/arith/scalar/fields.py", "field -= 1 << length",
         "field += 1 << length", "arith/test_scalar_rules.py"),
    Edit("emulator/arith/scalar/integer.py", "total = t.number(a) + t.number(b)",
         "total = t.number(a) - t.number(b)", "arith/test_scalar_rules.py"),
    Edit("emulator/arith/special.py", "significand = fraction | 1 << 23",
         "significand = fraction | 1 << 22", "arith/test_scalar_recordings.py"),
    Edit("emulator/arith/special.py", "TANH_BITS[exponent + 8]",
         "TANH_BITS[exponent + 7]", "arith/test_scalar_recordings.py"),
    Edit("emulator/arith/special_words.py", ">= 127 + 7 << 23",
         ">= 127 + 6 << 23", "arith/test_scalar_recordings.py"),
    Edit("emulator/arith/steps/fused_dot_add.py", "total + aligned(x, top",
         "total - aligned(x, top", "arith/test_recipes_by_hand.py"),
    Edit("emulator/layout/addressing.py", "block * sbo + leading + unit % w",
         "block * sbo - leading + unit % w", "layout/test_shared_descriptor.py"),
    Edit("emulator/layout/shared_descriptor.py", "row % LINES * PATTERN_LINE + row // LINES",
         "row % LINES * PATTERN_LINE - row // LINES", "layout/test_shared_descriptor.py"),
    Edit("emulator/memory/mbarrier.py", "word >> PARITY != (parity & 1)",
         "word >> PARITY == (parity & 1)", "memory/test_mbarrier.py"),
    Edit("emulator/memory/tensor_copy.py", "index * m.element_strides[-1])",
         "index * m.element_strides[0])", "memory/test_tensor_copy.py"),
    Edit("emulator/memory/tensor_map_bits.py", "high << 36 | low << 4",
         "high << 35 | low << 4", "memory/test_tensor_map.py"),
    Edit("emulator/memory/tensor_transfer.py", "change(addresses[i : i + 1], rows",
         "change(addresses[i : i + 2], rows", "memory/test_tensor_transfer.py"),
    Edit("emulator/isa/grammar.py", "== slot.most and not slot.repeatable",
         "== slot.most or not slot.repeatable", "isa/test_ordinary_table.py"),
    Edit("emulator/isa/ordinary/asynchronous.py", '"8.0" if targets is _90 else "8.6"',
         '"8.6" if targets is _90 else "8.0"', "isa/test_ordinary_table.py"),
    Edit("emulator/isa/recipe.py", "wide.emin - wide.mantissa_bits <= fmt.emin",
         "wide.emin - wide.mantissa_bits < fmt.emin", "isa/test_own_recipe.py"),
    Edit("emulator/isa/register_types.py", "of.a in row.a.split()",
         "of.a not in row.a.split()", "isa/test_signature.py"),
    Edit("emulator/isa/wmma.py", "_F16_ELEMENTS * WARP //", "WARP //", "warp/test_wmma.py"),
    Edit("emulator/warp/move.py", "np.uint8(1 << width - 1)",
         "np.uint8(1 << width - 2)", "warp/test_movement.py"),
    Edit("emulator/warp/operands.py", "keep.dtype != np.bool_ and not np.isin",
         "keep.dtype != np.bool_ and np.isin", "warp/test_operands.py"),
    Edit("emulator/warp/sparse.py", "(worth == 2).sum(-1)",
         "(worth == 1).sum(-1)", "warp/test_sparse.py"),
    Edit("emulator/matrices/gemm.py", "not 0 <= first <= last:",
         "not 0 < first <= last:", "matrices/test_gemm.py"),
    Edit("emulator/matrices/misplaced.py", "if len(moved) == 2 and not turned",
         "if len(moved) != 2 and not turned", "matrices/test_misplaced.py"),
    Edit("emulator/matrices/scales.py", "count = -(-k // block)",
         "count = k // block", "matrices/test_gemm_operands.py"),
    Edit("emulator/ptx/constants.py", "x << (y & 63))",
         "x << (y & 31))", "ptx/test_ptx_module_constants.py"),
    Edit("emulator/ptx/regions.py", "behind.get(first, frozenset()) - {first})",
         "behind.get(first, frozenset()) | {first})", "machine/test_convergence.py"),
    Edit("emulator/ptx/source.py", "at - self._starts[line - 1] + 1)",
         "at - self._starts[line - 1])", "ptx/test_ptx_module_errors.py"),
    Edit("emulator/machine/checks/accesses.py", "(at[remote], self.groups + _REMOTE,",
         "(at[remote], self.groups - _REMOTE,", "machine/test_async_mistakes.py"),
    Edit("emulator/machine/checks/clocks.py", "same_warp = mine // WARP ==",
         "same_warp = mine // WARP !=", "machine/test_checks.py"),
    Edit("emulator/machine/checks/completion.py", "lanes - lanes % WARP",
         "lanes + lanes % WARP", "machine/test_tcgen05_order.py"),
    Edit("emulator/machine/checks/counting.py", "len(warps) - len(np.unique(warps))",
         "len(warps) + len(np.unique(warps))", "machine/test_counters.py"),
    Edit("emulator/machine/checks/miscompilations.py", "c.index(x) != i",
         "c.index(x) == i", "machine/test_miscompilations.py"),
    Edit("emulator/arith/fast/words.py", "int(value) & (1 << bits) - 1",
         "int(value) & (1 << bits) - 2", "machine/test_compiled_engine.py"),
    Edit("emulator/machine/compiled/trials.py", "least[1:] < end[:-1]",
         "least[1:] < end[1:]", "machine/test_trials.py"),
    Edit("emulator/machine/compiled/loop.py", "self._registers and live >> key & 1",
         "self._registers and live >> key & 2", "machine/test_compiled_loops.py"),
    Edit("emulator/machine/compiled/patterns.py", "_pointers(e, places, i * bits // 8)",
         "_pointers(e, places, i * bits // 16)", "machine/test_compiled_engine.py"),
    Edit("emulator/machine/reference/memory.py", "old >> i * size & (1 << size)",
         "old >> i & (1 << size)", "machine/test_reference_engine.py"),
    Edit("emulator/machine/reference/meeting.py", "clusters.passed(self.lanes[~lacking])",
         "clusters.passed(self.lanes[lacking])", "machine/test_reference_engine.py"),
    Edit("emulator/machine/reference/mbarriers.py", 'elif space != "cluster":',
         'elif space == "cluster":', "machine/test_reference_engine.py"),
    Edit("emulator/machine/reference/wgmma.py", "registers.write(home.threads, words)",
         "pass", "machine/test_wgmma_order.py"),
    Edit("emulator/machine/shared/convergence.py", "next(lanes_of(mask >> start << start or mask))",
         "next(lanes_of(mask))", "machine/test_convergence.py"),
    Edit("emulator/machine/shared/addresses.py", "(_rank_at(addresses) == who.ranks)",
         "(_rank_at(addresses) != who.ranks)", "machine/test_shared_statements.py"),
    Edit("emulator/machine/shared/arrivals.py", "self.arrived[lanes] >= 0",
         "self.arrived[lanes] >= 1", "machine/test_errors_by_engine.py"),
    Edit("emulator/machine/shared/arrivals.py", "np.where(whole, 0, bits)",
         "np.where(whole, bits, 0)", "machine/test_arrivals.py"),
    Edit("emulator/machine/shared/barriers.py", "write(who, true == voted)",
         "write(who, true > 0)", "machine/test_shared_statements.py"),
    Edit("emulator/machine/shared/mbarriers.py", "PhaseWait(barrier(who), given(who), test)",
         "PhaseWait(barrier(who), given(who) ^ 1, test)", "machine/test_shared_statements.py"),
    Edit("emulator/machine/shared/multimem.py", "held[which] = combine(",
         "held[which] = (lambda *x: x[0])(", "machine/test_multimem.py"),
    Edit("emulator/machine/shared/control.py", "-(-most // 16) * 16", "most",
         "machine/test_shared_statements.py"),
    Edit("emulator/machine/shared/stack.py", "-(-who.stack_top // alignment) * alignment",
         "who.stack_top", "machine/test_shared_statements.py"),
    Edit("emulator/machine/shared/tcgen05.py", "write_one(cast(R, result), load.lane, words)",
         "write_one(cast(R, result), 0, words)", "machine/test_tcgen05_order.py"),
    Edit("emulator/machine/shared/copies.py", "sizes * (1 - ignored(who))",
         "sizes * ignored(who)", "machine/test_shared_statements.py"),
    Edit("emulator/machine/shared/special.py", "x.grid[axis] // x.cluster[axis]",
         "x.grid[axis] % x.cluster[axis]", "machine/test_shared_statements.py"),
    Edit("emulator/machine/shared/special.py", "(1 << x.lane) - 1",
         "(1 << x.lane) + 1", "machine/test_shared_statements.py"),
    Edit("emulator/machine/shared/tensor_order.py", "self._waits and not pending.at_once",
         "self._waits and pending.at_once", "machine/test_tcgen05_order.py"),
    Edit("emulator/machine/sizes.py", "if threads > _BLOCK:",
         "if threads >= _BLOCK:", "machine/test_kernel_limits.py"),
    Edit("emulator/machine/shared/wgmma.py", "groups.fill(result, poison(terms.instruction))",
         "pass", "machine/test_wgmma_order.py"),
    Edit("emulator/machine/system/externals.py", "signed and value >> bits - 1:",
         "signed and value >> bits:", "machine/test_kernel_system.py"),
    Edit("emulator/machine/vector/lanes.py", "*words.shape[2:])",
         "*words.shape[3:])", "machine/test_vector_strands.py"),
    Edit("emulator/machine/vector/strand.py", "going = mask.nonzero()[0]",
         "going = (~mask).nonzero()[0]", "machine/test_vector_strands.py"),
    Edit("emulator/tools/descriptors/tiles.py", "within = start % PATTERN_LINE",
         "within = start // PATTERN_LINE", "tools/test_descriptor_command.py"),
    Edit("emulator/tools/explanations/heat.py", "(shown >= low) & (shown <= high)",
         "(shown >= low) | (shown <= high)", "tools/test_heat.py"),
    Edit("emulator/tools/explanations/numbers.py", "abs(value) / power_of_two(last)",
         "abs(value) * power_of_two(last)", "tools/test_explain.py"),
    Edit("emulator/tools/listing.py", "int(num[1:]) if num",
         "int(num[2:]) if num", "facade/test_cli.py"),
    Edit("emulator/tools/orders.py", "0 < len(given) <= _MOST_SEEDS:",
         "0 <= len(given) <= _MOST_SEEDS:", "tools/test_orders.py"),
    Edit("emulator/tools/pictures/page.py", "self.ins.lanes * self.warps[0] * self.warps[1]",
         "self.ins.lanes * self.warps[0] + self.warps[1]", "tools/test_view.py"),
    Edit("emulator/tools/testing/edges.py", "fmt.infinity + unit]",
         "fmt.infinity - unit]", "tools/test_strategies.py"),
    Edit("emulator/tools/testing/swaps.py", "(i ^ j).bit_count() == 1",
         "(i ^ j).bit_count() == 2", "tools/test_lane_unique.py"),
]  # fmt: skip

#: seconds: tests that take longer with an edit have an endless loop, and the edit is a bad one
_LIMIT = 240


def copied_package(to):
    """The package in another folder, with the machine code that Python made of it."""
    for name in ("dtypes", "emulator"):
        shutil.copytree(ROOT / name, to / name)
    return to


def times_in(edit):
    """How often the old text stands in its file."""
    return (ROOT / edit.file).read_text().count(edit.old)


@contextmanager
def edited(package, edit):
    """An edit of the copy, until the end."""
    path = package / edit.file
    right = path.read_text()
    assert right.count(edit.old) == 1, f"{edit.file} has {edit.old!r} {right.count(edit.old)} times"
    path.write_text(right.replace(edit.old, edit.new))
    try:
        yield
    finally:
        shutil.copy2(ROOT / edit.file, path)


def fast_tests_fail(package, tests):
    """Whether a fast test of a file fails with this package."""
    # Python finds the package in the current folder first, and leaves no machine code of an edit.
    run = subprocess.run(
        [sys.executable, "-B", "-m", "pytest", "-qx", "-p", "no:cacheprovider", "-p", "no:xdist",
         "-c", ROOT / "pyproject.toml", f"--rootdir={ROOT}", TESTS / tests],
        cwd=package, env=os.environ | {"PYTHONPATH": str(package)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_LIMIT,
    )  # fmt: skip
    assert run.returncode in (0, 1), f"{tests} did not run:\n{run.stdout}{run.stderr}"
    return run.returncode == 1
