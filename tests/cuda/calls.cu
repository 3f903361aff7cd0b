// Calls that a GPU refuses, and some beside them that it accepts: graphs with memory or conditions,
// captures, memory of other processes, managed memory. tests/golden/h100_calls.txt has the answers.
#include <cstdio>
#include <cuda_runtime.h>
#define P(what) printf("%s: %s\n", #what, cudaGetErrorName(what)), cudaGetLastError()
__global__ void add(int *p, int v) { p[threadIdx.x] += v; }
__global__ void set(cudaGraphConditionalHandle h, unsigned v) { cudaGraphSetConditional(h, v); }
static cudaGraph_t plain(int *p, int kinds) {
  cudaGraph_t g; cudaGraphCreate(&g, 0); cudaGraphNode_t a, b; int v = 5;
  cudaMemsetParams f = {}; f.dst = p; f.value = 1; f.elementSize = 4; f.width = 32; f.height = 1;
  cudaGraphAddMemsetNode(&a, g, nullptr, 0, &f);
  void *args[] = {&p, &v}; cudaKernelNodeParams k = {};
  k.func = (void *)add; k.gridDim = dim3(1); k.blockDim = dim3(32); k.kernelParams = args;
  if (kinds == 0) cudaGraphAddKernelNode(&b, g, &a, 1, &k);
  if (kinds == 1) cudaGraphAddEmptyNode(&b, g, &a, 1);
  if (kinds == 2) cudaGraphAddKernelNode(&b, g, nullptr, 0, &k);
  return g;
}
int main() {
  int *p; cudaMalloc(&p, 4096); cudaStream_t s, t; cudaStreamCreate(&s); cudaStreamCreate(&t);
  cudaGraph_t graph, clone, other; cudaGraphExec_t exec, second; cudaGraphNode_t made, kernel, end, x;
  cudaGraphCreate(&graph, 0); cudaGraphCreate(&other, 0);
  cudaMemAllocNodeParams m = {}; m.poolProps.allocType = cudaMemAllocationTypePinned;
  m.poolProps.location.type = cudaMemLocationTypeDevice; m.bytesize = 128;
  P(cudaGraphAddMemAllocNode(&made, graph, nullptr, 0, &m));
  void *q = m.dptr; int v = 5;
  void *args[] = {&q, &v}; cudaKernelNodeParams k = {};
  k.func = (void *)add; k.gridDim = dim3(1); k.blockDim = dim3(32); k.kernelParams = args;
  P(cudaGraphAddKernelNode(&kernel, graph, &made, 1, &k));
  P(cudaGraphAddMemFreeNode(&end, graph, &kernel, 1, q));
  P(cudaGraphClone(&clone, graph)); P(cudaGraphDestroyNode(end));
  P(cudaGraphRemoveDependencies(graph, &kernel, &end, nullptr, 1));
  P(cudaGraphAddChildGraphNode(&x, other, nullptr, 0, graph));
  P(cudaGraphInstantiate(&exec, graph, 0)); P(cudaGraphInstantiate(&second, graph, 0));
  P(cudaGraphLaunch(exec, s)); P(cudaStreamSynchronize(s));
  cudaGraphExecUpdateResultInfo info; cudaGraph_t g0 = plain(p, 0), g1 = plain(p, 1), g2 = plain(p, 2);
  cudaGraphExec_t e; P(cudaGraphInstantiate(&e, g0, 0));
  P(cudaGraphExecUpdate(e, g1, &info)); printf("  %d %d %d\n", info.result, info.errorNode != 0, info.errorFromNode != 0);
  P(cudaGraphExecUpdate(e, g2, &info)); printf("  %d %d %d\n", info.result, info.errorNode != 0, info.errorFromNode != 0);
  P(cudaGraphExecUpdate(e, other, &info)); printf("  %d %d %d\n", info.result, info.errorNode != 0, info.errorFromNode != 0);
  P(cudaGraphExecUpdate(e, g0, &info)); printf("  %d %d %d\n", info.result, info.errorNode != 0, info.errorFromNode != 0);
  // conditions
  cudaGraph_t c; cudaGraphCreate(&c, 0); cudaGraphConditionalHandle h;
  P(cudaGraphConditionalHandleCreate(&h, c, 1, cudaGraphCondAssignDefault));
  cudaGraphNodeParams n = {cudaGraphNodeTypeConditional};
  n.conditional.handle = h; n.conditional.type = cudaGraphCondTypeIf; n.conditional.size = 1;
  P(cudaGraphAddNode(&x, other, nullptr, nullptr, 0, &n));
  P(cudaGraphInstantiate(&e, c, 0));
  P(cudaGraphAddNode(&x, c, nullptr, nullptr, 0, &n));
  cudaGraphNodeParams n3 = n; n3.conditional.size = 3; P(cudaGraphAddNode(&x, c, nullptr, nullptr, 0, &n3));
  P(cudaGraphClone(&clone, c)); P(cudaGraphAddChildGraphNode(&x, other, nullptr, 0, c));
  P(cudaGraphInstantiate(&e, c, 0)); P(cudaGraphInstantiate(&second, c, 0));
  // capture
  cudaEvent_t ev; cudaEventCreate(&ev); cudaGraph_t r = (cudaGraph_t)7; cudaStreamCaptureStatus st;
  P(cudaStreamBeginCapture(0, cudaStreamCaptureModeRelaxed));
  P(cudaStreamEndCapture(s, &r)); printf("  %d\n", r == nullptr);
  P(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed)); P(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
  P(cudaStreamSynchronize(s)); P(cudaStreamIsCapturing(s, &st)); printf("  %d\n", st);
  add<<<1, 1, 0, s>>>(p, 1); P(cudaGetLastError()); P(cudaStreamEndCapture(s, &r)); printf("  %d\n", r == nullptr);
  P(cudaStreamIsCapturing(s, &st)); printf("  %d\n", st);
  P(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed)); add<<<1, 1, 0, s>>>(p, 1);
  P(cudaEventRecord(ev, s)); P(cudaEventQuery(ev)); P(cudaStreamIsCapturing(s, &st)); printf("  %d\n", st);
  P(cudaStreamEndCapture(s, &r));
  P(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed)); add<<<1, 1, 0, s>>>(p, 1);
  cudaEventRecord(ev, s); P(cudaStreamWaitEvent(t, ev, 0)); add<<<1, 1, 0, t>>>(p, 1);
  P(cudaStreamEndCapture(t, &r)); P(cudaStreamIsCapturing(s, &st)); printf("  %d\n", st);
  P(cudaStreamEndCapture(s, &r)); P(cudaStreamIsCapturing(t, &st)); printf("  %d\n", st);
  P(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed)); add<<<1, 1, 0, s>>>(p, 1);
  cudaEventRecord(ev, s); cudaStreamWaitEvent(t, ev, 0); add<<<1, 1, 0, t>>>(p, 1);
  P(cudaStreamEndCapture(s, &r)); P(cudaStreamIsCapturing(t, &st)); printf("  %d\n", st);
  P(cudaEventQuery(ev));
  // ipc
  cudaIpcMemHandle_t ih; void *o; P(cudaIpcGetMemHandle(&ih, p)); P(cudaIpcOpenMemHandle(&o, ih, cudaIpcMemLazyEnablePeerAccess));
  int *mg, *ph; cudaMallocManaged(&mg, 64); P(cudaIpcGetMemHandle(&ih, mg)); cudaMallocHost(&ph, 64); P(cudaIpcGetMemHandle(&ih, ph));
  P(cudaIpcGetMemHandle(&ih, p + 4)); P(cudaIpcCloseMemHandle(p));
  cudaIpcEventHandle_t eh; P(cudaIpcGetEventHandle(&eh, ev)); cudaEvent_t ie, ie2; P(cudaEventCreateWithFlags(&ie, cudaEventInterprocess));
  P(cudaEventCreateWithFlags(&ie, cudaEventInterprocess | cudaEventDisableTiming)); P(cudaIpcGetEventHandle(&eh, ie)); P(cudaIpcOpenEventHandle(&ie2, eh));
  // managed
  int w = 9; P(cudaMemRangeGetAttribute(&w, 4, cudaMemRangeAttributePreferredLocation, mg, 64)); printf("  %d\n", w);
  P(cudaMemRangeGetAttribute(&w, 4, cudaMemRangeAttributePreferredLocation, p, 64));
  P(cudaMemAdvise(mg, 64, cudaMemAdviseSetPreferredLocation, {cudaMemLocationTypeDevice, 3}));
  P(cudaMemAdvise(p, 64, cudaMemAdviseSetReadMostly, {cudaMemLocationTypeDevice, 0}));
  P(cudaMemPrefetchAsync(p, 64, {cudaMemLocationTypeDevice, 0}, 0, 0)); P(cudaMemPrefetchAsync(mg, 64, {cudaMemLocationTypeDevice, 5}, 0, 0));
  P(cudaMemPrefetchAsync(mg, 0, {cudaMemLocationTypeDevice, 0}, 0, 0));
  return 0;
}
