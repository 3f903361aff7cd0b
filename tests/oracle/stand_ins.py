"""Stand-ins for the GPU of the capture tools: they compute with the emulator what it would answer.

One reads the instruction, its immediates and the order of the parameters from the PTX text.
"""

import re

from hardware import measure, wmma_check

from emulator import Instruction, execute


class StandIn:
    """Takes what `Gpu.run` takes, and answers as an H200 is thought to."""

    def __init__(self, flip=None, target="sm_90a"):
        self.flip, self.target = flip, target

    def run(self, ptx, entry, cases, lanes, inputs, result):
        assert f".entry {entry}(" in ptx and f".maxntid {lanes}," in ptx
        names = re.findall(r"\.param \.u64 p_(\w+)", ptx)
        assert names[0] == "d" and len(names) == len(inputs) + 1
        arrays = dict(zip(names[1:], inputs, strict=True))
        line = re.search(r"^ +((?:mma|wgmma\.mma_async)\.\S+) (.*);", ptx, re.MULTILINE)
        opcode, text = line.groups()
        ins = Instruction.parse(opcode)
        words = re.findall(r"{[^}]*}|[^,\s]+", text)
        given, options = self.operands(ins, words, arrays)
        d = execute(ins, *given, target=self.target, undefined="hardware", **options)
        assert d.shape == result.shape and d.dtype == result.dtype
        if self.flip:
            d[self.flip[:3]] ^= d.dtype.type(1 << self.flip[3])
        return d

    def operands(self, ins, words, arrays):
        options = {}
        if ins.is_wgmma:
            a = "descriptor_a" if words[1] == "descriptor_a" else "a"
            given = [arrays[a], arrays["descriptor_b"], arrays["c"]]
            rest = words[3:]
            options |= {"shared": arrays["image"]}
        else:
            given, rest = [arrays[x] for x in "abc"], words[4:]
        if ins.is_sparse:
            assert rest[0] == "e0"
            given.append(arrays["e"])
            options["selector"] = int(rest[1])
            rest = rest[2:]
        if ins.is_wgmma:
            assert rest[0] == "keep"
            options["scale_d"] = arrays["scale_d"] != 0
            transposed = ["imm_trans_a"] * (words[1] == "descriptor_a") + ["imm_trans_b"]
            names = ["imm_scale_a", "imm_scale_b", *transposed]
            options |= dict(zip(names, map(int, rest[1:]), strict=False))
        if ins.is_block_scaled:
            for x, word, ids in zip("ab", rest[::2], rest[1::2], strict=True):
                assert word == f"scale_{x}0"
                options[f"scale_{x}"] = arrays[f"scale_{x}"]
                byte, thread = map(int, re.findall(r"\d+", ids))
                options |= {f"byte_id_{x}": byte, f"thread_id_{x}": thread}
        return given, options


def settings(**changes):
    return measure.Settings(**({"target": "sm_90a", "ptx_version": "8.8", "cases": 24, "seed": 1}
                               | changes))  # fmt: skip


class Echo:
    """A GPU that computes what the emulator computes, and may spoil one byte of D."""

    def __init__(self, plan, spoil=None):
        self.plan, self.spoil = plan, spoil

    def run(self, ptx, entry, cases, lanes, inputs, result):
        assert str(self.plan.multiply) in ptx and lanes == 32
        memory = dict(zip("abc", inputs, strict=True)) | {"d": result}
        out = wmma_check.emulated(self.plan, memory, "sm_90a")
        if self.spoil is not None:
            out[self.spoil] ^= 1
        return out
