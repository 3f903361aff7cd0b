"""System around a kernel: functions that CUDA supplies, the heap, launches from kernels. Engines
call it; it knows none."""
