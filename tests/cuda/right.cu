// Right kernels that check=True once blamed; tests/machine/test_false_alarms.py runs right.ptx:
// nvcc 13.0: nvcc -O3 -std=c++17 -arch=sm_90 -ptx right.cu -o right.ptx
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

struct Given { char tag; double x; short n; };
struct Result { double value; int count; char tag; };

__device__ __noinline__ Result combine(Given p, Result q) {
    Result r;
    r.value = p.x * p.n + q.value, r.count = p.tag + p.n + q.count, r.tag = q.tag;
    return r;
}

// Nobody writes the padding of the structures, and it is passed on with them.
extern "C" __global__ void padding(Result* out, const double* in) {
    Given p[2];
    p[0].tag = (char)threadIdx.x, p[0].x = in[threadIdx.x], p[0].n = 2;
    p[1].tag = 1, p[1].x = 3, p[1].n = (short)threadIdx.x;
    Result r;
    r.value = 1, r.count = 2, r.tag = 3;
    r = combine(p[threadIdx.x & 1], r);
    out[threadIdx.x] = combine(p[0], r);
}

// 25 lanes of a warp meet again and again, as those of cub::BlockReduce of 100 threads do.
extern "C" __global__ void part_of_warp(int* out, const int* in) {
    __shared__ volatile int sums[64];
    int lane = threadIdx.x;
    if (lane < 25) {
        int sum = in[lane];
        for (int step = 1; step < 32; step *= 2) {
            __syncwarp((1 << 25) - 1);
            sums[lane] = sum;
            __syncwarp((1 << 25) - 1);
            if (lane + step < 25) sum += sums[lane + step];
        }
        if (lane == 0) *out = sum;
    }
}

// Each warp waits for a volatile flag of the warp before it.
extern "C" __global__ void flags(int* out) {
    __shared__ int data[4];
    __shared__ volatile int flag[4];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (lane == 0) flag[warp] = 0;
    __syncthreads();
    if (lane == 0) {
        int sum = 5;
        if (warp) {
            while (!flag[warp - 1]);
            __threadfence_block();
            sum = data[warp - 1] + 1;
        }
        data[warp] = sum;
        __threadfence_block();
        flag[warp] = 1;
        out[warp] = sum;
    }
}

// Tiles of two warps: the word that they meet through has one bit for each warp, and no other bit of
// it is ever written. cuda-samples' reduction does the same (multi_warp_cg_reduce).
extern "C" __global__ void tiles(int* out, const int* in) {
    __shared__ cg::block_tile_memory<128> scratch;
    auto block = cg::this_thread_block(scratch);
    auto tile = cg::tiled_partition<64>(block);
    int sum = cg::reduce(tile, in[threadIdx.x], cg::plus<int>());
    if (tile.thread_rank() == 0) out[tile.meta_group_rank()] = sum;
}
