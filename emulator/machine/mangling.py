"""Names of CUDA C++ kernels as people write them: ``gemm<32, float>`` for ``_Z4gemmILi32EfEvPT0_``.

Mangled names follow the Itanium C++ ABI, 5.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

#: builtin types and usual aliases -> their mangled names
_TYPES = {
    "void": "v", "bool": "b", "char": "c", "signed char": "a", "unsigned char": "h", "short": "s",
    "unsigned short": "t", "int": "i", "unsigned": "j", "unsigned int": "j", "long": "l",
    "unsigned long": "m", "long long": "x", "unsigned long long": "y", "float": "f", "double": "d",
    "int8_t": "a", "uint8_t": "h", "int16_t": "s", "uint16_t": "t", "int32_t": "i",
    "uint32_t": "j", "int64_t": "l", "uint64_t": "m", "size_t": "m",
    "half": "6__half", "__half": "6__half", "nv_bfloat16": "13__nv_bfloat16",
}  # fmt: skip
_KERNEL = re.compile(r"\s*([A-Za-z_][\w:]*)\s*(?:<(.*)>)?\s*")
_NUMBER = re.compile(r"(-?)(\d+)[uUlL]*")


def find_mangled(name: str, kernels: Iterable[str]) -> list[str]:
    """Finds the kernels that a name of C++ may mean: template arguments in angle brackets, with
    namespaces or without. Only the template arguments that are written are compared."""
    given = _KERNEL.fullmatch(name)
    if given is None:
        return []
    body = "".join(f"{len(part)}{part}" for part in given[1].split("::") if part)
    if given[2] is not None:
        body += "I" + "".join(map(_argument, _split(given[2])))
    pattern = re.compile(rf"(?:(?<!\d)|(?<=_GLOBAL__N_1)){body}(?!\d)")
    return [kernel for kernel in kernels if kernel.startswith("_Z") and pattern.search(kernel)]


def _split(arguments: str) -> list[str]:
    """Splits at commas outside of angle brackets."""
    out, depth = [""], 0
    for char in arguments:
        depth += (char == "<") - (char == ">")
        if char == "," and not depth:
            out.append("")
        else:
            out[-1] += char
    return [x.strip() for x in out]


def _argument(text: str) -> str:
    """A pattern for one template argument."""
    if text in ("true", "false"):
        return f"Lb{int(text == 'true')}E"
    if number := _NUMBER.fullmatch(text):
        return rf"L(?:[a-z]|\d+\w+?){'n' * bool(number[1])}{number[2]}E"
    if text.endswith("*"):
        return "P" + _argument(text[:-1].strip())
    if text.startswith("const ") or text.endswith(" const"):
        return "K" + _argument(text.removeprefix("const ").removesuffix(" const").strip())
    if len(code := _TYPES.get(text, "")) == 1:
        return code
    # A class that occurred before is a substitution.
    named = code or "".join(f"{len(part)}{part}" for part in text.split("::"))
    return rf"(?:N?{re.escape(named)}E?|S[0-9A-Z]*_)"
