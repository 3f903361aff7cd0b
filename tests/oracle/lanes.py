"""Lane registers by a formula of the manual, one element at a time: what layouts are tested by.

A formula takes (lane, i) and gives the place of element i of that lane, (row, col) or, where lanes
hold several matrices, (matrix, row, col).
"""

import ml_dtypes
import numpy as np

from emulator import execute

#: one target of every generation
TARGETS = ("sm_70", "sm_75", "sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a")
E2M1 = (0, 0.5, 1, 1.5, 2, 3, 4, 6)


def group(lane):
    """groupID of the manual."""
    return lane >> 2


def thread(lane):
    """threadID_in_group of the manual."""
    return lane % 4


def pack_by(formula, matrix, bits, elements, lanes=32, word=32):
    """Lane registers that hold `matrix` by a formula (lane, i) -> index, elements low to high."""
    per = word // bits
    out = np.zeros((lanes, elements // per), f"uint{word}")
    for lane in range(lanes):
        words = [0] * (elements // per)
        for i in range(elements):
            words[i // per] |= int(matrix[formula(lane, i)]) << bits * (i % per)
        out[lane] = words
    return out


def unpack_by(formula, registers, bits, elements, shape, word=32):
    """The matrix of codes that lane registers hold by a formula."""
    per = word // bits
    out = np.zeros(shape, np.uint64)
    for lane, words in enumerate(registers.tolist()):
        for i in range(elements):
            out[formula(lane, i)] = words[i // per] >> bits * (i % per) & (1 << bits) - 1
    return out


def check_fragment(fragment, formula, *, registers, elements, shape, lanes=32, word=32):
    """A fragment is as the page states it: counts, coordinates, and the order of elements."""
    assert (fragment.lanes, fragment.registers, fragment.elements) == (lanes, registers, elements)
    assert (fragment.word_bits, fragment.shape) == (word, shape[-2:])
    bits = word * registers // elements
    stated = [[formula(lane, i)[-2:] for i in range(elements)] for lane in range(lanes)]
    assert fragment.coords.tolist() == [[list(place) for place in row] for row in stated]
    rng = np.random.default_rng(elements)
    codes = rng.integers(0, 1 << bits, shape, np.uint64, endpoint=False)
    packed = pack_by(formula, codes, bits, elements, lanes, word)
    assert fragment.gather(packed).tolist() == codes.tolist()
    assert fragment.scatter(codes).tolist() == packed.tolist()


def integers(rng, low, high, shape):
    return rng.integers(low, high, shape, endpoint=True)


def codes_of(values, type_):
    """Codes of small integers, which every type here holds exactly."""
    values = np.asarray(values)
    if type_ == "e2m1":
        magnitude = np.searchsorted(E2M1, np.abs(values))
        return magnitude + np.where(values < 0, 8, 0)
    floats = {
        "f16": np.float16, "f32": np.float32, "f64": np.float64,
        "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
    }  # fmt: skip
    if type_ in floats:
        encoded = values.astype(floats[type_])
        return encoded.view(f"uint{encoded.itemsize * 8}")
    return values & (1 << int(type_[1:])) - 1


def range_of(type_):
    """Bounds of random elements: all integers of a type, or small ones of a float."""
    return {"s4": (-8, 7), "u4": (0, 15), "s8": (-128, 127), "u8": (0, 255)}.get(type_, (-3, 3))


def on_targets(ins, *operands, **options):
    """The result on one target of every generation, which must be one and the same."""
    results = [execute(ins, *operands, target=t, **options) for t in TARGETS if t in ins.targets]
    assert results
    for other in results[1:]:
        assert np.array_equal(results[0], other)
    return results[0]


def c_m16(lane, i):
    """Accumulators of every m16n8 shape."""
    return group(lane) if i < 2 else group(lane) + 8, thread(lane) * 2 + (i & 0x1)
