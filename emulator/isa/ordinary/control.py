"""Control flow, barriers, fences and the rest: PTX ISA 9.7.12, 9.7.13, 9.7.17 and 9.7.19."""

from dataclasses import replace
from functools import partial

from emulator.isa.ordinary.row import Needs, Row
from emulator.targets import having

_80, _90, _100 = (having(f"sm_{n}") for n in (80, 90, 100))
_SCOPE = "scope=cta|cluster|gpu|sys"
_CLUSTER = (Needs("cluster", _90, "7.8"),)
_ORDER = tuple(Needs(word, version="8.0") for word in ("release", "relaxed", "acquire"))
_CTA = (Needs("cta", version="7.8"),)
#: the number of a barrier, and how many threads come to it: 0 stands for all, who can wait
_BARRIER = "a:u32<0..15>"
_THREADS, _ARRIVING = (f"b:u32<{least}..18446744073709551584/32>" for least in (0, 32))
#: of alloca
_ALIGNMENTS = ",".join(str(1 << n) for n in range(23))
_WarpRow = partial(Row, scope="warp")
_Fence = partial(Row, effects="hint orders")

_FLOW = (
    Row("bra{.uni}", "target#label", effects="jumps ends"),
    Row("brx.idx{.uni}", "index:u32, targets#label", version="6.0", effects="jumps ends"),
    Row(
        "call{.uni}",
        "results#parameters?, function#function, arguments#parameters?, prototype#label?",
        effects="jumps splits calls",
    ),
    Row("ret{.uni}", "", effects="jumps ends leaves returns"),
    Row("exit", "", effects="jumps ends leaves"),
    Row("trap", "", effects="jumps ends"),
    Row("brkpt", "", effects="jumps splits"),
    Row("nanosleep.type=u32", "t:u32", version="6.3", effects="hint polls"),
    Row("pmevent", "a=0..15", version="1.4", effects="hint splits"),
    Row("pmevent.mask", "a=0..65535", version="3.0", effects="hint splits"),
    Row(
        "setmaxnreg.action=inc|dec!.sync.aligned.type=u32",
        "count=24..256/8",
        "",
        having("setmaxnreg"),
        "8.0",
        scope="warp",
        effects="splits registers",
    ),
    Row(
        "griddepcontrol.action=launch_dependents|wait",
        "",
        "",
        _90,
        "7.8",
        effects="hint splits@launch_dependents",
    ),
    Row(
        "alloca.type=u32|u64", f"d, size, alignment={_ALIGNMENTS}?", version="7.3", effects="stack"
    ),
    Row("stacksave.type=u32|u64", "d", version="7.3", effects="stack"),
    Row("stackrestore.type=u32|u64", "a%", version="7.3", effects="stack"),
)

_BARRIERS = tuple(
    replace(row, effects=effects)
    for head, aligned, effects in (
        ("bar{.cta}", "", "barrier aligned"),
        ("barrier{.cta}", "{.aligned}", "barrier aligned@aligned"),
    )
    for row in (
        Row(f"{head}!.sync{aligned}", f"{_BARRIER}, {_THREADS}?", version="1.0", needs=_CTA),
        Row(f"{head}.arrive!{aligned}", f"{_BARRIER}, {_ARRIVING}", version="2.0", needs=_CTA),
        Row(
            f"{head}.red!.operation=popc{aligned}.type=u32",
            f"d, {_BARRIER}, {_THREADS}?, c:pred",
            version="2.0",
            needs=_CTA,
        ),
        Row(
            f"{head}.red!.operation=and|or{aligned}.type=pred",
            f"p, {_BARRIER}, {_THREADS}?, c",
            version="2.0",
            needs=_CTA,
        ),
    )
)

_SYNCHRONISATION = (
    _WarpRow("bar.warp!.sync", "membermask:u32", version="6.0", effects="barrier"),
    Row(
        "barrier.cluster.arrive!{.semantics=release|relaxed}{.aligned}",
        "",
        "",
        _90,
        "7.8",
        needs=_ORDER,
        effects="barrier aligned@aligned",
    ),
    Row(
        "barrier.cluster.wait!{.acquire}{.aligned}",
        "",
        "",
        _90,
        "7.8",
        needs=_ORDER,
        effects="barrier aligned@aligned",
    ),
    Row("membar.level=cta|gl|sys", "", effects="hint orders splits"),
    Row("membar.proxy!.kind=alias", "", version="7.5", effects="hint orders splits"),
    _Fence(
        f"fence{{.semantics=sc|acq_rel|acquire|release}}.{_SCOPE}",
        "",
        version="6.0",
        needs=(*_CLUSTER, *(Needs(word, _90, "8.6") for word in ("acquire", "release"))),
        effects="hint orders splits@acq_rel|sc",
    ),
    _Fence("fence.acquire.sync_restrict::shared::cluster.cluster", "", "", _90, "8.6"),
    _Fence("fence.release.sync_restrict::shared::cta.cluster", "", "", _90, "8.6"),
    _Fence("fence.mbarrier_init.release.cluster", "", "", _90, "8.0"),
    _Fence("fence.alias.sync_restrict::read.release.sys", "", "", _90, "9.5"),
    _Fence("fence.proxy!.alias", "", version="7.5"),
    # ptxas makes the same code of it with a restriction and without.
    _Fence(
        "fence.proxy!.async{.unheeded=sync_restrict::shared::cta|sync_restrict::shared::cluster}"
        "{.space=global|shared::cta|shared::cluster}",
        "",
        "",
        _90,
        "8.0",
    ),
    *(
        _Fence(f"fence.proxy!{proxies}.alias.semantics=acquire|release.sys", "", "", targets, since)
        for proxies, targets, since in (
            ("", _90, "9.4"),
            (".proxies=generic::fabric|fabric::generic|fabric::fabric", _100, "9.3"),
        )
    ),
    _Fence("fence.proxy!.tensormap::generic.release.scope=cta|cluster|gpu|sys", "", "", _90, "8.3"),
    _Fence(
        "fence.proxy!.tensormap::generic.acquire.scope=cta|cluster|gpu|sys",
        "[a:/b32], size=128",
        "",
        _90,
        "8.3",
    ),
    _Fence(
        "fence.proxy!.async::generic.acquire.sync_restrict::shared::cluster.cluster",
        "",
        "",
        _90,
        "8.6",
    ),
    _Fence(
        "fence.proxy!.async::generic.release.sync_restrict::shared::cta.cluster", "", "", _90, "8.6"
    ),
    _Fence(
        "fence.proxy!.async::generic.release.sync_restrict::shared::cluster::read.cluster",
        "",
        "",
        _90,
        "9.4",
    ),
)

_WGMMA = tuple(
    Row(
        f"wgmma.{name}.sync.aligned",
        operands,
        "",
        having("wgmma"),
        "8.0",
        scope="warpgroup",
        effects="orders commits@commit_group waits@wait_group",
    )
    for name, operands in (("fence", ""), ("commit_group", ""), ("wait_group", "n=0..2147483647"))
)

ROWS = (*_FLOW, *_BARRIERS, *_SYNCHRONISATION, *_WGMMA)
