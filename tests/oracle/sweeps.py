"""Tests over hundreds of cases that are alike: each goes over a part of them."""

import pytest


def swept(cases, size=20, ids=str):
    """Decorates a test of one case: tests of lists of cases, which say which case is wrong."""
    cases = list(cases)
    parts = [cases[i : i + size] for i in range(0, len(cases), size)]

    def decorate(test):
        @pytest.mark.parametrize("part", parts, ids=[ids(part[0]) for part in parts])
        def sweep(part):
            for case in part:
                try:
                    test(case)
                except Exception as error:
                    raise AssertionError(f"{ids(case)}: {error}") from error

        sweep.__name__, sweep.__doc__ = test.__name__, test.__doc__
        return sweep

    return decorate
