"""The operands and options of one call of mma, mma.sp and wgmma, checked as kernels take them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from dtypes import Array
from emulator.arrays import as_array
from emulator.errors import OperandError, shown
from emulator.isa.matrix import IMMEDIATES, MatrixInstruction
from emulator.isa.signature import is_immediate
from emulator.layout.descriptor import as_words
from emulator.memory.space import Space
from emulator.warp.call import Call
from emulator.warp.scales import chosen_scales, scale_words
from emulator.warp.sparse import check_selector, metadata_words


class Setting(NamedTuple):
    """What is fixed of a multiplication before a batch is looked at."""

    #: bits to flip in every element: the sign, where imm_scale is -1
    flip_a: bool = False
    flip_b: bool = False
    #: "mn" where imm_trans transposes a matrix in shared memory
    major_a: str = "k"
    major_b: str = "k"
    a_in_memory: bool = False


class Checked(NamedTuple):
    """The operands of a call as `native.run` takes them."""

    #: registers ``(…, lanes, registers)``, words of metadata and of scales ``(…, lanes)``, and
    #: descriptors ``(…)`` of what lies in `shared`, by name
    operands: dict[str, Array]
    setting: Setting = Setting()
    batches: Sequence[tuple[int, ...]] = ()
    shared: Space | None = None
    #: where the accumulator counts; None: everywhere
    keep: Array | None = None
    selector: int = 0
    #: which of the matrices of scales are meant
    scales: Mapping[str, int] = MappingProxyType({})

    @classmethod
    def of(cls, call: Call) -> Checked:
        """Raises EmulatorError for operands that are wrong, though not for all of those."""
        ins, given, options = call.instruction, call.operands, call.options
        operands, batches, scales = {}, [], {}
        setting, shared, keep = Setting(), None, None
        if ins.is_wgmma:
            a, b = (as_array(as_words(given[name]), f"operand {name}") for name in "ab")
            inside = a.dtype == np.uint64
            signs, majors = immediates(call, "descriptor" if inside else "vector")
            setting = Setting(signs["a"] == -1, signs["b"] == -1, majors["a"], majors["b"], inside)
            keep, shared = scale_d_of(call), call.memory
            batches += [keep.shape, shared.batch]
            if b.dtype != np.uint64 or type(shared) is not Space:
                raise OperandError("B is not in shared memory, or that is watched")
            operands["b"] = b
            operands["a"] = a if inside else ins.fragment("a").check_registers(a)
            operands["c"] = ins.fragment("d").check_registers(given["d"])
            batches += [b.shape, a.shape if inside else a.shape[:-2]]
        else:
            for name in "abc":
                operands[name] = ins.fragment(name).check_registers(given[name])
                batches.append(operands[name].shape[:-2])
        batches.append(operands["c"].shape[:-2])
        if ins.is_sparse:
            operands["e"] = metadata_words(ins, given["e"])
            batches.append(operands["e"].shape[:-1])
        for name in ("scale_a", "scale_b") if ins.is_block_scaled else ():
            ids = (options.get(f"{id_}_{name[-1]}", 0) for id_ in ("byte_id", "thread_id"))
            operands[name] = scale_words(ins, name, given_scales(call, name))
            scales[name] = chosen_scales(ins, name, *ids)
            batches.append(operands[name].shape[:-1])
        selector = check_selector(ins, options.get("selector", 0)) if ins.is_sparse else 0
        return cls(operands, setting, batches, shared, keep, selector, scales)


def given_scales(call: Call, operand: str) -> Array:
    words: Array | None = call.options.get(operand)
    if words is None:
        needed = f"{operand}=, one uint32 word of scales per lane"
        raise OperandError(f"{call.instruction} needs {needed}")
    return words


def scale_d_of(call: Call) -> Array:
    given = call.options.get("scale_d", True)
    keep = as_array(given, "scale_d")
    if keep.dtype != np.bool_ and not np.isin(keep, (0, 1)).all():
        raise OperandError(f"scale_d is true or false, or an array of them; got {shown(given)}")
    return keep.astype(np.bool_)


def immediates(call: Call, a_kind: str) -> tuple[dict[str, int], dict[str, str]]:
    """imm_scale and the major-ness that imm_trans means, of A and of B; checked."""
    ins = call.instruction
    signs, majors = {}, {}
    for name, legal in _legal_immediates(ins, a_kind).items():
        given = call.options.get(name, IMMEDIATES[name][0])
        if not is_immediate(given, legal):
            why = " with A from registers" if name == "imm_trans_a" and a_kind == "vector" else ""
            raise OperandError(
                f"{name} of {ins}{why} is {' or '.join(map(str, legal))}; got {shown(given)}"
            )
        if name.startswith("imm_scale"):
            signs[name[-1]] = int(given)
        else:
            majors[name[-1]] = "mn" if given else "k"
    return signs, majors


@lru_cache(maxsize=256)
def _legal_immediates(ins: MatrixInstruction, a_kind: str) -> dict[str, tuple[int, ...] | range]:
    chosen = next(x for x in ins.signatures() if x["a"].kind == a_kind)
    return {
        name: chosen[name].values if name in chosen else values[:1]
        for name, values in IMMEDIATES.items()
    }
