"""Instructions over the lanes of a warp: PTX ISA 9.7.9.6 and 9.7.13."""

from functools import partial

from emulator.isa.ordinary.row import Row
from emulator.targets import having

_80 = having("sm_80")
_WarpRow = partial(Row, scope="warp", effects="lanes")

ROWS = (
    _WarpRow(
        "shfl.sync.mode=up|down|bfly|idx.type=b32",
        "d|p~?, a, b:b32, c:b32, membermask:u32",
        "lanes.shfl",
        effects="lanes shuffles",
        version="6.0",
    ),
    _WarpRow(
        "vote.sync.mode=all|any|uni.type=pred", "d, a, membermask:u32", "lanes.vote", version="6.0"
    ),
    _WarpRow(
        "vote.sync.mode=ballot.type=b32", "d, a:pred, membermask:u32", "lanes.vote", version="6.0"
    ),
    _WarpRow(
        "match.any.sync.type=b32|b64",
        "d:u32, a, membermask:u32",
        "lanes.match_any",
        version="6.0",
        effects="lanes gathers",
    ),
    _WarpRow(
        "match.all.sync.type=b32|b64",
        "d~:u32|p?, a, membermask:u32",
        "lanes.match_all",
        version="6.0",
        effects="lanes gathers",
    ),
    _WarpRow(
        "redux.sync.operation=add|min|max.type=u32|s32",
        "d:type/, a:type/, membermask:u32",
        "lanes.redux",
        _80,
        "7.0",
        effects="pure gathers",
    ),
    _WarpRow(
        "redux.sync.operation=and|or|xor.type=b32",
        "d:u32, a:u32, membermask:u32",
        "lanes.redux",
        _80,
        "7.0",
        effects="pure gathers",
    ),
    _WarpRow(
        "redux.sync.operation=min|max{.abs}{.NaN}.type=f32",
        "d, a, membermask:u32",
        "lanes.redux_float",
        having("redux.f32"),
        "8.6",
        effects="pure gathers",
    ),
    _WarpRow("activemask.type=b32", "d", "lanes.activemask", version="6.2", effects="lanes active"),
    _WarpRow("elect.sync", "d~:u32|p, membermask:u32", "lanes.elect", having("sm_90"), "8.0"),
)
