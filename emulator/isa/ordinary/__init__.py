"""Ordinary instructions: everything of PTX but matrix instructions.

The tables hold one row for each family of forms, written as the manual writes them: its modifiers,
types, operands, targets and the rule of its values in `emulator.arith.scalar`. What no row has is
refused. Legality was compared with ptxas of CUDA 13.0 and 13.5 in both directions.
"""
