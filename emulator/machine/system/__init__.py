"""The system around a kernel: functions that CUDA supplies, the heap, launches from kernels."""
