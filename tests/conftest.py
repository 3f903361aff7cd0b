"""Which cases are in the fast suite, where a file has many that are alike."""

from collections import Counter

import pytest

#: file -> n: every n-th of its cases is in the fast suite, and all of them are in the slow one
SAMPLED = {
    "test_constants.py": 2,
    "test_engines.py": 4,
    "test_every_form.py": 4,
    "test_explain_forms.py": 4,
    "test_layouts.py": 4,
    "test_ordinary_table.py": 6,
    "test_scalar_rules.py": 4,
    "test_sparse.py": 4,
    "test_wmma.py": 2,
    "test_wmma_arithmetic.py": 3,
    "test_wrong_kinds.py": 2,
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    seen = Counter()
    for item in items:
        name = item.path.name
        if name in SAMPLED and item.get_closest_marker("slow") is None:
            seen[name] += 1
            if seen[name] % SAMPLED[name] != 1:
                item.add_marker(pytest.mark.slow)
