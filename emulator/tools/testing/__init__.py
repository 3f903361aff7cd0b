"""What `emulator.testing` gives to tests of kernels' numerics."""
