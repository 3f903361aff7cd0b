"""PyTorch's matrix operations, as products of the library and epilogues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dtypes import FORMATS, Array, convert
from emulator.arith import Engine
from emulator.isa.recipe import Recipe
from emulator.matrices.library.product import multiply, multiply_add, result_codes, scaled, summed
from emulator.matrices.library.recorded import (
    OTHER_CHIP,
    OTHER_GENERATION,
    RECORDED_ON,
    Choice,
    Evidence,
    choose_order,
)
from emulator.matrices.library.rules import EXACT, Rule, find_rule, usual_order
from emulator.targets import Chip
from emulator.tools.pytorch.used import UsedProduct

#: the order of what is not computed here
ON_CPU = "computed by PyTorch on the CPU"
#: torch's types that a library multiplies -> names of formats
FORMAT_NAMES = {
    torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32", torch.float64: "f64",
    torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2", torch.int8: "s8", torch.int32: "s32",
}  # fmt: skip
_TYPES = {name: kind for kind, name in FORMAT_NAMES.items()}
_SIGNED = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Computer:
    """Computes products as a chip's library does, and tells `note` of each."""

    def __init__(
        self,
        chip: Chip,
        engine: Engine,
        note: Callable[[UsedProduct], None],
        recipe: Recipe | None = None,
    ) -> None:
        self.chip, self.target = chip, chip.target
        self.engine, self.note, self.recipe = engine, note, recipe

    def note_unknown(
        self,
        name: str,
        tensors: Sequence[Tensor],
        why: str,
        evidence: Evidence = "none",
        order: str = ON_CPU,
    ) -> None:
        """Lists an operation that is no product."""
        types = " ".join(dict.fromkeys(_name(x) for x in tensors))
        self.note(UsedProduct(name, types, 0, 0, 0, 0, "", order, evidence, why))

    def product(
        self, operation: str, a: Tensor, b: Tensor, out: str, variant: str = ""
    ) -> tuple[str, Array] | None:
        """Type and codes of the accumulators of A·B; None where it is no product of a library."""
        found = self._choose(operation, a, b, out, variant)
        if found is None:
            return None
        rule, choice = found
        codes = codes_of(a), codes_of(b)
        return multiply(rule, *codes, self.target, choice.order, out, self.engine, self.recipe)

    def product_with_addend(
        self, operation: str, c: Tensor, a: Tensor, b: Tensor, out: str, alpha: float, beta: float
    ) -> Array | None:
        """Codes of alpha·A·B + beta·C; None where it is no product of a library."""
        found = self._choose(operation, a, b, out, c=c, alpha=alpha, beta=beta)
        if found is None:
            return None
        rule, choice = found
        codes = codes_of(a), codes_of(b), _as(out, c)
        how: Any = {"alpha": alpha, "beta": beta, "engine": self.engine, "recipe": self.recipe}
        return multiply_add(rule, *codes, self.target, choice.order, out, **how)

    def _choose(
        self,
        operation: str,
        a: Tensor,
        b: Tensor,
        out: str,
        variant: str = "",
        c: Tensor | None = None,
        alpha: float = 1,
        beta: float = 1,
    ) -> tuple[Rule, Choice] | None:
        """The rule and the order of a product, which is listed."""
        kinds = FORMAT_NAMES.get(a.dtype, ""), FORMAT_NAMES.get(b.dtype, "")
        if kinds == ("f32", "f32"):
            variant = "tf32" if torch.backends.cuda.matmul.allow_tf32 else ""
        rule = find_rule(*kinds, variant)
        if variant == "tf32" and rule and not rule.runs_on(self.target):
            # Tensor cores before Ampere have no tf32, and the flag no effect.
            variant, rule = "", find_rule(*kinds)
        if rule is None or (rule.a in EXACT and operation != "_int_mm"):
            # A GPU's other operations do not take integers.
            return None
        batch = a.shape[0] if a.ndim == 3 else 0
        (m, k), n = a.shape[-2:], b.shape[-1]
        layout = _layout(a) + _layout(b, by_columns=True)
        plain = alpha == beta == 1
        # Only then linear's kernel takes the row as it is; else it is made a matrix first.
        has_bias = operation == "addmm" and c is not None and c.ndim == 1 and plain
        sweep = _sweep(kinds, variant, out, "linear" if has_bias else operation, c is not None)
        usual = usual_order(operation, out, has_bias=has_bias)
        choice = choose_order(sweep, layout, batch, m, n, k, usual)
        if not plain:
            order = choice.order if beta == 1 else choice.order._replace(addend="sum")
            choice = choice._replace(order=order).at_most("rule", "recorded for alpha = beta = 1")
        if c is not None and tuple(c.shape) not in ((n,), (*a.shape[:-1], n)):
            choice = choice.at_most("none", "an addend that is broadcast was not recorded")
        if c is not None and kinds[0] in ("f16", "bf16") and out == "f32":
            choice = choice.at_most("rule", f"recorded with results of {kinds[0]}")
        if kinds[0] in ("e4m3", "e5m2") and (*kinds, out) != ("e4m3", "e4m3", "bf16"):
            choice = choice.at_most("rule", "recorded for e4m3 with results of bf16")
        if operation.startswith("_scaled_mm "):
            choice = choice.at_most("rule", "recorded with one scale for each operand and no bias")
        types = f"{rule.variant if rule.operands_as else kinds[0]} {kinds[1]} {out}"
        self.tell(operation, types, (batch, m, n, k), layout, rule, choice)
        return rule, choice

    def _on_chip(self, choice: Choice, rule: Rule) -> Choice:
        """A choice of the chip whose library was recorded, as evidence of this one."""
        if self.chip.name == RECORDED_ON:
            return choice
        if rule.a in EXACT:
            return choice.at_most("rule", "")
        alike = self.target.generation in rule.measured.split()
        return choice.at_most("modelled", OTHER_CHIP if alike else OTHER_GENERATION)

    def tell(
        self,
        operation: str,
        types: str,
        size: tuple[int, int, int, int],
        layout: str,
        rule: Rule,
        choice: Choice,
        way: object = None,
    ) -> None:
        """Lists a product (batch, m, n, k); `way` says more of its order than the choice."""
        choice = self._on_chip(choice, rule)
        ins = None if choice.order.fma else rule.instruction(self.target, choice.order.k)
        if self.recipe is not None and ins is not None and ins.d_type != "s32":
            choice = choice.at_most("rule", f"{self.recipe.name} in the order of an H200")
        order = f"{way or choice.order} of {ins or 'fused multiply-adds'}"
        self.note(UsedProduct(operation, types, *size, layout, order, choice.evidence, choice.why))


def _name(x: Tensor) -> str:
    return FORMAT_NAMES.get(x.dtype, str(x.dtype).removeprefix("torch."))


def _sweep(kinds: tuple[str, str], variant: str, out: str, operation: str, has_addend: bool) -> str:
    """The recorded sizes that tell of a product."""
    if kinds[0] in ("e4m3", "e5m2"):
        return "e4m3" if variant == "fast" else "e4m3slow"
    name = variant or kinds[0]
    if operation in ("mv", "addmv", "dot"):
        return f"{operation} {name}"
    if not has_addend:
        return f"{name}.f32" if kinds[0] in ("f16", "bf16") and out == "f32" else name
    return f"{operation} {name}"


def _layout(x: Tensor, by_columns: bool = False) -> str:
    """ "n" where the matrices lie row by row, "t" column by column; either may be said of a row or
    a column alone, and `by_columns` decides."""
    rows, columns = x.stride()[-2:]
    fits_n = columns == 1 and rows >= max(1, x.shape[-1])
    fits_t = rows == 1 and columns >= max(1, x.shape[-2])
    if fits_n and fits_t:
        return "t" if by_columns else "n"
    return "t" if fits_t else "n"


# --- tensors and codes ----------------------------------------------------------------------------


def codes_of(x: Tensor) -> Array:
    """The codes of a tensor, as unsigned integers with its shape and strides."""
    size = x.element_size()
    plain = x.detach().resolve_conj().resolve_neg().view(_SIGNED[size])
    return np.asarray(plain.numpy()).view(f"u{size}")


def tensor_of(codes: Array, kind: str) -> Tensor:
    plain = np.require(codes, requirements=["C", "W"])
    return torch.from_numpy(plain.view(f"i{plain.itemsize}")).view(_TYPES[kind])


def _as(kind: str, x: Tensor) -> Array:
    """The codes of a tensor in another type."""
    own = FORMAT_NAMES[x.dtype]
    return codes_of(x) if own == kind else convert(FORMATS[own], FORMATS[kind], codes_of(x))


# --- operations -----------------------------------------------------------------------------------


def _multiplied(
    computer: Computer, operation: str, a: Tensor, b: Tensor, out: str
) -> Tensor | None:
    """A·B of the type `out`; None where it is no product of a library."""
    made = computer.product(operation, a, b, out)
    return None if made is None else tensor_of(result_codes(*made, out), out)


def _mm(
    computer: Computer, a: Tensor, b: Tensor, out_dtype: torch.dtype | None = None
) -> Tensor | None:
    out = FORMAT_NAMES.get(out_dtype or a.dtype, "")
    return _multiplied(computer, "bmm" if a.ndim == 3 else "mm", a, b, out)


def _int_mm(computer: Computer, a: Tensor, b: Tensor) -> Tensor | None:
    return _multiplied(computer, "_int_mm", a, b, "s32")


def _mv(computer: Computer, a: Tensor, x: Tensor) -> Tensor | None:
    made = _multiplied(computer, "mv", a, x[:, None], FORMAT_NAMES.get(a.dtype, ""))
    return None if made is None else made[:, 0]


def _dot(computer: Computer, x: Tensor, y: Tensor) -> Tensor | None:
    made = _multiplied(computer, "dot", x[None], y[:, None], FORMAT_NAMES.get(x.dtype, ""))
    return None if made is None else made[0, 0]


def _addmv(
    computer: Computer, c: Tensor, a: Tensor, x: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor | None:
    factors = {"beta": beta, "alpha": alpha}
    made = _with_addend(computer, c[..., None], a, x[:, None], operation="addmv", **factors)
    return None if made is None else made[:, 0]


def _with_addend(
    computer: Computer,
    c: Tensor,
    a: Tensor,
    b: Tensor,
    out: torch.dtype | None = None,
    *,
    operation: str,
    beta: float = 1,
    alpha: float = 1,
) -> Tensor | None:
    """alpha·A·B + beta·C, of the type `out` (None: that of A)."""
    kind = FORMAT_NAMES.get(out or a.dtype, "")
    made = computer.product_with_addend(operation, c, a, b, kind, alpha, beta)
    return None if made is None else tensor_of(made, kind)


def _scaled_mm(
    computer: Computer,
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> Tensor | None:
    if scale_result is not None or scale_a.dtype != torch.float32:
        return None
    out = FORMAT_NAMES.get(out_dtype or a.dtype, "")
    variant = "fast" if use_fast_accum else ""
    by_rows = "" if scale_a.numel() == scale_b.numel() == 1 else " by rows"
    operation = f"_scaled_mm{by_rows}{'' if bias is None else ' with a bias'}"
    made = computer.product(operation, a, b, out, variant)
    if made is None:
        return None
    kind, codes = made
    if not by_rows:
        codes = scaled(kind, codes, scale_b.numpy() * scale_a.numpy())
    else:
        codes = scaled(kind, scaled(kind, codes, scale_b.numpy()), scale_a.numpy())
    if bias is not None:
        codes = summed(kind, codes, _as(kind, bias))
    return tensor_of(result_codes(kind, codes, out), out)


#: operations of aten, without the name of their overload
OPERATIONS: dict[str, Callable[..., Any]] = {
    "mm": _mm, "bmm": _mm, "mv": _mv, "dot": _dot,
    "addmm": partial(_with_addend, operation="addmm"),
    "baddbmm": partial(_with_addend, operation="baddbmm"),
    "addmv": _addmv, "_int_mm": _int_mm, "_scaled_mm": _scaled_mm,
}  # fmt: skip
