"""Location and kind of the wrong elements of D, where no mistake explains them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dtypes import Array, Format, decode_values
from emulator.errors import runs
from emulator.layout.fragment import Fragment
from emulator.tools.testing.difference_kinds import ulps

#: elements shown, parts of a list of rows shown, ulps that are called so
_SHOWN, _PARTS, _ULPS = 4, 6, 16


def describe_wrong(fragment: Fragment, given: Array, expected: Array) -> list[str]:
    """Lines for people: the set of the wrong elements, what they have in common, the first few.

    `given` and `expected` are codes of D ``([groups,] rows, cols)``.
    """
    wrong, fmt = given != expected, fragment.fmt
    if not wrong.any():
        return []
    out = [f"wrong: {_place(fragment, wrong)}"]
    kind = _kind(fmt, given[wrong], expected[wrong])
    out += [f"every wrong element {kind}"] if kind else list(_some(fmt, given[wrong]))
    for index in np.argwhere(wrong)[:_SHOWN]:
        at = tuple(int(x) for x in index)
        got, want = (_shown(fmt, x[at]) for x in (given, expected))
        if (other := _owner(fmt, given[at], expected)) is not None:
            out.append(f"{_name(at)} holds the bits of {_name(other)}: {got}, not {want}")
        else:
            out.append(f"{_name(at)} is {got}, not {want}")
    return out


def _name(at: tuple[int, ...]) -> str:
    return f"D({', '.join(map(str, at))})"


def _owner(fmt: Format, code: Array, expected: Array) -> tuple[int, ...] | None:
    """The one element of the right D that has this code; None for a zero, and where several do."""
    places = np.argwhere(expected == code)
    if len(places) != 1 or decode_values(fmt, np.asarray([code]))[0] == 0:
        return None
    return tuple(int(x) for x in places[0])


# --- which elements -------------------------------------------------------------------------------


def _place(fragment: Fragment, wrong: Array) -> str:
    if wrong.all():
        return "every element"
    lanes, elements = fragment.lane_map.flat.shape
    held = wrong.reshape(-1)[fragment.lane_map.flat].reshape(lanes, fragment.registers, -1)
    views = [(held.any(-1), ("lane", "register"), elements // fragment.registers)]
    if wrong.ndim == 2:
        views.insert(0, (wrong, ("row", "column"), 1))
    clean, rough = [], []
    for mask, names, each in views:
        sets: list[Array] = [np.any(mask, 1), np.any(mask, 0)]
        text = ", ".join(_lines(x, name) for x, name in zip(sets, names, strict=True))
        there = int(sets[0].sum() * sets[1].sum()) * each
        if there == wrong.sum():
            clean.append(text)
        elif there < wrong.size:
            rough.append((there, f"in {text} ({int(wrong.sum())} of {there} elements there)"))
    if clean:
        return "; that is ".join(clean)
    return min(rough)[1] if rough else "in every row and column, lane and register"


def _lines(mask: Array, name: str) -> str:
    """``rows 0-7, 12``; ``even rows``; ``every row``."""
    indices = [int(x) for x in np.flatnonzero(mask)]
    if len(indices) == len(mask):
        return f"every {name}"
    for first, word in enumerate(("even", "odd")):
        if len(indices) > 1 and indices == list(range(first, len(mask), 2)):
            return f"{word} {name}s"
    parts = runs(indices).split(", ")
    if len(parts) == 2:
        return f"{name}s {parts[0]} and {parts[1]}"
    more = f", … ({len(indices)} in all)" if len(parts) > _PARTS else ""
    return f"{name}{'s' if len(indices) > 1 else ''} {', '.join(parts[:_PARTS])}{more}"


# --- what they have in common ---------------------------------------------------------------------


def _kind(fmt: Format, given: Array, expected: Array) -> str:
    """The property that all wrong elements share; "" where there is none."""
    g, e = decode_values(fmt, given), decode_values(fmt, expected)
    apart, several = ulps(fmt, given, expected), len(g) > 2
    finite = bool(np.isfinite(g + e).all())
    same_sign = fmt.is_float and bool((np.signbit(g) == np.signbit(e)).all())
    same_nan = ", as it should, with other bits" if np.isnan(e).all() else ""
    most = int(apart.max())
    for holds, text in (
        (np.isnan(g).all(), f"is NaN{same_nan}"),
        (np.isnan(e).all(), "should be NaN"),
        (np.isinf(g).all(), "is infinite"),
        (fmt.is_float and not (g.any() or e.any()), "is a zero of the other sign"),
        (not g.any(), "is zero" + (", with the sign of the right one" if same_sign else "")),
        (several and (g == g[0]).all(), f"is {_shown(fmt, given[0])}"),
        ((g == -e).all(), "has the other sign"),
        (several and not fmt.is_float and most <= 1, "is off by 1"),
        (
            fmt.is_float and finite and most <= _ULPS,
            f"is {'1 ulp' if most == 1 else f'at most {most} ulps'} off",
        ),
        (
            several and np.array_equal(np.sort(given), np.sort(expected)),
            "is a right one of another place",
        ),
    ):
        if holds:
            return text
    return _ratio(g, e) if finite and several else ""


def _ratio(given: Array, expected: Array) -> str:
    if (given != 0).all() and (expected != 0).all():
        ratio = given / expected
        fraction, exponent = np.frexp(np.abs(ratio))
        if (fraction == 0.5).all():
            powers = sorted({int(x) - 1 for x in exponent})
            same_sign = (ratio > 0).all()
            if len(powers) == 1 and (same_sign or (ratio < 0).all()):
                return f"is {'' if same_sign else '-'}2^{powers[0]} times what is right"
            return f"is off by a power of two, 2^{powers[0]} to 2^{powers[-1]}, or its sign"
        if np.allclose(ratio, ratio[0], rtol=1e-3, atol=0):
            return f"is about {ratio.mean():.4g} times what is right"
    apart = given - expected
    if (apart == apart[0]).all():
        return f"is {abs(apart[0]):.9g} too {'large' if apart[0] > 0 else 'small'}"
    return ""


def _some(fmt: Format, given: Array) -> Iterator[str]:
    values = decode_values(fmt, given)
    for name, which in (("NaN", np.isnan(values)), ("infinite", np.isinf(values))):
        if which.any():
            yield f"{int(which.sum())} of the wrong elements are {name}"


def _shown(fmt: Format, code: Array) -> str:
    """With as many digits as tell a number from its neighbours; of a NaN, its bits."""
    value = decode_values(fmt, np.asarray([code]))[0]
    if not fmt.is_float:
        return f"{int(value)}"
    if np.isnan(value):
        return f"NaN ({int(code):#x})"
    return f"{value:.{fmt.mantissa_bits * 3 // 10 + 3}g}"


def rounding(fmt: Format, right: Array, observed: Array) -> list[str]:
    """The finding for a D that is nearly right: no operand is misplaced."""
    values = [decode_values(fmt, x) for x in (right, observed)]
    if not fmt.is_float or (right == observed).all() or not np.isfinite(values).all():
        return []
    far, size = np.abs(values[0] - values[1]).max(), np.abs(values[0]).max()
    if far > size / 2 ** max(6, fmt.mantissa_bits // 2):
        return []
    return [
        f"D is within {far:.2g} of the right one (largest element {size:.3g}): that is rounding, "
        "not a misplaced operand. Sums in another order, such as NumPy's or another kernel's, "
        "have other bits than the tensor core's"
    ]
