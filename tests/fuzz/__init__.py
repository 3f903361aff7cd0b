"""Seeded damage: PTX texts, calls and command lines that nobody meant.

Whatever is given, the package answers or raises an EmulatorError of a few lines, soon, and leaves
the arrays and files of the caller as they were. ``python -m fuzz.ptx 10000`` (in ``tests``) runs so
many cases of one kind; the slow tests run a few.
"""
