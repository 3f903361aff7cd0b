"""The CUDA driver: each file holds the functions of one part of it.

Everything happens when it is asked for, in the order of the calls, which is one legal order of what
streams allow. An error of a kernel is kept and returned by later calls, as on a GPU.
"""

from emulator.adapters.cuda.calls import DRIVER
from emulator.adapters.cuda.driver import (
    arrays,
    captures,
    devices,
    graph_memory,
    graphs,
    instances,
    interprocess,
    launches,
    managed,
    memory,
    modules,
    references,
    streams,
    tensor_maps,
    textures,
    virtual,
)
from emulator.adapters.cuda.tables import functions_of, others

__all__ = [
    "DRIVER", "arrays", "captures", "devices", "graph_memory", "graphs", "instances",
    "interprocess", "launches", "managed", "memory", "modules", "references", "streams",
    "tensor_maps", "textures", "virtual",
]  # fmt: skip

DRIVER |= others(functions_of("driver"), DRIVER)
