"""Random CUDA C++ programs: mixed types, structures, arrays, calls, libraries, warps and blocks.

What C++ or PTX leaves undefined does not occur: shifts are by less than the width, indexes are
masked, divisors are no 0, floats become integers by intrinsics, and NaN has one code where bits of
floats are looked at. Statements of whole warps and blocks stand where all threads are.
"""

from random import Random

import numpy as np

BLOCKS, THREADS, WORDS, RESULTS = 2, 64, 16, 12
#: options of nvcc, and what a launch takes for `contract`
FLAGS = {
    "O3": ([], "ptxas"),
    "O0": (["-Xptxas", "-O0"], "O0"),
    "G": (["-G"], "O0"),
    "fmad": (["-fmad=false"], "none"),
    "fast": (["-use_fast_math"], "ptxas"),
    "O1": (["-Xptxas", "-O1", "-ftz=true", "-prec-div=false"], "ptxas"),
}
SIGNED = {"signed char": 8, "short": 16, "int": 32, "long long": 64}
UNSIGNED = {"unsigned char": 8, "unsigned short": 16, "unsigned": 32, "unsigned long long": 64}
INTEGERS = SIGNED | UNSIGNED
FLOATS = ("float", "double")
HALVES = ("__half", "__nv_bfloat16", "__half2", "__nv_bfloat162")
#: a value of each type, made of the inputs of a thread
FIRST = {
    "int": "(int)w[3]", "unsigned": "w[0]", "float": "p", "double": "x", "long long":
    "(long long)((Word)w[1] << 29 ^ w[2])", "unsigned long long": "(Word)w[2] * w[1]",
    "short": "(short)w[0]", "unsigned short": "(unsigned short)w[3]",
    "signed char": "(signed char)w[1]", "unsigned char": "(unsigned char)w[2]",
    "bool": "(w[0] & 2) != 0", "__half": "__float2half_rn(p)",
    "__nv_bfloat16": "__float2bfloat16_rn(q)", "__half2": "__floats2half2_rn(q, p)",
    "__nv_bfloat162": "__floats2bfloat162_rn(p, q)",
}  # fmt: skip
#: how often a type is chosen
WEIGHTS = {
    "int": 5, "unsigned": 5, "float": 6, "double": 3, "long long": 2, "unsigned long long": 2,
    "short": 1, "unsigned short": 1, "signed char": 1, "unsigned char": 1, "bool": 1,
    "__half": 1.5, "__nv_bfloat16": 1.5, "__half2": 1.5, "__nv_bfloat162": 1.5,
}  # fmt: skip
HEAD = """#include <cuda_fp16.h>
#include <cuda_bf16.h>
typedef unsigned long long Word;
__device__ Word bits(float x) { return x != x ? 0x7fc00000u : __float_as_uint(x); }
__device__ Word bits(double x) { return x != x ? 0x7ff8ull << 48 : (Word)__double_as_longlong(x); }
__device__ Word bits(__half x) { return __hisnan(x) ? 0x7fff : __half_as_ushort(x); }
__device__ Word bits(__nv_bfloat16 x) { return __hisnan(x) ? 0x7fff : __bfloat16_as_ushort(x); }
__device__ Word bits(__half2 x) { return bits(__low2half(x)) << 16 | bits(__high2half(x)); }
__device__ Word bits(__nv_bfloat162 x) { return bits(x.x) << 16 | bits(x.y); }
__device__ Word bits(bool x) { return x; }
"""
HEAD += "".join(f"__device__ Word bits({t} x) {{ return (Word)x; }}\n" for t in INTEGERS)

#: calls by the type of their result: ({0}, {1}, … are of the types behind the text)
CALLS = {
    "float": [
        *(f"{f}f({{0}})" for f in (
            "sin", "cos", "tan", "exp", "log", "exp2", "log2", "log10", "exp10", "expm1", "log1p",
            "sqrt", "rsqrt", "cbrt", "rcbrt", "sinh", "cosh", "tanh", "asin", "acos", "atan",
            "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "erfcx", "tgamma", "lgamma",
            "floor", "ceil", "trunc", "round", "rint", "nearbyint", "fabs", "sinpi", "cospi",
            "normcdf", "j0", "y1", "logb",
        )),
        *(f"{f}f({{0}}, {{1}})" for f in (
            "pow", "atan2", "fmod", "hypot", "fmin", "fmax", "fdim", "copysign", "remainder",
            "nextafter", "fdivide", "rhypot",
        )),
        "fmaf({0}, {1}, {2})", "norm3df({0}, {1}, {2})", "__saturatef({0})",
        *(f"__{f}f({{0}})" for f in ("sin", "cos", "tan", "exp", "log", "log2", "log10", "exp10")),
        "__powf({0}, {1})", "__fdividef({0}, {1})", "__frsqrt_rn({0})",
        *(f"__f{op}_{r}({{0}}, {{1}})" for op in ("add", "sub", "mul", "div")
          for r in ("rn", "rz", "ru", "rd")),
        *(f"__f{op}_{r}({{0}})" for op in ("sqrt", "rcp") for r in ("rn", "rz", "ru", "rd")),
        *(f"__fmaf_{r}({{0}}, {{1}}, {{2}})" for r in ("rn", "rz", "ru", "rd")),
    ],
    "double": [
        *(f"{f}({{0}})" for f in (
            "sin", "cos", "exp", "log", "exp2", "log2", "log10", "expm1", "log1p", "sqrt", "rsqrt",
            "cbrt", "sinh", "tanh", "asin", "atan", "asinh", "atanh", "erf", "erfc", "tgamma",
            "lgamma", "floor", "ceil", "trunc", "round", "rint", "fabs", "sinpi",
        )),
        *(f"{f}({{0}}, {{1}})" for f in (
            "pow", "atan2", "fmod", "hypot", "fmin", "fmax", "copysign", "remainder",
        )),
        "fma({0}, {1}, {2})",
        *(f"__d{op}_{r}({{0}}, {{1}})" for op in ("add", "mul", "div")
          for r in ("rn", "rz", "ru", "rd")),
        *(f"__d{op}_{r}({{0}})" for op in ("sqrt", "rcp") for r in ("rn", "rz", "ru", "rd")),
        *(f"__fma_{r}({{0}}, {{1}}, {{2}})" for r in ("rn", "rz", "ru", "rd")),
    ],
    "int": [
        "__mulhi({0}, {1})", "__hadd({0}, {1})", "__rhadd({0}, {1})", "__mul24({0}, {1})",
        "__dp4a({0}, {1}, {2})", "__dp2a_lo({0}, {1}, {2})", "__ffs({0})", "__clz({0})",
        "min({0}, {1})", "max({0}, {1})", "abs({0})", "__vimax3_s32({0}, {1}, {2})",
        "__viaddmax_s32({0}, {1}, {2})", "__vimin_s32_relu({0}, {1})",
    ],
    "unsigned": [
        "__umulhi({0}, {1})", "__uhadd({0}, {1})", "__umul24({0}, {1})", "__brev({0})",
        "__byte_perm({0}, {1}, {2})", "__funnelshift_l({0}, {1}, {2})",
        "__funnelshift_rc({0}, {1}, {2})", "__dp4a({0}, {1}, {2})", "min({0}, {1})",
        "max({0}, {1})", "__vadd4({0}, {1})", "__vsub2({0}, {1})", "__vabsdiffu4({0}, {1})",
        "__vcmpgts2({0}, {1})", "__vmaxu4({0}, {1})", "__vavgu4({0}, {1})", "__vsetltu4({0}, {1})",
        "__vaddss2({0}, {1})", "__vsadu4({0}, {1})", "__usad({0}, {1}, {2})",
        "(unsigned)__popc({0})", "__vimax3_u32({0}, {1}, {2})", "__vabs4({0})", "__vneg2({0})",
    ],
    "long long": [
        "__mul64hi({0}, {1})", "min({0}, {1})", "max({0}, {1})", "llabs({0})",
        "(long long)__clzll({0})", "(long long)__ffsll({0})",
    ],
    "unsigned long long": [
        "__umul64hi({0}, {1})", "__brevll({0})", "(Word)__popcll({0})", "min({0}, {1})",
        "max({0}, {1})",
    ],
    "bool": [],
}  # fmt: skip
_HALF = [
    *(f"__h{f}({{0}}, {{1}})" for f in (
        "add", "sub", "mul", "div", "add_sat", "mul_sat", "min", "max", "min_nan", "add_rn",
        "mul_rn",
    )),
    "__hfma({0}, {1}, {2})", "__hfma_relu({0}, {1}, {2})", "__hneg({0})", "__habs({0})",
    *(f"h{f}({{0}})" for f in (
        "sqrt", "exp", "exp2", "log", "log2", "sin", "cos", "rcp", "rsqrt", "floor", "rint",
        "tanh",
    )),
]  # fmt: skip
_HALF2 = [
    *(f"__h{f}({{0}}, {{1}})" for f in (
        "add2", "sub2", "mul2", "min2", "max2", "add2_rn", "mul2_rn", "max2_nan", "eq2", "lt2",
    )),
    "__hfma2({0}, {1}, {2})", "__hfma2_relu({0}, {1}, {2})", "__hneg2({0})", "__habs2({0})",
    *(f"h2{f}({{0}})" for f in ("sqrt", "exp2", "log2", "rcp", "trunc", "tanh")),
]  # fmt: skip
CALLS |= {t: _HALF2 if t.endswith("2") else _HALF for t in HALVES}
_ROUNDINGS = ("rn", "rz", "ru", "rd")


class CudaProgram:
    """The text of a program with a kernel ``go(const unsigned *a, Word *b)``."""

    def __init__(self, seed: int, statements: int = 45):
        self.rng, self.fresh, self.functions, self.left = Random(seed), 0, [], statements
        self.scope: dict[str, list[str]] = {}
        self.fields = self._structure()
        parts = [HEAD, self._structure_text()]
        for _ in range(self.rng.randint(1, 3)):
            parts.append(self._function())
        if self.rng.random() < 0.6:
            parts.append(self._recursion())
        parts.append(self._kernel())
        self.text = "\n".join(parts)

    # --- names and types ---

    def _pick(self, items):
        return items[self.rng.randrange(len(items))]

    def _type(self):
        return self.rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]

    def _new(self, stem="v"):
        self.fresh += 1
        return f"{stem}{self.fresh}"

    def _known(self, type_):
        return self.scope.get(type_, [])

    # --- expressions ---

    def _constant(self, type_):
        rng = self.rng
        if type_ in INTEGERS:
            number = self._pick([0, 1, 2, 3, 7, 31, 100, 127, rng.getrandbits(7)])
            return f"({type_}){number}"
        if type_ == "bool":
            return self._pick(["true", "false"])
        number = self._pick([0.0, 1.0, -1.0, 0.5, 2.0, 3.25, -7.5, round(rng.uniform(-9, 9), 4)])
        if type_ == "double":
            return f"{number}"
        if type_ == "float":
            return f"{number}f"
        return self._from_float(type_, f"{number}f")

    @staticmethod
    def _from_float(type_, text):
        make = {
            "__half": "__float2half_rn({0})", "__nv_bfloat16": "__float2bfloat16_rn({0})",
            "__half2": "__float2half2_rn({0})", "__nv_bfloat162": "__float2bfloat162_rn({0})",
        }  # fmt: skip
        return make[type_].format(text)

    def _leaf(self, type_):
        names = self._known(type_)
        return self._pick(names) if names and self.rng.random() < 0.85 else self._constant(type_)

    def expression(self, type_, depth=2):
        if depth <= 0:
            return self._leaf(type_)
        kind = self.rng.random()
        if kind < 0.15:
            return self._leaf(type_)
        if kind < 0.30 and CALLS.get(type_):
            text = self._pick(CALLS[type_])
            return text.format(*(self.expression(type_, depth - 1) for _ in range(3)))
        if kind < 0.45:
            return self._converted(type_, depth - 1)
        if kind < 0.53:
            chosen = self.expression(type_, depth - 1), self.expression(type_, depth - 1)
            return f"({self.condition(depth - 1)} ? {chosen[0]} : {chosen[1]})"
        if kind < 0.62:
            own = [call for result, call in self.functions if result == type_]
            if own:
                return self._pick(own)(depth - 1)
        return self._operation(type_, depth - 1)

    def _operation(self, type_, depth):
        a, b = self.expression(type_, depth), self.expression(type_, depth)
        if type_ == "bool":
            return self.condition(depth)
        if type_ not in INTEGERS:
            operators = "+-*" if type_ in HALVES else "++--***/"
            return f"({a} {self._pick(operators)} {b})"
        width = INTEGERS[type_]
        wide = "Word" if width == 64 else "unsigned"
        kind = self._pick(["+", "-", "*", "&", "|", "^", "<<", ">>", "/", "%", "~"])
        if kind == "~":
            return f"({type_})(~{a})"
        if kind in ("/", "%"):
            return f"({type_})({a} {kind} ({type_})(({b} & 63) + {self._pick([1, 3, 7])}))"
        if kind == ">>":
            return f"({type_})({a} >> ((int){b} & {width - 1}))"
        if kind == "<<":
            return f"({type_})(({wide}){a} << ((int){b} & {width - 1}))"
        return f"({type_})(({wide}){a} {kind} ({wide}){b})"

    def _converted(self, type_, depth):
        given = self._pick([t for t in WEIGHTS if t != type_])
        text, r = self.expression(given, depth), self._pick(_ROUNDINGS)
        if type_ == "bool":
            return f"(bits({text}) & 1) != 0"
        if given in HALVES:
            # by way of float
            text = f"__low2float({text})" if given.endswith("2") else f"float({text})"
            given = "float"
        if type_ in HALVES:
            if given == "double" and type_ == "__half":
                return f"__double2half({text})"
            if given in ("int", "unsigned", "short") and not type_.endswith("2"):
                short = {"int": "int", "unsigned": "uint", "short": "short"}[given]
                name = "half" if type_ == "__half" else "bfloat16"
                return f"__{short}2{name}_{r}({text})"
            return self._from_float(type_, f"(float)({text})")
        if type_ == "float" and given == "double":
            return f"__double2float_{r}({text})"
        if type_ in FLOATS:
            return f"({type_})({text})"
        if given in FLOATS:
            into = self._pick(["int", "uint", "ll", "ull"])
            return f"({type_})__{given}2{into}_{r}({text})"
        return f"({type_})({text})"

    def condition(self, depth=1):
        type_ = self._pick([t for t in WEIGHTS if not t.endswith("2") and t != "bool"])
        a, b = self.expression(type_, depth), self.expression(type_, depth)
        if self._known("bool") and self.rng.random() < 0.2:
            return self._leaf("bool")
        text = f"({a} {self._pick(['<', '>', '<=', '==', '!='])} {b})"
        if self.rng.random() < 0.2:
            text = f"({text} {self._pick(['&&', '||'])} {self._leaf('bool')})"
        return text

    # --- statements ---

    def _block(self, depth, count):
        """Statements with names of their own."""
        held = {type_: list(names) for type_, names in self.scope.items()}
        lines = [line for _ in range(count) for line in self._statement(depth)]
        self.scope = held
        return ["{", *lines, "}"]

    def _statement(self, depth):
        self.left -= 1
        kinds = ["declare"] * 5 + ["assign"] * 5 + ["array"] * 2 + ["field"] * 2
        if depth < 3:
            kinds += ["branch"] * 2 + ["loop"] * 2 + ["switch"]
        return getattr(self, f"_{self._pick(kinds)}")(depth)

    def _declare(self, depth):
        type_ = self._type()
        text, name = self.expression(type_), self._new()
        self.scope.setdefault(type_, []).append(name)
        return [f"{type_} {name} = {text};"]

    def _assign(self, depth):
        types = [t for t, names in self.scope.items() if any(n[0] == "v" for n in names)]
        if not types:
            return self._declare(depth)
        type_ = self._pick(types)
        name = self._pick([n for n in self.scope[type_] if n[0] == "v"])
        return [f"{name} = {self.expression(type_, 3)};"]

    def _array(self, depth):
        type_ = self._pick(["int", "float", "unsigned char", "double", "__half"])
        name, size, i = self._new("a"), self._pick([4, 8]), self._new("i")
        index = [f"{self.expression('unsigned', 1)} & {size - 1}" for _ in range(2)]
        element = f"{name}[{index[0]}]"
        fill = self.expression(type_, 1)
        convert = f"({type_})({i})" if type_ != "__half" else f"__int2half_rn({i})"
        target = self._new()
        lines = [
            f"{type_} {name}[{size}];",
            f"for (int {i} = 0; {i} < {size}; {i}++) {name}[{i}] = ({i} & 1) ? {convert} : {fill};",
            f"{element} = {self.expression(type_, 2)};",
            f"{type_} {target} = {name}[{index[1]}];",
        ]
        self.scope.setdefault(type_, []).append(target)
        return lines

    def _field(self, depth):
        field = self._pick(list(self.fields))
        return [f"s.{field} = {self.expression(self.fields[field], 2)};"]

    def _branch(self, depth):
        lines = [f"if ({self.condition(2)})", *self._block(depth + 1, self.rng.randint(1, 3))]
        if self.rng.random() < 0.5:
            lines += ["else", *self._block(depth + 1, self.rng.randint(1, 2))]
        return lines

    def _loop(self, depth):
        i, most = self._new("i"), self._pick([2, 3, 5])
        bound = f"{most}"
        if self.rng.random() < 0.6:
            bound = f"(int)({self.expression('unsigned', 1)} & {most})"
        unroll = self._pick(["", "", "#pragma unroll 1", "#pragma unroll"])
        block = self._block(depth + 1, self.rng.randint(1, 3))
        leave = self._pick(["", "", f"if ({self.condition(1)}) break;",
                            f"if ({self.condition(1)}) continue;"])  # fmt: skip
        return [unroll, f"for (int {i} = 0; {i} < {bound}; {i}++) {{", *block[1:-1], leave, "}"]

    def _switch(self, depth):
        count = self._pick([3, 4, 7])
        lines = [f"switch ({self.expression('unsigned', 1)} % {count + 1}) {{"]
        for case in range(count):
            lines += [f"case {case}:", *self._block(depth + 1, 1)]
            lines.append(self._pick(["break;", "break;", ""]))
        return [*lines, "default:", *self._block(depth + 1, 1), "}"]

    # --- structures and functions ---

    def _structure(self):
        count = self.rng.randint(3, 6)
        return {f"m{i}": self._type() for i in range(count)}

    def _structure_text(self):
        return "struct S { " + " ".join(f"{t} {f};" for f, t in self.fields.items()) + " };"

    def _enter(self, scope):
        held = self.scope
        self.scope = scope
        for field, type_ in self.fields.items():
            self.scope.setdefault(type_, []).append(f"s.{field}")
        return held

    def _function(self):
        """A function that takes two numbers and a structure, by value or by reference."""
        name, result = self._new("f"), self._type()
        types = [self._type() for _ in range(2)]
        by = self._pick(["S s", "S &s", "const S &s_"])
        held, own = self._enter({}), "S s = s_;" if by.startswith("const") else ""
        for i, type_ in enumerate(types):
            self.scope.setdefault(type_, []).append(f"x{i}")
        body = self._block(2, self.rng.randint(1, 3))[1:-1]
        value = self.expression(result, 2)
        self.scope = held
        place = self._pick(["__noinline__", "__noinline__", "__forceinline__", "inline"])
        arguments = ", ".join(f"{t} x{i}" for i, t in enumerate(types))
        self.functions.append((result, lambda depth: self._call(name, types, depth)))
        head = f"__device__ {place} {result} {name}({by}, {arguments})"
        return "\n".join([head, "{", own, *body, f"return {value};", "}"])

    def _call(self, name, types, depth):
        arguments = ", ".join(self.expression(t, min(depth, 1)) for t in types)
        return f"{name}(s, {arguments})"

    def _recursion(self):
        """A function that calls itself up to seven times."""
        name, result = self._new("f"), self._type()
        held = self._enter({result: ["x"]})
        first, deeper, last = (self.expression(result, 2) for _ in range(3))
        self.scope[result] = ["y"]
        odd, self.scope = self.expression(result, 2), held
        self.functions.append((result, lambda depth: self._deep(name, result, depth)))
        return (
            f"__device__ __noinline__ {result} {name}(S s, unsigned n, {result} x)\n{{\n"
            f"if (n == 0) return {first};\n{result} y = {name}(s, n - 1, {deeper});\n"
            f"return (n & 1) ? {odd} : {last};\n}}"
        )

    def _deep(self, name, type_, depth):
        n = f"{self._leaf('unsigned')} & 7"
        return f"{name}(s, {n}, {self.expression(type_, min(depth, 1))})"

    # --- the kernel ---

    def _together(self):
        """What all threads of a warp or of a block do, and the variables that it declares."""
        type_ = self._pick(["int", "unsigned", "float", "double", "long long"])
        target, word = self._new(), self._new()
        value, u = self._leaf(type_), self._leaf("unsigned")
        lane = self._pick([f"{u} & 31", "lane ^ 5", "3"])
        shared = {"double": "Word", "long long": "Word"}.get(type_, "unsigned")
        kind = self._pick(["shuffle", "vote", "shared", "reduce", "atomic"])
        words, both = [("unsigned", word)], [("unsigned", word), (type_, target)]
        if kind == "shuffle":
            form = self._pick(
                [
                    f"_sync(~0u, {value}, {lane})",
                    f"_xor_sync(~0u, {value}, 9)",
                    f"_up_sync(~0u, {value}, 3, 16)",
                    f"_down_sync(~0u, {value}, 2)",
                ]
            )
            return [f"{type_} {target} = __shfl{form};", f"unsigned {word} = lane + 1;"], both
        if kind == "vote":
            vote = self._pick(
                [
                    f"__ballot_sync(~0u, {self.condition()})",
                    f"(unsigned)__any_sync(~0u, {self.condition()})",
                    f"(unsigned)__all_sync(~0u, {self.condition()})",
                    f"__match_any_sync(~0u, {u} & 3)",
                    f"(unsigned)__syncthreads_count({self.condition()})",
                ]
            )
            return [f"unsigned {word} = {vote};"], words
        if kind == "reduce":
            name = self._pick(["add", "min", "max", "and", "or", "xor"])
            return [f"unsigned {word} = __reduce_{name}_sync(~0u, {u});"], words
        if kind == "atomic":
            form = self._pick(
                [
                    f"atomicAdd(&sums[{u} & 7], {u});",
                    f"atomicMax(&sums[0], {u});",
                    f"atomicXor(&sums[lane & 3], {u});",
                ]
            )
            return ["__syncthreads();", "if (thread < 8) sums[thread] = thread;",
                    "__syncthreads();", form, "__syncthreads();",
                    f"unsigned {word} = sums[thread & 7];"], words  # fmt: skip
        array = {"Word": "room8", "unsigned": "room4"}[shared]
        cast = f"*({type_} *)&{array}"
        return ["__syncthreads();", f"{cast}[thread] = {value};", "__syncthreads();",
                f"{type_} {target} = {cast}[({lane}) ^ 32];",
                f"unsigned {word} = thread * 3 + blockIdx.x;"], both  # fmt: skip

    def _kernel(self):
        self._enter({"unsigned": ["w[1]", "w[2]", "thread"], "int": ["lane"]})
        self.scope["float"] = [*self._known("float"), "q"]
        self.scope["double"] = [*self._known("double"), "y"]
        # Functions read all fields, so that none is called before each has a value.
        functions, self.functions, lines = self.functions, [], []
        for i, (type_, value) in enumerate(FIRST.items()):
            lines.append(f"{type_} g{i} = {value};")
            self.scope.setdefault(type_, []).append(f"g{i}")
        for type_ in self.fields.values():
            self.scope[type_] = [n for n in self.scope[type_] if not n.startswith("s.")]
        for field, type_ in self.fields.items():
            lines.append(f"s.{field} = {self.expression(type_, 2)};")
            self.scope[type_].append(f"s.{field}")
        self.functions = functions
        while self.left > 0:
            lines += self._statement(0)
            if self.rng.random() < 0.25:
                # Lanes come back from a function that calls itself at different times. ptxas takes
                # their warp for whole and drops even this.
                together, made = self._together()
                lines += ["__syncwarp();", *together]
                for type_, name in made:
                    self.scope.setdefault(type_, []).append(name)
        names = [name for names in self.scope.values() for name in names if name[0] in "vs"]
        self.rng.shuffle(names)
        stores = [f"b[{i}] = bits({name});" for i, name in enumerate(names[: RESULTS - 1])]
        stores += ["Word all = 0;", *(f"all = all * 31 + bits({name});" for name in names)]
        stores.append(f"b[{RESULTS - 1}] = all;")
        return "\n".join([
            'extern "C" __global__ void go(const unsigned *a, Word *b)', "{",
            "__shared__ unsigned room4[64], sums[8]; __shared__ Word room8[64];",
            "unsigned thread = threadIdx.x; int lane = thread & 31;",
            f"a += (blockIdx.x * {THREADS} + thread) * {WORDS};",
            f"b += (blockIdx.x * {THREADS} + thread) * {RESULTS};",
            "unsigned w[4] = {a[0], a[1], a[2], a[3]};",
            "float p = __uint_as_float(a[4]), q = __uint_as_float(a[5]);",
            "double x = __hiloint2double(a[6], a[7]), y = __hiloint2double(a[8], a[9]); S s;",
            "sums[thread & 7] = 0; room4[thread] = room8[thread] = 0;",
            *lines, *stores, "}",
        ])  # fmt: skip


def inputs(seed: int = 0):
    """The words that the threads of a program take: whole numbers, small and large, and floats."""
    rng, count = np.random.default_rng(seed), BLOCKS * THREADS
    words = rng.integers(0, 1 << 32, (count, WORDS), np.uint64).astype(np.uint32)
    words[::3, 0] &= 15
    words[1::4, 1:3] &= 255
    words[:, 4:6] = (rng.standard_normal((count, 2)) * [1, 30]).astype("f4").view("u4")
    doubles = (rng.standard_normal((count, 2)) * [1, 300]).view("u4").reshape(count, 2, 2)
    words[:, 6:10] = doubles[:, :, ::-1].reshape(count, 4)
    special = np.array([0, 1 << 31, 0x7F800000, 0xFF800000, 1, 0x807FFFFF, 0x7F7FFFFF], "u4")
    words[5::9, 4] = rng.choice(special, len(words[5::9]))
    return words
