"""Generic addresses: windows of the 64-bit address space (PTX ISA 5.1, 6.4.1.1).

Which addresses these are is open to an implementation; what is in no window is global memory, and
so are constants here, whose addresses are generic ones. The bytes of kernel parameters lie in a
window, too: in their own space an address is what it is in the window, of 32 bits.
"""

from __future__ import annotations

#: windows are as large as 32-bit addresses reach
WINDOW_BITS = 32
SHARED = 0x6100 << WINDOW_BITS
LOCAL = 0x6200 << WINDOW_BITS
#: shared memory of the cluster: the rank of a thread block stands above the address in it
RANK_BITS = 24
#: functions have addresses, for calls through pointers
FUNCTIONS = 0x6300 << WINDOW_BITS
#: variables of a module, and the parameters of its kernels
VARIABLES = 0x6000 << WINDOW_BITS
PARAMETERS = 0x6400 << WINDOW_BITS
