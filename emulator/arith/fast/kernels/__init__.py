"""Matrix instructions as machine code of their own, by llvmlite (the extra ``fast``).

One function for each recipe and shape takes what the operands *are*, registers of lanes and bytes
of shared memory, and writes the registers of the result. Every operand is memory with a table of
the places of its elements, so that lane maps, strides, descriptors and swizzles are all one thing
to it. The code is made of the recipe's steps and the formats' facts; infinities, NaNs and tiny
numbers are computed where they stand, so that it gives the bits of `reference` for all operands.
"""
