"""What the families of the device's operators have in common: a request, and an answer to it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch._ops import OpOverload

from emulator.matrices.library.recorded import RECORDED_ON, Evidence
from emulator.targets import Chip
from emulator.tools.pytorch.composites import name_of, tensors_in

#: floating-point types that have kernels of a GPU here
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
#: the order of what a family computes
COMPUTED = "computed as on the GPU"


class Request:
    """A call of an operator, with tensors of the CPU in place of the device's."""

    def __init__(
        self,
        function: OpOverload,
        args: Sequence[Any],
        kwargs: Any,
        host: frozenset[int] = frozenset(),
    ) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs
        self.name = name_of(function)
        #: the name without the "_" of operators that work in place
        self.base = self.name.rstrip("_") or self.name
        #: ids of tensors that the caller has on the CPU: numbers that PyTorch has wrapped
        self._host = host

    @cached_property
    def tensors(self) -> list[Tensor]:
        return tensors_in(self.args, self.kwargs)

    @cached_property
    def given(self) -> dict[str, Any]:
        """All arguments by name, with the schema's defaults."""
        schema = self.function._schema.arguments
        given = {x.name: x.default_value for x in schema} | dict(self.kwargs)
        return given | dict(zip([x.name for x in schema], self.args, strict=False))

    def number(self, value: Any) -> float | None:
        """An argument that is a number for a GPU's kernels: also a tensor of no dimensions on the
        CPU. None for any other."""
        if isinstance(value, bool | int | float):
            return float(value)
        wrapped = isinstance(value, Tensor) and id(value) in self._host
        return float(value) if wrapped and not value.is_complex() else None


class Answer(NamedTuple):
    """What a family computed, and how that is known."""

    result: Any
    #: source of the evidence
    why: str = ""
    #: None: the family has listed its operators itself
    evidence: Evidence | None = None
    order: str = COMPUTED


class Family(Protocol):
    """Operators that are computed in one way."""

    def __call__(self, request: Request) -> Answer | None:
        """The answer to a request; None for one that is not the family's."""


def on_chip(chip: Chip, evidence: Evidence) -> Evidence:
    """The evidence on a chip, of what was recorded on one."""
    return evidence if chip.name == RECORDED_ON else "modelled"


def call_on_cpu(function: OpOverload, args: Any, kwargs: Any) -> Any:
    """Calls an operator; numbers in the place of tensors become some where it does not take them.

    PyTorch gives an operator of Python a number where C++ has wrapped one in a tensor.
    """
    try:
        return function(*args, **kwargs)
    except RuntimeError as error:
        if "Expected a value of type 'Tensor'" not in str(error):
            raise
    tensors = tensors_in(args)
    wants = [str(x.type) == "Tensor" for x in function._schema.arguments]
    return function(
        *(
            _wrapped(x, tensors) if wanted and isinstance(x, (bool, int, float, complex)) else x
            for x, wanted in zip(args, wants, strict=False)
        ),
        **kwargs,
    )


def _wrapped(number: complex, tensors: Sequence[Tensor]) -> Tensor:
    """A number as a tensor that changes the type of the result no more than a number does."""
    if any(x.dim() for x in tensors) or not tensors:
        exact = torch.float64 if isinstance(number, float) else None
        floating = any(x.dtype.is_floating_point for x in tensors)
        return torch.tensor(number, dtype=exact if floating else None)
    return torch.tensor(number, dtype=torch.result_type(tensors[0], number))
