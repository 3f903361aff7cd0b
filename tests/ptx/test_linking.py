"""Several PTX texts as one program: judged as ptxas -c and nvlink 13.0 judge them."""

import shutil
import subprocess

import numpy as np
import pytest

from emulator import Module, OperandError, ParseError, UnsupportedError
from emulator.errors import EmulatorError

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
#: stands in the first of the two texts
KERNEL = """
.visible .entry k(.param .u64 p) {
  .reg .b64 %r, %q; ld.param.u64 %q, [p]; mov.u64 %r, x; st.global.u64 [%q], %r; ret;
}
"""
#: a text without its head, and others that nvlink 13.0 links with it, each as the second text
LEGAL = """
.extern .global .u32 x; | .visible .global .u32 x; | .weak .global .u32 x;
.extern .global .u32 x; | .common .global .u32 x; | .visible .global .u32 x = 5;
.extern .global .u32 x; | .weak .global .u32 x = 5; | .visible .global .f32 x;
.extern .global .u32 x; | .visible .global .b8 x[4]; | .visible .global .align 16 .u32 x;
.visible .global .u32 x; | .extern .global .u32 x; | .weak .global .u32 x; | .global .u32 x;
.visible .global .u32 x; | .weak .global .u32 x = 5;
.weak .global .u32 x; |
.weak .global .u32 x; | .extern .global .u32 x; | .visible .global .u32 x; | .weak .global .u32 x;
.weak .global .u32 x; | .common .global .u32 x; | .global .u32 x; | .visible .global .u32 x = 5;
.weak .global .u32 x; | .weak .global .u32 x = 5; | .visible .global .f32 x;
.weak .global .u32 x; | .visible .global .b8 x[4]; | .visible .global .align 16 .u32 x;
.weak .global .u32 x; | .extern .func x();
.common .global .u32 x; |
.common .global .u32 x; | .extern .global .u32 x; | .visible .global .u32 x;
.common .global .u32 x; | .weak .global .u32 x; | .common .global .u32 x; | .global .u32 x;
.common .global .u32 x; | .visible .global .u32 x = 5; | .visible .global .f32 x;
.common .global .u32 x; | .visible .global .b8 x[4]; | .visible .global .align 16 .u32 x;
.common .global .u32 x; | .common .global .u64 x; | .extern .func x();
.global .u32 x; | .visible .global .u32 x; | .weak .global .u32 x; | .common .global .u32 x;
.global .u32 x; | .global .u32 x; | .visible .global .u32 x = 5; | .weak .global .u32 x = 5;
.visible .global .u32 x = 5; | .extern .global .u32 x; | .weak .global .u32 x;
.visible .global .u32 x = 5; | .common .global .u32 x; | .global .u32 x;
.visible .global .u32 x = 5; | .weak .global .u32 x = 5;
.weak .global .u32 x = 5; | .extern .global .u32 x; | .visible .global .u32 x;
.weak .global .u32 x = 5; | .weak .global .u32 x; | .common .global .u32 x; | .global .u32 x;
.weak .global .u32 x = 5; | .visible .global .u32 x = 5; | .weak .global .u32 x = 5;
.extern .global .u32 x[]; | .visible .global .u64 x; | .visible .global .f32 x;
.extern .global .u32 x[]; | .visible .global .b8 x[4]; | .visible .global .u32 x[4];
.extern .global .u32 x[]; | .visible .global .align 16 .u32 x; | .weak .global .u64 x;
.extern .global .u32 x[]; | .common .global .u64 x;
.extern .const .u32 x; | .visible .const .u32 x = 5; | .weak .const .u32 x = 5;
.visible .const .u32 x = 5; | .extern .const .u32 x; | .weak .const .u32 x = 5;
.visible .const .u32 x = 5; | .const .u32 x = 5;
.weak .const .u32 x = 5; | .extern .const .u32 x; | .visible .const .u32 x = 5;
.weak .const .u32 x = 5; | .weak .const .u32 x = 5; | .const .u32 x = 5;
.const .u32 x = 5; | .visible .const .u32 x = 5; | .weak .const .u32 x = 5; | .const .u32 x = 5;
.const .u32 x = 5; | .visible .const .u32 x[8];
.extern .shared .u32 x[]; | .extern .shared .u32 x[]; | .visible .shared .u32 x[4];
.extern .shared .u32 x[]; | .shared .u32 x[4]; | .weak .shared .u32 x[4];
.visible .shared .u32 x[4]; | .extern .shared .u32 x[]; | .shared .u32 x[4];
.visible .shared .u32 x[4]; | .weak .shared .u32 x[4]; | .extern .shared .u32 x[4];
.shared .u32 x[4]; | .extern .shared .u32 x[]; | .visible .shared .u32 x[4]; | .shared .u32 x[4];
.shared .u32 x[4]; | .weak .shared .u32 x[4];
.weak .shared .u32 x[4]; | .extern .shared .u32 x[]; | .visible .shared .u32 x[4];
.weak .shared .u32 x[4]; | .shared .u32 x[4]; | .weak .shared .u32 x[4];
.weak .shared .u32 x[4]; | .extern .shared .u32 x[4];
.extern .shared .u32 x[4]; | .visible .shared .u32 x[4]; | .weak .shared .u32 x[4];
.extern .func x(); | .visible .func x(){ ret; } | .weak .func x(){ ret; }
.visible .func x(){ ret; } |
.visible .func x(){ ret; } | .extern .func x(); | .weak .func x(){ ret; } | .func x(){ ret; }
.visible .func x(){ ret; } | .func g(){ ret; } .visible .func x(); .alias x, g;
.weak .func x(){ ret; } |
.weak .func x(){ ret; } | .extern .func x(); | .visible .func x(){ ret; }
.weak .func x(){ ret; } | .weak .func x(){ ret; } | .func x(){ ret; }
.func x(){ ret; } | .extern .func x(); | .visible .func x(){ ret; } | .weak .func x(){ ret; }
.func x(){ ret; } | .func x(){ ret; }
.extern .entry x(); | .visible .entry x(){ ret; } | .weak .entry x(){ ret; }
.visible .entry x(){ ret; } | .extern .entry x(); | .weak .entry x(){ ret; } | .entry x(){ ret; }
.weak .entry x(){ ret; } | .extern .entry x(); | .visible .entry x(){ ret; }
.weak .entry x(){ ret; } | .weak .entry x(){ ret; } | .entry x(){ ret; }
.entry x(){ ret; } | .extern .entry x(); | .visible .entry x(){ ret; } | .weak .entry x(){ ret; }
.entry x(){ ret; } | .entry x(){ ret; }
.func g(){ ret; } .visible .func x(); .alias x, g; | .extern .func x();
""".strip().splitlines()
#: the same, which it refuses
REFUSED = """
.extern .global .u32 x; |
.extern .global .u32 x; | .extern .global .u32 x; | .global .u32 x; | .visible .global .u64 x;
.extern .global .u32 x; | .visible .global .u32 x[4]; | .visible .const .u32 x;
.extern .global .u32 x; | .weak .global .u64 x; | .common .global .u64 x;
.extern .global .u32 x; | .visible .shared .u32 x; | .visible .func x(){ ret; }
.extern .global .u32 x; | .visible .entry x(){ ret; } | .extern .global .u64 x;
.extern .global .u32 x; | .extern .func x();
.visible .global .u32 x; | .visible .global .u32 x; | .common .global .u32 x;
.visible .global .u32 x; | .visible .global .u32 x = 5;
.global .u32 x; | .extern .global .u32 x;
.visible .global .u32 x = 5; | .visible .global .u32 x; | .visible .global .u32 x = 5;
.extern .global .u32 x[]; |
.extern .global .u32 x[]; | .visible .const .u32 x; | .visible .shared .u32 x;
.extern .global .u32 x[]; | .visible .func x(){ ret; } | .visible .entry x(){ ret; }
.extern .global .u32 x[]; | .extern .global .u64 x; | .extern .func x();
.common .global .u32 x; | .visible .global .u64 x; | .visible .global .u32 x[4];
.common .global .u32 x; | .visible .const .u32 x; | .weak .global .u64 x;
.common .global .u32 x; | .visible .shared .u32 x; | .extern .global .u64 x;
.weak .global .u32 x; | .visible .global .u64 x; | .visible .global .u32 x[4];
.weak .global .u32 x; | .visible .const .u32 x; | .weak .global .u64 x; | .common .global .u64 x;
.weak .global .u32 x; | .visible .shared .u32 x; | .visible .func x(){ ret; }
.weak .global .u32 x; | .visible .entry x(){ ret; } | .extern .global .u64 x;
.extern .const .u32 x; | .extern .const .u32 x; | .const .u32 x = 5; | .visible .const .u32 x[8];
.visible .const .u32 x = 5; | .visible .const .u32 x = 5; | .visible .const .u32 x[8];
.const .u32 x = 5; | .extern .const .u32 x;
.weak .const .u32 x = 5; | .visible .const .u32 x[8];
.visible .shared .u32 x[4]; | .visible .shared .u32 x[4]; | .extern .shared .u32 x;
.shared .u32 x[4]; | .extern .shared .u32 x[4]; | .extern .shared .u32 x;
.weak .shared .u32 x[4]; | .extern .shared .u32 x;
.extern .shared .u32 x[4]; | .extern .shared .u32 x[]; | .shared .u32 x[4];
.extern .shared .u32 x[4]; | .extern .shared .u32 x[4]; | .extern .shared .u32 x;
.extern .shared .u32 x; | .extern .shared .u32 x[]; | .visible .shared .u32 x[4];
.extern .shared .u32 x; | .shared .u32 x[4]; | .weak .shared .u32 x[4];
.extern .shared .u32 x; | .extern .shared .u32 x[4]; | .extern .shared .u32 x;
.extern .func x(); |
.extern .func x(); | .extern .func x(); | .func x(){ ret; } | .visible .entry x(){ ret; }
.extern .func x(); | .visible .global .u32 x; | .func g(){ ret; } .visible .func x(); .alias x, g;
.visible .func x(){ ret; } | .visible .func x(){ ret; } | .visible .entry x(){ ret; }
.visible .func x(){ ret; } | .visible .global .u32 x;
.weak .func x(){ ret; } | .visible .entry x(){ ret; } | .visible .global .u32 x;
.extern .entry x(); | .extern .entry x(); | .entry x(){ ret; } | .visible .func x(){ ret; }
.visible .entry x(){ ret; } | .visible .entry x(){ ret; } | .visible .func x(){ ret; }
.weak .entry x(){ ret; } | .visible .func x(){ ret; }
""".strip().splitlines()
#: parameters of a function that are the same to nvlink, and others than those of the next line
ALIKE = """
.param .b8 a[4] | .param .align 4 .b8 a[4]
.param .b8 a[8]
.param .b32 a | .param .u32 a | .reg .s32 a | .param .align 8 .b32 a
.param .f32 a
.param .b64 a
.reg .f64 a
.param .b16 a | .param .f16 a
.param .b32 a[2]
""".strip().splitlines()
GROUPS = [line.split(" | ") for line in ALIKE]
PROTOTYPES = [
    (f".extern .func x({a});", f".visible .func x({b}){{ ret; }}", one is other)
    for one in GROUPS for a in one for other in GROUPS for b in other
]  # fmt: skip
CASES = [
    *(
        (first, second, legal)
        for lines, legal in ((LEGAL, True), (REFUSED, False))
        for first, *others in (line.split("|") for line in lines)
        for second in others
    ),
    *PROTOTYPES,
]


def test_two_texts_link_where_nvlink_links_them():
    for first, second, legal in CASES:
        module = Module([HEAD + first + KERNEL, HEAD + second])
        found = [problem for problem in module.problems if not problem.opcode]
        assert (not found) == legal, (first, second, found)
        assert legal or found[0].function == "x"


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("nvlink") or not shutil.which("ptxas"), reason="no nvlink")
def test_the_table_is_what_nvlink_does(tmp_path):
    """Planted: a line moved to the other table fails."""
    for first, second, legal in CASES[:: len(CASES) // 40]:
        objects = []
        for i, text in enumerate((first + KERNEL, second)):
            file = tmp_path / f"{i}.ptx"
            file.write_text(HEAD + text)
            objects.append(str(file.with_suffix(".o")))
            subprocess.run(["ptxas", "-c", "-arch=sm_90", file, "-o", objects[-1]], check=True)
        done = subprocess.run(
            ["nvlink", "-arch=sm_90", *objects, "-o", tmp_path / "out"],
            capture_output=True, check=False,
        )  # fmt: skip
        assert (done.returncode == 0) == legal, (first, second, done.stderr)


FIRST = (
    HEAD
    + """
.extern .func (.param .b32 r) twice(.param .b32 a);
.extern .global .b8 table[16];
.weak .global .u32 w = 1;
.common .global .u32 c[2];
.global .u32 own = 7;
.visible .entry k(.param .u64 p) {
  .reg .b64 %p; .reg .b32 %v; .param .b32 x, y;
  ld.param.u64 %p, [p];
  mov.b32 %v, 21; st.param.b32 [x], %v;
  call (y), twice, (x);
  ld.param.b32 %v, [y]; st.global.u32 [%p], %v;
  ld.global.u32 %v, [own]; st.global.u32 [%p+4], %v;
  ld.global.u32 %v, [table+4]; st.global.u32 [%p+8], %v;
  ld.global.u32 %v, [w]; st.global.u32 [%p+12], %v;
  .reg .b64 %q; mov.u64 %q, table[8]; ld.global.u32 %v, [%q]; st.global.u32 [%p+16], %v;
  ret;
}
"""
)
SECOND = (
    HEAD
    + """
.visible .global .u32 table[4] = {1, 2, 3, 4};
.visible .global .u32 w = 9;
.common .global .align 32 .u32 c[8];
.global .u32 own = 8;
.visible .func (.param .b32 r) twice(.reg .b32 a) {
  .reg .b32 %o;
  add.u32 a, a, a; ld.global.u32 %o, [own]; add.u32 a, a, %o; st.param.b32 [r], a;
  ret;
}
.visible .entry second(.param .u64 p) { .reg .b64 %p; ld.param.u64 %p, [p];
  st.global.u32 [%p], 5; mov.u64 %p, 0; st.global.u32 [%p], 5; ret; }
"""
)


@pytest.mark.parametrize("engine", ["reference", "vector", "compiled"])
@pytest.mark.parametrize("texts", [[FIRST, SECOND], [SECOND, FIRST]])
def test_texts_call_and_read_one_another_and_keep_their_own_names(texts, engine):
    module = Module(texts)
    assert module.problems == [] and set(module.kernels) == {"k", "second"}
    out = np.zeros(5, np.uint32)
    module["k"].launch(1, 1, [out], engine=engine)
    assert out.tolist() == [50, 7, 2, 9, 3]
    variables = module.variables()
    second = texts.index(SECOND) + 1
    mine = "own@text 2"
    assert variables["c"].nbytes == 32 and {"own", mine, "table", "w", "c"} == set(variables)
    assert variables["own" if second == 1 else mine].view(np.uint32)[0] == 8
    assert Module(module.text)["k"].parameters == module["k"].parameters


def test_messages_name_the_text(tmp_path):
    (tmp_path / "a.ptx").write_text(FIRST)
    (tmp_path / "b.ptx").write_text(SECOND)
    module = Module([tmp_path / "a.ptx", tmp_path / "b.ptx"])
    with pytest.raises(EmulatorError, match=r"\(b\.ptx:15\)"):
        module["second"].launch(1, 1, [np.zeros(1, np.uint32)])
    with pytest.raises(ParseError, match=r"line 27, column 1 \(b\.ptx:4\)"):
        Module([FIRST, _written(tmp_path / "b.ptx", HEAD + "x")])
    module = Module([FIRST, HEAD])
    with pytest.raises(UnsupportedError, match="Undefined reference to 'twice' in 'text 1'"):
        module["k"].launch(1, 1, [np.zeros(5, np.uint32)])


def _written(path, text):
    path.write_text(text)
    return path


def test_each_text_has_its_own_version_and_target():
    old = HEAD.replace("8.0", "7.0").replace("sm_90", "sm_70")
    caller = ".extern .func x(); .visible .entry k() { call x, (); ret; }"
    assert str(Module([old + caller, HEAD + ".visible .func x() { ret; }"]).target) == "sm_90"
    body = ".visible .func x() { .reg .b32 %r; activemask.b32 %r; ret; }"
    older = ".version 6.0\n.target sm_70\n.address_size 64\n"
    (problem,) = Module([HEAD + caller, older + body]).problems
    assert "came with PTX 6.2" in str(problem) and problem.file == "text 2:4"
    with pytest.raises(UnsupportedError, match="sm_90a"):
        Module([HEAD.replace("sm_90", "sm_90a"), HEAD.replace("sm_90", "sm_100")])


@pytest.mark.parametrize("texts", [[], [1], [b""], 5])
def test_what_is_no_text_is_refused(texts):
    with pytest.raises(OperandError, match="a module is PTX text or a path, or a list of them"):
        Module(texts)


def test_registers_that_would_hide_a_renamed_variable_are_refused():
    text = HEAD + ".global .u32 r1; .visible .entry k() { .reg .b32 r<5>; mov.b32 r0, 1; ret; }"
    with pytest.raises(UnsupportedError, match="hide a variable"):
        Module([text, text.replace("k()", "j()")])
