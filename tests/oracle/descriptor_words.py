"""Matrix descriptors and the addresses that they lead to, stated from PTX ISA 9.7.15.5.1 and from
what was measured on an H200; for the tests of the ``descriptor`` command."""

#: swizzle in bytes -> code of bits 63:62, and its width in 16-byte units
CODES = {0: (0, 1), 32: (3, 2), 64: (2, 4), 128: (1, 8)}


def word(start=0, lbo=0, sbo=0, base=0, swizzle=0):
    """A descriptor from bytes, put together as the manual's table says."""
    return start >> 4 | lbo >> 4 << 16 | sbo >> 4 << 32 | base << 49 | CODES[swizzle][0] << 62


def address(start, lbo, sbo, base, swizzle, major, size, r, k):
    """Byte address of the element in row r and column k, of `size` bytes."""
    t, w = 16 // size, CODES[swizzle][1]
    if major == "k":
        across = k // t * lbo if w == 1 else k // t % w * 16 + k // (t * w) * lbo
        at = start + r % 8 * 16 * w + r // 8 * sbo + across + k % t * size
    else:
        across = r // t * sbo if w == 1 else r // t % w * 16 + r // (t * w) * lbo
        at = start + k % 8 * 16 * w + k // 8 * (lbo if w == 1 else sbo) + across + r % t * size
    return at ^ (at // 128 - base & w - 1) * 16
