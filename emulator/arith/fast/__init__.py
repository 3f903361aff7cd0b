"""How arithmetic is computed fast: NumPy loops over whole matrices, and machine code (``fast``)."""
