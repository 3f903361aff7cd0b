"""``Used``: the products that ran under the mode, each with its order and how that is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, overload

from emulator.isa.recipe import Recipe
from emulator.matrices.library.recorded import RECORDED_ON, Evidence
from emulator.report import Report
from emulator.targets import Chip

#: the last line of the report
OTHER_OPERATIONS = (
    f"Orders were recorded on an {RECORDED_ON}. Operations that multiply no matrices, such as "
    "softmax and sums, are not listed: they ran on the CPU and have its bits."
)


@dataclass(frozen=True)
class UsedProduct:
    """One product: D = A·B with `a` ``(batch, m, k)`` and `b` ``(batch, k, n)``."""

    #: PyTorch's name of the operation, such as "addmm"
    operation: str
    #: types of A and B, and of the result
    types: str
    batch: int
    m: int
    n: int
    k: int
    #: "nt": A lies row by row, B column by column
    layout: str
    #: the order that the result was computed in
    order: str
    #: "recorded": recordings of that size on this chip show this order; "rule": those of the sizes
    #: around it do, or it is known of the operation alone; "modelled": it is the order of another
    #: chip, which was recorded; "none": the order of the GPU's library is not known
    evidence: Evidence
    #: reason for the evidence: its source, or the rule that is missing
    why: str

    @property
    def shape(self) -> tuple[int, ...]:
        """``(m, n, k)``, after the batch where there is one."""
        return (*((self.batch,) if self.batch else ()), self.m, self.n, self.k)

    def __str__(self) -> str:
        size = " × ".join(map(str, self.shape)) if self.layout else ""
        what = " ".join(filter(None, [self.operation, self.types, size, self.layout]))
        why = f" ({self.why})" if self.why else ""
        return f"{what}: {self.order}; {self.evidence}{why}"


class Used(Report, Sequence[UsedProduct]):
    """The products in the order in which they ran; as text a table, alike ones in one line."""

    #: a product, or whatever else is listed
    noun = "matrix product"
    closing = OTHER_OPERATIONS

    def __init__(self, chip: Chip, recipe: Recipe | None = None) -> None:
        #: the chip by name, or the target that was given for it
        self.chip = chip.name if recipe is None else recipe.name
        #: the target that its library is built for
        self.target = str(chip.target) if recipe is None else recipe.name
        self._products: list[UsedProduct] = []

    def add(self, product: UsedProduct) -> None:
        self._products.append(product)

    @overload
    def __getitem__(self, index: int) -> UsedProduct: ...
    @overload
    def __getitem__(self, index: slice) -> list[UsedProduct]: ...
    def __getitem__(self, index: int | slice) -> UsedProduct | list[UsedProduct]:
        return self._products[index]

    def __len__(self) -> int:
        return len(self._products)

    def __repr__(self) -> str:
        return f"<{self.title}>"

    def clear(self) -> None:
        self._products.clear()

    @property
    def evidence(self) -> dict[str, int]:
        """Number of products by evidence."""
        return dict(Counter(product.evidence for product in self._products))

    @property
    def title(self) -> str:
        counts = ", ".join(f"{count} {name}" for name, count in self.evidence.items())
        noun = f"{self.noun}{'s' * (len(self) != 1)}"
        return f"{len(self)} {noun} as on {self.chip}: {counts or 'none ran'}"

    @property
    def data(self) -> dict[str, Any]:
        return {
            "chip": self.chip, "target": self.target, "recorded on": RECORDED_ON,
            "evidence": self.evidence,
            "products": [asdict(product) for product in self._products],
        }  # fmt: skip

    def lines(self) -> Iterator[str]:
        yield self.title
        for product, count in Counter(self._products).items():
            yield f"  {count} × {product}"
        if self._products:
            yield self.closing


class UsedOperators(Used):
    """All operators that ran on a simulated GPU, products among them."""

    noun = "operator"
    closing = (
        f"Orders of products were recorded on an {RECORDED_ON}. Operators without evidence "
        "ran on the CPU and have its bits."
    )

    def __init__(self, chip: Chip) -> None:
        super().__init__(chip)
        self._known: dict[UsedProduct, UsedProduct] = {}

    def add(self, product: UsedProduct) -> None:
        # A long program runs the same few operators again and again.
        super().add(self._known.setdefault(product, product))
