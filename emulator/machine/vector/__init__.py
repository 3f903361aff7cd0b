"""Vector engine: a launch on NumPy, where a register is an array over the lanes of many thread
blocks. It imports no other engine, and calls the checks that a launch brings without importing
them."""
