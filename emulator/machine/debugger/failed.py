"""Debugger: ``Failed``, a launch that has raised, to be looked at under the debugger where it
did."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from zlib import crc32

from dtypes import Array
from emulator.errors import OperandError
from emulator.machine.debugger.debugger import Debugger
from emulator.machine.report import KernelError
from emulator.memory.arena import bytes_view

#: what `stop_at` has found -> what the debugger catches
_CAUGHT = {"NaN": "nan", "infinity": "inf"}


class Failed:
    """Runs a launch again, up to its error. A launch that raises has changed no array, so that it
    does the same again, unless the caller changes them: that is found by their checksums."""

    def __init__(
        self, error: KernelError, debug: Callable[[], Debugger], arrays: Mapping[str, Array]
    ) -> None:
        self._error, self._debug, self._arrays = error, debug, arrays
        self._sums = _sums(arrays)

    def state(self) -> Debugger:
        """The launch, stopped at its error. Raises OperandError where arrays have changed since."""
        now = _sums(self._arrays)
        changed = [name for name, total in self._sums.items() if now[name] != total]
        if changed:
            raise OperandError(
                f"{changed[0]} has changed since the launch failed, so its state is lost: look at "
                "error.state first, or launch with kernel.debug"
            )
        debugger, error = self._debug(), self._error
        if error.kind in _CAUGHT:
            debugger.catch(_CAUGHT[error.kind])
        stop = debugger.cont()
        found = debugger.error
        same = found is not None and (found.kind, found.place) == (error.kind, error.place)
        if not same and not stop.reason.startswith("catchpoint"):
            debugger.close()
            raise OperandError(
                "the launch does not fail in the same way when it runs again under the debugger: "
                f"{stop.reason}"
            )
        return debugger


def _sums(arrays: Mapping[str, Array]) -> dict[str, int]:
    return {name: crc32(bytes_view(array).data) for name, array in arrays.items() if array.nbytes}
