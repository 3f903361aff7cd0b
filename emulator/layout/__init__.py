"""Places of data: lane maps, fragments, swizzles, shared-memory descriptors."""
