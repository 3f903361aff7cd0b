"""Fast arithmetic: NumPy loops over whole matrices, and machine code (``fast``)."""
