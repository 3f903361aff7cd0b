"""The engine on LLVM: statements that follow each other are one native function over warps."""

from emulator.machine.shared.failure import Failure

#: the mark of a strand that says how many statements of a step were executed when it ended
DONE = "statements of the step"
#: the mark of a strand that says which statement a loop was left for
FOR_STEPS = "statement for steps"


def refused() -> Failure:
    """The error for a lane that native code refuses and a step does not."""
    return Failure("out of bounds", "a lane accesses memory that it must not access")
