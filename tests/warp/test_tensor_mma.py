"""tcgen05.mma in memory: every layout, against the product of the matrices that were put there."""

from dataclasses import replace

import numpy as np
import pytest
from bits import assert_same_codes

from dtypes import FORMATS, Place, code_type, place
from emulator import InstructionDescriptor, OperandError, UndefinedError
from emulator.layout.mma_kinds import KINDS
from emulator.layout.shared_descriptor import SharedMemoryDescriptor
from emulator.layout.tensor_memory import TensorAddress
from emulator.memory.descriptors import store_operand
from emulator.memory.tensor_memory import TensorMemory, load_codes, store_codes
from emulator.targets import find_target
from emulator.warp.tensor_mma import Operands, TensorMma
from emulator.warp.tensor_multiply import TensorProduct

#: columns of tensor memory where the tests put things
AT = {"d": 0, "a": 256, "metadata": 320, "scale_a": 352, "scale_b": 384}


class Problem:
    """Operands of one tcgen05.mma, in the memory of one CTA or of a pair."""

    def __init__(self, kind, m, group=1, *, ws=False, sparse=False, a_in=False, lane=0, n=64,
                 a="", vector="", shift=0, a_shift=False, target="sm_100a", **more):  # fmt: skip
        self.x = x = InstructionDescriptor(kind, a, a, m=m, n=n, sparse=sparse, **more)
        product = TensorProduct(x, find_target(target), vector, shift)
        self.mma = TensorMma(product, group, ws, a_shift)
        self.layout = self.mma.layout(lane)
        self.group, self.rng = group, np.random.default_rng(m + n)
        self.memories = [TensorMemory() for _ in range(group)]
        self.shared = [np.zeros(1 << 17, np.uint8) for _ in range(group)]
        for memory in self.memories:
            memory.allocate(512)
        self.a, self.b = self.codes(x.a, (m, product.stored_k)), self.codes(x.b, (x.k, n))
        self.c = self.codes(x.d, (m, n))
        self.nibbles = self.scale_a = self.scale_b = None
        address = {name: TensorAddress(lane, column).encode() for name, column in AT.items()}
        b, _ = SharedMemoryDescriptor.for_operand(x, "b", cta_group=group, start_address=1 << 16)
        self.operands = Operands(address["d"], address["a"], int(b.encode()), a_in)
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
        if fmt.is_float and fmt.bits >= 16:  # ordinary numbers, near 1 in size
            top = FORMATS[name].bits - 2
            codes = codes & codes.dtype.type(~(1 << top) & fmt.code_mask)
            codes |= codes.dtype.type(((1 << FORMATS[name].exponent_bits - 3) - 1)
                                      << top - FORMATS[name].exponent_bits + 3)  # fmt: skip
        return codes

    def part(self, rows, cta):
        return np.split(rows, self.group)[cta]

    def write(self, name, places, codes, where):
        store_codes(self.memories, AT[name], places, codes, where, name)

    def place_a(self, a_in, address):
        x = self.x
        if a_in:
            where = place(FORMATS[x.a], KINDS[x.kind].container or None)
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
        return load_codes(self.memories, AT["d"], self.layout.d, where, "D").words


CASES = [
    ("f16", 128, {"a": "bf16"}),
    ("f16", 64, {"a": "f16", "d": "f16"}),
    ("f16", 64, {"lane": 16, "sparse": True}),
    ("f16", 128, {"a_in": True, "n": 8}),
    ("f16", 64, {"a_in": True, "lane": 16}),
    ("f16", 256, {"group": 2, "n": 32}),
    ("f16", 128, {"group": 2, "a_in": True}),
    ("f16", 128, {"group": 2, "sparse": True, "lane": 16, "a_in": True}),
    ("f16", 256, {"group": 2, "sparse": True, "selector": 1}),
    ("f16", 64, {"ws": True, "a_in": True}),
    ("f16", 32, {"ws": True, "sparse": True, "a_in": True}),
    ("f16", 128, {"transpose_a": True, "transpose_b": True, "negate_a": True}),
    ("f16", 128, {"shift": 3}),
    ("tf32", 128, {"sparse": True}),
    ("tf32", 64, {"transpose_b": True}),
    ("f8f6f4", 128, {"a": "e2m1"}),
    ("f8f6f4", 128, {"a": "e3m2", "a_in": True, "d": "f16"}),
    ("f8f6f4", 64, {"a": "e5m2", "sparse": True}),
    ("i8", 128, {"a": "s8", "saturate": True}),
    ("i8", 32, {"a": "u8", "ws": True}),
    ("mxf8f6f4", 128, {"a": "e4m3", "scale_a_id": 3, "scale_b_id": 1}),
    ("mxf8f6f4", 128, {"a": "e2m3", "sparse": True}),
    ("mxf4", 128, {"scale_b_id": 2}),
    ("mxf4", 128, {"group": 2, "n": 128}),
    ("mxf4", 128, {"k": 96, "scale_a_id": 2, "target": "sm_103a"}),
    ("mxf4", 256, {"group": 2, "sparse": True}),
    ("mxf4nvf4", 128, {"n": 256}),
    ("mxf4nvf4", 256, {"group": 2, "scale": "ue8m0", "vector": "block32"}),
    ("mxf4nvf4", 128, {"k": 96, "target": "sm_103a"}),
    ("mxf4nvf4", 128, {"a_in": True}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_d_is_the_product_and_nothing_else_changes(case):
    kind, m, more = case
    problem = Problem(kind, m, **more)
    before = [memory.words.copy() for memory in problem.memories]
    assert problem.run() == ()
    want = problem.want()
    assert_same_codes(problem.d(), want)
    assert (want != problem.c).any()
    places = problem.layout.d
    for cta, memory in enumerate(problem.memories):
        changed = np.argwhere(memory.words != before[cta])
        own = set(zip(places.lane[places.cta == cta], places.column[places.cta == cta],
                      strict=True))  # fmt: skip
        assert {tuple(x) for x in changed.tolist()} <= own


def test_without_the_old_d():
    problem = Problem("f16", 128)
    problem.run(enable=False)
    assert_same_codes(problem.d(), problem.want(c=np.zeros_like(problem.c)))


def test_each_block_of_columns_reads_its_copy_of_a():
    problem = Problem("f16", 64, ws=True, a_in=True)
    other = problem.codes("bf16", problem.a.shape)
    second = problem.layout.a._replace(**{
        name: getattr(problem.layout.a, name)[1:] for name in problem.layout.a._fields
    })  # fmt: skip
    problem.write("a", second, other, place(FORMATS["bf16"]))
    problem.run()
    want = problem.want()
    want[:, 32:] = problem.want(a=other)[:, 32:]
    assert_same_codes(problem.d(), want)


def test_each_quarter_reads_its_copy_of_the_scales():
    problem = Problem("mxf4", 128)
    third = problem.layout.scale_b._replace(**{
        name: getattr(problem.layout.scale_b, name)[:, 2] for name in problem.layout.scale_b._fields
    })  # fmt: skip
    other = problem.scale_b + np.uint8(1)
    problem.write("scale_b", third, other, Place(8, 0, 8))
    problem.run()
    want = problem.want()
    want[64:96] = problem.want(scale_b=other)[64:96]
    assert_same_codes(problem.d(), want)


@pytest.mark.parametrize("group", [1, 2])
def test_disabled_lanes_keep_their_d(group):
    problem = Problem("f16", 128 * group, group)
    words = [int(x) for x in problem.rng.integers(0, 1 << 32, 4 * group)]
    problem.run(disabled_lanes=words)
    off = np.array([words[m // 32] >> m % 32 & 1 for m in range(128 * group)], bool)
    assert_same_codes(problem.d(), np.where(off[:, None], problem.c, problem.want()))
    with pytest.raises(OperandError, match=f"takes {4 * group} words; got 3"):
        problem.run(disabled_lanes=[0, 0, 0])


def test_zero_columns_and_their_shift():
    problem = Problem("f16", 64, ws=True)
    mask = 1 << 39 | 2 << 40 | 4 << 48 | 7 << 8 | 1 << 33
    problem.run(zero_column_mask=mask)
    zero = [(j % 8 >= 5) if j < 32 else ((7 + j - 32) % 8 < 3) for j in range(64)]
    b = np.where(np.array(zero), np.uint16(0), problem.b)
    assert_same_codes(problem.d(), problem.want(b=b))

    problem = Problem("f16", 128, ws=True, n=128)
    problem.mma = replace(
        problem.mma,
        product=replace(problem.mma.product, instruction=problem.x.replace(n=64, max_shift=32)),
    )
    problem.operands = problem.operands._replace(zero_column_mask=32 << 56)
    before = problem.memories[0].words.copy()
    problem.run()
    want = problem.want(b=problem.b[:, 32:96], c=problem.c[:, :64])
    assert_same_codes(problem.d()[:, :64], want)
    assert (problem.memories[0].words[:, 64:] == before[:, 64:]).all()


def test_shifted_rows_of_a():
    problem = Problem("f16", 128, a_in=True, a_shift=True)
    problem.run()
    shifted = np.concatenate([problem.a[1:], problem.a[-1:]])
    assert_same_codes(problem.d(), problem.want(a=shifted))


def test_what_was_never_written_is_named():
    problem = Problem("mxf4", 128, a_in=True)
    for name in ("a", "scale_b"):
        problem.memories[0].defined[5, AT[name]] = False
    problem.memories[0].defined[9, 3] = False
    assert problem.run() == ("A", "scale_b", "D")
    assert problem.run() == ("A", "scale_b")


@pytest.mark.parametrize(
    ("how", "changed", "error", "message"),
    [
        (("f16", 128), {"d": 480}, UndefinedError, "D at lane 0, column 480 reaches columns 512"),
        (("f16", 128), {"d": 1 << 20}, OperandError, "layout D, of M = 128, starts in lane 0"),
        (("f16", 128), {"b": 0}, OperandError, "0b000"),
        (("mxf4", 128), {"scale_a": None}, OperandError, "addresses of its scales"),
        (("mxf4", 128), {"scale_a": 16 << 16}, OperandError, "names lane 16, and that of D lane 0"),
    ],
)
def test_operands_that_mean_nothing(how, changed, error, message):
    problem = Problem(*how)
    before = problem.memories[0].words.copy()
    with pytest.raises(error, match=message):
        problem.run(**changed)
    assert (problem.memories[0].words == before).all()


def test_sparse_operands_that_mean_nothing():
    problem = Problem("f16", 128, sparse=True)
    with pytest.raises(OperandError, match="needs the address of its metadata"):
        problem.run(metadata=None)
    with pytest.raises(OperandError, match="starts in an even column"):
        problem.run(metadata=AT["metadata"] + 1)
    problem.write("metadata", problem.layout.metadata, np.uint8(0b0001), Place(4, 0, 4))
    with pytest.raises(UndefinedError, match="metadata of row 0, chunk 0 is 0b0001"):
        problem.run()
    with pytest.raises(OperandError, match="descriptor that is dense"):
        Problem("f16", 128).run(metadata=AT["metadata"])
    transposed = Problem("f16", 128, transpose_a=True)
    with pytest.raises(OperandError, match="K-major: transpose_a must be 0"):
        transposed.run(a_in_tensor_memory=True, a=AT["a"])
    with pytest.raises(OperandError, match="of 1 CTAs takes the memory of each"):
        transposed.mma.run([], [], transposed.operands)
