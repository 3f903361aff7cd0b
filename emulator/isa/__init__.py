"""Which instructions there are: the tables of legal forms, and ``Instruction``."""

# Fills the parsers of `Instruction.parse`, whichever module of this package comes first.
from emulator.isa import aliases as aliases
from emulator.isa import catalogue as catalogue
