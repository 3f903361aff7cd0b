"""Which instructions there are: the tables of legal forms, and ``Instruction``."""
