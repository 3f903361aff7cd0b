"""What ptxas of CUDA 13.5 takes, with the PTX versions that it needs."""

import gzip

import pytest
from paths import GOLDEN
from ptx_texts import check_statement

from emulator import EmulatorError, Instruction, Module
from emulator.targets import TARGETS, find_target, runs_on

FILES = ("ptxas_accept_9x.txt.gz", "ptxas_accept_tcgen05.txt.gz")


def recorded(name):
    """(opcode, lowest version, targets) of every line, the targets and the versions asked."""
    lines = gzip.decompress((GOLDEN / name).read_bytes()).decode().splitlines()
    asked = lines[2].removeprefix("# ").split()
    rows = []
    for line in lines:
        opcode, version, *on = line.split()
        if opcode != "#":
            numbers = None if version == "-" else tuple(map(int, version.split(".")))
            rows.append((opcode, numbers, set(on)))
    return rows, asked, {version for _, version, _ in rows if version}


def wrong_verdicts(rows, asked, tried):
    """Opcodes of whose targets or versions ptxas and the tables think differently."""
    wrong = []
    for opcode, version, targets in rows:
        try:
            ins = Instruction.parse(opcode)
        except EmulatorError:
            here, needed = set(), None
        else:
            here = {t.removeprefix("sm_") for t in ins.targets}.intersection(asked)
            # The recorded version is that of the first target, which needs one itself.
            own = [TARGETS[f"sm_{t}"].version for t in asked if t in targets][:1]
            needed = max(ins.ptx_version, *own) if own else None
        # Of a version that was not tried the next one is recorded.
        needed = needed and min((v for v in tried if v >= needed), default=needed)
        if (here, needed) != (targets, version):
            wrong.append((opcode, needed, version, sorted(here ^ targets)))
    return wrong


@pytest.mark.parametrize("name", FILES)
def test_the_tables_agree(name):
    rows, *asked = recorded(name)
    assert wrong_verdicts(rows[::24], *asked) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_the_tables_agree_on_all(name):
    assert wrong_verdicts(*recorded(name)) == []


def test_a_wrong_line_shows():
    rows, *asked = recorded(FILES[0])
    opcode, version, targets = next(row for row in rows if row[1] == (9, 4))
    planted = [
        (opcode, version, targets ^ {"107a"}),
        (opcode, (8, 0), targets),
        ("cvt.rs.satfinite.pzo.e4m3x4.f32", (9, 4), {"107a"}),
    ]
    assert len(wrong_verdicts(planted, *asked)) == 3


# --- whole statements ---


def statements():
    """(declarations and statement, targets), and the targets that were asked."""
    path = GOLDEN / "ptxas_statements_9x.txt.gz"
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    asked = lines[1].rpartition(": ")[2].split()
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    return [(text, set(on.split()) - {"-"}) for text, on in rows], asked


def takes(text, target):
    try:
        check_statement(text, f"sm_{target}")
    except EmulatorError:
        return False
    return True


def wrong_statements(rows, asked):
    """Statements that ptxas and the binder think differently of."""
    return [
        (text, sorted(here ^ on)) for text, on in rows
        if (here := {target for target in asked if takes(text, target)}) != on
    ]  # fmt: skip


def test_the_binder_agrees():
    rows, asked = statements()
    assert len(rows) == 1800 and wrong_statements(rows[::36], asked) == []


@pytest.mark.slow
def test_the_binder_agrees_on_more():
    rows, asked = statements()
    assert wrong_statements(rows[::4], asked) == []


def test_a_wrong_statement_shows():
    rows, asked = statements()
    text, on = next(row for row in rows if row[1])
    planted = [(text, on ^ {"90a"}), (text.replace(" %v1", " 1.5"), on)]
    assert len(wrong_statements(planted, asked)) == 2


# --- versions and families ---

KERNEL = """.version {}
.target {}
.address_size 64
.visible .entry k() {{ .reg .b16 %h; .reg .b32 %r; {} ret; }}"""


@pytest.mark.parametrize(
    ("statement", "target", "version"),
    [
        ("cvt.rn.satfinite.e4m3x2.bf16x2 %h, %r;", "sm_100a", (9, 1)),
        ("add.u8x4 %r, %r, %r;", "sm_120f", (9, 2)),
        ("cvt.rz.satfinite.e5m2x2.f16x2 %h, %r;", "sm_107f", (9, 4)),
        ("ldmatrix.sync.aligned.m8n16.x1.s8.s4 {%r}, [%r];", "sm_90a", (9, 4)),
    ],
)
def test_a_file_may_use_what_its_version_has(statement, target, version):
    assert not Module(KERNEL.format("9.5", target, statement)).problems
    assert not Module(KERNEL.format("{}.{}".format(*version), target, statement)).problems
    older = KERNEL.format(f"{version[0]}.{version[1] - 1}", find_target(target).name, statement)
    if find_target(target).version < version:
        (problem,) = Module(older).problems
        assert "came with PTX {}.{}; the file is PTX".format(*version) in str(problem)


@pytest.mark.parametrize(
    ("made_for", "chips"),
    [
        ("sm_100f", "100 100a 100f 103 103a 103f"),
        ("sm_103f", "103 103a 103f"),
        ("sm_107f", "107 107a 107f"),
        ("sm_110f", "110 110a 110f"),
        ("sm_120f", "120 120a 120f 121 121a 121f"),
        ("sm_107a", "107a"),
        ("sm_107", "107 107a 107f 110 110a 110f 120 120a 120f 121 121a 121f"),
    ],
)
def test_what_is_made_for_a_family_runs_on_it(made_for, chips):
    runs = [t.name[3:] for t in TARGETS.values() if runs_on(find_target(made_for), t)]
    assert runs == chips.split()
