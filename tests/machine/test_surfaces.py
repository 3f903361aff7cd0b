"""Kernels that use surfaces, against digests of an H200's (tests/golden/h200_surfaces.json.gz).

What both fast engines share is replayed for every place of every job; whole launches, in all three
engines, for a sample of them.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import surface_jobs

from emulator import KernelError, Module, OperandError, Surface, Texture
from emulator.arith import texel_codes
from emulator.isa.ordinary.instruction import names
from emulator.machine.shared import surfaces
from emulator.memory.surface import Texels

GOLDEN = Path(__file__).parent.parent / "golden" / "h200_surfaces.json.gz"
RESULTS = json.loads(gzip.decompress(GOLDEN.read_bytes()))["results"]
JOBS, SECOND = surface_jobs.jobs()
ENGINES = ("reference", "vector", "compiled")
DTYPES = {"u": "uint", "s": "int", "f": "float"}
#: the code of the launch -> the kind of the KernelError; 801: the module is refused
KINDS = {700: "out of bounds", 716: "misaligned"}


def digest(array: Any) -> str:
    return hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=8).hexdigest()


@cache
def module(name: str) -> Module:
    return Module(surface_jobs.kernel(name))


def surface_of(job: dict[str, Any]) -> Surface:
    channels, kind = job["channels"], job["fmt"]
    dtype = f"{DTYPES[kind[0]]}{kind[1:]}"
    axes = [n for n in reversed(surface_jobs.SIZES[job["geo"]]) if n]
    array = surface_jobs.start(job).reshape(-1).view(dtype)
    array = array.reshape(*axes, *([channels] if channels > 1 else [])).copy()
    return Surface(array, channels=channels, layered=job["geo"] in ("a1d", "a2d", "cube"))


def launched(job: dict[str, Any], engine: str = "vector") -> Any:
    """What the recorder kept of a launch: what the kernel has read, or the surface's bytes."""
    name, given, count = job["kernel"], surface_of(job), len(job["places"])
    kept = name.startswith(("suld", "suq", "istypep"))
    data = np.full((count, 4), 0xEEEEEEEEEEEEEEEE, np.uint64) if kept else job["data"].copy()
    handle = {"surface": given, "texture": given, "zero": 0, "number": 0x123456789}[job["what"]]
    module(name)[name].launch(
        -(-count // 64), 64, [handle, job["places"], data, count], engine=engine
    )
    raw = given.array.reshape(-1).view(np.uint8).reshape(surface_jobs.start(job).shape)
    return data if kept else raw[None]


def replayed(job: dict[str, Any]) -> Any:
    """The surface's bytes after each store by itself."""
    name, start = job["kernel"], surface_jobs.start(job)
    program = module(name)[name].bound.program
    (statement,) = [x for x in program.statements if "s" in x.operands]
    texels = surface_of(job).texels
    count = len(surfaces.coordinates_of(statement))
    given = [job["places"][:, i].astype(np.uint32) for i in range(count)]
    handles = np.full(len(job["places"]), 7, np.uint64)
    (part,) = surfaces.parts_of(statement)({7: texels}, handles, given)
    out = np.repeat(start.reshape(1, -1), len(handles), axis=0)
    dtype = np.uint64 if "64" in name else np.uint32
    words = [np.ascontiguousarray(job["data"][part.inside, i].astype(dtype)) for i in range(4)]
    if name.startswith("sust"):
        lanes = surface_jobs.LANES[name.split("_")[2]]
        new = surfaces.raw_of(statement)(texels, words[:lanes])
    for i, (lane, at) in enumerate(zip(part.inside.tolist(), part.addresses.tolist(), strict=True)):
        place = out[lane, at : at + part.size]
        if name.startswith("sust"):
            place[:] = new[i]
        else:
            place[:] = updated(statement, texels, place.copy(), words[0][i : i + 1])
    return out.reshape(-1, *start.shape)


def updated(statement: Any, texels: Texels, old: Any, word: Any) -> Any:
    """What NumPy makes of a reduction, of the type that `update_of` names."""
    operation, type_ = str(surfaces.update_of(statement, texels)).split(".")[2:]
    dtype = f"{DTYPES.get(type_[0], 'uint')}{type_[1:]}"
    names = {"min": "minimum", "max": "maximum", "and": "bitwise_and", "or": "bitwise_or"}
    function = getattr(np, names.get(operation, operation))
    return function(old.view(dtype), word.view(dtype)).view(np.uint8)


def is_undecided(job: dict[str, Any]) -> bool:
    """Several lanes at one place, where the lane that wins follows no rule that is known."""
    several = len(job["places"]) == 32 and job["kernel"].startswith("sust_")
    return several and (job["geo"] in ("a2d", "3d") or job["fmt"] == "f32")


def check(number: int, engine: str) -> None:
    job, result = JOBS[number], RESULTS[number]
    if result == 801:
        assert "the driver of an H200 refuses" in str(module(job["kernel"]).problems)
    elif result in KINDS:
        with pytest.raises(KernelError) as caught:
            launched(job, engine)
        assert caught.value.kind == KINDS[result]
    else:
        found = replayed(job) if job["single"] else launched(job, engine)
        assert digest(found) == result, job["kernel"]


def numbers(step: int = 1) -> list[int]:
    known = [n for n, job in enumerate(JOBS) if not is_undecided(job)
             and job["kernel"].partition("_")[0].rstrip("bp") in names()]  # fmt: skip
    return known[::step]


@pytest.mark.slow
def test_all_places_are_as_recorded() -> None:
    for number in numbers():
        check(number, "vector")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("engine", ENGINES)
def test_engines_agree_with_recordings(engine: str) -> None:
    for number in [n for n in numbers(3) if not JOBS[n]["single"]][::40]:
        check(number, engine)


def test_a_changed_rule_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    number = next(n for n, job in enumerate(JOBS) if job["kernel"] == "sustp_2d_v4_b32_clamp"
                  and job["fmt"] == "f16" and not job["single"])  # fmt: skip
    check(number, "vector")
    monkeypatch.setattr(texel_codes, "_LARGEST", 0x7BFE)
    with pytest.raises(AssertionError):
        check(number, "vector")


@pytest.mark.parametrize("engine", ENGINES)
def test_stores_and_reductions_in_place(engine: str) -> None:
    """Rows whose size is no power of two, and lanes that add to one element."""
    array = np.zeros((3, 5), np.int32)
    places = np.array([(4 * (i % 2), 1, 0, 0) for i in range(8)], np.int32)
    data = np.full((8, 4), 3, np.uint64)
    name = "suredb_2d_add_s32_zero"
    module(name)[name].launch(1, 32, [Surface(array), places, data, 8], engine=engine)
    assert array.tolist() == [[0] * 5, [12, 12, 0, 0, 0], [0] * 5]
    bytes_ = np.zeros((2, 9), np.uint8)
    name = "sust_2d_v4_b16_zero"
    where = np.array([(0, 1, 0, 0), (8, 1, 0, 0), (0, 2, 0, 0)], np.int32)
    module(name)[name].launch(1, 32, [Surface(bytes_), where, data, 3], engine=engine)
    assert bytes_.tolist() == [[0] * 9, [3, 0, 3, 0, 3, 0, 3, 0, 0]]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("surface", "said"),
    [
        (123, "the handle 0x7b names no surface"),
        (Surface(np.zeros(4, np.float32)), r"is of another geometry than Surface\(1d, float32, 4"),
    ],
)
def test_handles_that_do_not_fit_are_errors(surface: Any, said: str, engine: str) -> None:
    arguments = [surface, np.zeros((1, 4), np.int32), np.zeros((1, 4), np.uint64), 1]
    with pytest.raises(KernelError, match=said):
        module("suld_2d__b32_zero")["suld_2d__b32_zero"].launch(1, 32, arguments, engine=engine)


def test_checks_find_what_two_blocks_write_to_one_texel() -> None:
    array, name = np.zeros((4, 4), np.int32), "sust_2d__b32_zero"
    data = np.arange(256, dtype=np.uint64).reshape(64, 4)
    arguments = [Surface(array), np.zeros((64, 4), np.int32), data, 64]
    report = module(name)[name].launch(2, 32, arguments, check=True)
    assert [x.kind for x in report.findings] == ["race between blocks"]
    places = np.array([(4 * (i % 4), i // 4, 0, 0) for i in range(16)], np.int32)
    report = module(name)[name].launch(2, 8, [Surface(array), places, data, 16], check=True)
    assert not report.findings and array.tolist() == (4 * np.arange(16)).reshape(4, 4).tolist()


def test_a_launch_that_fails_leaves_the_array() -> None:
    array, name = np.zeros(4, np.int32), "sust_1d__b32_trap"
    places = np.array([(0, 0, 0, 0), (16, 0, 0, 0)], np.int32)
    arguments = [Surface(array), places, np.ones((2, 4), np.uint64), 2]
    with pytest.raises(KernelError, match=r"4 bytes at \(16\) of Surface\(1d, int32, 4\)"):
        module(name)[name].launch(2, 1, arguments)
    assert not array.any()


@pytest.mark.parametrize(
    ("array", "options", "said"),
    [
        (np.zeros(4), {}, "takes a NumPy array of"),
        (np.zeros((2, 3), np.uint8), {"channels": 2}, "then 2 channels"),
        (np.zeros((2, 2), np.uint8), {"channels": 3}, "1, 2 or 4 channels"),
        (np.zeros(4, np.uint8), {"layered": True}, "layers, then one or two axes"),
    ],
)
def test_what_is_no_surface_is_refused(array: Any, options: Any, said: str) -> None:
    with pytest.raises(OperandError, match=said):
        Surface(array, **options)


# --- variables that are handles -------------------------------------------------------------------

BOUND = """.version 9.0
.target sm_90
.address_size 64
.global .texref tx; .global .surfref sf;
.global .samplerref sm = { addr_mode_0 = wrap, filter_mode = nearest }; .global .u32 other = 5;
.visible .entry k(.param .u64 out)
{
    .reg .b64 %d<4>; .reg .f32 %f<7>; .reg .b32 %r<3>;
    ld.param.u64 %d1, [out]; mov.u32 %r1, %tid.x; cvt.rn.f32.u32 %f5, %r1; mov.f32 %f6, 0f3F000000;
    tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [tx, {%f5, %f6}];
    mov.u64 %d2, tx; tex.2d.v4.f32.f32 {%f2, %f0, %f3, %f4}, [%d2, {%f5, %f6}];
    mul.wide.u32 %d3, %r1, 4; add.u64 %d1, %d1, %d3; st.global.f32 [%d1], %f2;
    shl.b32 %r2, %r1, 2; sust.b.1d.b32.zero [sf, %r2], %f1;
    ret;
}
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_variables_name_what_is_bound_to_them(engine: str) -> None:
    module, out, written = Module(BOUND), np.zeros(4, np.float32), np.zeros(4, np.float32)
    assert not module.problems
    with pytest.raises(KernelError, match="names no texture"):
        module["k"].launch(1, 4, [out], engine=engine)
    for row in (1, 2):
        texels = np.arange(4 * row, 4 * row + 12, dtype=np.float32).reshape(3, 4)
        module.bind("tx", Texture(texels))
        module.bind("sf", Surface(written))
        module["k"].launch(1, 4, [out], engine=engine)
        assert out.tolist() == written.tolist() == texels[0].tolist()
    assert module.variable("other").tolist() == [5, 0, 0, 0]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("name", "kind"), [("tx", "texref"), ("sf", "surfref")])
def test_istypep_knows_the_handles_of_variables(name: str, kind: str, engine: str) -> None:
    """ptxas of CUDA 13.0 gives them bits 61 and 63."""
    kinds = ("texref", "samplerref", "surfref")
    body = "".join(
        f"istypep.{x} %p, %d2; selp.u32 %r1, 1, 0, %p; st.global.u32 [%d1+{4 * i}], %r1;"
        for i, x in enumerate(kinds)
    )
    module, out = Module(f"""
.version 8.0
.target sm_90
.address_size 64
.global .texref tx; .global .surfref sf;
.visible .entry k(.param .u64 out)
{{
    .reg .b64 %d<3>; .reg .b32 %r<2>; .reg .pred %p;
    ld.param.u64 %d1, [out]; mov.u64 %d2, {name}; {body}
    ret;
}}
"""), np.zeros(3, np.uint32)  # fmt: skip
    module["k"].launch(1, 1, [out], engine=engine)
    assert out.tolist() == [x == kind for x in kinds]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_sampler_beside_a_texture_is_refused(engine: str) -> None:
    module, out = Module(BOUND.replace("[tx, {", "[tx, sm, {", 1)), np.zeros(4, np.float32)
    assert not module.problems
    for name, given in (("tx", Texture), ("sf", Surface)):
        module.bind(name, given(np.zeros((3, 4)[name == "sf" :], np.float32)))
    with pytest.raises(KernelError, match="a handle of a sampler names none: a Texture brings its"):
        module["k"].launch(1, 4, [out], engine=engine)


def test_what_cannot_be_bound_is_refused() -> None:
    module = Module(BOUND)
    with pytest.raises(OperandError, match=r"no \.texref or \.surfref 'tq'; there are tx, sf"):
        module.bind("tq", Texture(np.zeros(4, np.float32)))
    with pytest.raises(OperandError, match=r"a \.surfref, which names a Surface; got Texture"):
        module.bind("sf", Texture(np.zeros(4, np.float32)))


@pytest.mark.parametrize(
    ("given", "instead", "said"),
    [
        ("[sf, %r2]", "[tx, %r2]", "takes an address in .surface; 'tx' is in .texture"),
        ("[sf, %r2]", "[sf, %f2]", "registers of type .b32, .u32, .s32; '%f2' is .f32"),
        ("st.global.f32 [%d1]", "st.f32 [tx]", "takes an address in .global; 'tx' is in .texture"),
    ],
)
def test_statements_that_misuse_a_handle_are_problems(given: str, instead: str, said: str) -> None:
    (problem,) = Module(BOUND.replace(given, instead, 1)).problems
    assert said in problem.reason
