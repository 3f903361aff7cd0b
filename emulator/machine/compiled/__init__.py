"""The engine on LLVM: statements that follow each other are one native function over warps."""

#: the mark of a strand that says how many statements of a step were executed when it ended
DONE = "statements of the step"
