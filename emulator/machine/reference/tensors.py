"""Reference engine: tensor copies, element by element (PTX ISA 9.7.9.27)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from emulator.arith.scalar.rule import bind_reference
from emulator.machine.shared.issuing import Issuer, Make, Operands, Run, Span, poison, submit
from emulator.machine.shared.tensor_maps import BOX_ALIGNMENT, Box, Reduction, TensorIssue
from emulator.memory.arena import AccessError
from emulator.memory.tensor_copy_reference import Element, elements, load_code
from emulator.memory.tensor_transfer import OUTSIDE_NAN


def _elements(box: Box, place: Span, stores: bool) -> Iterator[tuple[Element, Span]]:
    """The elements of a box, with their bytes in shared memory."""
    tensor_map = box.tensor_map
    size, where = tensor_map.element_type.bytes, (box.coordinates, box.offsets, place.start)
    for element in elements(tensor_map, box.plan.mode, *where, stores=stores):
        yield element, Span(place.memory, element.shared_address, size)


def load(operands: Operands) -> Run:
    """cp.async.bulk.tensor from global to shared memory, of one block or of several."""
    issue = TensorIssue(operands)

    def run(who: Issuer) -> None:
        box = issue.box(who)
        for place, barrier in issue.targets(who, box.plan.shared_bytes, BOX_ALIGNMENT):
            for _, held in _elements(box, place, False):
                poison(who, held)
            submit(who, barrier, box.plan.bytes, _loader(who, box, place))

    return run


def _loader(who: Issuer, box: Box, place: Span) -> Callable[[], None]:
    def perform() -> None:
        m = box.tensor_map
        size, outside = m.element_type.bytes, bytes(m.element_type.bytes)
        if m.fill == "nan":
            outside = OUTSIDE_NAN.to_bytes(2, "little") * (size // 2)
        for element, held in _elements(box, place, False):
            data = outside
            if element.global_address is not None:
                given = who.find("global", element.global_address, size, 1)
                code = load_code(m.dtype, int.from_bytes(given.bytes.tobytes(), "little"))
                data = code.to_bytes(size, "little")
            held.bytes[:] = np.frombuffer(data, np.uint8)

    return perform


def store(operands: Operands) -> Run:
    """cp.async.bulk.tensor and cp.reduce.async.bulk.tensor from shared to global memory."""
    issue = TensorIssue(operands)

    def run(who: Issuer) -> None:
        box = issue.box(who)
        place = issue.source(who, box.plan.shared_bytes, BOX_ALIGNMENT)
        reduction = issue.form.reduction(box.tensor_map.dtype)
        submit(who, None, box.plan.bytes, _storer(who, box, place, reduction))

    return run


def _storer(who: Issuer, box: Box, place: Span, reduction: Reduction | None) -> Callable[[], None]:
    combine = None
    if reduction is not None:
        combine = bind_reference(reduction, space="global", bulk="bulk")

    def perform() -> None:
        size = box.tensor_map.element_type.bytes
        for element, held in _elements(box, place, True):
            if element.global_address is None:
                continue
            try:
                target = who.find("global", element.global_address, size, 1, write=True)
            except AccessError:
                if element.behind:
                    continue  # Memory ends there: nothing shows what lies behind.
                raise
            data = held.bytes.tobytes()
            if combine is not None:
                old = int.from_bytes(target.bytes.tobytes(), "little")
                word = combine(old, int.from_bytes(data, "little"))
                data = word.to_bytes(size, "little")
            target.bytes[:] = np.frombuffer(data, np.uint8)

    return perform


def transfer(operands: Operands) -> Run:
    """A tensor copy, one way or the other."""
    return store(operands) if operands.modifier("to") == "global" else load(operands)


EACH: dict[str, Make] = {"cp.async.bulk.tensor": transfer, "cp.reduce.async.bulk.tensor": transfer}
