"""Functions that the system supplies: vprintf, malloc, free, __assertfail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

EXTERNALS: dict[str, Callable[..., Any]] = {}
