"""One tcgen05.mma with its operands in the memory of one CTA or of a pair."""

import numpy as np

from dtypes import FORMATS, Place, code_type, place
from emulator import InstructionDescriptor
from emulator.layout.shared_descriptor import SharedMemoryDescriptor
from emulator.layout.tensor_memory import TensorAddress
from emulator.memory.descriptors import store_operand
from emulator.memory.tensor_memory import TensorMemory, load_codes, store_codes
from emulator.targets import find_target
from emulator.warp.tensor_mma import Operands, TensorMma
from emulator.warp.tensor_multiply import TensorProduct

#: columns of tensor memory where the tests put things
AT = {"d": 0, "a": 256, "metadata": 320, "scale_a": 352, "scale_b": 384, "lookup": 416}


class Problem:
    """Operands of one tcgen05.mma, in the memory of one CTA or of a pair."""

    def __init__(self, kind, m, group=1, *, ws=False, sparse=False, a_in=False, lane=0, n=64,
                 a="", vector="", shift=0, a_shift=False, target="sm_100a", at=AT, b_start=1 << 16,
                 columns=512, lookup=False, half=0, **more):  # fmt: skip
        self.x = x = InstructionDescriptor(kind, a, a, m=m, n=n, sparse=sparse, **more)
        product = TensorProduct(x, find_target(target), vector, shift)
        self.mma = TensorMma(product, group, ws, a_shift, lookup)
        self.layout = self.mma.layout(lane)
        self.group, self.rng = group, np.random.default_rng(m + n)
        self.at = at
        self.memories = [TensorMemory() for _ in range(group)]
        self.shared = [np.zeros(1 << 17, np.uint8) for _ in range(group)]
        for memory in self.memories:
            memory.allocate(columns)
        self.a, self.b = self.codes(x.a, (m, product.stored_k)), self.codes(x.b, (x.k, n))
        self.c = self.codes(x.d, (m, n))
        self.nibbles = self.scale_a = self.scale_b = None
        address = {name: TensorAddress(lane, column).encode() for name, column in at.items()}
        b, _ = SharedMemoryDescriptor.for_operand(x, "b", cta_group=group, start_address=b_start)
        self.operands = Operands(address["d"], address["a"], int(b.encode()), a_in)
        if lookup:
            self.compress(address, b_start, half)
        else:
            for cta, memory in enumerate(self.shared):
                store_operand(memory, b, self.part(self.b.T, cta), x, "b", group)
        self.place_a(a_in, address["a"])
        self.write("d", self.layout.d, self.c, Place(32, 0, FORMATS[x.d].bits))
        if sparse:
            legal = [4, 14] if kind == "tf32" else [4, 8, 9, 12, 13, 14]
            shape = (m, x.k // product.chunk)
            self.nibbles = self.rng.choice(np.array(legal, np.uint8), shape)
            self.write("metadata", self.layout.metadata, self.nibbles, Place(4, 0, 4))
            self.operands = self.operands._replace(metadata=address["metadata"])
        if product.scales:
            fmt = FORMATS[x.scale]
            low, high = (124, 131) if x.scale == "ue8m0" else (30, 70)  # near 1
            self.scale_a, self.scale_b = (
                self.rng.integers(low, high, (r, product.scales), np.uint8) for r in (m, n)
            )
            for name in ("scale_a", "scale_b"):
                where = Place(8, 0, fmt.bits)
                self.write(name, getattr(self.layout, name), getattr(self, name), where)
            self.operands = self.operands._replace(
                scale_a=address["scale_a"], scale_b=address["scale_b"]
            )

    def codes(self, name, shape):
        fmt = FORMATS[name]
        codes = self.rng.integers(0, 1 << fmt.bits, shape, np.uint64).astype(code_type(fmt.bits))
        codes &= codes.dtype.type(fmt.code_mask ^ fmt.unused_mask)
        if fmt.is_float and fmt.bits >= 16:  # ordinary numbers, near 1 in size
            top = FORMATS[name].bits - 2
            codes = codes & codes.dtype.type(~(1 << top) & fmt.code_mask)
            codes |= codes.dtype.type(((1 << FORMATS[name].exponent_bits - 3) - 1)
                                      << top - FORMATS[name].exponent_bits + 3)  # fmt: skip
        return codes

    def part(self, rows, cta):
        return np.split(rows, self.group)[cta]

    def write(self, name, places, codes, where):
        store_codes(self.memories, self.at[name], places, codes, where, name)

    def compress(self, address, start, half):
        """B as tables of 8 codes for 8 columns, and rows of 48 bytes of indices, without swizzle;
        the other half of them says something else."""
        n = self.x.n // self.group
        tables = self.rng.integers(0, 256, (self.group, n // 8, 8), np.uint8)
        indices = self.rng.integers(0, 8, (self.group, n, 2, 64), np.uint8)
        columns = [[tables[cta, i // 8, j] for j in indices[cta, i, half]]
                   for cta in range(self.group) for i in range(n)]  # fmt: skip
        self.b = np.array(columns).T
        where = SharedMemoryDescriptor(start, 128, 384, second_half=bool(half))
        for cta, memory in enumerate(self.shared):
            for i in range(n):
                word = sum(int(x) << 3 * j for j, x in enumerate(indices[cta, i].reshape(-1)))
                for unit, part in enumerate(np.split(np.frombuffer(word.to_bytes(48, "little"),
                                                                   np.uint8), 3)):  # fmt: skip
                    at = start + i % 8 * 16 + i // 8 * 384 + unit * 128
                    memory[at : at + 16] = part
            for table in range(n // 8):
                column = self.at["lookup"]
                words = tables[cta, table].view("<u4")
                self.memories[cta].words[table, column : column + 2] = words
                self.memories[cta].defined[table, column : column + 2] = True
        self.operands = self.operands._replace(b=int(where.encode()), lookup=address["lookup"])

    def place_a(self, a_in, address):
        x = self.x
        if a_in:
            where = place(FORMATS[x.a], x.width("a"))
            self.write("a", self.layout.a, self.a, where)
            return
        a, _ = SharedMemoryDescriptor.for_operand(x, "a", cta_group=self.group)
        for cta, memory in enumerate(self.shared):
            store_operand(memory, a, self.part(self.a, cta), x, "a", self.group)
        self.operands = self.operands._replace(a=int(a.encode()))

    def want(self, **changed):
        given = {name: getattr(self, name) for name in ("a", "b", "c", "scale_a", "scale_b",
                                                        "nibbles")} | changed  # fmt: skip
        return self.mma.product.multiply(**given)

    def run(self, **changed):
        return self.mma.run(self.memories, self.shared, self.operands._replace(**changed))

    def d(self):
        where = Place(32, 0, FORMATS[self.x.d].bits)
        return load_codes(self.memories, self.at["d"], self.layout.d, where, "D").words
