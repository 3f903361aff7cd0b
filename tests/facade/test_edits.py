"""Single edits of the package, one at a time: a wrong operator, bound or statement in every room.
Does a fast test notice each?"""

from pathlib import Path

import pytest
from edits import EDITS, Edit, copied_package, edited, fast_tests_fail, times_in

ROOMS = """arith/fast arith arith/scalar arith/steps isa isa/ordinary layout machine machine/checks
machine/compiled machine/reference machine/shared machine/system machine/vector matrices memory ptx
tools tools/descriptors tools/explanations tools/pictures tools/testing warp"""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return copied_package(tmp_path_factory.mktemp("package"))


def test_every_old_text_stands_once():
    found = {(edit.file, edit.old): times_in(edit) for edit in EDITS}
    assert {edit: n for edit, n in found.items() if n != 1} == {}


def test_every_room_is_edited():
    edited_rooms = {str(Path(edit.file).parent) for edit in EDITS}
    assert edited_rooms == {"dtypes", *(f"emulator/{room}" for room in ROOMS.split())}
    assert len(EDITS) >= 60


@pytest.mark.slow
@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: f"{edit.file}: {edit.new}")
def test_an_edit_is_noticed(edit, package):
    with edited(package, edit):
        assert fast_tests_fail(package, edit.tests), f"{edit.old!r} became {edit.new!r}"


@pytest.mark.slow
def test_an_edit_that_changes_nothing_is_not_noticed(package):
    same = Edit("dtypes/codec.py", "if shift > 0:", "if 0 < shift:", "dtypes/test_rounding.py")
    with edited(package, same):
        assert not fast_tests_fail(package, same.tests)


def test_an_old_text_that_is_gone_is_an_error(package):
    gone = Edit("dtypes/codec.py", "no such text", "", "dtypes/test_rounding.py")
    with pytest.raises(AssertionError, match="0 times"), edited(package, gone):
        pass
