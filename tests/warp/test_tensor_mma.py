"""tcgen05.mma in memory: every layout, against the product of the matrices that were put there."""

from dataclasses import replace

import numpy as np
import pytest
from bits import assert_same_codes
from tensor_problem import AT, Problem

from dtypes import FORMATS, Place, place
from emulator import OperandError, UndefinedError

pytestmark = pytest.mark.sampled(3)

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
    # Elements below 8 bits that are MN-major, or without padding.
    ("f8f6f4", 128, {"a": "e2m1", "transpose_a": True, "transpose_b": True}),
    ("f8f6f4", 128, {"a": "e3m2", "transpose_b": True, "group": 2}),
    ("mxf8f6f4", 128, {"a": "e2m3", "sparse": True, "transpose_a": True}),
    ("mxf8f6f4", 128, {"a": "e2m3", "k": 64, "target": "sm_107a"}),
    ("mxf8f6f4", 128, {"a": "e2m3", "k": 64, "a_in": True, "target": "sm_107a"}),
    ("mxf8f6f4", 128, {"a": "e2m1", "k": 64, "a_in": True, "target": "sm_107a"}),
    ("mxf8f6f4", 128, {"a": "e3m2", "sparse": True, "k": 128, "target": "sm_107a"}),
    ("mxf8f6f4", 256, {"a": "e5m2", "sparse": True, "k": 128, "group": 2, "target": "sm_107a"}),
    # The other additions of sm_107.
    ("mxf4", 128, {"sparse": True, "sparsity_version": 1, "target": "sm_107a"}),
    ("mxf4nvf4", 128, {"scale": "ue5m3", "scale_a_rows": True, "target": "sm_107a"}),
    ("mxf4", 128, {"k": 96, "scale_a_rows": True, "scale_a_id": 2, "target": "sm_107a"}),
    ("mxf8f6f4", 256, {"a": "e4m3", "group": 2, "scale_a_rows": True, "target": "sm_107a"}),
    ("ti16", 128, {"negate_a": True, "target": "sm_107a"}),
    ("ti16", 256, {"group": 2, "target": "sm_107a"}),
    ("ti16", 64, {"sparse": True, "a_in": True, "lane": 16, "selector": 1, "target": "sm_107a"}),
    ("ti16", 32, {"ws": True, "target": "sm_107a"}),
    ("f8f6f4", 128, {"a": "e4m3", "k": 64, "lookup": True, "target": "sm_107a"}),
    ("f8f6f4", 256, {"a": "e4m3", "k": 64, "lookup": True, "group": 2, "half": 1,
                     "negate_b": True, "target": "sm_107a"}),
    ("mxf8f6f4", 128, {"a": "e4m3", "k": 64, "lookup": True, "target": "sm_107a"}),
]  # fmt: skip


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


def test_lookup_tables_that_mean_nothing():
    more = {"a": "e4m3", "k": 64, "target": "sm_107a", "lookup": True}
    problem = Problem("f8f6f4", 128, **more)
    with pytest.raises(OperandError, match="needs the address of its tables"):
        problem.run(lookup=None)
    with pytest.raises(OperandError, match="start in an even column"):
        problem.run(lookup=AT["lookup"] + 1)
    for wrong in ({"k": 32}, {"a": "e5m2"}, {"group": 2}, {"transpose_b": True}):
        with pytest.raises(OperandError, match="legal: K-major B of e4m3, k 64, M 128 of one CTA"):
            Problem("f8f6f4", 128, **more | wrong)
    problem.memories[0].defined[7, AT["lookup"] + 1] = False
    assert problem.run() == ("lookup",)


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
