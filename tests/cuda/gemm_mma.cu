// A product of matrices with ldmatrix and mma.sync, C (M, N) = A (M, K) times B (N, K) transposed,
// in blocks of 32 x 32 by 4 warps, 64 along k at a time. Its last arguments say how it goes about
// it, so that a mistake is one wrong number: the bytes of a row of A in shared memory (144, padded),
// those of a step along k (32), which bits of the row swizzle the rows of B (7), and the elements
// of a row (N) and of a pair of columns (2) where C is stored.
#include <cuda_fp16.h>

constexpr int TILE = 32, DEPTH = 64, ROW_OF_A = 144, ROW_OF_B = 128;

__device__ unsigned shared_address(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

__device__ void load_x4(unsigned (&r)[4], unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}

__device__ void multiply(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

extern "C" __global__ void product(const half* A, const half* B, float* C, int N, int K,
                                   int row_of_a, int step, int swizzle, int row_of_c, int pair) {
    __shared__ __align__(128) unsigned char a[TILE * ROW_OF_A], b[TILE * ROW_OF_B];
    int t = threadIdx.x, lane = t % 32, warp = t / 32;
    int m0 = blockIdx.y * TILE, n0 = blockIdx.x * TILE, wm = warp / 2 * 16, wn = warp % 2 * 16;
    float d[2][4] = {};
    for (int k0 = 0; k0 < K; k0 += DEPTH) {
#pragma unroll 1
        for (int i = t; i < TILE * 8; i += 128) {
            int row = i / 8, unit = i % 8;  // of 16 bytes
            *reinterpret_cast<uint4*>(a + row * ROW_OF_A + unit * 16) =
                *reinterpret_cast<const uint4*>(A + (m0 + row) * K + k0 + unit * 8);
            *reinterpret_cast<uint4*>(b + row * ROW_OF_B + (unit ^ row % 8) * 16) =
                *reinterpret_cast<const uint4*>(B + (n0 + row) * K + k0 + unit * 8);
        }
        __syncthreads();
#pragma unroll 1
        for (int k = 0; k < DEPTH / 16; k++) {
            unsigned x[4], y[4];
            int row = wn + lane % 8 + lane / 16 * 8, unit = k * 2 + lane / 8 % 2;
            load_x4(x, shared_address(a) + (wm + lane % 16) * row_of_a + lane / 16 * 16 + k * step);
            load_x4(y, shared_address(b) + row * ROW_OF_B + (unit ^ (row & swizzle)) * 16);
            multiply(d[0], x, y[0], y[1]);
            multiply(d[1], x, y[2], y[3]);
        }
        __syncthreads();
    }
    for (int j = 0; j < 2; j++)
        for (int below = 0; below < 2; below++) {
            int row = m0 + wm + lane / 4 + below * 8, column = n0 + wn + j * 8 + lane % 4 * pair;
            for (int i = 0; i < 2; i++) C[row * row_of_c + column + i] = d[j][below * 2 + i];
        }
}
