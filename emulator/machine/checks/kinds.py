"""Kinds of mistakes that checks look for, with advice for each."""

from __future__ import annotations

#: the kind of warnings, which are no mistakes of a kernel
MISCOMPILATION = "known miscompilation"

#: what to do of accesses that no barrier of a block can order
IN_ONE_STATEMENT = (
    "let one thread write it, or make it atomic: no barrier can stand within one statement"
)
IN_A_CLUSTER = (
    "put a barrier of the cluster between the two accesses (barrier.cluster, cluster.sync()), or "
    "make both atomic"
)

#: kind -> what to do
KINDS: dict[str, str] = {
    "race": (
        "put a barrier between the two accesses (bar.sync, __syncthreads; within a warp "
        "bar.warp.sync, __syncwarp), or make both atomic"
    ),
    "race between blocks": (
        "make both accesses atomic, or order them: a fence for the GPU (__threadfence) before a "
        "flag is written, and a wait for that flag"
    ),
    "read before wait": (
        "wait for the copy (cp.async.wait_group, the phase of its mbarrier) in each thread that "
        "issued it, and let a barrier follow before others read"
    ),
    "overwritten too early": (
        "wait until the asynchronous operation has read its source (cp.async.bulk.wait_group.read,"
        " wgmma.wait_group, an arrival at the mbarrier that guards it) before it is written again"
    ),
    "missing proxy fence": (
        "fence.proxy.async (cutlass::arch::fence_view_async_shared) in the threads that wrote, "
        "before the barrier that the asynchronous operation waits for"
    ),
    "uninitialised memory": "write it first; what it holds is left over from another kernel",
    "uninitialised register": "give it a value on every path that leads here",
    "another variable": "the index leaves its array: check the sizes of arrays in shared memory",
    "mbarrier": (
        "initialise it once, and let a barrier or fence follow before others use it; "
        "mbarrier.inval before its memory holds something else, or another mbarrier"
    ),
    "divergent barrier": (
        "all lanes of a warp must reach the same barrier statement: move it out of the branch, or "
        "use barrier.sync, which is not .aligned"
    ),
    "shuffle": "name all lanes that take part in the membermask, and read only from those",
    "wgmma order": "wgmma.fence after other instructions wrote a register that wgmma uses",
    "wgmma in flight": "wgmma.wait_group before registers of a wgmma under way are touched",
    "tensor memory": (
        "write its columns (tcgen05.st, cp, or an mma that does not add to the old D) before they "
        "are read, and give all of them back (tcgen05.dealloc) before the block ends"
    ),
    "tcgen05 in flight": (
        "wait first: mma, cp and shift are complete with the phase of the mbarrier that a "
        "tcgen05.commit behind them arrives at, ld and st with tcgen05.wait::ld, wait::st"
    ),
    "missing tcgen05 fence": (
        "tcgen05.fence::before_thread_sync in the thread that tells, before it arrives; "
        "tcgen05.fence::after_thread_sync in the thread that waited, before its next tcgen05"
    ),
    "issued more than once": "let one thread issue it: elect.sync, cute::elect_one_sync()",
    "left open": "wait for it before the thread ends: its memory may be given to others",
    "peer has not started": (
        "a barrier of the cluster (cluster.sync()) before shared memory of other blocks is used"
    ),
    "peer has ended": (
        "a barrier of the cluster (cluster.sync()) before blocks end whose shared memory others use"
    ),
    "tensor map": (
        "fence.proxy.tensormap::generic.acquire on the map after it was changed and before a copy "
        "uses it"
    ),
    "setmaxnreg": "all warps of a warpgroup execute the same setmaxnreg",
    MISCOMPILATION: (
        "what runs here is PTX, and a GPU may have other results: `python -m emulator guide "
        "miscompilations` says how else to write it"
    ),
    "read-only load": "ld.global.nc is for what no thread of the grid writes: use ld.global",
}
