"""`assert_bits_equal`: every part of its message, its policies, and what it refuses."""

import ml_dtypes
import numpy as np
import pytest

from dtypes import FORMATS, code_type
from emulator import Instruction, OperandError
from emulator.testing import assert_bits_equal, find_differences

pytest_plugins = ["pytester"]

INS = Instruction.parse("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")


def message(actual, expected, **options):
    with pytest.raises(AssertionError) as caught:
        assert_bits_equal(actual, expected, **options)
    return str(caught.value)


def codes(name, *values):
    return np.array(values, code_type(FORMATS[name].bits))


# --- the message ----------------------------------------------------------------------------------


def test_equal_arrays_pass():
    x = np.array([0.0, -0.0, np.nan, np.inf], np.float32)
    assert_bits_equal(x, x.copy())
    assert_bits_equal(x[:0], x[:0])
    assert_bits_equal(3, 3)
    assert find_differences(x, x) is None


def test_the_message_counts_and_shows_the_first():
    expected = np.arange(12, dtype=np.float32).reshape(3, 4)
    actual = expected.copy()
    actual[1, 2] = np.nextafter(np.float32(6), np.float32(7))
    actual[2, 0] = -8
    assert message(actual, expected, name="D").splitlines() == [
        "D: 2 of 12 elements of f32 differ (number sign: 1, 1 ulp: 1)",
        "first at [1, 2]",
        "  actual   0x40c00001 = 6.0000005",
        "  expected 0x40c00000 = 6.0",
        "  1 ulp",
        "then",
        "  [2, 0]: 0xc1000000 = -8.0, expected 0x41000000 = 8.0; "
        "number sign, 2181038080 ulps apart",
    ]


def test_a_fragment_names_lane_register_and_bits():
    """Element (9, 3) of D is c2 or c3 of the lane with groupID 1 and threadID 1 (9.7.14.5.8)."""
    expected = np.zeros((2, 32, 4), np.uint32)
    actual = expected.copy()
    actual[1, 5, 3] = 0x3F800000
    text = message(actual, expected, fragment=INS)
    assert "first at lane 5, register 3, bits 0…31, D[9][3] (batch [1])" in text
    matrices = [INS.fragment("d").gather(x) for x in (actual, expected)]
    assert "first at D[9][3], lane 5, register 3, bits 0…31 (batch [1])" in message(
        *matrices, fragment=INS.fragment("d")
    )
    assert "1 of 256 elements of f32" in message(*(x.view("f4") for x in matrices), fragment=INS)


def test_packed_elements_have_their_own_bits():
    fragment = INS.fragment("a")
    expected = np.zeros((32, 4), np.uint32)
    actual = expected.copy()
    actual[7, 2] = 0x0001_0000
    assert "lane 7, register 2, bits 16…31, A[1][15]" in message(
        actual, expected, fragment=fragment
    )


def test_bits_that_no_element_uses_are_compared_too():
    """e2m1 in bytes of kind::f8f6f4 lies in bits 2 to 5."""
    ins = Instruction.parse("mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32")
    expected = np.zeros((32, 4), np.uint32)
    actual = expected.copy()
    actual[3, 1] = 0x0000_4000
    text = message(actual, expected, fragment=ins.fragment("a"))
    assert "padding bits: 1" in text
    assert "lane 3, register 1, bits 10…13" in text


def test_matrices_of_several_computations():
    """m8n8k4 of f16: lanes 4 to 7 belong to the second computation (9.7.14.5.1)."""
    ins = Instruction.parse("mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f16")
    expected = np.zeros((32, 4), np.uint32)
    actual = expected.copy()
    actual[5, 0] = 1
    assert "lane 5, register 0, bits 0…15, D[1][0] of matrix 1" in message(
        actual, expected, fragment=ins
    )


def test_a_long_list_is_cut():
    text = message(np.ones(100, np.float16), np.zeros(100, np.float16))
    assert "100 of 100 elements of f16 differ (value: 100)" in text
    assert text.endswith("… and 92 more")
    assert len(text.splitlines()) == 14


# --- kinds of difference --------------------------------------------------------------------------

#: format, actual and expected code, the words that must stand in the message
KINDS = [
    ("f32", 0x00000000, 0x80000000, "zero sign"),
    ("f32", 0x7FC00000, 0x7FFFFFFF, "NaN payload"),
    ("f32", 0x7FC00000, 0x3F800000, "NaN vs number"),
    ("f32", 0x7F800000, 0x7FC00000, "NaN vs number"),
    ("f32", 0x7F800000, 0x7F7FFFFF, "infinity vs finite, 1 ulp apart"),
    ("f32", 0x7F800000, 0xFF800000, "infinity sign"),
    ("f32", 0x3F800000, 0xBF800000, "number sign"),
    ("f32", 0x00000001, 0x80000000, "1 ulp"),
    ("f32", 0x00000001, 0x80000001, "number sign, 2 ulps apart"),
    ("f32", 0x40000000, 0x3FFFFFFF, "1 ulp"),
    ("f32", 0x3F800000, 0x3F800010, "2 to 16 ulps, 16 ulps apart"),
    ("f32", 0x3F800000, 0x3F800011, "value, 17 ulps apart"),
    ("f64", 0x3FF0000000000000, 0x3FF0000000000001, "1 ulp"),
    ("f64", 0x7FEFFFFFFFFFFFFF, 0xFFEFFFFFFFFFFFFE, "value, 18437736874454810621 ulps apart"),
    ("tf32", 0x3F800001, 0x3F800000, "ignored bits"),
    ("tf32", 0x3F802000, 0x3F800FFF, "1 ulp"),
    ("e4m3", 0x7F, 0xFF, "NaN payload"),
    ("e4m3", 0x7E, 0x7F, "NaN vs number"),
    ("e2m1", 0x7, 0x6, "1 ulp"),
    ("ue8m0", 0x00, 0x01, "1 ulp"),
    ("ue4m3", 0x38, 0x40, "2 to 16 ulps, 8 ulps apart"),
    ("s32", 0x80000000, 0x7FFFFFFF, "value, difference 4294967295"),
    ("s32", 0xFFFFFFFF, 0x00000000, "off by 1, difference 1"),
    ("s4", 0x8, 0x7, "value, difference 15"),
    ("b1", 0, 1, "value"),
]


@pytest.mark.parametrize(("fmt", "actual", "expected", "words"), KINDS)
def test_kinds_of_difference(fmt, actual, expected, words):
    for one, other in ((actual, expected), (expected, actual)):
        text = message(codes(fmt, 0, one), codes(fmt, 0, other), fmt=fmt)
        assert words in text.splitlines()[4]
        assert f"1 of 2 elements of {fmt} differ ({words.split(',')[0]}: 1)" in text


def test_the_histogram_counts_every_kind():
    expected = codes("f16", 0x0000, 0x3C00, 0x3C00, 0x7E00, 0x7C00, 0x4000)
    actual = codes("f16", 0x8000, 0x3C01, 0x3C01, 0x7E01, 0x7BFF, 0x4000)
    found = find_differences(actual, expected, fmt="f16")
    assert found.count == 5
    assert found.histogram == {
        "1 ulp": 2, "zero sign": 1, "NaN payload": 1, "infinity vs finite": 1,
    }  # fmt: skip
    assert found.indices == [(0,), (1,), (2,), (3,), (4,)]


# --- policies -------------------------------------------------------------------------------------


def test_nan_payloads():
    actual, expected = codes("f32", 0x7FC00000), codes("f32", 0xFFFFFFFF)
    assert "NaN payload" in message(actual, expected, fmt="f32")
    assert_bits_equal(actual, expected, fmt="f32", nan="any")
    assert "NaN vs number" in message(actual, codes("f32", 0), fmt="f32", nan="any")


def test_signed_zeros():
    actual, expected = np.float16([0.0, 1.0]), np.float16([-0.0, 1.0])
    assert "zero sign" in message(actual, expected)
    assert_bits_equal(actual, expected, signed_zero="equal")
    assert "number sign" in message(actual, np.float16([-0.0, -1.0]), signed_zero="equal")


def test_policies_hold_for_registers():
    actual, expected = np.full((32, 4), 0x80000000, np.uint32), np.zeros((32, 4), np.uint32)
    assert_bits_equal(actual, expected, fragment=INS, signed_zero="equal")
    assert "128 of 128" in message(actual, expected, fragment=INS)


# --- types ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (ml_dtypes.bfloat16, "bf16"), (ml_dtypes.float8_e4m3fn, "e4m3"),
        (ml_dtypes.float4_e2m1fn, "e2m1"), (ml_dtypes.int4, "s4"), (np.int8, "s8"),
        (np.int32, "s32"), (np.float64, "f64"), (">f4", "f32"),
    ],
)  # fmt: skip
def test_arrays_of_numbers(dtype, name):
    expected = np.array([1, 2, 3], np.float32).astype(dtype)
    actual = np.array([1, 2, 4], np.float32).astype(dtype)
    assert_bits_equal(expected, expected.copy())
    assert f"1 of 3 elements of {name} differ" in message(actual, expected)


def test_words_without_a_format():
    text = message(np.uint16([1, 0x3C00]), np.uint16([1, 0x3C01]))
    assert "1 of 2 elements differ (value: 1)" in text
    assert "actual   0x3c00 = 15360" in text
    assert "[0]" in message([True], [False])


def test_codes_and_numbers_compare_where_the_format_is_known():
    assert_bits_equal(codes("f16", 0x3C00), np.float16([1]), fmt="f16")
    assert_bits_equal(np.uint32([0x3C00]), np.uint16([0x3C00]), fmt="f16")
    assert_bits_equal(np.float32([1]), np.uint32([0x3F800000]), fmt="tf32")


@pytest.mark.parametrize(
    ("actual", "expected", "words"),
    [
        (np.zeros((2, 3)), np.zeros((3, 2)), "(2, 3), expected is float64 (3, 2); one is the tran"),
        (np.zeros((2, 3)), np.zeros(6), "shapes differ: actual is float64 (2, 3)"),
        (np.zeros(3), np.zeros(1), "shapes differ"),
        (np.zeros(3), np.float32([0, 0, 0]), "types differ: actual is float64 (3,), expected is f"),
        (np.zeros(3, "f4"), np.zeros(3, "u4"), ".view gives bits of another type"),
    ],
)
def test_unlike_arrays(actual, expected, words):
    assert words in message(actual, expected, name="x")
    assert message(actual, expected, name="x").startswith("x: ")


@pytest.mark.parametrize(
    ("actual", "options", "words"),
    [
        (np.uint8([0]), {"nan": "quiet"}, "nan= is 'payload' or 'any'; got 'quiet'"),
        (np.uint8([0]), {"signed_zero": ["x"]}, "signed_zero= is 'differ' or 'equal'"),
        (np.uint8([0]), {"fmt": "e4m9"}, "a format is f64, f32.*got 'e4m9'; nearest is 'e4m3'"),
        (np.uint8([16]), {"fmt": "e2m1"}, "actual: 0x10 is no code of e2m1"),
        (np.float32([1]), {"fmt": "f16"}, "float32 is neither float16, the type of f16, nor codes"),
        (np.uint32([1]), {"fragment": 5}, "is a Fragment, an Instruction or its opcode; got 5"),
        (np.zeros((32, 3), "u4"), {"fragment": INS}, "registers .…, 32, 4. or matrices .…, 16, 8."),
        (np.zeros((32, 4), "f4"), {"fragment": INS}, "or matrices"),
        (np.zeros((32, 4), "u4"), {"fragment": INS, "fmt": "f16"}, "holds f32, not f16"),
        (np.array(["x"]), {}, "actual: bits of <U1 arrays are not compared"),
        (np.array([None]), {}, "bits of object arrays are not compared"),
    ],
)
def test_what_makes_no_sense_is_refused(actual, options, words):
    """Also where the arrays are equal: a wrong call must not pass by luck."""
    with pytest.raises(OperandError, match=words):
        assert_bits_equal(actual, actual.copy(), **options)


@pytest.mark.parametrize(
    "call",
    [
        "assert_bits_equal(x, x, fmt='f16')",
        "assert_bits_equal(x, x, fragment='mma')",
        "assert_bits_equal(x, x[:1])",
        "assert_bits_equal(x, x + 1)",
    ],
)
def test_pytest_shows_the_line_of_the_test_alone(pytester, call):
    pytester.makepyfile(f"""
        import numpy as np
        from emulator.testing import assert_bits_equal

        def test_it():
            x = np.ones(2, "f4")
            {call}
    """)
    lines = pytester.runpytest_inprocess(
        "-p", "no:cacheprovider", "-p", "no:hypothesispytest"
    ).outlines
    assert f">       {call}" in lines
    assert sum(x.startswith(">") for x in lines) == 1
    assert not any("difference.py" in x or "def assert_bits_equal" in x for x in lines)


def test_a_fragment_by_its_opcode():
    words = np.zeros((32, 4), "u4")
    assert_bits_equal(words, words.copy(), fragment=str(INS))
    changed = words.copy()
    changed[5, 1] = 1
    by_name = find_differences(changed, words, fragment=str(INS))
    assert str(by_name) == str(find_differences(changed, words, fragment=INS))


def test_names_are_texts_and_no_message_is_long():
    a, b = np.zeros(2, "f4"), np.ones(2, "f4")
    with pytest.raises(OperandError, match="a str is needed; got <int>"):
        find_differences(a, b, name=10**5000)
    for other in (b, np.zeros(3)):
        with pytest.raises(AssertionError) as caught:
            assert_bits_equal(a, other, name="x" * 5000)
        assert len(str(caught.value)) < 1000
