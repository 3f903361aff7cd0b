"""Kernels recorded on a user's own GPU: the script, its golden file, and the comparison."""
