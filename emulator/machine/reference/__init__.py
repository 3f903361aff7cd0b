"""The reference engine: a launch one thread at a time, in Python integers, as the manual has it."""
