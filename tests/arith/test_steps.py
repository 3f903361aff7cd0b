"""Steps of recipes: one class each, complete or refused where it is defined."""

from dataclasses import dataclass, fields, replace

import pytest
from dots import by_hand, one_dot

from emulator.arith.recipes import RECIPES, Row
from emulator.arith.steps import Arithmetic, Convert, FusedDotAdd, Step, Widen, brief
from emulator.arith.trace import Tagged

USED = {type(step): step for row in RECIPES for step in row.steps}
HOPPER = by_hand("mma hopper f16 f32")


@dataclass(frozen=True)
class Negate(Step):
    """x = -x, a step that no recipe has."""

    def reference(self, dot):
        dot.x = Tagged(dot.x.fmt, dot.x.code ^ dot.x.fmt.sign_mask)

    def vector(self, dots):
        dots.x = dots.x ^ dots.x.dtype.type(dots.x_format.sign_mask)

    @property
    def short(self):
        return "x negated"

    def sentence(self, arithmetic, k):
        return "x = -x"


def test_every_step_class_is_used():
    assert set(USED) == set(Step.__subclasses__()) - {Negate}


@pytest.mark.parametrize("step", USED.values(), ids=lambda step: type(step).__name__)
def test_words_are_of_one_line_and_name_the_constants(step):
    for text in (step.short, step.sentence(HOPPER, 16)):
        assert text and "\n" not in text and not text.endswith(".")
    for field in fields(step):
        value = getattr(step, field.name)
        if isinstance(value, str) and field.name != "rounding":
            assert value in step.sentence(HOPPER, 16)


def test_brief_is_one_line():
    assert brief((Widen("f16"), Convert("f32"))) == "a and b to f16, then x to f32"


@pytest.mark.parametrize("engine", ("reference", "vector", "compiled"))
def test_a_new_step_is_one_class(engine):
    """No engine, and no fast path, needs to be told about it."""
    if engine == "compiled":
        pytest.importorskip("llvmlite")
    for steps in ((*HOPPER.steps, Negate()), (Negate(), *HOPPER.steps)):
        new = replace(HOPPER, steps=steps)
        got = one_dot(new, 0x3F800000, [(1.0, 2.0)], 16, engine)
        assert got == ("0xc0400000" if steps[-1] == Negate() else "0x3f800000")


@pytest.mark.parametrize("missing", ("reference", "vector", "short", "sentence"))
def test_a_step_without_one_of_its_parts_cannot_be_made(missing):
    incomplete = type("Incomplete", (Negate,), {missing: getattr(Step, missing)})
    with pytest.raises(TypeError, match=f"abstract method '?{missing}"):
        incomplete()


@pytest.mark.parametrize("steps", [(), [FusedDotAdd(24, None, "f32", "rz")], ("add",), (None,)])
def test_a_recipe_of_anything_else_cannot_be_made(steps):
    with pytest.raises(TypeError, match=r"a recipe is a tuple|is no step"):
        Row("mma", "hopper", "f16", "f32", steps, "nowhere")
    with pytest.raises(TypeError, match=r"a recipe is a tuple|is no step"):
        Arithmetic(HOPPER.a, HOPPER.b, HOPPER.c, HOPPER.d, steps)
