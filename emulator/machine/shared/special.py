"""Special registers that hold the same in all threads of a launch (PTX ISA 10)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from emulator.machine.options import WARPS_OF_PROCESSOR


class LaunchSizes(Protocol):
    """Sizes of a launch, as special registers give them."""

    #: bytes of shared memory: asked for at the launch, of a block in all, and of the system
    dynamic_shared: int
    smem_size: int
    reserved_shared: int
    #: multiprocessors
    processors: int
    #: whether the kernel or the launch asks for clusters
    explicit_cluster: int


#: name -> the word
OF_LAUNCH: dict[str, Callable[[LaunchSizes], int]] = {
    "%nwarpid": lambda x: WARPS_OF_PROCESSOR,
    "%is_explicit_cluster": lambda x: int(x.explicit_cluster),
    "%nsmid": lambda x: x.processors,
    "%gridid": lambda x: 0,
    "%dynamic_smem_size": lambda x: x.dynamic_shared,
    "%total_smem_size": lambda x: x.smem_size,
    "%aggr_smem_size": lambda x: x.smem_size + x.reserved_shared,
    "%reserved_smem_offset_begin": lambda x: 0,
    "%reserved_smem_offset_end": lambda x: x.reserved_shared,
    "%reserved_smem_offset_cap": lambda x: x.reserved_shared,
    "%reserved_smem_offset_0": lambda x: 0,
    "%reserved_smem_offset_1": lambda x: 0,
}
#: clocks -> bits, and the lowest bit of the time that they show. It counts statements, so that it
#: rises and is the same in every run; there is one for all
CLOCKS = {
    "%clock": (32, 0), "%clock_hi": (32, 32), "%clock64": (64, 0),
    "%globaltimer": (64, 0), "%globaltimer_lo": (32, 0), "%globaltimer_hi": (32, 32),
}  # fmt: skip
