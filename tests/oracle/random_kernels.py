"""Kernels of random statements: arithmetic, guards, branches, loops that end, calls, memory of the
thread's own, and what warps and blocks do together wherever all threads are there."""

import numpy as np

_ARITHMETIC = (
    "add.u32", "sub.s32", "mul.lo.s32", "mul.hi.u32", "mad.lo.u32", "min.s32", "max.u32", "and.b32",
    "or.b32", "xor.b32", "shl.b32", "shr.s32", "shf.l.wrap.b32", "prmt.b32", "div.u32", "rem.s32",
    "bfind.u32", "popc.b32", "brev.b32", "sad.u32", "add.cc.u32", "addc.u32", "sub.cc.u32",
    "subc.u32", "bfe.s32", "dp4a.u32.s32", "add.f32", "mul.rz.f32", "fma.rn.f32", "div.rn.f32",
    "sqrt.approx.f32", "ex2.approx.ftz.f32", "min.NaN.f32", "neg.f32", "add.f16x2",
    "fma.rn.relu.f16x2", "mul.bf16x2", "mul.f32", "mul.f32", "sub.f32", "mul.f16x2", "div.full.f32",
)  # fmt: skip
_SOURCES = {
    "mad": 3, "fma": 3, "shf": 3, "prmt": 3, "sad": 3, "bfe": 3, "dp4a": 3,
    "bfind": 1, "popc": 1, "brev": 1, "sqrt": 1, "ex2": 1, "neg": 1,
}  # fmt: skip
#: statements on registers of 16 bits (H), 32 (R), 64 (L) and predicates (P)
_OF_ALL_WIDTHS = """
    add.rn.f64 L, L, L; sub.rn.f64 L, L, L; mul.rn.f64 L, L, L; div.rn.f64 L, L, L;
    fma.rn.f64 L, L, L, L; fma.rz.f64 L, L, L, L; add.rm.f64 L, L, L; sqrt.rn.f64 L, L;
    rcp.rp.f64 L, L; rcp.approx.ftz.f64 L, L; rsqrt.approx.f64 L, L; min.f64 L, L, L;
    neg.f64 L, L; abs.f64 L, L; copysign.f64 L, L, L; setp.lt.f64 P, L, L; setp.nan.f64 P, L, L;
    selp.b64 L, L, L, P; set.le.u32.f64 R, L, L; add.s64 L, L, L; sub.u64 L, L, L;
    mul.lo.s64 L, L, L; mul.hi.u64 L, L, L; mad.lo.s64 L, L, L, L; mad.hi.s64 L, L, L, L;
    div.u64 L, L, L; rem.s64 L, L, L; div.s64 L, L, L; shl.b64 L, L, R; shr.s64 L, L, R;
    shr.u64 L, L, R; xor.b64 L, L, L; not.b64 L, L; popc.b64 R, L; clz.b64 R, L; brev.b64 L, L;
    bfind.s64 R, L; bfe.u64 L, L, R, R; bfi.b64 L, L, L, R, R; abs.s64 L, L; min.s64 L, L, L;
    max.u64 L, L, L; setp.gt.s64 P, L, L; add.cc.u64 L, L, L; addc.cc.u64 L, L, L;
    madc.hi.u64 L, L, L, L; mul.wide.s32 L, R, R; mad.wide.u32 L, R, R, L; mul.wide.u16 R, H, H;
    mul24.lo.s32 R, R, R; mad24.hi.u32 R, R, R, R; lop3.b32 R, R, R, R, 0x6A;
    bmsk.wrap.b32 R, R, R; szext.clamp.s32 R, R, R; fns.b32 R, R, R, R; bfi.b32 R, R, R, R, R;
    add.sat.s32 R, R, R; sub.sat.s32 R, R, R; dp2a.lo.s32.u32 R, R, R, R; slct.f32.s32 R, R, R, R;
    vadd4.u32.s32.u32.add R, R, R, R; vabsdiff2.s32.s32.s32.sat R, R, R, R;
    vset4.u32.u32.lt R, R, R, R; vmad.u32.u32.u32.shr7 R, R, R, R;
    vshr.u32.u32.u32.wrap R, R, R, R; set.gtu.f32.f32 R, R, R; set.lt.and.u32.s32 R, R, R, P;
    testp.subnormal.f32 P, R; setp.le.or.f32 P, R, R, P; setp.eq.and.u16 P, H, H, P;
    and.pred P, P, P; xor.pred P, P, P; add.u16 H, H, H; mul.lo.s16 H, H, H; mul.hi.u16 H, H, H;
    div.s16 H, H, H; min.u16 H, H, H; shr.s16 H, H, R; abs.s16 H, H; add.f16 H, H, H;
    mul.f16 H, H, H; sub.bf16 H, H, H; fma.rn.sat.f16 H, H, H, H; fma.rn.bf16 H, H, H, H;
    max.NaN.f16 H, H, H; neg.bf16 H, H; ex2.approx.f16 H, H; tanh.approx.bf16 H, H;
    setp.lt.f16 P, H, H; min.xorsign.abs.f16x2 R, R, R; setp.gt.f16x2 P|P, R, R;
    set.ge.f16x2.f16x2 R, R, R; max.bf16x2 R, R, R; add.rn.ftz.f16x2 R, R, R;
    fma.rn.bf16x2 R, R, R, R; ex2.approx.ftz.bf16x2 R, R; abs.f16x2 R, R; tanh.approx.f32 R, R;
    sin.approx.f32 R, R; lg2.approx.ftz.f32 R, R; rcp.rn.f32 R, R; sqrt.rp.f32 R, R;
    rsqrt.approx.f32 R, R; add.sat.f32 R, R, R; fma.rm.ftz.f32 R, R, R, R; mad.rn.f32 R, R, R, R;
    max.xorsign.abs.f32 R, R, R; copysign.f32 R, R, R; div.approx.f32 R, R, R;
    cvt.rn.f32.f64 R, L; cvt.rz.f32.f64 R, L; cvt.rn.f16.f32 H, R; cvt.rz.ftz.f16.f32 H, R;
    cvt.rn.bf16.f32 H, R; cvt.rn.f16.f64 H, L; cvt.rzi.s32.f32 R, R; cvt.rni.u64.f32 L, R;
    cvt.rpi.s64.f64 L, L; cvt.rmi.ftz.u16.f32 H, R; cvt.rn.f64.s64 L, L; cvt.rm.f32.u64 R, L;
    cvt.rn.f16.s32 H, R; cvt.rni.f32.f32 R, R; cvt.rzi.f64.f64 L, L; cvt.rzi.s8.f32 R, R;
    cvt.rni.sat.u8.f64 R, L; cvt.rn.f32.s16 R, H; cvt.f64.f32 L, R; cvt.ftz.f64.f32 L, R;
    cvt.f32.f16 R, H; cvt.f32.bf16 R, H; cvt.sat.f32.f32 R, R; cvt.sat.s16.s32 H, R;
    cvt.u32.u8 R, R; cvt.s64.s8 L, R; cvt.sat.u8.s64 R, L; cvt.u16.u64 H, L;
    cvt.rn.f16x2.f32 R, R, R; cvt.rn.relu.bf16x2.f32 R, R, R; cvt.rn.satfinite.e4m3x2.f32 H, R, R;
    cvt.rn.satfinite.e5m2x2.f16x2 H, R; cvt.rn.f16x2.e4m3x2 R, H; cvt.rna.tf32.f32 R, R;
    cvt.pack.sat.s8.s32.b32 R, R, R, R; cvt.rz.bf16x2.f32 R, R, R; mov.b64 L, {R, R};
    mov.b64 {R, R}, L; mov.b32 R, {H, H}; mov.b32 {H, H}, R; mov.b64 {H, H, H, H}, L;
    selp.b16 H, H, H, P; setp.hi.u32 P|P, R, R; selp.f32 R, R, R, P
"""
_COMPARISONS = ("setp.lt.s32", "setp.ge.u32", "setp.ne.b32", "setp.lt.f32", "setp.neu.f32")
_HEAD = """.version 9.5
.target sm_90a
.address_size 64
.func (.param .b32 out) helper(.param .b32 n, .param .b32 m)
{ .reg .b32 %r<6>; .reg .pred %p1; .local .b32 kept[4];
  ld.param.u32 %r1, [n]; ld.param.u32 %r2, [m];
  st.local.u32 [kept+4], %r2; and.b32 %r3, %r1, 3; mov.u32 %r4, 7;
AGAIN: setp.eq.u32 %p1, %r3, 0; @%p1 bra OUT; mad.lo.u32 %r4, %r4, 31, %r1; sub.u32 %r3, %r3, 1;
  bra AGAIN;
OUT: ld.local.u32 %r2, [kept+4]; xor.b32 %r4, %r4, %r2; st.param.b32 [out], %r4; ret; }
.visible .entry go(.param .u64 a, .param .u64 b) {
  .reg .b32 %r<24>; .reg .pred %p<4>; .reg .b64 %rd<8>; .shared .align 16 .b8 room[4096];
  .reg .b64 %l<6>; .reg .b16 %h<6>;
  .local .align 16 .b8 mine[64]; .reg .b32 %i<99>;
  mov.u32 %r20, %tid.x; mov.u32 %r21, %ctaid.x; mov.u32 %r22, %ntid.x;
  mad.lo.u32 %r22, %r21, %r22, %r20; ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b];
  mad.wide.u32 %rd1, %r22, 64, %rd1; mad.wide.u32 %rd2, %r22, 64, %rd2;
  mov.u32 %r23, room; mad.lo.u32 %r23, %r20, 16, %r23;
"""


class RandomKernel:
    """The text of a kernel; it takes 16 words for each thread and writes as many."""

    def __init__(self, seed: int, statements: int = 60):
        self.rng = np.random.default_rng(seed)
        self.left, self.labels, self.loops = statements, 0, 0
        self.lines: list[str] = []
        for i in range(4):
            at = ", ".join(f"%r{4 * i + j}" for j in range(4))
            self.lines.append(f"ld.global.v4.u32 {{{at}}}, [%rd1+{16 * i}];")
        for i in range(6):
            self.lines.append(
                f"mov.b64 %l{i}, {{%r{i + 3}, %r{2 * i}}}; mov.b32 {{%h{i}, _}}, %r{i};"
            )
        while self.left > 0:
            self._statement(depth=0)
        for i in range(6):
            self.lines.append(
                f"mov.b64 {{%r20, %r21}}, %l{i}; xor.b32 %r{i}, %r{i}, %r20; "
                f"xor.b32 %r{i + 6}, %r{i + 6}, %r21; mov.b32 %r20, {{%h{i}, %h{5 - i}}}; "
                f"xor.b32 %r{i + 10}, %r{i + 10}, %r20;"
            )
        for i in range(4):
            at = ", ".join(f"%r{4 * i + j}" for j in range(4))
            self.lines.append(f"st.global.v4.u32 [%rd2+{16 * i}], {{{at}}};")
        self.text = _HEAD + "\n  ".join(self.lines) + "\n  ret;\n}\n"

    def _pick(self, items):
        return items[int(self.rng.integers(len(items)))]

    @property
    def _register(self):
        return f"%r{self.rng.integers(16)}"

    def _guard(self):
        p = f"%p{self.rng.integers(3)}"
        return self._pick(["", "", "", f"@{p} ", f"@!{p} "])

    def _statement(self, depth):
        self.left -= 1
        kinds = ["compute"] * 4 + ["any_width"] * 8 + ["compare"] * 2 + ["memory"] * 2 + ["call"]
        kinds += ["branch"] * 2 + ["loop"] if depth < 3 else []
        kinds += ["together"] * 3 if depth == 0 else []
        getattr(self, f"_{self._pick(kinds)}")(depth)

    def _compute(self, depth):
        opcode = self._pick(_ARITHMETIC)
        count = _SOURCES.get(opcode.partition(".")[0], 2)
        sources = [self._register for _ in range(count)]
        registers = ", ".join([self._register, *sources])
        self.lines.append(f"{self._guard()}{opcode} {registers};")

    def _any_width(self, depth):
        opcode, _, operands = self._pick(_OF_ALL_WIDTHS.split(";")).strip().partition(" ")
        for letter, name, count in (("R", "r", 16), ("L", "l", 6), ("H", "h", 6), ("P", "p", 3)):
            numbers = self.rng.permutation(count).tolist()
            while letter in operands:
                operands = operands.replace(letter, f"%{name}{numbers.pop()}", 1)
        self.lines.append(f"{self._guard()}{opcode} {operands};")

    def _compare(self, depth):
        both = f"%p{self.rng.integers(3)}, {self._register}, {self._register}"
        self.lines.append(f"{self._pick(_COMPARISONS)} {both};")

    def _memory(self, depth):
        i = 4 * int(self.rng.integers(4))
        space, base = self._pick([("local", "mine"), ("shared", "%r23"), ("global", "%rd2")])
        r, s, guard = self._register, self._register, self._guard()
        self.lines.append(self._pick([
            f"{guard}st.{space}.u32 [{base}+{i}], {r};",
            f"{guard}ld.{space}.s16 {r}, [{base}+{i}];",
            f"{guard}ld.{space}.v2.u32 {{{r}, _}}, [{base}+{i // 8 * 8}];",
            f"{guard}atom.{space}.add.u32 {r}, [{base}+{i}], {s};" if space != "local"
            else f"{guard}st.local.v4.u8 [mine+{i}], {{{r}, {s}, {r}, {s}}};",
        ]))  # fmt: skip

    def _call(self, depth):
        self.lines.append(
            f"{{ .param .b32 x; .param .b32 y; .param .b32 z; st.param.b32 [x], {self._register}; "
            f"st.param.b32 [y], {self._register}; call (z), helper, (x, y); "
            f"ld.param.b32 {self._register}, [z]; }}"
        )

    def _branch(self, depth):
        self.labels += 1
        other, end = f"ELSE{self.labels}", f"END{self.labels}"
        self.lines.append(f"@%p{self.rng.integers(3)} bra {other};")
        for _ in range(int(self.rng.integers(1, 4))):
            self._statement(depth + 1)
        self.lines.append(f"bra {end};" if self.rng.integers(2) else "")
        self.lines.append(f"{other}:")
        for _ in range(int(self.rng.integers(1, 4))):
            self._statement(depth + 1)
        self.lines.append(f"{end}:")

    def _loop(self, depth):
        """As many turns as the low bits of a register say."""
        self.labels += 1
        self.loops += 1
        counter, label = f"%i{self.loops}", f"LOOP{self.labels}"
        leave = f"LEFT{self.labels}"
        self.lines.append(f"and.b32 {counter}, {self._register}, 7;\n{label}:")
        for _ in range(int(self.rng.integers(1, 4))):
            self._statement(depth + 1)
        if self.rng.integers(3) == 0:
            self.lines.append(f"@%p{self.rng.integers(3)} bra {leave};")
        self.lines.append(
            f"sub.u32 {counter}, {counter}, 1; setp.gt.s32 %p3, {counter}, 0; @%p3 bra {label};"
        )
        self.lines.append(f"{leave}:")

    def _together(self, depth):
        r, s, p = self._register, self._register, f"%p{self.rng.integers(3)}"
        atomic = self._pick(["add.u32", "max.s32", "min.u32", "xor.b32", "and.b32", "or.b32"])
        self.lines.append("bar.warp.sync -1; " + self._pick([
            f"shfl.sync.{self._pick(['up', 'down', 'bfly', 'idx'])}.b32 {r}|{p}, {s}, "
            f"{self.rng.integers(32)}, {self._pick([0, 31, 0x101F, 0x1C03])}, -1;",
            f"shfl.sync.idx.b32 {r}, {s}, {self._register}, 31, -1;",
            f"vote.sync.ballot.b32 {r}, {p}, -1;",
            f"vote.sync.{self._pick(['all', 'any', 'uni'])}.pred {p}, !{p}, -1;",
            f"match.any.sync.b32 {r}, {s}, -1;", f"redux.sync.max.s32 {r}, {s}, -1;",
            f"activemask.b32 {r};", f"elect.sync {r}|{p}, -1;",
            f"bar.red.popc.u32 {r}, 0, {p};", f"bar.red.or.pred {p}, 0, !{p};",
            f"st.shared.u32 [%r23], {s}; bar.sync 0; xor.b32 {r}, %r23, 16; "
            f"ld.shared.u32 {r}, [{r}]; bar.sync 0;",
            f"bar.sync 0; st.shared.u32 [room+2048], 5; bar.sync 0; "
            f"red.shared.{atomic} [room+2048], {s}; bar.sync 0; "
            f"ld.shared.u32 {r}, [room+2048]; bar.sync 0;",
        ]))  # fmt: skip
