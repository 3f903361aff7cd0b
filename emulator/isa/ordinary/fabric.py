"""Statements of the fabric, of PTX 9.3: legal and not run, as they act on logical endpoints, which
no function here makes. Legality is that of ptxas of CUDA 13.5."""

from collections.abc import Iterator
from functools import partial

from emulator.isa.ordinary.atomics import ACCUMULATORS
from emulator.isa.ordinary.row import Row
from emulator.targets import having

_100 = having("sm_100")
_WIDE = having("fabric.e4m3")
_Fabric = partial(
    Row,
    rule="",
    targets=_100,
    version="9.3",
    unmodelled="it acts on logical endpoints, which nothing here makes",
    effects="copies",
    dropped=ACCUMULATORS,
)
#: an endpoint, and the place of data in it; with the place of a counter, too
_PLACE, _COUNTED = "[h:endpoint;1]", "[h:endpoint;2]"
_SIZE, _BARRIER = "size:u32", "[mbarrier:shared+]"
_REPORTED = "mbarrier::report::fabric"
_GOT = f".to=shared::cta.mbarrier::complete_tx::bytes.{_REPORTED}"
_PUT = f".from=shared::cta.mbarrier::complete_tx::16B.{_REPORTED}"
#: the order of accesses, which is the same where it is not said
_ORDERS = ("{.relaxed}.sys", "")
#: operations and types of sums, of bits and of the least and greatest
_REDUCED = (
    ("operation=and|or|xor", "b32|b64"),
    ("operation=min|max", "u32|s32|u64|s64|f16|bf16"),
    ("operation=add", "u32|u64|f16|bf16|f32|f64"),
)
_PULLED = (
    ("operation=and|or|xor", "b32|b64", _100),
    ("operation=min|max", "u32|s32|u64|s64|f16|bf16", _100),
    ("operation=add", "u32|u64|f16|bf16|f32", _100),
    ("operation=add.accumulator=acc::f32", "f16|bf16", _WIDE),
    ("operation=add.accumulator=acc::f16", "e4m3|e5m2", _WIDE),
    ("operation=min|max", "e4m3|e5m2", _WIDE),
)


def _rows() -> Iterator[Row]:
    for order in _ORDERS:
        yield _Fabric(
            f"fabric.try_get.async!{_GOT}{order}.type=b128",
            f"[dst:to+], {_PLACE}, {_SIZE}, {_BARRIER}",
        )
        for more, place, mask in (
            ("{.cp_mask}", _PLACE, ", byte_mask:u16@cp_mask"),
            (".counted::bytes", _COUNTED, ""),
        ):
            yield _Fabric(
                f"fabric.try_put.async!{{.multimem}}{_PUT}{order}{more}.type=b128",
                f"{place}, [src:from+], {_SIZE}, {_BARRIER}{mask}",
            )
        for counted, place in (("", _PLACE), (".counted::bytes", _COUNTED)):
            for operation, types in _REDUCED:
                yield _Fabric(
                    f"fabric.try_red.async!{{.multimem}}{_PUT}{order}{counted}.{operation}"
                    f".type={types}",
                    f"{place}, [src:from+], {_SIZE}, {_BARRIER}",
                )
        for operation, types, targets in _PULLED:
            yield _Fabric(
                f"fabric.try_pullred.async!.multimem{_GOT}{order}.{operation}.type={types}.sync",
                f"[dst:to+], {_PLACE}, {_SIZE}, [mbarrier:shared], membermask=4294967295,-1",
                targets=targets,
                dropped="",
            )


ROWS = (
    *_rows(),
    _Fabric("fabric.submit!{.op_restrict::fetching}", ""),
    _Fabric("fabric.wait!.sync_restrict::reads", ""),
)
