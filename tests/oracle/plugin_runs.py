"""Runs of pytest of their own with the plugin of `emulator.testing`."""

from paths import ROOT


def run_with_plugin(pytester, monkeypatch):
    """Runs the files of `pytester` with the plugin of the checkout, whatever is installed."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return pytester.runpytest_subprocess(
        "-p", "no:emulator.testing", "-p", "emulator.tools.testing.pytest_plugin",
        "-W", "error", "-p", "no:cacheprovider", "-p", "no:hypothesispytest",
    )  # fmt: skip
