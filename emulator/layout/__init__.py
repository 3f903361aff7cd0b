"""Where data lives: lane maps, fragments, swizzles, shared-memory descriptors."""
