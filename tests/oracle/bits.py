"""The one comparison that tests of arithmetic use: codes, bit for bit."""

import numpy as np


def assert_same_codes(actual, expected, **operands):
    """Raises AssertionError unless both arrays hold the same codes in the same shape and type.

    The message counts the differences and shows the first: its index, both codes, and what each of
    `operands` (arrays that start with the shape of the result) holds at that index.
    """
    actual, expected = np.asarray(actual), np.asarray(expected)
    if (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
        raise AssertionError(
            f"got {actual.dtype} {actual.shape}, expected {expected.dtype} {expected.shape}"
        )
    wrong = actual != expected
    if not wrong.any():
        return
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    lines = [
        f"{np.count_nonzero(wrong)} of {wrong.size} codes differ; first at {first}: "
        f"got {actual[first]:#x}, expected {expected[first]:#x}"
    ]
    for name, codes in operands.items():
        here = np.atleast_1d(np.asarray(codes)[first])
        lines.append(f"{name} = {' '.join(f'{int(code):x}' for code in here)}")
    raise AssertionError("\n".join(lines))
