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
        while self.left > 0:
            self._statement(depth=0)
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
        kinds = ["compute"] * 8 + ["compare"] * 2 + ["memory"] * 2 + ["call"]
        kinds += ["branch"] * 2 + ["loop"] if depth < 3 else []
        kinds += ["together"] * 3 if depth == 0 else []
        getattr(self, f"_{self._pick(kinds)}")(depth)

    def _compute(self, depth):
        opcode = self._pick(_ARITHMETIC)
        count = _SOURCES.get(opcode.partition(".")[0], 2)
        sources = [self._register for _ in range(count)]
        registers = ", ".join([self._register, *sources])
        self.lines.append(f"{self._guard()}{opcode} {registers};")

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
        ]))  # fmt: skip
