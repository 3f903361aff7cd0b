"""The page `coverage` of the guide: one line for each instruction of PTX ISA 9.3. Generated.

    python -m emulator.tools.coverage

prints it; a test compares it with the page. Targets, evidence and reasons come from the tables: a
row that is added there is on the page the next time.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import islice

from emulator.errors import EmulatorError
from emulator.isa.instruction import Instruction
from emulator.isa.kinds import KINDS
from emulator.isa.ordinary.instruction import OrdinaryInstruction
from emulator.isa.ordinary.tables import ROWS
from emulator.machine.vector.statements import problem
from emulator.targets import TARGETS
from emulator.tools.report import render
from emulator.tools.wording import short_targets

#: The instructions of section 9.7, as its headings name them, and those of later versions that
#: ptxas 13.5 takes; a name's words stand in an opcode in this order, others between them.
INDEX: dict[str, str] = {
    "Integer": "add sub mul mad mul24 mad24 sad div rem abs neg min max popc clz bfind fns brev "
    "bfe bfi szext bmsk dp4a dp2a clmad",
    "Extended precision": "add.cc addc sub.cc subc mad.cc madc",
    "Floating point": "testp copysign fma rcp sqrt rsqrt sin cos lg2 ex2 tanh",
    "Comparison and selection": "set setp selp slct",
    "Logic and shifts": "and or xor not cnot lop3 shf shl shr",
    "Data movement": "mov shfl shfl.sync prmt ld ld.nc ldu st st.async st.bulk multimem.ld_reduce "
    "multimem.st multimem.red multimem.st.async multimem.red.async prefetch prefetchu "
    "applypriority discard createpolicy isspacep cvta cvt cvt.pack mapa getctarank",
    "Asynchronous copies": "cp.async cp.async.commit_group cp.async.wait_group cp.async.wait_all "
    "cp.async.bulk cp.reduce.async.bulk cp.async.bulk.prefetch multimem.cp.async.bulk "
    "multimem.cp.reduce.async.bulk cp.async.bulk.tensor cp.reduce.async.bulk.tensor "
    "cp.async.bulk.prefetch.tensor cp.async.bulk.commit_group cp.async.bulk.wait_group "
    "tensormap.replace",
    "Textures and surfaces": "tex tld4 txq istypep suld sust sured suq",
    "Control flow": "bra brx.idx call ret exit",
    "Synchronisation": "bar bar.warp.sync barrier barrier.cluster.arrive barrier.cluster.wait "
    "membar fence atom red red.async vote vote.sync match.sync activemask redux.sync "
    "griddepcontrol elect.sync mbarrier.init mbarrier.inval mbarrier.expect_tx "
    "mbarrier.complete_tx mbarrier.arrive mbarrier.arrive_drop cp.async.mbarrier.arrive "
    "mbarrier.test_wait mbarrier.try_wait mbarrier.pending_count "
    "mbarrier.check_layout tensormap.cp_fenceproxy clusterlaunchcontrol.try_cancel "
    "clusterlaunchcontrol.query_cancel",
    "Matrices of a warp": "wmma.load wmma.store wmma.mma mma mma.sp ldmatrix stmatrix movmatrix",
    "Matrices of a warpgroup": "wgmma.mma_async wgmma.mma_async.sp wgmma.fence wgmma.commit_group "
    "wgmma.wait_group",
    "Tensor memory": "tcgen05.alloc tcgen05.dealloc tcgen05.relinquish_alloc_permit tcgen05.ld "
    "tcgen05.ld.red tcgen05.st tcgen05.wait::ld tcgen05.wait::st tcgen05.cp tcgen05.shift "
    "tcgen05.mma tcgen05.mma.sp tcgen05.mma.ws tcgen05.mma.ws.sp "
    "tcgen05.fence::before_thread_sync tcgen05.fence::after_thread_sync tcgen05.commit",
    "Stack": "stacksave stackrestore alloca",
    "Video": "vadd vsub vabsdiff vmin vmax vshl vshr vmad vset vadd2 vsub2 vavrg2 vabsdiff2 vmin2 "
    "vmax2 vset2 vadd4 vsub4 vavrg4 vabsdiff4 vmin4 vmax4 vset4",
    "Other": "brkpt nanosleep pmevent trap setmaxnreg",
    "Fabric": "fabric.try_get.async fabric.try_put.async fabric.try_red.async "
    "fabric.try_pullred.async fabric.submit fabric.wait",
    "Newer than 9.3": "spcompress spdecompress tcgen05.ld.spcompress applypriority.async.bulk "
    "applypriority.async.bulk.tensor tensormap.query.alloc_class_large fabric.submit.commit_group "
    "fabric.try_atom.async fabric.try_get.async.tensor fabric.try_put.async.tensor "
    "fabric.try_red.async.tensor",
}
#: forms of a row that are looked at for the evidence
_FORMS = 60
#: what ptxas has no more; the rest that no table has is legal, and not modelled
_OLD = dict.fromkeys(
    ("shfl", "vote"), "refused, as ptxas does on sm_70 and later: write it with .sync"
)
_TEXT = """# Coverage: every instruction of PTX ISA 9.3

Generated from the tables of instructions. A spelling that no form has is refused with the nearest
legal one; what a target lacks is refused with the targets that have it. An instruction that runs
does so in all three engines, with the same bits: what `compiled` has no machine code for, it leaves
to the steps of `vector`.

Evidence is the range over forms and targets: *exact* for integers and moves, *validated* where
recordings of the hardware would show a change of any constant, *modelled* otherwise.
[Evidence](evidence.md) says what they mean, and `python -m emulator info OPCODE` which one holds.

Names are those of the manual's index, but for `{}` and `@`, which are syntax; where forms of one
differ much, each has a line. ptxas 13.5 was asked for every modifier that it knows on a form of
each: what it takes and no table has is newer than 9.3 (`.multicast::cluster::32b`), in no manual
(`.no_membermask_overlap`, `.L1::32B`, `bar.sync.all`), or a word that it drops wherever it stands.
"""


def coverage_page() -> str:
    known = _by_name()
    lines = [_TEXT]
    for section, names in INDEX.items():
        cells = [[f"`{name}`", *_line(name, known.get(name, []))] for name in names.split()]
        table = render(["instruction", "targets", "engines", "evidence"], cells, "markdown")
        lines += [f"## {section}", "", *table, ""]
    return "\n".join(lines)


def name_of(opcode: str) -> str:
    """The name in `INDEX` that an opcode belongs to: the longest one whose words it has, in their
    order. Raises KeyError where there is none."""
    words = opcode.split(".")
    fitting = [name for name, given in _names(words[0]) if _has(words, given)]
    if not fitting:
        raise KeyError(opcode)
    return max(fitting, key=lambda name: name.count("."))


@cache
def _names(first: str) -> list[tuple[str, list[str]]]:
    every = [name for names in INDEX.values() for name in names.split()]
    return [(name, name.split(".")) for name in every if name.split(".")[0] == first]


def _has(words: list[str], given: list[str]) -> bool:
    left = iter(word.partition("::")[0] if word.startswith("sp::o") else word for word in words)
    return all(word in left for word in given)


def _by_name() -> dict[str, list[Instruction]]:
    """Instructions of the tables by their names in `INDEX`."""
    found: dict[str, list[Instruction]] = {}
    for ins in forms():
        found.setdefault(name_of(str(ins)), []).append(ins)
    return found


def forms() -> Iterator[Instruction]:
    """Some forms of every row of ordinary instructions, and all instructions of other kinds."""
    for row in ROWS:
        for words in islice(row.expand(), _FORMS):
            yield OrdinaryInstruction(row, words)
    for kind in KINDS:
        module = kind.load()
        if module.__name__ != OrdinaryInstruction.__module__:
            yield from module.expand()


def _line(name: str, found: list[Instruction]) -> list[str]:
    """Targets, engines and evidence of the instructions with a name."""
    if not found:
        return ["", "none", _OLD.get(name) or _reason(name)]
    having = {target for ins in found for target in ins.targets}
    targets = short_targets([target for target in TARGETS if target in having])
    reasons = {problem(ins).rpartition(": ")[2] for ins in found if problem(ins)}
    left = "; ".join(sorted(reasons))
    run = [ins for ins in found if not problem(ins)]
    if not run:
        return [targets, "none", f"legal PTX, not modelled here: {left}"]
    levels = {ins.fidelity(target).level for ins in run for target in _one_each(ins)}
    without = f"; not modelled here: {left}" if left else ""
    return [targets, "all", ", ".join(sorted(levels)) + without]


def _one_each(ins: Instruction) -> list[str]:
    """A target of every generation that has an instruction."""
    return list({TARGETS[target].generation: target for target in ins.targets}.values())


def _reason(name: str) -> str:
    """The end of the message that refuses a name."""
    try:
        Instruction.parse(name)
    except EmulatorError as error:
        return str(error).partition(" is ")[2]
    raise AssertionError(f"{name} is an instruction, and in no table")


if __name__ == "__main__":
    print(coverage_page(), end="")
