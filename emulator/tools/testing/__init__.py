"""The parts of `emulator.testing`, for tests of kernels' numerics."""
