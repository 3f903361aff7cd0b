"""The assembler of CUDA as a judge of statements: which of many does it take?"""

import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

#: lines before the first kernel that is asked for
HEAD = 4
#: a kernel with an address of 64 bits: without any ptxas takes those of 32 bits for a mistake
FIRST = (
    ".entry first(.param .u64 p) { .reg .b64 %a; .reg .b32 %b; ld.param.u64 %a, [p]; "
    "ld.global.u32 %b, [%a]; st.global.u32 [%a], %b; ret; }"
)


def find_ptxas():
    """The ptxas of the newest toolkit here: that of the wheels, or that of the PATH, or None."""
    found = find_spec("nvidia")
    for folder in found.submodule_search_locations if found else ():
        for ptxas in Path(folder).glob("cu*/bin/ptxas"):
            return str(ptxas)
    return shutil.which("ptxas")


def kernel(statement, name="k"):
    """A kernel around declarations and a statement, on two lines."""
    head = f".entry {name}(.param .align 16 .b8 pp[64]) {{ .param .align 16 .b8 pf[64];"
    return f"{head} {statement}\nEND: ret; }}"


def file_of(statements, target, version):
    version = f".version {version[0]}.{version[1]}"
    lines = [version, f".target {target}", ".address_size 64", FIRST]
    return "\n".join([*lines, *(kernel(x, f"k{i}") for i, x in enumerate(statements)), ""])


def joined(modules):
    """Modules of one kernel `run` each, for one target, as one module of kernels with numbers, each
    on a line; ptxas takes longer to start than to assemble one."""
    heads, bodies = zip(*(text.split(".visible .entry run", 1) for text in modules), strict=True)
    (head,) = {*heads}
    lines = (f".visible .entry run{i}{' '.join(x.split())}" for i, x in enumerate(bodies))
    return "\n".join([head.rstrip(), *lines, ""])


def is_verdict(message):
    """Whether ptxas has judged: it may crash over what it does not expect, or miss the call that
    fills a parameter."""
    return not re.search(
        r"exit status|nternal compiler error|stack smashing|Intrinsic - |"
        r"Function call sequence invalid",
        message,
    )


def refusals(ptxas, statements, target, version):
    """The messages of the statements that ptxas refuses, each in a kernel of its own, by number.

    After an error of syntax ptxas may refuse good lines, too: what stands behind one is asked for
    again. What it takes has been through code generation.
    """
    out, left = {}, list(range(len(statements)))
    while left:
        text = file_of([statements[i] for i in left], target, version)
        run = subprocess.run(
            [ptxas, "-arch", target, "-o", "/dev/null", "-"],
            input=text, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if run.returncode == 0:
            return out
        errors = re.findall(r"line (\d+); (?:error|fatal)\s*: (.*)", run.stderr)
        # The address that makes the file one of 32-bit code stands in a warning alone.
        errors = errors or re.findall(r"32-bit address on line '(\d+)'( .*)", run.stderr)
        lines = [((int(line) - HEAD - 1) // 2, message) for line, message in errors]
        named = [(left[i], message) for i, message in lines if i < len(left)]
        if not named:
            # It crashed, or an error without a line: one by one.
            if len(left) == 1:
                return out | {left[0]: run.stderr[:200] or f"exit status {run.returncode}"}
            return out | {
                i: message
                for i in left
                for message in refusals(ptxas, [statements[i]], target, version).values()
            }
        syntax = [i for i, message in named if "arsing" in message or "yntax" in message]
        last = min(syntax, default=len(statements))
        found = {i: message for i, message in reversed(named) if i <= last}
        out |= found
        left = [i for i in left if i not in found]
    return out
