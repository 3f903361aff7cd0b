"""Which cases are in the fast suite, where a file has many that are alike; what collecting them
costs; and fixtures that several files take."""

import gc
from collections import Counter
from functools import partial

import pytest
from commands import answer, refusal

#: file -> n: every n-th of its cases is in the fast suite, and all of them are in the slow one
SAMPLED = {
    "test_browser.py": 3,
    "test_capture.py": 4,
    "test_checks.py": 2,
    "test_cli.py": 4,
    "test_cli_kinds.py": 2,
    "test_compiled.py": 4,
    "test_compiled_atomics.py": 5,
    "test_compiled_engine.py": 4,
    "test_compiled_loops.py": 3,
    "test_compiled_warpgroups.py": 5,
    "test_constants.py": 16,
    "test_contraction.py": 10,
    "test_convergence.py": 4,
    "test_conversions.py": 3,
    "test_conversions_9x.py": 40,
    "test_copy_recordings.py": 6,
    "test_dask.py": 4,
    "test_descriptor_command.py": 4,
    "test_descriptor_object.py": 4,
    "test_device_launches.py": 2,
    "test_engines.py": 36,
    "test_every_form.py": 30,
    "test_explain_forms.py": 6,
    "test_fault_command.py": 3,
    "test_faults.py": 3,
    "test_faults_loops.py": 3,
    "test_faults_memory.py": 8,
    "test_faults_sparse.py": 3,
    "test_faults_stores.py": 8,
    "test_faults_tensor.py": 3,
    "test_faults_wgmma.py": 5,
    "test_faults_where.py": 6,
    "test_fused_multiply_add.py": 5,
    "test_fuzz.py": 6,
    "test_gemm.py": 3,
    "test_grouped.py": 3,
    "test_guide.py": 7,
    "test_instruction.py": 2,
    "test_instruction_descriptor.py": 4,
    "test_kernel_limits.py": 2,
    "test_kernel_recordings.py": 8,
    "test_kernels.py": 18,
    "test_lane_unique.py": 2,
    "test_lanes.py": 10,
    "test_launch_command.py": 3,
    "test_layouts.py": 4,
    "test_matmul.py": 6,
    "test_matmul_planted.py": 5,
    "test_mma_sim.py": 24,
    "test_native.py": 7,
    "test_operands.py": 3,
    "test_orders.py": 4,
    "test_ordinary_table.py": 6,
    "test_own_recipe.py": 5,
    "test_planted.py": 12,
    "test_probe_recordings.py": 4,
    "test_ptx_legality.py": 4,
    "test_ptx_module_bounds.py": 6,
    "test_recipes_by_hand.py": 12,
    "test_recorded_faults.py": 10,
    "test_recordings.py": 12,
    "test_reference_engine.py": 12,
    "test_rounding.py": 6,
    "test_scalar_recordings.py": 4,
    "test_scalar_rules.py": 12,
    "test_shared_descriptor.py": 3,
    "test_single.py": 2,
    "test_small.py": 3,
    "test_small_floats.py": 12,
    "test_sparse.py": 12,
    "test_sparse_full.py": 5,
    "test_stochastic.py": 5,
    "test_strategies.py": 12,
    "test_streams.py": 12,
    "test_studies.py": 4,
    "test_tcgen05.py": 3,
    "test_tcgen05_order.py": 9,
    "test_tensor_copy.py": 2,
    "test_tensor_descriptor.py": 2,
    "test_tensor_layouts.py": 4,
    "test_tensor_map.py": 3,
    "test_tensor_matrix.py": 2,
    "test_tensor_memory.py": 3,
    "test_tensor_mma.py": 3,
    "test_tensor_multiply.py": 3,
    "test_testing_plugin.py": 6,
    "test_view.py": 2,
    "test_view_tensor.py": 2,
    "test_warp_statements.py": 2,
    "test_wgmma_order.py": 16,
    "test_without_llvmlite.py": 4,
    "test_wmma.py": 2,
    "test_wmma_arithmetic.py": 6,
    "test_wrong_kinds.py": 10,
}


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Cases by the ten thousand stay: the garbage collector need not look at them again and
    again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    seen = Counter()
    for item in items:
        name = item.path.name
        if name in SAMPLED and item.get_closest_marker("slow") is None:
            seen[name] += 1
            if seen[name] % SAMPLED[name] != 1:
                item.add_marker(pytest.mark.slow)


@pytest.fixture
def ask(capsys):
    """Runs a command that must succeed: its lines, or its JSON."""
    return partial(answer, capsys)


@pytest.fixture
def refused(capsys):
    """Runs a command that must be refused: its message."""
    return partial(refusal, capsys)


@pytest.fixture(scope="module")
def client():
    """A Dask cluster of two processes on this machine."""
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client
