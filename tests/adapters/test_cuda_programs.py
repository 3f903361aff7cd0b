"""Programs that know nothing of this package run with `exec`: numba-cuda and CUDA C++."""

import json
import os
import shutil
import subprocess
import sys

import pytest
from paths import ROOT

from emulator.adapters.cuda import native

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("cc") and not shutil.which("gcc"), reason="no C compiler"),
]

SUM = r"""
#include <cstdio>
#include <vector>
__constant__ float scale[2];
__device__ unsigned count;
__global__ void add(const float *a, const float *b, float *c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { c[i] = scale[0] * a[i] + scale[1] * b[i]; atomicAdd(&count, 1u); }
  if (i == 0) printf("first block of %d\n", gridDim.x);
}
__global__ void beyond(int *p) { p[threadIdx.x] = 1; }
int main(int argc, char **argv) {
  const int n = 1000; const float factors[2] = {2, 3};
  std::vector<float> x(n), y(n), z(n);
  for (int i = 0; i < n; i++) x[i] = i, y[i] = 2 * i;
  float *a, *b, *c; cudaStream_t s;
  if (cudaStreamCreate(&s) || cudaMalloc(&a, n * 4) || cudaMalloc(&b, n * 4)) return 2;
  if (cudaMallocManaged(&c, n * 4) || cudaMemcpyToSymbol(scale, factors, 8)) return 3;
  cudaMemcpyAsync(a, x.data(), n * 4, cudaMemcpyHostToDevice, s);
  cudaMemcpy(b, y.data(), n * 4, cudaMemcpyHostToDevice);
  add<<<4, 256, 0, s>>>(a, b, c, n);
  if (cudaStreamSynchronize(s)) return 4;
  unsigned seen; cudaMemcpyFromSymbol(&seen, count, 4);
  for (int i = 0; i < n; i++) if (c[i] != 8 * i) return 5;
  cudaDeviceProp p; cudaGetDeviceProperties(&p, 0);
  printf("%u %d.%d %d\n", seen, p.major, p.minor, p.multiProcessorCount);
  if (argc > 1) {
    int *q; cudaMalloc(&q, 64); beyond<<<1, 32>>>(q);
    cudaError_t e = cudaDeviceSynchronize();
    printf("%s\n", cudaGetErrorName(e));
  }
  return 7;
}
"""


#: memory of new lives until delete, in whichever launch
HEAP = r"""
#include <cstdio>
__device__ int *kept; __device__ int seen;
__global__ void make(int n) { kept = new int[n]; for (int i = 0; i < n; i++) kept[i] = i; }
__global__ void use() { atomicAdd(&seen, kept[threadIdx.x]); kept[threadIdx.x] += 100; }
__global__ void end(int *out) { *out = kept[9]; delete[] kept; }
int main() {
  int *out, n, total; cudaMalloc(&out, 4);
  make<<<1, 1>>>(64); use<<<1, 64>>>(); use<<<1, 64>>>(); end<<<1, 1>>>(out);
  cudaMemcpyFromSymbol(&total, seen, 4);
  cudaMemcpy(&n, out, 4, cudaMemcpyDeviceToHost);
  printf("%d %d %s\n", n, total, cudaGetErrorName(cudaDeviceSynchronize()));
}
"""


#: variables that are __managed__; the version 2 is what CUDA 12 calls cudaGetDeviceProperties
MANAGED = r"""
#include <cstdio>
#include <cstring>
__managed__ int counts[4] = {1, 2, 3, 4};
__managed__ float factor = 2.5f;
extern "C" cudaError_t cudaGetDeviceProperties_v2(void *, int);
__global__ void multiply(int *p) { p[threadIdx.x] += int(10 * factor) + counts[3]; }
int main() {
  counts[0] = 100; factor = 3;
  multiply<<<1, 3>>>(counts);
  if (cudaDeviceSynchronize()) return 2;
  int copied[4]; cudaMemcpyFromSymbol(copied, counts, 16);
  printf("%d %d %d %d\n", counts[0], counts[1], copied[2], copied[3]);
#ifdef CUDA_12
  char properties[1032]; int major; cudaGetDeviceProperties_v2(properties, 0);
  memcpy(&major, properties + 360, 4);
  printf("%s %d\n", properties, major);
#endif
}
"""


def run(*words, timeout=120, **variables):
    environment = {**os.environ, **variables}
    environment.pop("TRITON_INTERPRET", None)  # of other tests in this process
    done = subprocess.run(
        [sys.executable, "-m", "emulator", "exec", *words], cwd=ROOT, env=environment,
        capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return built(tmp_path_factory.mktemp("program"), SUM)


def built(folder, text, *options):
    nvcc = shutil.which("nvcc") or pytest.skip("no nvcc")
    (folder / "program.cu").write_text(text)
    subprocess.run(
        [nvcc, "-arch=sm_80", "-cudart", "shared", "-Xfatbin", "-compress-mode=speed", "-o",
         folder / "program", *options, folder / "program.cu"],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    return folder / "program"


def test_memory_of_new_lives_from_launch_to_launch(tmp_path):
    code, out, err = run("--gpu", "H100", "--check", "--", str(built(tmp_path, HEAP)))
    assert (code, err) == (0, "")
    assert out == f"209 {2 * 2016 + 6400} cudaSuccess\n4 launches checked, 0 findings\n"


def test_calls_are_refused_as_an_h100_refuses_them(tmp_path):
    source = (ROOT / "tests/cuda/calls.cu").read_text()
    code, out, err = run("--gpu", "H100", "--", str(built(tmp_path, source)))
    recorded = (ROOT / "tests/golden/h100_calls.txt").read_text().splitlines()
    wanted = [line for line in recorded if not line.startswith("#")]
    assert (code, err) == (0, "") and out.splitlines() == wanted


#: graphs from nodes: two values that a kernel adds, memory of a graph, a clone, an update
GRAPH = r"""
#include <cstdio>
__global__ void add(int *p, int v) { p[threadIdx.x] += v; }
int main() {
  int *p, host[32], v = 5, w = 100; cudaStream_t s; cudaStreamCreate(&s);
  cudaGraph_t graph, clone; cudaGraphExec_t exec; cudaGraphNode_t made, fill, kernel, copied, end;
  cudaGraphCreate(&graph, 0);
  cudaMemAllocNodeParams m = {}; m.poolProps.allocType = cudaMemAllocationTypePinned;
  m.poolProps.location.type = cudaMemLocationTypeDevice; m.bytesize = 128;
  if (cudaGraphAddMemAllocNode(&made, graph, nullptr, 0, &m)) return 1;
  p = (int *)m.dptr;
  cudaMemsetParams f = {}; f.dst = p; f.value = 1; f.elementSize = 4; f.width = 32; f.height = 1;
  if (cudaGraphAddMemsetNode(&fill, graph, &made, 1, &f)) return 2;
  void *args[] = {&p, &v}; cudaKernelNodeParams k = {};
  k.func = (void *)add; k.gridDim = dim3(1); k.blockDim = dim3(32); k.kernelParams = args;
  if (cudaGraphAddKernelNode(&kernel, graph, &fill, 1, &k)) return 3;
  if (cudaGraphAddMemcpyNode1D(&copied, graph, &kernel, 1, host, p, 128, cudaMemcpyDeviceToHost))
    return 4;
  if (cudaGraphAddMemFreeNode(&end, graph, &copied, 1, p)) return 5;
  size_t n; cudaGraphGetNodes(graph, nullptr, &n);
  if (cudaGraphInstantiate(&exec, graph, 0) || cudaGraphLaunch(exec, s)) return 6;
  cudaStreamSynchronize(s); printf("%zu %d", n, host[31]);
  args[1] = &w; cudaGraphExecKernelNodeSetParams(exec, kernel, &k);
  cudaGraphLaunch(exec, s); cudaStreamSynchronize(s); printf(" %d", host[31]);
  cudaMalloc(&p, 128); cudaMemset(p, 0, 128); args[1] = &v; cudaGraph_t plain;
  cudaGraphCreate(&plain, 0); cudaGraphAddKernelNode(&kernel, plain, nullptr, 0, &k);
  cudaGraphAddKernelNode(&end, plain, &kernel, 1, &k); cudaGraphClone(&clone, plain);
  cudaGraphInstantiate(&exec, plain, 0);
  args[1] = &w; cudaGraphExecKernelNodeSetParams(exec, kernel, &k); cudaGraphLaunch(exec, s);
  cudaGraphExecUpdateResultInfo info; cudaGraphExecUpdate(exec, clone, &info);
  cudaGraphLaunch(exec, s); cudaMemcpy(host, p, 128, cudaMemcpyDeviceToHost);
  cudaGraphDestroyNode(end);
  printf(" %d %s\n", host[31], cudaGetErrorName(cudaGraphExecUpdate(exec, plain, &info)));
}
"""


def test_graphs_are_built_from_nodes(tmp_path):
    code, out, err = run("--gpu", "H100", "--", str(built(tmp_path, GRAPH)))
    assert (code, out, err) == (0, "5 6 101 115 cudaErrorGraphExecUpdateFailure\n", "")


#: a loop that a kernel ends, within it a choice; what is captured meanwhile goes into the loop
CONDITIONAL = r"""
#include <cstdio>
__global__ void count(int *p, cudaGraphConditionalHandle loop, cudaGraphConditionalHandle odd) {
  p[0]++; cudaGraphSetConditional(loop, p[0] < 7); cudaGraphSetConditional(odd, p[0] % 2);
}
__global__ void add(int *p, int v) { p[1] += v; }
static cudaGraphNodeParams node(cudaGraphConditionalHandle h, cudaGraphConditionalNodeType type) {
  cudaGraphNodeParams p = {cudaGraphNodeTypeConditional};
  p.conditional.handle = h; p.conditional.type = type; p.conditional.size = type ? 1 : 2;
  return p;
}
int main() {
  int *p, host[2]; cudaMalloc(&p, 8); cudaMemset(p, 0, 8);
  cudaStream_t s; cudaStreamCreate(&s);
  cudaGraph_t graph, body; cudaGraphExec_t exec; cudaGraphNode_t at;
  cudaGraphConditionalHandle loop, odd; cudaGraphCreate(&graph, 0);
  cudaGraphConditionalHandleCreate(&loop, graph, 1, cudaGraphCondAssignDefault);
  cudaGraphConditionalHandleCreate(&odd, graph);
  cudaGraphNodeParams outer = node(loop, cudaGraphCondTypeWhile);
  if (cudaGraphAddNode(&at, graph, nullptr, nullptr, 0, &outer)) return 1;
  body = outer.conditional.phGraph_out[0];
  cudaStreamBeginCaptureToGraph(s, body, nullptr, nullptr, 0, cudaStreamCaptureModeGlobal);
  count<<<1, 1, 0, s>>>(p, loop, odd);
  if (cudaStreamEndCapture(s, nullptr)) return 2;
  size_t n = 1; cudaGraphGetNodes(body, &at, &n);
  cudaGraphNodeParams inner = node(odd, cudaGraphCondTypeIf);
  if (cudaGraphAddNode(&at, body, &at, nullptr, 1, &inner)) return 3;
  for (int i = 0; i < 2; i++) {
    cudaGraph_t branch = inner.conditional.phGraph_out[i];
    cudaStreamBeginCaptureToGraph(s, branch, nullptr, nullptr, 0, cudaStreamCaptureModeGlobal);
    add<<<1, 1, 0, s>>>(p, i ? 100 : 1);
    cudaStreamEndCapture(s, nullptr);
  }
  if (cudaGraphInstantiate(&exec, graph, 0)) return 4;
  for (int i = 0; i < 2; i++) {
    cudaGraphLaunch(exec, s); cudaMemcpy(host, p, 8, cudaMemcpyDeviceToHost);
    printf("%d %d\n", host[0], host[1]);
  }
  cudaGraphExecDestroy(exec); return cudaGraphDestroy(graph);
}
"""


def test_conditional_nodes_loop_and_choose(tmp_path):
    code, out, err = run("--gpu", "H100", "--", str(built(tmp_path, CONDITIONAL)))
    assert (code, out, err) == (0, "7 304\n8 404\n", "")


#: a kernel launches a kernel, and calls through an address that another launch has stored
NESTED = r"""
#include <cstdio>
struct Base { __device__ virtual int f(int x) { return x; } };
struct Other : Base { __device__ int f(int x) override { return 3 * x; } };
__device__ Base *kept;
__global__ void make() { kept = new Other; }
__global__ void child(int *p, int x) { p[threadIdx.x] = kept->f(x); }
__global__ void parent(int *p) { child<<<1, 4>>>(p, 7); }
int main() {
  int *p, host[4]; cudaMalloc(&p, 16);
  make<<<1, 1>>>(); parent<<<1, 1>>>(p);
  printf("%s", cudaGetErrorName(cudaMemcpy(host, p, 16, cudaMemcpyDeviceToHost)));
  printf(" %d\n", host[3]);
}
"""


def test_linked_programs_run_whose_kernels_launch_kernels(tmp_path):
    options = ("-rdc=true", "-lcudadevrt")
    code, out, err = run("--gpu", "H100", "--", str(built(tmp_path, NESTED, *options)))
    assert (code, out, err) == (0, "cudaSuccess 21\n", "")


VIRTUAL = """
import ctypes
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
cu = ctypes.CDLL("libcuda.so.1")
cu.cuInit(0); context = c_void_p()
cu.cuDevicePrimaryCtxRetain(byref(context), 0); cu.cuCtxSetCurrent(context)
properties = (c_int * 8)(1, 0, 1, 0)
step, at, handle = c_size_t(), c_uint64(), c_uint64()
cu.cuMemGetAllocationGranularity(byref(step), properties, 0); n = c_size_t(step.value)
print(cu.cuMemAddressReserve(byref(at), c_size_t(2 * n.value), c_size_t(0), c_uint64(0), 0),
      cu.cuMemCreate(byref(handle), n, properties, 0), cu.cuMemMap(at, n, c_size_t(0), handle, 0))
print(cu.cuMemsetD8_v2(at, 7, n), cu.cuMemSetAccess(at, n, (c_int * 3)(1, 0, 3), 1))
second = c_uint64(at.value + n.value)
print(cu.cuMemMap(at, n, c_size_t(0), handle, 0), cu.cuMemSetAccess(second, n, None, 0))
print(cu.cuMemMap(second, n, c_size_t(0), handle, 0), cu.cuMemSetAccess(second, n, None, 0))
seen = (ctypes.c_ubyte * 4)()
print(cu.cuMemsetD8_v2(at, 7, n), cu.cuMemcpyDtoH_v2(seen, second, c_size_t(4)), list(seen))
both = c_size_t(2 * n.value)
print(cu.cuMemRelease(handle), cu.cuMemAddressFree(at, both), cu.cuMemUnmap(at, both),
      cu.cuMemcpyDtoH_v2(seen, at, c_size_t(4)), cu.cuMemAddressFree(at, both))
"""


def test_virtual_memory_is_mapped_twice():
    code, out, err = run("--gpu", "H100", "--", sys.executable, "-c", VIRTUAL)
    wanted = "0 0 0\n1 0\n1 1\n0 0\n0 0 [7, 7, 7, 7]\n0 1 0 1 0\n"
    assert (code, out) == (0, wanted), err


#: a process reads and writes the memory of another one, by a handle and through a pool
INTERPROCESS = """
import ctypes, os, subprocess, sys
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
cu = ctypes.CDLL("libcuda.so.1")
cu.cuInit(0); context = c_void_p()
cu.cuDevicePrimaryCtxRetain(byref(context), 0); cu.cuCtxSetCurrent(context)
Bytes = ctypes.c_ubyte * 64
class Handle(ctypes.Structure): _fields_ = [("bytes", Bytes)]
at, again, pool, file, none = c_uint64(), c_uint64(), c_uint64(), c_int(), c_uint64(0)
seen, data, shared = (ctypes.c_uint * 2)(), Bytes(), Bytes()
if len(sys.argv) > 1:
    given = Handle(Bytes(*bytes.fromhex(sys.argv[1])))
    print([cu.cuIpcOpenMemHandle_v2(byref(x), given, 1) for x in (at, again)])
    cu.cuMemcpyDtoH_v2(seen, at, c_size_t(8)); print(list(seen), at.value == again.value)
    cu.cuMemsetD32_v2(at, 9, c_size_t(1))
    print([cu.cuIpcCloseMemHandle(at) for _ in range(3)])
    file, data = c_void_p(int(sys.argv[2])), Bytes(*bytes.fromhex(sys.argv[3]))
    print(cu.cuMemPoolImportFromShareableHandle(byref(pool), file, 1, none))
    print(cu.cuMemPoolImportPointer(byref(at), pool, data))
    cu.cuMemcpyDtoH_v2(seen, at, c_size_t(4)); print(seen[0], cu.cuMemFreeAsync(at, None))
    sys.exit()
cu.cuMemAlloc_v2(byref(at), c_size_t(5000)); cu.cuMemsetD32_v2(at, 7, c_size_t(2))
print(cu.cuIpcGetMemHandle(shared, at))
cu.cuMemPoolCreate(byref(pool), (c_int * 22)(1, 1, 1, 0))
print(cu.cuMemAllocFromPoolAsync(byref(again), c_size_t(64), pool, None))
print(cu.cuMemPoolExportPointer(data, again))
cu.cuMemsetD32_v2(again, 5, c_size_t(1))
cu.cuMemPoolExportToShareableHandle(byref(file), pool, 1, none)
words = [sys.executable, __file__, bytes(shared).hex(), str(file.value), bytes(data).hex()]
sys.stdout.flush(); subprocess.run(words, pass_fds=[file.value], check=True)
cu.cuMemcpyDtoH_v2(seen, at, c_size_t(8)); print(list(seen))
"""


def test_a_process_opens_the_memory_of_another(tmp_path):
    (tmp_path / "parent.py").write_text(INTERPROCESS)
    code, out, err = run("--gpu", "H100", "--", sys.executable, str(tmp_path / "parent.py"))
    wanted = "0\n0\n0\n[0, 0]\n[7, 7] True\n[0, 0, 1]\n0\n0\n5 0\n[9, 7]\n"
    assert (code, out) == (0, wanted), err


def test_a_program_of_nvcc_runs_and_its_exit_code_comes_back(program, tmp_path):
    log = tmp_path / "log"
    code, out, err = run("--gpu", "H100", "--log", str(log), "--", str(program))
    assert (code, out, err) == (7, "first block of 4\n1000 9.0 132\n", "")
    (row,) = [json.loads(line) for line in log.read_text().splitlines()]
    assert row["grid"] == [4, 1, 1] and row["kernel"].startswith("_Z3add") and row["seconds"] > 0


def test_a_kernel_that_writes_beyond_its_memory_is_an_error_as_on_a_gpu(program):
    code, out, err = run("--gpu", "A100", "--", str(program), "bad")
    assert (code, out.splitlines()[-2:]) == (7, ["1000 8.0 108", "cudaErrorIllegalAddress"])
    assert "out of bounds" in err and "beyond" in err


def test_check_reports_what_it_found(program):
    code, out, _ = run("--gpu", "H100", "--check", "--", str(program), "bad")
    assert code == 7 and "2 launches checked, 1 finding\n" in out and "out of bounds" in out


def test_a_program_that_runs_too_long_is_ended():
    code, _, err = run("--time-limit", "1", "--", "sleep", "60", timeout=30)
    assert code == 124 and "longer than 1.0 s" in err


#: what a program asks NVML for: the number of GPUs, the first one's name, and a second one
ASKS_NVML = """
import ctypes
nvml = ctypes.CDLL("libnvidia-ml.so.1")
nvml.nvmlErrorString.restype = ctypes.c_char_p
count, device, name = ctypes.c_uint(), ctypes.c_void_p(), ctypes.create_string_buffer(96)
assert nvml.nvmlInit_v2() == nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0
assert nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
assert nvml.nvmlDeviceGetName(device, name, 96) == 0
assert nvml.nvmlDeviceGetName(device, name, 5) == 7
wrong = nvml.nvmlDeviceGetHandleByIndex_v2(1, ctypes.byref(ctypes.c_void_p()))
print(count.value, name.value.decode(), "|", nvml.nvmlErrorString(wrong).decode())
text = ctypes.create_string_buffer(96)
assert nvml.nvmlSystemGetDriverVersion(text, 96) == nvml.nvmlSystemGetDriverBranch(text, 96) == 3
"""


def test_nvml_finds_the_gpu():
    code, out, err = run("--gpu", "A100", "--", sys.executable, "-c", ASKS_NVML)
    assert (code, out) == (0, "1 NVIDIA A100 (emulated) | An argument is invalid\n"), err


def test_a_program_is_told_once_that_there_is_no_nvrtc():
    path = native.library_folder() / native.NVRTC
    script = f"import ctypes; f = ctypes.CDLL({str(path)!r}).nvrtcVersion; print(f(0, 0), f(0, 0))"
    env = {**os.environ, "EMULATOR_NVRTC": ""}
    done = subprocess.run(
        [sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False
    )
    assert done.stdout == "11 11\n"
    assert done.stderr.count("install nvidia-cuda-nvrtc") == 1, done.stderr


def test_numba_adds_vectors():
    pytest.importorskip("numba_cuda")
    script = (
        "import numpy as np; from numba import cuda\n"
        "@cuda.jit\n"
        "def add(a, b, c):\n"
        "    i = cuda.grid(1)\n"
        "    if i < c.size: c[i] = a[i] + b[i]\n"
        "a = np.arange(1000, dtype=np.float32); c = np.zeros_like(a)\n"
        "add[4, 256](a, a, c); assert (c == 2 * a).all(); print(cuda.get_current_device().name)\n"
    )
    code, out, err = run("--gpu", "H100", "--", sys.executable, "-W", "ignore", "-c", script)
    assert code == 0 and "NVIDIA H100 (emulated)" in out, err


LINK = r"""
import ctypes
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_void_p
cu = ctypes.CDLL("libcuda.so.1")
cu.cuInit(0)
context = c_void_p()
cu.cuDevicePrimaryCtxRetain(byref(context), 0); cu.cuCtxSetCurrent(context)
HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
CALLER = HEAD + ".extern .func (.param .b32 r) f(); .visible .entry k(.param .u64 p) {" \
    ".reg .b64 %p; .reg .b32 %v; .param .b32 y; ld.param.u64 %p, [p]; call (y), f, ();" \
    "ld.param.b32 %v, [y]; st.global.u32 [%p], %v; ret; }"
CALLED = HEAD + ".visible .func (.param .b32 r) f() { st.param.b32 [r], 42; ret; }"
def link(*texts):
    state, log = c_void_p(), ctypes.create_string_buffer(200)
    options = (c_int * 2)(5, 6)
    values = (c_void_p * 2)(ctypes.addressof(log), len(log))
    assert not cu.cuLinkCreate_v2(2, options, values, byref(state))
    for i, text in enumerate(texts):
        raw = text if isinstance(text, bytes) else text.encode() + b"\0"
        code = cu.cuLinkAddData_v2(state, 1, raw, c_size_t(len(raw)), b"text%d" % i, 0, None, None)
        if code: return code, log.value.decode()
    image, size = c_void_p(), c_size_t()
    code = cu.cuLinkComplete(state, byref(image), byref(size))
    if code: return code, log.value.decode()
    module, kernel, p = c_void_p(), c_void_p(), c_void_p()
    assert not cu.cuModuleLoadData(byref(module), image)
    assert not cu.cuModuleGetFunction(byref(kernel), module, b"k")
    assert not cu.cuMemAllocManaged(byref(p), c_size_t(4), 1)
    arguments = (c_void_p * 1)(ctypes.addressof(p))
    assert not cu.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, arguments, None)
    return cu.cuCtxSynchronize(), c_uint.from_address(p.value).value
print(link(CALLER, CALLED), link(CALLED, CALLER))
print(link(CALLER))
print(link(CALLED, CALLED, CALLER)[0], link(b"BC\xc0\xde")[0], link(b"\x7fELF...."))
"""


def test_several_texts_are_linked():
    code, out, err = run("--gpu", "H100", "--", sys.executable, "-c", LINK)
    linked, undefined, refused = out.splitlines()
    assert code == 0 and linked == "(0, 42) (0, 42)", err
    assert undefined == """(200, "error   : Undefined reference to 'f' in 'text0'")"""
    assert refused.startswith("200 801 (801, 'error   : text0 cannot be linked: it is machine code")
    assert "'f' is defined already (text0:4)" in err and "it is LTO-IR" in err


BARE = r"""
import ctypes
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint64, c_void_p
cu, at, n, name = ctypes.CDLL("libcuda.so.1"), c_uint64(), c_int(), c_char_p()
print(cu.cuMemAlloc_v2(byref(at), c_size_t(4)), cu.cuDeviceGetCount(byref(n)),
      cu.cuDriverGetVersion(byref(n)), cu.cuGetErrorName(3, byref(name)), name.value.decode())
cu.cuInit(0); context, module, kernel = c_void_p(), c_void_p(), c_void_p()
cu.cuDevicePrimaryCtxRetain(byref(context), 0); cu.cuCtxSetCurrent(context)
TEXT = b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() { ret; }"
print(cu.cuMemAlloc_v2(byref(at), c_size_t(4)), cu.cuModuleLoadData(byref(module), TEXT),
      cu.cuModuleGetFunction(byref(kernel), module, b"k"))
launch = lambda: cu.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None)
print(launch(), cu.cuModuleUnload(module), launch(), cu.cuModuleUnload(module))
"""


def test_functions_want_cuinit_and_kernels_their_module():
    code, out, err = run("--gpu", "H100", "--", sys.executable, "-c", BARE)
    wanted = "3 3 0 0 CUDA_ERROR_NOT_INITIALIZED\n0 0 0\n0 0 400 400\n"
    assert (code, out) == (0, wanted), err


def test_a_fork_of_a_process_that_used_the_driver_has_no_gpu():
    script = (
        "import ctypes, os\n"
        "cu = ctypes.CDLL('libcuda.so.1'); n = ctypes.c_int()\n"
        "calls = lambda: (cu.cuInit(0), cu.cuDeviceGetCount(ctypes.byref(n)))\n"
        "child = os.fork()\n"
        "if not child: print('before', calls(), flush=True); os._exit(0)\n"
        "os.wait(); calls(); child = os.fork()\n"
        "if not child: print('after', calls(), flush=True); os._exit(0)\n"
        "os.wait(); print('here', calls())\n"
    )
    code, out, err = run("--gpu", "H100", "--", sys.executable, "-c", script)
    assert (code, out) == (0, "before (0, 0)\nafter (3, 3)\nhere (0, 0)\n"), err


CORE = """
from cuda.core import Device, LaunchConfig, Linker, LinkerOptions, Program, ProgramOptions, launch
device = Device(); device.set_current(); stream = device.create_stream()
options = ProgramOptions(std="c++17", arch="sm_90", relocatable_device_code=True)
caller = 'extern __device__ int f(int); extern "C" __global__ void k(int *p) { *p = f(21); }'
texts = [Program(text, "c++", options=options).compile("ptx")
         for text in (caller, "__device__ int f(int x) { return 2 * x; }")]
linked = Linker(*texts, options=LinkerOptions(arch="sm_90")).link("cubin")
plain = Program('extern "C" __global__ void k(int *p) { *p = 7; }', "c++",
                options=ProgramOptions(arch="sm_90")).compile("cubin")
import ctypes
from cuda.core import LegacyPinnedMemoryResource
memory = LegacyPinnedMemoryResource().allocate(4)
for code in (linked, plain):
    launch(stream, LaunchConfig(grid=1, block=1), code.get_kernel("k"), memory)
    stream.sync()
    print(ctypes.c_int.from_address(int(memory.handle)).value)
"""


def test_cuda_core_compiles_and_links_and_asks_for_machine_code():
    pytest.importorskip("cuda.core")
    from emulator.adapters.cuda.native import real_nvrtc

    if not real_nvrtc():
        pytest.skip("no NVRTC")
    code, out, err = run("--gpu", "H100", "--", sys.executable, "-W", "ignore", "-c", CORE)
    assert (code, out) == (0, "42\n7\n"), err


#: a graph with a loop and a call of Python, which lives longer here than in the program
CORE_GRAPH = """
import gc
from cuda.core import Device, LaunchConfig, LegacyPinnedMemoryResource, Program, ProgramOptions
from cuda.core.graph import GraphDefinition
import ctypes
device = Device(); device.set_current(); stream = device.create_stream()
SOURCE = '''
extern "C" __device__ __cudart_builtin__ void CUDARTAPI cudaGraphSetConditional(
    cudaGraphConditionalHandle handle, unsigned int value);
extern "C" __global__ void add(int *p, int v) { *p += v; }
extern "C" __global__ void until(int *p, int end, cudaGraphConditionalHandle h) {
  cudaGraphSetConditional(h, *p < end);
}'''
code = Program(SOURCE, "c++", options=ProgramOptions(std="c++17", arch="sm_90")).compile("cubin")
add, until = code.get_kernel("add"), code.get_kernel("until")
memory = LegacyPinnedMemoryResource().allocate(4)
value = ctypes.c_int.from_address(int(memory.handle)); value.value = 0
graph, one, called = GraphDefinition(), LaunchConfig(grid=1, block=1), []
condition = graph.create_condition(default_value=1)
loop = graph.launch(one, add, memory, 5).while_loop(condition)
loop.body.launch(one, add, memory, 10).launch(one, until, memory, 40, condition)
loop.callback(lambda: called.append(value.value))
print([node.type.name[19:] for node in graph.nodes()], loop.cond_type, len(graph.edges()))
runnable = graph.instantiate()
del graph, loop; gc.collect()
for _ in range(2):
    runnable.launch(stream); stream.sync()
print(called)
"""


def test_graphs_of_cuda_core_loop_and_call_python():
    pytest.importorskip("cuda.core")
    from emulator.adapters.cuda.native import real_nvrtc

    if not real_nvrtc():
        pytest.skip("no NVRTC")
    code, out, err = run("--gpu", "H100", "--", sys.executable, "-W", "ignore", "-c", CORE_GRAPH)
    wanted = "['HOST', 'KERNEL', 'CONDITIONAL'] while 2\n[45, 60]\n"
    assert (code, out) == (0, wanted), err


def test_some_of_numbas_own_tests_pass():
    tests = "numba.cuda.tests.cudapy."
    pytest.importorskip("numba_cuda")
    for name in ("cffi", "filecheck"):
        pytest.importorskip(name)
    names = ["test_py2_div_issue", "test_cooperative_groups"]
    code, _, err = run(
        "--gpu", "H100", "--", sys.executable, "-W", "ignore", "-m", "unittest",
        *(tests + name for name in names), timeout=400,
    )  # fmt: skip
    assert code == 0 and "\nOK" in err, err[-2000:]


TORCH = """
import torch, triton, triton.language as tl
assert torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
@triton.jit
def double(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, 2 * tl.load(x + at, at < n), at < n)
x = torch.arange(100, dtype=torch.float32, device="cuda")
y = torch.empty_like(x)
double[(2,)](x, y, x.numel(), BLOCK=64)
a = torch.ones(16, 16, device="cuda", dtype=torch.float16)
print(y.device, y.sum().item(), (a @ a).sum().item())
"""


@pytest.mark.parametrize("package", ["torch", "triton"])
def test_a_python_program_gets_the_gpu_for_torch_and_triton(tmp_path, package):
    for name in ("torch", "triton"):
        pytest.importorskip(name)
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.own = 1")
    script, log = tmp_path / "program.py", tmp_path / "log"
    script.write_text(f"assert own\nimport {package}\n{TORCH}")
    code, out, err = run(
        "--gpu", "H100", "--check", "--log", str(log), "--", sys.executable, str(script),
        timeout=300, PYTHONPATH=str(tmp_path),
    )  # fmt: skip
    assert code == 0, err
    assert out.splitlines()[0] == "cuda:0 9900.0 4096.0"
    assert "1 launch checked, 0 findings" in out
    (row,) = [json.loads(line) for line in log.read_text().splitlines()]
    assert (row["kernel"], row["grid"], row["findings"]) == ("double", [2, 1, 1], [])


def test_another_python_than_this_one_is_left_alone(tmp_path):
    """A package that cannot have the GPU says so, and the program goes on."""
    (tmp_path / "torch.py").write_text("")
    script = tmp_path / "program.py"
    script.write_text("import torch\nprint('went on')")
    code, out, err = run("--", sys.executable, str(script))
    assert (code, out) == (0, "went on\n") and "torch gets no GPU" in err


@pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc")
@pytest.mark.parametrize("version", ["13", "12"])
def test_managed_variables_and_programs_of_cuda_12(tmp_path, version):
    link = tmp_path / "libcudart.so"
    link.symlink_to(native.library_folder() / f"libcudart.so.{version}")
    options = ["-cudart", "none", f"-DCUDA_{version}", "-L", tmp_path, "-lcudart"]
    binary = built(tmp_path, MANAGED, *options)
    code, out, err = run("--", str(binary))
    expected = "134 36 37 4\n" + "NVIDIA H100 (emulated) 9\n" * (version == "12")
    assert (code, out) == (0, expected), err


def test_the_libraries_lie_in_the_folder_of_caches(tmp_path, monkeypatch):
    if not any(map(shutil.which, native._COMPILERS)):
        pytest.skip("no C compiler")
    monkeypatch.setenv("EMULATOR_CACHE_DIR", str(tmp_path / "caches"))
    folder = native.library_folder()
    assert folder.parent == tmp_path / "caches" and (folder / "libcuda.so.1").exists()
    assert native.library_folder() == folder
