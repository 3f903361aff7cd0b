"""Arguments of the wrong kind: every public function answers or raises an EmulatorError, whatever
it is given, soon and in few words."""

import pytest
from fuzz.calls import CALLS, NEVER_REFUSED, WRONG, called, copied

from emulator import EmulatorError

pytestmark = pytest.mark.sampled(25)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_what_is_right_is_taken(call):
    function, right = call
    function(**right)


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_argument_is_refused_in_few_words(name):
    refused = 0
    for argument in CALLS[name][1]:
        for what, wrong in WRONG.items():
            try:
                answer = called(name, {argument: copied(wrong)})
            except BaseException as error:
                error.add_note(f"{name}({argument}={what})")
                raise
            if isinstance(answer, (EmulatorError, AssertionError)):
                refused += 1
                assert len(str(answer)) < 2000
    assert refused > 10 * len(CALLS[name][1]) or name in NEVER_REFUSED
