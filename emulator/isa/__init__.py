"""Which instructions there are: the table of legal forms, and ``Instruction``."""
