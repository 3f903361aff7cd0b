"""Machine code of a PTX file, by ptxas and nvdisasm, and what its straight code computes.

Two listings that differ in registers and order are compared by the values that they store: each is
an expression over loads, of which sums and products forget the order of their operands.
"""

import re
import shutil
import site
import subprocess
from pathlib import Path

PTXAS = shutil.which("ptxas")


def _find_nvdisasm():
    found = shutil.which("nvdisasm")
    for folder in site.getsitepackages():
        found = found or next(map(str, Path(folder).glob("nvidia/*/bin/nvdisasm")), None)
    return found


NVDISASM = _find_nvdisasm()
#: why tests are skipped, "" if they can run
MISSING = ", ".join(
    name for name, path in (("ptxas", PTXAS), ("nvdisasm (nvidia-cuda-nvdisasm)", NVDISASM))
    if not path
)  # fmt: skip


def disassembled(text, target, folder, options=()):
    """The instructions of each kernel and function."""
    source, binary = Path(folder) / "a.ptx", Path(folder) / "a.cubin"
    source.write_text(text)
    _run([PTXAS, f"-arch={target}", *options, str(source), "-o", str(binary)])
    listing = _run([NVDISASM, "-c", str(binary)])
    parts = re.split(r"\n\.text\.", listing)[1:]
    return {part.partition(":")[0]: _instructions(part) for part in parts}


def _run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError((done.stderr + done.stdout)[:500])
    return done.stdout


def _instructions(part):
    lines, names = [], {}
    for line in part.splitlines():
        if match := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", line):
            lines.append(" ".join(match[1].replace(".reuse", "").split()))
        elif re.match(r"\.L_\S+:", line):
            lines.append(line.strip())
    while lines and (lines[-1] == "NOP" or lines[-1].startswith(".L")):
        lines.pop()
    return [
        re.sub(r"\.L_x_\d+", lambda m: names.setdefault(m[0], f".L{len(names)}"), x) for x in lines
    ]


def counts(lines):
    """How often each floating-point instruction stands there, with its immediates."""
    found = []
    for line in lines:
        if match := re.match(
            r"(?:@\S+ )?(U?[FDH](?:ADD|MUL|FMA)\S*|[FH](?:ADD|MUL|FMA)2\S*) (.*)", line
        ):
            if "-RZ" in match[2]:
                continue  # a negation, or a product: which one is up to the scheduler
            # the sign of a product may stand at either factor
            sign = "-?" if "ADD" in match[1] else ""
            words = re.findall(rf"(?<![\w.x\[]){sign}\d+\.\d+\w*(?:-\d+)?", match[2])
            found.append((match[1], *sorted(words)))
    return sorted(found)


# --- values ---


class Unknown(Exception):
    """An instruction that `stores` does not know."""


def stores(lines):
    """What straight code stores: address -> expression, a nested tuple."""
    registers, predicates, out = {}, {}, {}
    for line in lines:
        if line.startswith(".L"):
            continue
        guard, opcode, operands = _split(line)
        if opcode == "EXIT" and guard is None:
            break
        _step(registers, predicates, out, guard, opcode, operands)
    return out


def _split(line):
    match = re.match(r"(?:@(!?U?P\w+) )?(\S+) ?(.*)", line)
    operands = re.split(r",\s*(?![^\[]*\])", match[3]) if match[3] else []
    return match[1], match[2], operands


#: instructions without a value
_SILENT = ("NOP", "ULDC", "LDCU", "S2R", "WARPSYNC", "EXIT")
_ZERO, _MINUS_ZERO = ("RZ",), ("neg", ("RZ",))
_KNOWN = re.compile(
    r"(FADD|FMUL|FFMA|DADD|DMUL|DFMA|HADD2|HMUL2|HFMA2|FADD2|FMUL2|FFMA2|MUFU|FMNMX|HMNMX2|DSETP|"
    r"FSETP|HSETP2|FSEL|SEL|MOV|IMAD\.MOV|PRMT|LOP3|F2F|F2FP|FRND|IADD3|IMAD|UMOV|FSET|I2F|LDC)\b"
)


def _step(registers, predicates, out, guard, opcode, operands):
    def read(text):
        return _operand(text, registers, predicates, wide=wide)

    head, wide = opcode.split(".")[0], opcode[0] == "D" or opcode[:5] in ("FADD2", "FMUL2", "FFMA2")
    if head in _SILENT:
        return
    condition = None if guard is None else _operand(guard, registers, predicates)
    size = {"64": 2, "128": 4}.get(next(iter(re.findall(r"\.(64|128)\b", opcode)), ""), 1)
    if head == "STG":
        start = _offset(operands[0])
        for i in range(size):
            value = _operand(_after(operands[1], i), registers, predicates)
            out[start + 4 * i] = (value, condition)
    elif head == "LDG":
        start = _offset(operands[1])
        for i in range(size):
            name = f"x{start + 4 * i}" + (f" {len(out)}" if "STRONG" in opcode else "")
            _write(registers, predicates, _after(operands[0], i), (name,), condition)
    elif not _KNOWN.match(opcode):
        raise Unknown(opcode)
    else:
        results = 2 if "SETP" in head else 1
        value = _value(opcode, [read(text) for text in operands[results:]])
        if wide and "SETP" not in head:
            _write(registers, predicates, operands[0], ("low", value), condition)
            _write(registers, predicates, _after(operands[0], 1), ("high", value), condition)
            return
        _write(registers, predicates, operands[0], value, condition)
        if results == 2 and operands[1] != "PT":
            _write(registers, predicates, operands[1], ("not", value), condition)


def _offset(address):
    match = re.search(r"\+(-?0x[0-9a-f]+)\]$", address)
    return int(match[1], 16) if match else 0


def _after(register, count):
    head, number = re.fullmatch(r"(U?R)(\d+|Z)", register).groups()
    return register if number == "Z" else f"{head}{int(number) + count}"


def _write(registers, predicates, name, value, condition):
    held = predicates if re.match(r"U?P", name) else registers
    if condition is not None:
        value = _chosen(condition, value, held.get(name, (name,)))
    held[name] = value


def _operand(text, registers, predicates, wide=False):
    """The value of an operand as it is written, with its sign, bars and part."""
    if text.startswith("!"):
        return _not(_operand(text[1:], registers, predicates))
    if re.fullmatch(r"U?PT|U?P\d", text):
        return predicates.get(text, (text,))
    match = re.fullmatch(r"(-?)(\|?)(U?R(?:\d+|Z))\|?((?:\.\w+)*)", text)
    if match is None:
        # a constant: its sign apart
        if re.match(r"-[\d.IQSc]", text):
            return _neg((text[1:],))
        return (text.lstrip("+"),)
    name = match[3]
    value = registers.get(name, ("RZ",) if name.endswith("RZ") else (name,))
    if wide and name not in ("RZ", "URZ"):
        high = registers.get(_after(name, 1), (name, "high"))
        joined = value[0] == "low" and high[0] == "high" and value[1] == high[1]
        value = value[1] if joined else ("pair", value, high)
    if match[4]:
        value = ("part", match[4], value)
    if match[2]:
        value = value[1] if value[0] in ("neg", "abs") else value
        square = value[0].startswith("FMUL") and value[2] == value[3]
        value = value if square else ("abs", value)
    return _neg(value) if match[1] else value


def _neg(value):
    if value[0] == "select":
        return _chosen(value[1], _neg(value[2]), _neg(value[3]))
    return value[1] if value[0] == "neg" else ("neg", value)


def _sign(value):
    """Whether a value is a negative, and of what; of a choice, where both sides are."""
    if value[0] == "neg":
        return True, value[1]
    if value[0] == "select":
        (one, first), (other, second) = map(_sign, value[2:])
        if one and other:
            return True, ("select", value[1], first, second)
    return False, value


def _saturated(opcode, value):
    """FADD.SAT with nothing: done by what computes the operand, if that flushes alike."""
    while value[0] == "FMNMX" and _ZERO in value and value[3] == ("not", ("PT",)):
        value = value[2] if value[1] == _ZERO else value[1]
    if value[0] == "FADD.SAT" and _MINUS_ZERO in value:
        value = value[2] if value[1] == _MINUS_ZERO else value[1]
    made = value[0].split(".")
    alike = "FTZ" not in opcode or "FTZ" in made
    if made[0] in ("FADD", "FMUL", "FFMA") and alike:
        return value if "SAT" in made else (f"{value[0]}.SAT", *value[1:])
    return (opcode, *sorted((_MINUS_ZERO, value), key=repr))


def _part(value):
    value = _sign(value)[1]
    return value[2] if value[0] == "part" else value


def _unflushed(value):
    """What was flushed by an addition of -0, with its sign: instructions with .FTZ flush again."""
    if value[0] == "neg":
        return _neg(_unflushed(value[1]))
    if value[0] == "FADD.FTZ" and _MINUS_ZERO in value[1:]:
        return value[2] if value[1] == _MINUS_ZERO else value[1]
    return value


def _not(value):
    return value[1] if value[0] == "not" else ("not", value)


def _chosen(condition, one, other):
    if condition[0] == "not":
        condition, one, other = condition[1], other, one
    if one[0] == "select" and one[1] == condition:
        one = one[2]
    if other[0] == "select" and other[1] == condition:
        other = other[3]
    return one if one == other else ("select", condition, one, other)


_INVERSE = {"GEU": "LT", "LEU": "GT", "LTU": "GE", "GTU": "LE", "NEU": "EQ"}


def _value(opcode, sources):
    opcode = opcode.replace(".MMA", "")
    head, *modifiers = opcode.split(".")
    flush = "FTZ" in modifiers and head in ("FADD", "FMUL", "FFMA")
    if flush:
        if head == "FADD" and _MINUS_ZERO in sources and modifiers == ["FTZ"]:
            value = sources[1] if sources[0] == _MINUS_ZERO else sources[0]
            kept = value[1] if value[0] == "neg" else value
            if ".FTZ" in kept[0]:
                return value
            flushed = ("FADD.FTZ", _MINUS_ZERO, kept)
            return _neg(flushed) if value[0] == "neg" else flushed
        sources = [_unflushed(source) for source in sources]
    if head == "FMUL" and flush and ("1",) in (_sign(source)[1] for source in sources):
        # what multiplies by one flushes, and saturates
        place = 0 if _sign(sources[0])[1] == ("1",) else 1
        other = sources[1 - place]
        other = _neg(other) if _sign(sources[place])[0] else other
        return _value(opcode.replace("FMUL", "FADD"), [_MINUS_ZERO, other])
    if head == "HFMA2" and len(sources) == 4 and sources[1] == sources[2] == ("1",):
        return _value(opcode.replace("HFMA2", "HADD2"), [sources[0], sources[3]])
    if head == "HFMA2" and sources[2] == _MINUS_ZERO:
        return _value(opcode.replace("HFMA2", "HMUL2"), sources[:2])
    if head == "HFMA2" and _part(sources[0]) == _part(sources[1]) == _ZERO:
        return sources[2]
    if opcode in ("FADD.SAT", "FADD.FTZ.SAT"):
        sources = [_MINUS_ZERO if source == _ZERO else source for source in sources]
        if _MINUS_ZERO in sources:
            return _saturated(opcode, sources[1] if sources[0] == _MINUS_ZERO else sources[0])
    if head in ("MOV", "UMOV", "LDC") or opcode.startswith("IMAD.MOV"):
        return sources[-1] if not opcode.startswith("IMAD") else sources[2]
    if head in ("FSEL", "SEL"):
        return _chosen(sources[2], sources[0], sources[1])
    if head == "FSETP" and sources[2] == ("PT",) and len(modifiers) <= 3:
        compare = modifiers[0]
        if compare in _INVERSE:
            return _not(_value(opcode.replace(compare, _INVERSE[compare], 1), sources))
        if compare in ("GT", "GE"):
            opcode = opcode.replace(compare, {"GT": "LT", "GE": "LE"}[compare], 1)
            sources[:2] = sources[1::-1]
        return (opcode, *sources[:2])
    if head in ("FADD", "HADD2") and _MINUS_ZERO in sources[:2] and not flush:
        # what negates, or copies a canonical value
        return sources[1] if sources[0] == _MINUS_ZERO else sources[0]
    if head == "FFMA" and sources[2] == _MINUS_ZERO:
        return _value(opcode.replace("FFMA", "FMUL", 1), sources[:2])
    if head in ("FADD", "DADD", "HADD2", "FADD2", "FMNMX"):
        return (opcode, *sorted(sources[:2], key=repr), *sources[2:])
    if head in ("FMUL", "DMUL", "HMUL2", "FMUL2", "FFMA", "DFMA", "HFMA2", "FFMA2"):
        # the sign of a product is that of its factors together
        signs = sum(_sign(source)[0] for source in sources[:2])
        factors = [_sign(source)[1] for source in sources[:2]]
        if factors[0] == factors[1] and factors[0][0] == "abs":
            factors = [factors[0][1]] * 2
        factors.sort(key=repr)
        product = (opcode, signs % 2, *factors, *sources[2:])
        if "FMA" not in head:
            plain = (opcode, 0, *factors)
            return ("neg", plain) if signs % 2 else plain
        return product
    return (opcode, *sources)
