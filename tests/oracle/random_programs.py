"""Random programs of sums and products for ptxas, straight or with branches and loops."""

TYPES = {
    "f32": "f32", "f64": "f64", "f16": "b16", "bf16": "b16", "f16x2": "b32", "bf16x2": "b32",
    "f32x2": "b64",
}  # fmt: skip
BYTES = {"f64": 8, "f32x2": 8, "f16": 2, "bf16": 2}
#: 1, 2, 0, -0, -1, π, 1/2, infinity, a number
CONSTANTS = {
    "f32": [0x3F800000, 0x40000000, 0, 1 << 31, 0xBF800000, 0x40490FDB, 0x3F000000, 0x7F800000],
    "f64": [0x3FF << 52, 1 << 62, 0, 1 << 63, 0xBFF << 52, 0x400921FB54442D18],
}
#: kinds of straight programs: weights of statements, and how often what is done to them
MIX = {"mul": 6, "add": 6, "sub": 3}
STRAIGHT = {
    "plain": (MIX, {}),
    "with others": (
        {**MIX, "neg": 2, "mov": 1, "max": 0.5, "fma": 1, "add.rn": 0.5, "abs": 0.4},
        {},
    ),
    "modifiers": ({**MIX, "neg": 1}, {"ftz": 0.3, "sat": 0.15}),
    "registers used again": ({**MIX, "neg": 1, "mov": 1}, {"again": 0.4}),
    "guards": ({**MIX, "mov": 1, "selp": 1}, {"again": 0.5, "guard": 0.2}),
    "clamps": ({**MIX, "neg": 1, "clamp": 4}, {"ftz": 0.2}),
    "quotients": ({**MIX, "div.full": 2, "rcp.approx": 2, "div.approx": 1}, {}),
}


class Program:
    """Statements, one on a line; values are made of those that were made last."""

    def __init__(self, rng, type_="f32"):
        self.rng, self.type = rng, type_
        self.lines, self.labels, self.fresh = [], 0, 0
        self.values = []
        size = BYTES.get(type_, 4)
        for i in range(8):
            name = self.new()
            self.lines.append(f"ld.global.b{8 * size} {name}, [at+{size * i}];")
            self.values.append(name)
        self.inputs = list(self.values)
        if type_ == "f32":
            self.lines += [
                f"setp.gt.f32 p{i}, {self.values[i]}, {self.values[i + 2]};" for i in (0, 1)
            ]

    def new(self):
        self.fresh += 1
        return f"v{self.fresh}"

    def source(self, constants=0.0):
        if self.rng.random() < constants and self.type in CONSTANTS:
            word = self.rng.choice(CONSTANTS[self.type])
            return f"0f{word:08X}" if self.type == "f32" else f"0d{word:016X}"
        recent = self.values if self.rng.random() < 0.25 else self.values[-6:]
        return self.rng.choice(recent)

    def statement(self, weights, again=0.0, guard=0.0, ftz=0.0, sat=0.0, constants=0.08):
        rng, type_ = self.rng, self.type
        kind = rng.choices(list(weights), list(weights.values()))[0]
        guarded = rng.random() < guard
        result = rng.choice(self.values) if guarded or rng.random() < again else self.new()
        a, b = self.source(), self.source(constants)
        at = f"@{rng.choice(['', '!'])}p{rng.randrange(2)} " if guarded else ""
        modifiers = ".ftz" * (rng.random() < ftz and type_ in ("f32", "f16", "f16x2"))
        modifiers += ".sat" * (rng.random() < sat and type_ == "f32")
        if kind in ("mul", "add", "sub"):
            pair = [a, b] if rng.random() < 0.7 else [b, a]
            text = f"{kind}{modifiers}.{type_} {result}, {pair[0]}, {pair[1]}"
        elif kind in ("neg", "abs", "rcp.approx"):
            text = f"{kind}.{type_} {result}, {a}"
        elif kind == "clamp":
            # one half of it; the other half may come next
            words = self.rng.choice(["min{} {}, {}, 0f3F800000", "max{} {}, {}, 0f00000000"])
            text = words.format(f"{modifiers.replace('.sat', '')}.f32", result, a)
        elif kind == "mov":
            text = f"mov.{TYPES[type_]} {result}, {a}"
        elif kind == "fma":
            text = f"fma.rn.{type_} {result}, {a}, {self.source()}, {self.source()}"
        elif kind == "selp":
            text = f"selp.{type_} {result}, {a}, {self.source()}, p{rng.randrange(2)}"
        else:
            text = f"{kind}.{type_} {result}, {a}, {self.source()}"
        self.lines.append(f"{at}{text};")
        if result not in self.values:
            self.values.append(result)

    def block(self, depth, count):
        """Statements, branches around some, and loops of unknown length."""
        rng = self.rng
        for _ in range(count):
            kind = rng.random()
            if depth < 3 and kind < 0.12:
                self.branch(depth)
            elif depth < 2 and kind < 0.17:
                self.loop(depth)
            else:
                self.statement(
                    {**MIX, "neg": 0.7, "max": 0.7}, again=0.3, guard=0.03, constants=0.2
                )

    def label(self):
        self.labels += 1
        return f"L{self.labels}"

    def branch(self, depth):
        held, other, end = list(self.values), self.label(), self.label()
        sign = self.rng.choice(["", "!"])
        self.lines.append(f"@{sign}p{self.rng.randrange(2)} bra {other};")
        self.block(depth + 1, self.rng.randint(1, 4))
        self.values = list(held)
        if self.rng.random() < 0.4:
            self.lines += [f"bra {end};", f"{other}:"]
            self.block(depth + 1, self.rng.randint(1, 4))
            self.values = list(held)
            self.lines.append(f"{end}:")
        else:
            self.lines.append(f"{other}:")

    def loop(self, depth):
        start, again = self.label(), self.new()
        held = list(self.values)
        self.lines.append(f"{start}:")
        self.block(depth + 1, self.rng.randint(2, 6))
        self.lines += [
            f"ld.volatile.global.f32 {again}, [at+{2000 + 4 * self.labels}];",
            f"setp.lt.f32 p2, {again}, {self.inputs[0]};",
            f"@p2 bra {start};",
        ]
        self.values = held

    def text(self, name):
        """A kernel that stores what nothing else takes, and a few more."""
        size = BYTES.get(self.type, 4)
        used = " ".join(line.partition(",")[2] for line in self.lines)
        words = set(used.replace(",", " ").replace(";", " ").split())
        kept = [v for v in self.values[8:] if v not in words or self.rng.random() < 0.12]
        kept += [v for v in self.inputs if any(f" {v}, " in line for line in self.lines[8:])]
        stores = [
            f"st.global.b{8 * size} [at+{4000 + size * i}], {value};"
            for i, value in enumerate(kept)
        ]
        return "\n".join([
            f".visible .entry {name}(.param .u64 p)", "{",
            f".reg .{TYPES[self.type]} v<{self.fresh + 1}>; .reg .b64 at; .reg .pred p<3>;",
            "ld.param.u64 at, [p]; cvta.to.global.u64 at, at;",
            *self.lines, *stores, "ret;", "}",
        ])  # fmt: skip


def straight(rng, kind="plain", type_="f32"):
    weights, options = STRAIGHT[kind]
    program = Program(rng, type_)
    for _ in range(rng.choice([4, 6, 8, 12, 20])):
        program.statement(weights, **options)
    return program


def branching(rng):
    program = Program(rng)
    program.block(0, rng.choice([12, 20, 30]))
    return program


def module(programs, target):
    """A file of kernels k0, k1, …"""
    texts = [program.text(f"k{i}") for i, program in enumerate(programs)]
    return "\n".join([".version 8.8", f".target {target}", ".address_size 64", *texts])
