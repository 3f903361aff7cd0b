"""All instructions: the tables of legal forms, and ``Instruction``."""
