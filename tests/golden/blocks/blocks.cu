// Collectives of CUB, libcu++ and cooperative groups: kernels of one block of 128 threads.

#include <cub/cub.cuh>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda/atomic>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cooperative_groups/memcpy_async.h>

namespace cg = cooperative_groups;

extern "C" __global__ void block_scan(const int* in, int* out) {
    using S = cub::BlockScan<int, 128>;
    __shared__ typename S::TempStorage t;
    int v[4];
    for (int i = 0; i < 4; i++) v[i] = in[threadIdx.x * 4 + i];
    int total;
    S(t).ExclusiveSum(v, v, total);
    for (int i = 0; i < 4; i++) out[threadIdx.x * 4 + i] = v[i];
    if (threadIdx.x == 0) out[512] = total;
}

extern "C" __global__ void block_sort(const unsigned* in, unsigned* out) {
    using S = cub::BlockRadixSort<unsigned, 128, 4, int>;
    __shared__ typename S::TempStorage t;
    unsigned v[4];
    int w[4];
    for (int i = 0; i < 4; i++) {
        v[i] = in[threadIdx.x * 4 + i];
        w[i] = threadIdx.x * 4 + i;
    }
    S(t).SortBlockedToStriped(v, w);
    for (int i = 0; i < 4; i++) {
        out[threadIdx.x + 128 * i] = v[i];
        out[512 + threadIdx.x + 128 * i] = w[i];
    }
}

extern "C" __global__ void block_reduce(const float* in, float* out) {
    using S = cub::BlockReduce<float, 128>;
    __shared__ typename S::TempStorage t;
    float s = S(t).Sum(in[threadIdx.x]);
    __syncthreads();
    float m = S(t).Reduce(in[threadIdx.x], cuda::maximum<>{}, 100);
    if (threadIdx.x == 0) {
        out[0] = s;
        out[1] = m;
    }
}

extern "C" __global__ void block_hist(const unsigned char* in, unsigned* out) {
    using S = cub::BlockHistogram<unsigned char, 128, 4, 256>;
    __shared__ typename S::TempStorage t;
    __shared__ unsigned h[256];
    unsigned char v[4];
    for (int i = 0; i < 4; i++) v[i] = in[threadIdx.x * 4 + i];
    S(t).Histogram(v, h);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += 128) out[i] = h[i];
}

extern "C" __global__ void block_hist_sort(const unsigned char* in, unsigned* out) {
    using S = cub::BlockHistogram<unsigned char, 128, 4, 256, cub::BLOCK_HISTO_SORT>;
    __shared__ typename S::TempStorage t;
    __shared__ unsigned h[256];
    unsigned char v[4];
    for (int i = 0; i < 4; i++) v[i] = in[threadIdx.x * 4 + i];
    S(t).Histogram(v, h);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += 128) out[i] = h[i];
}

extern "C" __global__ void block_merge(const int* in, int* out) {
    using S = cub::BlockMergeSort<int, 128, 3>;
    __shared__ typename S::TempStorage t;
    int v[3];
    for (int i = 0; i < 3; i++) v[i] = in[threadIdx.x * 3 + i];
    S(t).Sort(v, [](int a, int b) { return a < b; });
    for (int i = 0; i < 3; i++) out[threadIdx.x * 3 + i] = v[i];
}

extern "C" __global__ void warp_prims(const int* in, int* out) {
    using WS = cub::WarpScan<int, 16>;
    __shared__ typename WS::TempStorage t[8];
    int r;
    WS(t[threadIdx.x / 16]).InclusiveSum(in[threadIdx.x], r);
    using WR = cub::WarpReduce<int>;
    __shared__ typename WR::TempStorage u[4];
    int a = WR(u[threadIdx.x / 32]).HeadSegmentedSum(in[threadIdx.x], (threadIdx.x % 5) == 0);
    using WM = cub::WarpMergeSort<int, 2>;
    __shared__ typename WM::TempStorage m[4];
    int v[2] = {in[threadIdx.x], in[(threadIdx.x * 7 + 1) % 128]};
    WM(m[threadIdx.x / 32]).Sort(v, [](int a, int b) { return a < b; });
    out[threadIdx.x] = r;
    out[128 + threadIdx.x] = (threadIdx.x % 5 == 0) ? a : 0;
    out[256 + 2 * threadIdx.x] = v[0];
    out[257 + 2 * threadIdx.x] = v[1];
}

extern "C" __global__ void block_select(const int* in, int* out, int n) {
    using L = cub::BlockLoad<int, 128, 4, cub::BLOCK_LOAD_TRANSPOSE>;
    using D = cub::BlockDiscontinuity<int, 128>;
    using St = cub::BlockStore<int, 128, 4, cub::BLOCK_STORE_WARP_TRANSPOSE>;
    using A = cub::BlockAdjacentDifference<int, 128>;
    __shared__ union {
        typename L::TempStorage l;
        typename D::TempStorage d;
        typename St::TempStorage s;
        typename A::TempStorage a;
    } t;
    int v[4];
    L(t.l).Load(in, v, n, -1);
    __syncthreads();
    int f[4];
    D(t.d).FlagHeads(f, v, cuda::std::not_equal_to<>{});
    __syncthreads();
    int w[4];
    A(t.a).SubtractLeft(v, w, [](int a, int b) { return a - b; });
    __syncthreads();
    for (int i = 0; i < 4; i++) v[i] = v[i] * 2 + f[i] + w[i];
    St(t.s).Store(out, v, n);
}

extern "C" __global__ void coop(const int* in, int* out) {
    auto b = cg::this_thread_block();
    auto t = cg::tiled_partition<8>(b);
    auto w = cg::tiled_partition<32>(b);
    int v = in[threadIdx.x];
    out[threadIdx.x] = cg::reduce(t, v, cg::plus<int>());
    out[128 + threadIdx.x] = cg::inclusive_scan(t, v, cg::plus<int>());
    out[256 + threadIdx.x] = cg::exclusive_scan(w, v, cg::greater<int>());
    if (v & 1) {
        auto c = cg::coalesced_threads();
        out[384 + threadIdx.x] = cg::reduce(c, v, cg::plus<int>()) + c.thread_rank();
    } else
        out[384 + threadIdx.x] = -1;
    auto l = cg::labeled_partition(w, v % 3);
    out[512 + threadIdx.x] = l.size() * 100 + l.thread_rank();
    auto bp = cg::binary_partition(w, v > 50);
    out[640 + threadIdx.x] = cg::reduce(bp, v, cg::less<int>());
}

extern "C" __global__ void pipeline(const float* in, float* out, int n) {
    __shared__ float s[2][128];
    auto b = cg::this_thread_block();
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> st;
    auto p = cuda::make_pipeline(b, &st);
    p.producer_acquire();
    cuda::memcpy_async(b, s[0], in, sizeof(float) * 128, p);
    p.producer_commit();
    float acc = 0;
    for (int i = 0; i < n; i++) {
        if (i + 1 < n) {
            p.producer_acquire();
            cuda::memcpy_async(b, s[(i + 1) & 1], in + 128 * (i + 1), sizeof(float) * 128, p);
            p.producer_commit();
        }
        p.consumer_wait();
        acc += s[i & 1][(threadIdx.x * 3 + 1) % 128];
        p.consumer_release();
    }
    out[threadIdx.x] = acc;
}

extern "C" __global__ void barr(const float* in, float* out) {
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    __shared__ alignas(16) float s[128];
    if (threadIdx.x == 0) init(&bar, 128);
    __syncthreads();
    cuda::memcpy_async(cg::this_thread_block(), s, in, cuda::aligned_size_t<16>(512), bar);
    bar.arrive_and_wait();
    float v = s[127 - threadIdx.x];
    auto tok = bar.arrive();
    bar.wait(std::move(tok));
    s[threadIdx.x] = v * 2;
    bar.arrive_and_wait();
    out[threadIdx.x] = s[(threadIdx.x + 1) % 128];
}

extern "C" __global__ void atom_ref(int* out, const int* in) {
    __shared__ int cnt;
    __shared__ int q[128];
    if (threadIdx.x == 0) cnt = 0;
    __syncthreads();
    cuda::atomic_ref<int, cuda::thread_scope_block> a(cnt);
    if (in[threadIdx.x] > 50) q[a.fetch_add(1, cuda::memory_order_relaxed)] = threadIdx.x;
    __syncthreads();
    if (threadIdx.x < cnt) atomicAdd(&out[1], q[threadIdx.x]);
    if (threadIdx.x == 0) out[0] = cnt;
}

// A structure with padding, a vector of which one element is never written.
struct P {
    float x;
    char c;
    double d;
};

extern "C" __global__ void pads(const float* in, float* out) {
    __shared__ float4 s[128];
    __shared__ P p[128];
    float4 v;
    v.x = in[threadIdx.x];
    v.y = v.x + 1;
    v.z = v.x * 2;
    s[threadIdx.x] = v;
    P l;
    l.x = v.x;
    l.d = v.y;
    l.c = 3;
    p[threadIdx.x] = l;
    __syncthreads();
    float4 u = s[127 - threadIdx.x];
    P m = p[(threadIdx.x + 5) % 128];
    float arr[8];
    for (int i = 0; i < 4; i++) arr[i + (threadIdx.x & 1) * 4] = u.x * i;
    float sum = 0;
    for (int i = 0; i < 4; i++) sum += arr[i + (threadIdx.x & 1) * 4];
    out[threadIdx.x] = u.x + u.y + u.z + m.x + m.c + (float)m.d + sum;
}
