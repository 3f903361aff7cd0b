"""Names of the source in debug information (nvcc -G), and information that is broken."""

import numpy as np
import pytest
from paths import CUDA

from emulator import KernelError, Module
from emulator.ptx.debug_information import parameter_names

TEXT = (CUDA / "names.ptx").read_text()


def test_parameters_have_the_names_of_the_source():
    kernel = Module(TEXT)["scale<32>"]
    assert [x.name for x in kernel.parameters] == ["x", "pair", "count"]
    x = np.arange(4, dtype="f4")
    pair = np.array([(7, 2.0)], [("a", "i4"), ("b", "f4")]).tobytes()
    kernel.launch(1, 4, {"x": x, "pair": pair, "count": 3})
    assert x.tolist() == [32, 34, 36, 3]
    x = np.arange(4, dtype="f4")
    kernel.launch(1, 4, {"count": 3, "x": x, "pair": pair})  # by name, in any order
    assert x.tolist() == [32, 34, 36, 3]
    with pytest.raises(KernelError, match=r"after the end of x \(16 bytes"):
        kernel.launch(1, 64, {"x": x, "pair": pair, "count": 64})
    with kernel.debug(1, 4, [x, pair, 3]) as debugger:
        assert debugger.value("count") == 3 == debugger.value("param_2")
        assert [row[0] for row in debugger.look.arguments().rows] == ["x", "pair", "count"]


def test_without_debug_information_names_are_those_of_the_ptx():
    text = TEXT.replace(", debug", "")
    assert text != TEXT
    assert [x.name[-7:] for x in Module(text)["scale"].parameters] == [
        "param_0", "param_1", "param_2",
    ]  # fmt: skip


@pytest.mark.parametrize("section", [".debug_info", ".debug_abbrev"])
def test_broken_debug_information_names_nothing_wrong(section):
    """Whatever bytes stand there, it ends, and gives pairs of text."""
    start = TEXT.index(section)
    rng = np.random.default_rng(1)
    for _ in range(100):
        keep = start + int(rng.integers(0, 1500))
        broken = TEXT[:keep] + "\n.b8 " + ",".join(map(str, rng.integers(0, 256, 9))) + "\n}"
        assert all(isinstance(x, str) for pair in parameter_names(broken) for x in pair)
