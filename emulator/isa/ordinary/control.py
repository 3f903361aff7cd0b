"""Control flow, barriers, fences and the rest: PTX ISA 9.7.12, 9.7.13, 9.7.17 and 9.7.19."""

from functools import partial

from emulator.isa.ordinary.row import Needs, Row
from emulator.targets import select

_80, _90, _100 = (select(since=n) for n in (80, 90, 100))
_SPECIFIC_90 = select(since=90, specific=True)
_SCOPE = "scope=cta|cluster|gpu|sys"
_CLUSTER = (Needs("cluster", _90, "7.8"),)
_ORDER = tuple(Needs(word, version="8.0") for word in ("release", "relaxed", "acquire"))
_CTA = (Needs("cta", version="7.8"),)
#: the number of a barrier, and how many threads come to it
_BARRIER, _THREADS = "a:u32<0..15>", "b:u32<32..1024/32>"
_WarpRow = partial(Row, scope="warp")

_FLOW = (
    Row("bra{.uni}", "target#label"),
    Row("brx.idx{.uni}", "index:u32, targets#label", version="6.0"),
    Row(
        "call{.uni}",
        "results#parameters?, function#function, arguments#parameters?, prototype#label?",
    ),
    Row("ret{.uni}", ""),
    Row("exit", ""),
    Row("trap", ""),
    Row("brkpt", ""),
    Row("nanosleep.type=u32", "t", version="6.3"),
    Row("pmevent", "a=0..15", version="1.4"),
    Row("pmevent.mask", "a=0..65535", version="3.0"),
    Row(
        "setmaxnreg.action=inc|dec.sync.aligned.type=u32",
        "count=24..256/8",
        "",
        _SPECIFIC_90,
        "8.0",
        scope="warp",
    ),
    Row("griddepcontrol.action=launch_dependents|wait", "", "", _90, "7.8"),
    Row("alloca.type=u32|u64", "d, size, alignment=?", version="7.3"),
    Row("stacksave.type=u32|u64", "d", version="7.3"),
    Row("stackrestore.type=u32|u64", "a", version="7.3"),
)

_BARRIERS = tuple(
    row
    for head in ("bar{.cta}", "barrier{.cta}")
    for aligned in ("{.aligned}" if head.startswith("barrier") else "",)
    for row in (
        Row(f"{head}.sync{aligned}", f"{_BARRIER}, {_THREADS}?", version="1.0", needs=_CTA),
        Row(f"{head}.arrive{aligned}", f"{_BARRIER}, {_THREADS}", version="2.0", needs=_CTA),
        Row(
            f"{head}.red.operation=popc{aligned}.type=u32",
            f"d, {_BARRIER}, {_THREADS}?, c:pred",
            version="2.0",
            needs=_CTA,
        ),
        Row(
            f"{head}.red.operation=and|or{aligned}.type=pred",
            f"p, {_BARRIER}, {_THREADS}?, c",
            version="2.0",
            needs=_CTA,
        ),
    )
)

_SYNCHRONISATION = (
    _WarpRow("bar.warp.sync", "membermask:u32", version="6.0"),
    Row(
        "barrier.cluster.arrive{.semantics=release|relaxed}{.aligned}",
        "",
        "",
        _90,
        "7.8",
        needs=_ORDER,
    ),
    Row("barrier.cluster.wait{.acquire}{.aligned}", "", "", _90, "7.8", needs=_ORDER),
    Row("membar.level=cta|gl|sys", ""),
    Row("membar.proxy.kind=alias", "", version="7.5"),
    Row(
        f"fence{{.semantics=sc|acq_rel|acquire|release}}.{_SCOPE}",
        "",
        version="6.0",
        needs=_CLUSTER,
    ),
    Row("fence.acquire.sync_restrict::shared::cluster.cluster", "", "", _90, "8.6"),
    Row("fence.release.sync_restrict::shared::cta.cluster", "", "", _90, "8.6"),
    Row("fence.mbarrier_init.release.cluster", "", "", _90, "8.0"),
    Row("fence.proxy.alias", "", version="7.5"),
    Row("fence.proxy.async{.space=global|shared::cta|shared::cluster}", "", "", _90, "8.0"),
    Row("fence.proxy.tensormap::generic.release.scope=cta|cluster|gpu|sys", "", "", _90, "8.3"),
    Row(
        "fence.proxy.tensormap::generic.acquire.scope=cta|cluster|gpu|sys",
        "[a], size=128",
        "",
        _90,
        "8.3",
    ),
    Row(
        "fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster",
        "",
        "",
        _90,
        "8.6",
    ),
    Row(
        "fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster", "", "", _90, "8.6"
    ),
)

_WGMMA = tuple(
    Row(f"wgmma.{name}.sync.aligned", operands, "", select(only="90a"), "8.0", scope="warpgroup")
    for name, operands in (("fence", ""), ("commit_group", ""), ("wait_group", "n=0..2147483647"))
)

ROWS = (*_FLOW, *_BARRIERS, *_SYNCHRONISATION, *_WGMMA)
