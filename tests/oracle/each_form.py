"""An instruction of every form, and operands for it."""

import numpy as np

from emulator.isa.matrix_opcodes import expand as matrix_instructions
from emulator.layout.descriptor import Descriptor
from emulator.targets import TARGETS


def one_of_each_form():
    """For every form an instruction of each pair of types, with the smallest N."""
    found = {}
    for ins in matrix_instructions():
        key = (ins.form, ins.a_type, ins.b_type, ins.d_type, ins.scale_vec)
        found.setdefault(key, ins)
    return list(found.values())


ALL = one_of_each_form()


def targets_of_each_arithmetic(ins):
    """A target of each generation that computes in a way of its own: engines are given no more."""
    newest = {TARGETS[name].generation: name for name in ins.targets}
    return list({ins.arithmetic(name): name for name in newest.values()}.values())


def operands(ins, rng):
    """Random operands and options that PTX defines."""
    registers = []
    for name in "abc":
        if ins.is_wgmma and name == "b":
            continue
        fragment = ins.fragment(name)
        codes = rng.integers(0, fragment.fmt.code_mask, fragment.lane_map.shape, np.uint64)
        codes = codes if fragment.groups > 1 else codes[0]
        registers.append(fragment.scatter(codes))
    options = {}
    if ins.is_wgmma:
        b = ins.fragment("a").fmt
        descriptor, size = Descriptor.for_tile(ins.n, ins.k, b, swizzle_bytes=0)
        registers.insert(1, descriptor.encode())
        options["shared"] = rng.integers(0, 256, size, np.uint8)
    if ins.is_sparse:
        nibble = 0b1110 if ins.chunk == 2 else 0b1001
        registers.append(np.full(ins.lanes, nibble * 0x11111111, np.uint32))
    for x in "ab" if ins.is_block_scaled else "":
        options[f"scale_{x}"] = rng.integers(0x70, 0x7F, (32, 4), np.uint8).view(np.uint32)[:, 0]
    return registers, options
