"""Every tcgen05 opcode of the table is executed in a kernel: none is legal and fails."""

import numpy as np
import pytest

from emulator import InstructionDescriptor, Module
from emulator.isa.tcgen05 import expand

#: targets that together have everything, each opcode on the first of them that has it
TARGETS = ("sm_100a", "sm_103a", "sm_107a")
KERNEL = """.version 9.4
.target {target}
.address_size 64
.visible .entry k(.param .u64 po) {cluster}
{{
 .reg .pred %p, %q; .reg .b32 %r<20>; .reg .b32 %m<8>; .reg .b32 %w<128>; .reg .b64 %o, %rd<4>;
 .reg .f32 %f; .reg .b16 %h;
 .shared .align 1024 .b8 sm[32768]; .shared .align 8 .b64 bar; .shared .b32 slot;
 ld.param.u64 %o, [po]; mov.u32 %r0, %tid.x; mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, 0;
 mad.lo.u32 %r3, %r1, 128, %r0; mad.wide.u32 %o, %r3, {stride}, %o;
 setp.lt.u32 %p, %r0, 32; mov.u32 %r8, bar; mov.b16 %h, 1; mov.b32 %r9, 1; mov.u32 %r10, slot;
 mov.u64 %rd1, slot; cvta.shared.u64 %rd1, %rd1; mov.u64 %rd2, bar; cvta.shared.u64 %rd2, %rd2;
 or.b32 %r4, %r0, %r1; setp.eq.u32 %q, %r4, 0;
 @%q mbarrier.init.shared::cta.b64 [%r8], 1;
{body}
 ret;
}}
"""
ALLOCATED = """ @%p tcgen05.alloc.cta_group::{group}.sync.aligned.shared::cta.b32 [slot], 512;
 bar.sync 0; ld.shared.b32 %r5, [slot];
 shr.u32 %r6, %r0, 5; shl.b32 %r6, %r6, 21; add.u32 %r6, %r5, %r6; add.u32 %r7, %r5, 128;
 mov.u32 %r4, sm; shr.u32 %r4, %r4, 4; cvt.u64.u32 %rd0, %r4; add.u64 %rd0, %rd0, {descriptor};
 tcgen05.st.sync.aligned.32x32b.x128.b32 [%r6+128], {zeros};
{body}
 bar.sync 0;
 @%p tcgen05.dealloc.cta_group::{group}.sync.aligned.b32 %r5, 512;
"""
#: without swizzle: units of 16 bytes that follow each other, 128 bytes from 8 rows to the next
DESCRIPTOR = hex(1 << 46 | 8 << 32 | 1 << 16)
ZEROS = "{" + ", ".join(["%r2"] * 128) + "}"


def opcodes():
    """(target, CTAs) -> opcodes; those with collectors, which change no values, of kind f16."""
    out = {}
    for ins in expand():
        target = next(x for x in TARGETS if x in ins.targets)
        if "kind::f16" in ins.words or not any(x.startswith("collector") for x in ins.words):
            out.setdefault((target, ins.cta_group), []).append(ins)
    return out


OPCODES = opcodes()


def operand(x, idesc):
    """The text of an operand; optional ones are left out."""
    if x.optional:
        return ""
    if x.kind == "vector":
        prefix = "%m" if x.name == "mdata" else "%w"
        return "{" + ", ".join(f"{prefix}{i}" for i in range(x.count)) + "}"
    if x.kind == "address":
        generic = {"dst": "[%rd1]", "mbarrier": "[%rd2]"} if not x.space else {}
        places = {"dst": "[%r10]", "mbarrier": "[%r8]", "d": "[%r5]", "taddr": "[%r6]"} | generic
        return places.get(x.name, "[%r7]")
    names = {
        "idesc": str(idesc), "enable": "0", "split_off": "16", "redval": "%f", "a": "%rd0",
        "b": "%rd0", "s_desc": "%rd0", "columns": "32", "taddr": "%r5",
        "mask": "%h" if "u16" in x.types else "%r9",
    }  # fmt: skip
    return "%r11" if x.name == "redval" and "f32" not in x.types else names[x.name]


def descriptor(ins, target):
    """The word of an instruction descriptor that fits a tcgen05.mma: M is 128 for each CTA."""
    kind = ins.modifiers["kind"].removeprefix("kind::")
    type_ = {"f8f6f4": "e4m3", "mxf8f6f4": "e4m3", "i8": "s8"}.get(kind, "")
    more = {"k": 64} if "decompress::lut::b" in ins.words else {}
    if kind == "mxf4nvf4" and ins.modifiers["scale_vec"] in ("scale_vec::2X", "block32"):
        more["scale"] = "ue8m0"
    sparse = "sp" in ins.words
    if sparse and kind.startswith("mxf4") and target == "sm_107a":
        more["sparsity_version"] = 1
    one = InstructionDescriptor(
        kind, type_, type_, m=128 * ins.cta_group, n=64, sparse=sparse, **more
    )
    assert one.validate(ins.cta_group, weight_stationary="ws" in ins.words, target=target) == []
    return one.encode()


def statement(ins, target):
    idesc = descriptor(ins, target) if ins.operation == "mma" else 0
    texts = (operand(x, idesc) for x in ins.signatures(target)[0].operands)
    return f"{ins} {', '.join(filter(None, texts))};"


def run(body, target, group, results=1):
    out = np.full((group, 128, results), 7, np.uint32)
    cluster = ".explicitcluster .reqnctapercluster 2, 1, 1" if group == 2 else ""
    module = Module(KERNEL.format(target=target, cluster=cluster, body=body, stride=4 * results))
    assert module.problems == []
    module["k"].launch(grid=(group,), block=(128,), args=[out])
    return out


def inside(statements, group):
    """Statements on tensor memory that is allocated and zero from column 128 on."""
    return ALLOCATED.format(group=group, body=statements, descriptor=DESCRIPTOR, zeros=ZEROS)


@pytest.mark.slow
@pytest.mark.parametrize(("target", "group"), OPCODES)
def test_every_product_writes_d(target, group):
    """A, B and scales are zero, and so is every D afterwards, which held ones."""
    products = [ins for ins in OPCODES[target, group] if ins.operation == "mma"]
    meet = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" if group == 2 else ""
    for start in range(0, len(products), 32):
        some = products[start : start + 32]
        body = "".join(
            f" tcgen05.st.sync.aligned.32x32b.x64.b32 [%r6], {{{', '.join(['%r9'] * 64)}}};\n"
            f" tcgen05.wait::st.sync.aligned; bar.sync 0; {meet}\n"
            f" @%q {statement(ins, target)}\n bar.sync 0; {meet}\n"
            " tcgen05.ld.sync.aligned.32x32b.x2.b32 {%w0, %w1}, [%r6+62];\n"
            f" or.b32 %w0, %w0, %w1; st.global.b32 [%o+{4 * i}], %w0;\n"
            for i, ins in enumerate(some)
        )
        wrong = np.argwhere(run(inside(body, group), target, group, len(some)))
        assert not len(wrong), str(some[wrong[0][2]])


@pytest.mark.slow
@pytest.mark.parametrize(("target", "group"), OPCODES)
def test_every_move_and_commit_runs(target, group):
    inner = ("ld", "st", "cp", "shift", "commit")
    some = [ins for ins in OPCODES[target, group] if ins.operation in inner]
    lines = [f" {'@%q ' * (ins.operation in inner[2:])}{statement(ins, target)}\n" for ins in some]
    wait = " tcgen05.wait::ld.sync.aligned;\n tcgen05.wait::st.sync.aligned;\n"
    run(inside("".join(lines) + wait, group), target, group)


@pytest.mark.parametrize("group", [1, 2])
def test_every_allocation_runs(group):
    some = [x for key, each in OPCODES.items() if key[1] == group for x in each]
    allocations = [x for x in some if x.operation == "alloc"]
    frees = {bool(x.modifiers.get("exclusive")): x for x in some if x.operation == "dealloc"}
    assert len(allocations) == 4 and len(frees) == 2
    body = "".join(
        f" @%p {statement(ins, 'sm_100a')}\n bar.sync 0; ld.shared.b32 %r5, [slot]; bar.sync 0;\n"
        f" @%p {statement(frees[bool(ins.modifiers.get('exclusive'))], 'sm_100a')}\n bar.sync 0;\n"
        for ins in allocations
    )
    (last,) = [x for x in some if x.operation == "relinquish_alloc_permit"]
    run(f"{body} @%p {last};\n", "sm_100a", group)


def test_no_operation_is_left_out():
    done = {"mma", "ld", "st", "cp", "shift", "commit", "alloc", "dealloc"}
    left = {ins.operation for each in OPCODES.values() for ins in each} - done
    waits = {f"{what}_thread_sync" for what in ("fence::before", "fence::after")}
    assert left == {"relinquish_alloc_permit", "wait::ld", "wait::st", *waits}
    run(f" tcgen05.{'; tcgen05.'.join(sorted(waits))};", "sm_100a", 1)
