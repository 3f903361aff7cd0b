"""fp4 with block scales, dots stated by hand: the cut at 35 bits, groups, zeros, overflow, NaNs."""

import numpy as np
import pytest
from dots import one_dot
from fp4 import FOUR, HALF, MINUS_HALF, MINUS_ONE, ONE, SIX, THREE_HALVES, TWO

#: (name, case, accumulator, {position: (a, b)}, scales of A, scales of B, result)
BY_HAND = (
    # 1 − 1 + the second chunk, of which the bits below 2**-35 are cut
    ("kept", TWO, -1.0, {0: (ONE, ONE), 32: (ONE, ONE)}, (127, 127), (127, 92), 0x2E000000),
    ("cut", TWO, -1.0, {0: (ONE, ONE), 32: (ONE, ONE)}, (127, 127), (127, 91), 0),
    ("part", TWO, -1.0, {0: (ONE, ONE), 32: (ONE, THREE_HALVES)}, (127, 100), (127, 119),
     0x2E000000),
    ("of a negative", TWO, 1.0, {0: (MINUS_ONE, ONE), 32: (MINUS_ONE, THREE_HALVES)},
     (127, 127), (127, 92), 0xAE000000),
    # four products of 2**-37 are added before the cut, two of them in each of two groups after
    ("one group", TWO, -1.0, {0: (ONE, ONE), **dict.fromkeys(range(32, 36), (HALF, HALF))},
     (127, 127), (127, 92), 0x2E000000),
    ("two groups", TWO, -1.0, {0: (ONE, ONE), **dict.fromkeys((32, 33, 48, 49), (HALF, HALF))},
     (127, 127), (127, 92), 0),
    # 36 · 16 has the exponent of its scales, 0: 2**-35 is kept
    ("large group", TWO, 0.0, {**dict.fromkeys(range(16), (SIX, SIX)),
                               **dict.fromkeys(range(16, 32), (SIX, 15)), 32: (ONE, ONE)},
     (127, 127), (127, 92), 0x2E000000),
    # a subnormal scale has the least exponent, -6: of 1.5 · 2**-47 the last bit is cut
    ("subnormal scales", FOUR, float.fromhex("0x1.8p-47"),
     {0: (ONE, ONE), 16: (MINUS_ONE, ONE)}, (1, 1, 0, 0), (1, 1, 0, 0), 0x28000000),
    ("normal scales", FOUR, float.fromhex("0x1.8p-47"),
     {0: (8, ONE), 1: (MINUS_HALF, 0), 16: (ONE, ONE), 32: (MINUS_ONE, ONE)},
     (0x38, 8, 8, 0), (0x38, 8, 8, 0), 0x28000000),
    # a group of zeros, and one with a zero scale, take no part in the alignment; one whose products
    # cancel does
    ("zeros", TWO, 1.0, {0: (8, ONE), 1: (MINUS_ONE, 8)}, (254, 0), (254, 0), 0x3F800000),
    ("zero sum", TWO, 1.0, {0: (ONE, ONE), 1: (MINUS_ONE, ONE)}, (254, 0), (254, 0), 0),
    ("zero scale", FOUR, 2.0**-40, {0: (SIX, SIX)}, (0x7E, 0, 0, 0), (0,) * 4, 0x2B800000),
    ("zero accumulator", TWO, -0.0, {0: (ONE, ONE)}, (10, 0), (120, 0), 0x01800000),
    # 576 · 2**-130 and a tail of -2**-165, which c would cut if it counted, and cuts as a subnormal
    ("no accumulator", TWO, 0.0, {**dict.fromkeys(range(16), (SIX, SIX)), 32: (MINUS_ONE, ONE)},
     (62, 44), (62, 45), 0x030FFFFF),
    ("tiny accumulator", TWO, 2.0**-144, {**dict.fromkeys(range(16), (SIX, SIX)),
                                          32: (MINUS_ONE, ONE)}, (62, 44), (62, 45), 0x03100001),
    ("all zeros", TWO, -0.0, {0: (8, ONE)}, (127, 127), (127, 127), 0),
    ("cancelled", TWO, -36.0, {0: (SIX, SIX)}, (127, 127), (127, 127), 0),
    ("both cut", TWO, -(2.0**-80), {0: (ONE, ONE), 16: (MINUS_ONE, ONE)}, (127, 0), (127, 0), 0),
    # toward zero; too large is infinity; too small a subnormal
    ("rounded", TWO, 1.0, {0: (MINUS_ONE, ONE)}, (110, 0), (119, 0), 0x3F7FFFFF),
    ("overflow", TWO, 0.0, {0: (SIX, ONE)}, (254, 0), (127, 0), 0x7F800000),
    ("largest", TWO, 0.0, {0: (THREE_HALVES, ONE)}, (254, 0), (127, 0), 0x7F400000),
    ("subnormal", TWO, 0.0, {0: (ONE, THREE_HALVES)}, (0, 0), (106, 0), 0x00000003),
    ("lost", TWO, 0.0, {0: (MINUS_ONE, ONE)}, (0, 0), (0, 0), 0),
    ("nan", TWO, 0.0, {0: (ONE, ONE)}, (127, 127), (127, 255), 0x7FFFFFFF),
    ("zero times nan", FOUR, 0.0, {}, (56, 56, 56, 127), (56,) * 4, 0x7FFFFFFF),
)  # fmt: skip


@pytest.mark.parametrize("engine", ("reference", "vector"))
@pytest.mark.parametrize("line", BY_HAND, ids=[line[0] for line in BY_HAND])
def test_by_hand(line, engine):
    _, case, c, products, scale_a, scale_b, want = line
    pairs = [products.get(i, (0, 0)) for i in range(64)]
    scales = [np.array([x], np.uint8) for x in (scale_a, scale_b)]
    start = int(np.float32(c).view(np.uint32))
    assert one_dot(case.arithmetic, start, pairs, 64, engine, scales) == f"{want:#x}"
