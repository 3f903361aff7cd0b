"""Syntax trees as text, for tests to compare."""

import re

from ptx_texts import parse_module

from emulator.ptx.source import Source


def shown(node):
    """A tree as the calls that make it, without offsets and sources.

    Named tuples of different types may be equal, so tests compare this text.
    """
    if hasattr(node, "_fields"):
        fields = zip(node._fields, node, strict=True)
        parts = [shown(value) for name, value in fields if name not in ("at", "source")]
        return f"{type(node).__name__}({', '.join(parts)})"
    if isinstance(node, tuple):
        return f"({', '.join(map(shown, node))})"
    return repr(node)


def names_short(text):
    """Text of `shown` with DeclaredName('x', None) as x and DeclaredName('x', 3) as x<3>."""
    text = re.sub(r"DeclaredName\('([^']*)', None\)", r"\1", text)
    return re.sub(r"DeclaredName\('([^']*)', (\d+)\)", r"\1<\2>", text)


def nodes(node):
    """All nodes of a tree, from the outermost in."""
    if hasattr(node, "_fields"):
        yield node
    if isinstance(node, tuple):
        for part in node:
            if not isinstance(part, Source):
                yield from nodes(part)


def of_type(tree, type_):
    return [node for node in nodes(tree) if type(node) is type_]


HEADER = ".version 8.0\n.target sm_90a\n.address_size 64\n"

#: a file with every kind of node
SAMPLE = """\
// made by hand
.version 8.5
.target sm_90a, debug
.address_size 64

.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a) ;
.visible .func twice;
.visible .func same() { ret; }
.alias twice, same;
.pragma "nounroll";
.file 1 "kernel.cu", 1700000000, 4096
.file 2 "inlined.h"
.extern .shared .align 16 .b8 dynamic[];
.global .align 4 .u32 counts[2][3] = {{1, 2, 3}, {0x4, -5, 1 << 4}};
.global .u64 pointers[3] = {counts+8, generic(counts), same};
.global .u8 bytes[2] = {0xFF(counts), 0xFF00(generic(counts)+4)};
.const .v2 .f32 point = {0f3F800000, -1.5};
.global .attribute(.managed, .unified(1, 2)) .b32 shared_with_host, other<4>;
.global .samplerref sampler = {addr_mode_0 = clamp_to_border, filter_mode = nearest};
.weak .entry kernel(
  .param .u64 .ptr .global .align 16 out, .param .align 64 .b8 map[128], .param .f32 _
) .reqntid 128, 1 .minnctapersm 2 .explicitcluster .pragma "enable_smem_spilling";
{
  .reg .b32 %r<9>, x;
  .reg .v4 .f32 %v;
  .reg .pred %p<3>;
  .reg .b64 %rd<4>;
  .shared .align 8 .b8 tile[64];
  .loc 1 10 3
  mov.u32 %r1, %tid.x;
  .loc 2 5 1, function_name $L__info+4, inlined_at 1 10 3
  setp.lt.s32 %p1|%p2, %r1, 0b101;
  @!%p1 bra $DONE;
  .pragma "used_bytes_mask 0x0f";
  ld.global.L2::cache_hint.v4.f32 {%v.x, %v.y, _, 0.5}, [%rd1+16], %rd2;
  { .reg .b32 x; mov.b32 x, tile+4; call (x), same, (x, 5), proto; }
  proto: .callprototype (.param .b32 _) _ (.param .b64 _) .noreturn;
  list: .branchtargets $DONE, L<2>;
  vmad.s32.s32.s32 %r1, -%r2.b0, %r3, %r4;
  selp.b32 %r1, counts[1], WARP_SZ, !%p1;
  cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
    [tile], [%rd3, {%r1, 0}], [16];
  .pragma "nounroll";
$DONE: ret;
}
.section .debug_str { $L__info: .b8 "}", 0 // }
 /* } */ }
"""


def module(text):
    """`text` behind the header of a file."""
    return parse_module(HEADER + text)
