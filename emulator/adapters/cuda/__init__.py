"""People's own CUDA programs, unmodified, on a GPU that is not there.

Shared libraries take the place of the CUDA driver and the CUDA runtime. Their functions call this
package, which runs the kernels.
"""
