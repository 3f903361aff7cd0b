"""``assert_clean``: a kernel runs, and the checks find nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from emulator.errors import OperandError
from emulator.machine.module import Kernel
from emulator.machine.report import KernelError, Report


def assert_clean(
    kernel: Kernel,
    grid: Sequence[int] | int,
    block: Sequence[int] | int,
    args: Sequence[object] | Mapping[str, object] = (),
    *,
    warnings: bool = False,
    **options: object,
) -> Report:
    """Launches a kernel with checks; arrays among `args` hold afterwards what it has written.

    The other arguments are those of `Kernel.launch`. With `warnings` a statement that ptxas is
    known to compile wrongly fails as well. Raises AssertionError with the text of what was
    found, or of why the kernel cannot go on; OperandError for what is no kernel, and whatever
    `Kernel.launch` raises for wrong arguments.
    """
    __tracebackhide__ = True
    if not isinstance(kernel, Kernel):
        raise OperandError(f"a kernel is module['name']; got {type(kernel).__name__}")
    return clean_launch(kernel.launch, grid, block, args, warnings=warnings, **options)


def clean_launch(
    launch: Callable[..., Report], *args: Any, warnings: bool = False, **options: Any
) -> Report:
    """Calls a `Kernel.launch` with checks; raises AssertionError as `assert_clean`."""
    __tracebackhide__ = True
    try:
        report = launch(*args, **({"check": True} | options))
    except KernelError as error:
        raise AssertionError(str(error)) from None
    if report.findings or (warnings and report.warnings):
        lines = [f"{report.kernel} is not clean:", *report.finding_lines()]
        raise AssertionError("\n".join(lines))
    return report
