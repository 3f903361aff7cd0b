"""PTX kernels that run one matrix instruction, generated from the instruction table.

A block is one case: a warp, or a warpgroup for wgmma. Its lanes load their operand registers from
arrays ``(cases, lanes, registers)``, run the instruction once and store the result in the same
form. All registers are untyped, ``.b32`` or ``.b64``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from emulator import Instruction

#: bytes of shared memory that a wgmma kernel fills; the most that needs no opt-in
IMAGE_BYTES = 48 * 1024
ENTRY = "run"

#: CUDA version of a driver -> the newest PTX version that it takes
PTX_VERSIONS = (
    (13000, "9.0"), (12090, "8.8"), (12080, "8.7"), (12070, "8.6"), (12050, "8.5"), (12040, "8.4"),
    (12030, "8.3"), (12020, "8.2"), (12010, "8.1"), (12000, "8.0"), (0, "7.0"),
)  # fmt: skip


def ptx_version(cuda: int) -> str:
    """The PTX version to ask of a driver of CUDA `cuda`, as 12080 for 12.8."""
    return next(version for least, version in PTX_VERSIONS if cuda >= least)


@dataclass(frozen=True)
class Variant:
    """An instruction with all its immediate operands."""

    ins: Instruction
    #: wgmma: A comes through a descriptor instead of from registers
    a_shared: bool = False
    #: options of `execute` that are immediates of the instruction
    options: dict[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        words = [str(self.ins), *(f"{k}={v}" for k, v in self.options.items())]
        if self.ins.is_wgmma:
            words.append("A from shared" if self.a_shared else "A from lanes")
        return " ".join(words)


def variants(ins: Instruction, rng: np.random.Generator) -> Iterator[Variant]:
    """The variants to run of `ins`: every selector, both sources of A, and immediates at random."""
    selectors = (
        [{"selector": i} for i in range(ins.fragment("e").groups)] if ins.is_sparse else [{}]
    )
    for selector in selectors:
        if ins.is_wgmma:
            for a_shared in (False, True):
                yield Variant(ins, a_shared, selector | _immediates(ins, a_shared, rng))
        else:
            yield Variant(ins, False, selector | _scale_ids(ins, rng))


def for_probes(ins: Instruction, rng: np.random.Generator) -> Iterator[Variant]:
    """Variants that leave signs as they are, with one selector: both sources of A."""
    seen = set()
    for variant in variants(ins, rng):
        if variant.a_shared not in seen:
            seen.add(variant.a_shared)
            signs = {name: 1 for name in variant.options if name.startswith("imm_scale")}
            yield replace(variant, options=variant.options | signs)


def _immediates(ins: Instruction, a_shared: bool, rng: np.random.Generator) -> dict[str, int]:
    out = {}
    if ins.fragment("a").fmt.is_float:
        out = {f"imm_scale_{x}": int(rng.choice((1, -1))) for x in "ab"}
    if ins.a_place.width == 16:
        transposable = "ab" if a_shared else "b"
        out |= {f"imm_trans_{x}": int(rng.integers(2)) for x in transposable}
    return out


def _scale_ids(ins: Instruction, rng: np.random.Generator) -> dict[str, int]:
    out = {}
    for x in "ab" if ins.is_block_scaled else "":
        byte_ids, thread_ids = ins.legal_ids(f"scale_{x}")
        out[f"byte_id_{x}"] = int(rng.choice(byte_ids))
        out[f"thread_id_{x}"] = int(rng.choice(thread_ids))
    return out


def inputs(variant: Variant) -> tuple[str, ...]:
    """Names of the arrays that the kernel reads; its parameters are the result and these."""
    ins = variant.ins
    if ins.is_wgmma:
        names = ["image", "descriptor_b", "scale_d", "c"]
        names.append("descriptor_a" if variant.a_shared else "a")
    else:
        names = ["a", "b", "c"]
    names += ["e"] if ins.is_sparse else []
    names += ["scale_a", "scale_b"] if ins.is_block_scaled else []
    return tuple(names)


def module(variant: Variant, target: str, version: str) -> str:
    """The PTX text of a module with the kernel of `variant`."""
    ins = variant.ins
    names = ("d", *inputs(variant))
    body = [
        "mov.u32 lane, %tid.x;",
        "mov.u32 case, %ctaid.x;",
        f"mad.lo.u32 thread, case, {ins.lanes}, lane;",
    ]
    for name in names:
        body.append(f"ld.param.u64 at_{name}, [p_{name}];")
    body += _wgmma_body(variant) if ins.is_wgmma else _warp_body(variant)
    body += [*_each_register(ins, "d", "d", "st.global.{type} [at_d+{byte}], {register};"), "ret;"]
    parameters = ", ".join(f".param .u64 p_{name}" for name in names)
    lines = "\n  ".join(body)
    return f"""\
.version {version}
.target {target}
.address_size 64
.visible .entry {ENTRY}({parameters})
.maxntid {ins.lanes}, 1, 1
{{
  .reg .pred keep, more;
  .reg .b32 lane, case, thread, base, at, end, v<4>;
  .reg .b64 offset, start, {", ".join(f"at_{name}" for name in names)};
  {_declarations(variant)}
  {lines}
}}
"""


def _declarations(variant: Variant) -> str:
    ins = variant.ins
    out = []
    for name, fragment in ins.fragments.items():
        out.append(f".reg .b{fragment.word_bits} {name}<{fragment.registers}>;")
    if ins.is_wgmma:
        out.append(".reg .b64 descriptor_a, descriptor_b;")
        out.append(f".shared .align 1024 .b8 image[{IMAGE_BYTES}];")
    return "\n  ".join(out)


def _each_register(ins: Instruction, operand: str, array: str, statement: str) -> Iterator[str]:
    """`statement` for every register of `operand`, after moving its pointer to this lane."""
    fragment = ins.fragment(operand)
    size = fragment.word_bits // 8
    yield f"mul.wide.u32 offset, thread, {fragment.registers * size};"
    yield f"add.u64 at_{array}, at_{array}, offset;"
    for i in range(fragment.registers):
        yield statement.format(
            type=f"b{fragment.word_bits}", byte=i * size, register=f"{operand}{i}", array=array
        )


def _load(ins: Instruction, operand: str, array: str = "") -> Iterator[str]:
    yield from _each_register(
        ins, operand, array or operand, "ld.global.{type} {register}, [at_{array}+{byte}];"
    )


def _load_word_of_case(name: str, register: str, size: int) -> list[str]:
    return [
        f"mul.wide.u32 offset, case, {size};",
        f"add.u64 at_{name}, at_{name}, offset;",
        f"ld.global.b{8 * size} {register}, [at_{name}];",
    ]


def _vector(ins: Instruction, operand: str) -> str:
    return "{" + ", ".join(f"{operand}{i}" for i in range(ins.fragment(operand).registers)) + "}"


def _warp_body(variant: Variant) -> list[str]:
    ins, options = variant.ins, variant.options
    out = [line for name in inputs(variant) for line in _load(ins, name)]
    operands = [_vector(ins, name) for name in "dabc"]
    if ins.is_sparse:
        operands += ["e0", str(options["selector"])]
    for x in "ab" if ins.is_block_scaled else "":
        ids = f"{{{options[f'byte_id_{x}']}, {options[f'thread_id_{x}']}}}"
        operands += [f"scale_{x}0", ids]
    return [*out, f"{ins} {', '.join(operands)};"]


def _wgmma_body(variant: Variant) -> list[str]:
    ins, options = variant.ins, variant.options
    out = [*_fill_image(ins), *_load(ins, "d", "c")]
    out += _load_word_of_case("scale_d", "v0", 4)
    out += ["setp.ne.u32 keep, v0, 0;"]
    for x in "ab" if variant.a_shared else "b":
        # The descriptor counts from the start of the image: add where that lies, in 16 bytes.
        out += _load_word_of_case(f"descriptor_{x}", f"descriptor_{x}", 8)
        out += [f"add.u64 descriptor_{x}, descriptor_{x}, start;"]
    operands = [_vector(ins, "d"), "descriptor_a" if variant.a_shared else _vector(ins, "a")]
    operands.append("descriptor_b")
    out += [] if variant.a_shared else list(_load(ins, "a"))
    if ins.is_sparse:
        out += _load(ins, "e")
        operands += ["e0", str(options["selector"])]
    operands.append("keep")
    for name in ("imm_scale_a", "imm_scale_b", "imm_trans_a", "imm_trans_b"):
        operands += [str(options[name])] if name in options else []
    return [
        *out,
        "wgmma.fence.sync.aligned;",
        f"{ins} {', '.join(operands)};",
        "wgmma.commit_group.sync.aligned;",
        "wgmma.wait_group.sync.aligned 0;",
    ]


def _fill_image(ins: Instruction) -> list[str]:
    """Copies the image of this case to shared memory, 16 bytes a lane and step."""
    return [
        f"mul.wide.u32 offset, case, {IMAGE_BYTES};",
        "add.u64 at_image, at_image, offset;",
        "mul.wide.u32 offset, lane, 16;",
        "add.u64 at_image, at_image, offset;",
        "mov.u32 base, image;",
        "shl.b32 at, lane, 4;",
        "add.u32 at, at, base;",
        f"add.u32 end, base, {IMAGE_BYTES};",
        "fill:",
        "ld.global.v4.b32 {v0, v1, v2, v3}, [at_image];",
        "st.shared.v4.b32 [at], {v0, v1, v2, v3};",
        f"add.u64 at_image, at_image, {16 * ins.lanes};",
        f"add.u32 at, at, {16 * ins.lanes};",
        "setp.lt.u32 more, at, end;",
        "@more bra fill;",
        # wgmma reads through the async proxy.
        "fence.proxy.async;",
        "bar.sync 0;",
        "shr.u32 base, base, 4;",
        "cvt.u64.u32 start, base;",
    ]
