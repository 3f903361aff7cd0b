"""All mutable state: registers and threads, blocks of a grid, memories of a launch, and engines."""
