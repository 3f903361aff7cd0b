"""Tables and pure parts of the CUDA driver and runtime: functions, errors, fat binaries, memory."""

import ctypes
import gc
import re
import struct

import pytest

from emulator.adapters.cuda import fatbin
from emulator.adapters.cuda.calls import CudaError, Handles, after_call, get, put
from emulator.adapters.cuda.driver.nodes import (
    Child,
    Condition,
    Conditional,
    Graph,
    Node,
    UserObject,
    Work,
)
from emulator.adapters.cuda.native import LIBRARIES, c_text
from emulator.adapters.cuda.space import Space
from emulator.adapters.cuda.tables import (
    C_TYPES,
    errors,
    functions_of,
    runtime12_functions,
    symbol_for,
)
from emulator.errors import UnsupportedError
from emulator.memory.tensor_map import TensorMap

FUNCTIONS = {f.name: f for f in (*functions_of("driver"), *functions_of("runtime"))}


def test_arguments_are_known_kinds_and_names_stand_once():
    assert len(FUNCTIONS) == len(functions_of("driver")) + len(functions_of("runtime")) == 935
    assert all(set(f.kinds) <= C_TYPES.keys() for f in FUNCTIONS.values())


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("cuMemcpyHtoD_v2", "zpz"),
        ("cuLaunchKernel", "puuuuuuuppp"),
        ("cuMemsetD8_v2", "zbz"),
        ("cudaLaunchKernel", "pddpzp"),
        ("cudaMemset3D", "4i3"),
        ("__cudaRegisterVar", "ppppizii"),
    ],
)
def test_kinds_of_arguments(name, kinds):
    assert FUNCTIONS[name].kinds == kinds


@pytest.mark.parametrize(
    ("name", "version", "symbol"),
    [
        ("cuInit", 12000, "cuInit"),
        ("cuMemAlloc", 2000, "cuMemAlloc"),
        ("cuMemAlloc", 3020, "cuMemAlloc_v2"),
        ("cuMemcpyHtoDAsync", 3020, "cuMemcpyHtoDAsync_v2"),
        ("cuGetProcAddress", 11030, "cuGetProcAddress"),
        ("cuGetProcAddress", 12000, "cuGetProcAddress_v2"),
        ("cuNothing", 13000, None),
    ],
)
def test_a_name_and_a_version_find_a_symbol(name, version, symbol):
    assert symbol_for(name, version) == symbol


def test_errors_have_the_names_of_both_interfaces_and_an_h100s_words():
    names = "CUDA_ERROR_ILLEGAL_ADDRESS", "cudaErrorIllegalAddress"
    assert errors()[700] == (*names, "an illegal memory access was encountered")
    assert errors()[710].said == "device-side assert triggered"
    assert errors()[98] == ("-", "cudaErrorInvalidDeviceFunction", "invalid device function")
    assert errors()[10000].said == "an error that CUDA 13.0 does not have"


def test_what_is_implemented_is_in_the_tables():
    from emulator.adapters.cuda.driver import DRIVER
    from emulator.adapters.cuda.runtime import RUNTIME

    assert (len(DRIVER), len(RUNTIME)) == (360, 245)  # as the guide says
    assert DRIVER.keys() <= {f.name for f in functions_of("driver")}
    in_12 = {f.name: f for f in runtime12_functions()}
    assert RUNTIME.keys() <= {f.name for f in functions_of("runtime")} | in_12.keys()
    known = DRIVER.keys() | FUNCTIONS.keys() | {"-", "", "cudaGetDeviceProperties_v2"}
    assert len(in_12) == len(runtime12_functions()) and {f.meaning for f in in_12.values()} <= known


def test_arguments_of_what_cuda_12_has_otherwise():
    kinds = {f.name: f.kinds for f in runtime12_functions()}
    for function in functions_of("runtime12"):
        same = FUNCTIONS.get(function.meaning)
        if same is not None and not function.name.startswith(("cudaMem", "cudaStreamGetC")):
            assert function.kinds == same.kinds
    assert (kinds["cudaMemPrefetchAsync"], kinds["cudaGraphGetEdges"]) == ("pzip", "pppp")


def test_arguments_in_other_places_are_of_the_same_kinds():
    given = [f for f in FUNCTIONS.values() if f.places]
    assert given
    alike = {"z": "p"}  # a size and an address are both words
    for function in given:
        for place, kind in zip(function.places, FUNCTIONS[function.meaning].kinds, strict=False):
            if place != "-":
                own = function.kinds[int(place)]
                assert alike.get(own, own) == alike.get(kind, kind), function
    shown = given[0]._replace(meaning="same", places="2-0")
    assert shown.found({"same": lambda *x: list(x)})(5, 6, 7) == [7, 0, 5]
    assert shown.found({}) is None


def test_the_properties_of_the_device_lie_where_cuda_12_has_them():
    from emulator.adapters.cuda.runtime import RUNTIME

    raw = ctypes.create_string_buffer(b"\xff" * 1040, 1040)
    assert not RUNTIME["cudaGetDeviceProperties_v2"](ctypes.addressof(raw), 0)
    values = {at: struct.unpack_from("<i", raw, at)[0] for at in (348, 360, 388, 624, 772, 1028)}
    assert values[348] > 1_000_000  # clockRate
    assert (values[360], values[388], values[624], values[772]) == (9, 132, 2048, 1)
    assert values[1028] == 0 and raw.raw[1032:] == b"\xff" * 8


def words(form, *values):
    return ctypes.create_string_buffer(struct.pack(form, *values), struct.calcsize(form))


def test_tensor_maps_are_those_of_the_driver():
    from emulator.adapters.cuda.driver import DRIVER

    out, held = ctypes.create_string_buffer(128), []

    def at(form, *values):
        held.append(words(form, *values))
        return ctypes.addressof(held[-1])

    tiled = [6, 2, 1 << 20, at("2Q", 64, 128), at("Q", 256), at("2I", 64, 32), at("2I", 1, 1)]
    encode = DRIVER["cuTensorMapEncodeTiled"]
    assert not encode(ctypes.addressof(out), *tiled, 0, 3, 2, 1)
    made = TensorMap.tiled(
        1 << 20, dtype="float16", dims=(64, 128), strides=(256,), box=(64, 32), swizzle="128B",
        l2_promotion="128B", fill="nan",
    )  # fmt: skip
    assert out.raw == made.encode()
    assert not DRIVER["cuTensorMapReplaceAddress"](ctypes.addressof(out), 1 << 21)
    assert out.raw == made.with_address(1 << 21).encode()
    image = [9, 3, 1 << 20, at("3Q", 64, 16, 4), at("2Q", 128, 2048), at("i", -1), at("i", -1)]
    encode = DRIVER["cuTensorMapEncodeIm2col"]
    assert not encode(ctypes.addressof(out), *image, 64, 8, at("3I", 1, 1, 1), 0, 0, 0, 0)
    assert out.raw == TensorMap.im2col(
        1 << 20, dtype="bfloat16", dims=(64, 16, 4), strides=(128, 2048), lower=(-1,), upper=(-1,),
        channels=64, pixels=8,
    ).encode()  # fmt: skip
    for wrong, code in (([6, 2, 8, *tiled[3:], 0, 0, 0, 0], 1), ([*tiled, 0, 4, 0, 0], 801)):
        with pytest.raises(CudaError) as refused:
            DRIVER["cuTensorMapEncodeTiled"](ctypes.addressof(out), *wrong)
        assert refused.value.code == code


@pytest.mark.parametrize("library", LIBRARIES)
def test_each_function_has_a_trampoline(library):
    functions, _ = LIBRARIES[library]
    text = c_text(library, functions)
    assert re.findall(r"int64_t (\w+)\(.*\) \{ .*return call\(", text) == [
        f.name for f in functions
    ]


def test_words_of_arguments_are_read_as_c_wrote_them():
    words = struct.pack("<QIII4xIII4xQQQ", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
    layout = FUNCTIONS["cudaLaunchKernel"].layout
    assert layout.size == len(words)
    assert layout.unpack(words) == tuple(range(1, 11))


# --- fat binaries ---------------------------------------------------------------------------------


def image(*entries):
    """A fat binary of (kind, architecture, flags, body, unpacked size)."""
    out = b""
    for kind, architecture, flags, body, full in entries:
        padded = body + b"\0" * (-len(body) % 8)
        head = struct.pack("<HHIQIIIIQQQ", kind, 0x101, 64, len(padded), len(body), 0, 0,
                           architecture, 0, flags, 0)  # fmt: skip
        head = head[:40] + struct.pack("<QQQ", flags, 0, full)
        out += head + padded
    return struct.pack("<IHHQ", fatbin.MAGIC, 1, 16, len(out)) + out


def test_the_newest_ptx_that_the_gpu_runs_is_taken():
    made = image(
        (2, 90, 0, b"machine code", 12),
        (1, 80, 0, b"old\0", 4),
        (1, 90, 0, b"new\0", 4),
        (1, 100, 0, b"newer\0", 6),
    )
    assert fatbin.newest(made, 90) == "new"
    assert fatbin.newest(made, 89) == "old"


def test_machine_code_alone_says_how_to_build_it():
    with pytest.raises(fatbin.NoPtx, match="nvcc -gencode arch=compute_90"):
        fatbin.newest(image((2, 90, 0, b"machine code", 12)), 90)


def test_lz4_blocks():
    # Four literals, then a match of 12 bytes that overlaps itself, then two literals.
    block = bytes([0x48]) + b"abcd" + bytes([4, 0]) + bytes([0x20]) + b"XY"
    assert fatbin.unpack_lz4(block, 18) == b"abcd" * 4 + b"XY"
    assert fatbin.newest(image((1, 80, 0x2000, block, 18)), 80) == "abcd" * 4 + "XY"


@pytest.mark.parametrize(
    "block", [b"", b"\xf0", bytes([0x10]) + b"a" + bytes([2, 0]), bytes([0x10, 97, 0, 0])]
)
def test_a_broken_lz4_block_is_an_error(block):
    with pytest.raises(UnsupportedError, match="LZ4"):
        fatbin.unpack_lz4(block, 64)


def test_zstd_frames():
    zstandard = pytest.importorskip("zstandard")
    body = zstandard.ZstdCompressor().compress(b"text of a module\0")
    assert fatbin.newest(image((1, 80, 0x8000, body, 17)), 80) == "text of a module"


def test_an_image_without_ptx_that_fits_is_none():
    assert fatbin.newest_or_none(image((2, 90, 0, b"machine code", 12)), 90) is None


# --- graphs ---------------------------------------------------------------------------------------


class Step(Work):
    """Adds a number to a list."""

    def __init__(self, number, done):
        self.number, self.done = number, done

    def run(self):
        self.done.append(self.number)


def graph_of(*needs):
    """A graph of nodes that add their number to a list; each waits for the nodes of these
    numbers."""
    done, graph = [], Graph()
    for number, before in enumerate(needs):
        graph.add(Node(Step(number, done), [graph.nodes[i] for i in before]))
    return done, graph


def test_nodes_run_behind_those_they_wait_for():
    done, graph = graph_of([], [], [0], [1, 2])
    graph.nodes[0].needs = [graph.nodes[1]]
    graph.clone().run()
    assert done == [1, 0, 2, 3]
    assert graph.nodes[3].ancestors() == set(graph.nodes[:3])
    graph.nodes[1].needs = [graph.nodes[3]]
    with pytest.raises(CudaError):
        graph.in_order()


def test_a_clone_has_the_shape_and_nodes_of_its_own():
    _, graph = graph_of([], [0], [0, 1])
    twin = graph.clone()
    assert twin.edges() == graph.edges() and not set(twin.nodes) & set(graph.nodes)
    assert twin.twin(graph.nodes[1]) is twin.nodes[1]
    twin.nodes[2].needs.pop()
    assert twin.edges() != graph.edges()


def test_a_graph_within_a_graph_is_cloned_and_found():
    done, inner = graph_of([], [0])
    outer = Graph()
    outer.add(Node(Child(inner)))
    twin = outer.clone()
    found = twin.twin(inner.nodes[1])
    assert found is not inner.nodes[1] and found.graph is twin.nodes[0].work.graph
    found.enabled = False
    twin.run()
    assert done == [0]
    outer.run()
    assert done == [0, 0, 1]


@pytest.mark.parametrize(
    ("choice", "value", "count", "ran"),
    [
        (Conditional.IF, 5, 1, [0]), (Conditional.IF, 0, 1, []), (Conditional.IF, 0, 2, [1]),
        (Conditional.WHILE, 3, 1, [0, 0, 0]), (Conditional.SWITCH, 2, 3, [2]),
        (Conditional.SWITCH, 3, 3, []),
    ],
)  # fmt: skip
def test_a_value_chooses_the_graph_that_runs(choice, value, count, ran):
    done, condition = [], Condition(value, assigned=False)

    class Count(Step):
        """A step that counts the value down."""

        def run(self):
            super().run()
            put(condition.address, "I", max(0, condition.value - 1))

    bodies = [Graph() for _ in range(count)]
    for number, body in enumerate(bodies):
        body.add(Node(Count(number, done)))
    Conditional(condition, choice, bodies).run()
    assert done == ran


def test_objects_of_the_program_end_with_the_last_graph_that_holds_them():
    held, graph = UserObject(7, 1234, 1), Graph()
    graph.objects[held] = 1
    twin = graph.clone()
    graph.release()
    assert held.count == 1 and not after_call
    twin.release()
    assert held.count == 0 and after_call == [(1234, 7)]
    after_call.clear()


# --- memory and handles ---------------------------------------------------------------------------


def test_memory_is_found_by_every_address_in_it():
    space = Space(1 << 20)
    at = space.allocate(100, "device")
    assert space.find(at + 99).address == at and space.used == 100
    assert space.find(at + 100) is None and space.find(at - 1) is None
    space.bytes_at(at + 4, 2)[:] = 7
    assert ctypes.string_at(at, 8) == bytes([0, 0, 0, 0, 7, 7, 0, 0])
    space.release(at, "device")
    assert space.find(at) is None and space.used == 0


def test_copies_beyond_a_buffer_are_errors():
    space = Space(1 << 20)
    at = space.allocate(64, "device")
    for address, size in ((at, 65), (at + 60, 5), (at + 64, 1)):
        with pytest.raises(CudaError) as caught:
            space.host(address, size, device=True)
        assert caught.value.code == 1
    with pytest.raises(CudaError):  # the host's null pointer: a copy would end the process
        space.host(0, 4)
    assert space.host(0, 0) == 0


@pytest.mark.parametrize(("size", "code"), [(0, 1), (-1, 1), (1 << 21, 2), (1 << 62, 2)])
def test_sizes_that_cannot_be_are_errors(size, code):
    with pytest.raises(CudaError) as caught:
        Space(1 << 20).allocate(size, "device")
    assert caught.value.code == code


def test_what_one_kind_of_call_allocated_another_does_not_free():
    space = Space(1 << 20)
    with pytest.raises(CudaError):
        space.release(space.allocate(8, "host"), "device", "managed")


def test_memory_of_the_program_is_registered_once():
    space, held = Space(1 << 20), ctypes.create_string_buffer(256)
    at = ctypes.addressof(held) + 8
    space.register(at, 100)
    assert space.find(at + 99) == (at, 100, "registered") and space.used == 0
    space.bytes_at(at, 1)[:] = 7
    assert held.raw[8] == 7
    for address, size, code in ((at, 100, 712), (at + 50, 100, 712), (0, 1, 1), (at, 0, 1)):
        with pytest.raises(CudaError) as caught:
            space.register(address, size)
        assert caught.value.code == code
    space.release(at, "registered")
    assert space.find(at) is None


def test_handles_know_their_kinds():
    handles = Handles()
    number = handles.add("text")
    assert handles.find(number, str) == "text" and handles.handle_of("text") == number
    for wrong in (number + 1, 0):
        with pytest.raises(CudaError):
            handles.find(wrong, str)
    with pytest.raises(CudaError):
        handles.find(number, bytes)


def test_values_go_where_callers_want_them():
    room = (ctypes.c_uint32 * 2)()
    put(ctypes.addressof(room), "II", 5, 6)
    assert get(ctypes.addressof(room), "II") == (5, 6)
    put(0, "I", 1)
    with pytest.raises(CudaError):
        get(0, "I")


def test_a_condition_may_die_while_a_launch_runs():
    from emulator.adapters.cuda.driver.devices import space

    condition = Condition(1, True)
    address = condition.address
    with space().memory._alone():
        del condition
        gc.collect()
    assert space().find(address) is not None
    other = space().allocate(8, "device")
    assert space().find(address) is None or other == address
    space().release(other, "device")


def test_logs_of_a_compilation_are_empty_when_it_has_nothing_to_say():
    from emulator.adapters.cuda.driver import DRIVER

    image = b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() { ret; }"
    logs = [ctypes.create_string_buffer(b"left from before", 32) for _ in range(2)]
    options, values = (
        words("4I", 3, 4, 5, 6),
        words("4Q", ctypes.addressof(logs[0]), 32, ctypes.addressof(logs[1]), 32),
    )
    out = ctypes.create_string_buffer(8)
    at = ctypes.addressof
    given = ctypes.create_string_buffer(image)
    DRIVER["cuModuleLoadDataEx"](at(out), at(given), 4, at(options), at(values))
    assert [log.value for log in logs] == [b"", b""]
