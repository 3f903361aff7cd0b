"""The machine: launches of kernels and warps, which hold all mutable state. The files here are the
face that users meet; engines, checks and the debugger have rooms of their own."""
