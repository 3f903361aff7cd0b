// What the planted kernels share: how twins are made, and instructions that C++ has no words for.
#pragma once
#include <cuda.h>

#define MISTAKE(name) \
    template <bool right> __device__ __forceinline__ void name(const int *x, int *o)

#define PLANT(name)                                                                             \
    extern "C" __global__ void name##_ok(const int *x, int *o) { name<true>(x, o); }            \
    extern "C" __global__ void name##_bad(const int *x, int *o) { name<false>(x, o); }

#define PLANT_CLUSTER(name)                                                                     \
    extern "C" __global__ void __cluster_dims__(2) name##_ok(const int *x, int *o) {            \
        name<true>(x, o);                                                                       \
    }                                                                                           \
    extern "C" __global__ void __cluster_dims__(2) name##_bad(const int *x, int *o) {           \
        name<false>(x, o);                                                                      \
    }

#define DEVICE __device__ __forceinline__

using barrier = unsigned long long;

DEVICE unsigned shared_address(const volatile void *p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(const_cast<const void *>(p)));
}

DEVICE void copy_async(int *to, const int *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 ::"r"(shared_address(to)), "l"(from) : "memory");
}

// ---- mbarrier ----

DEVICE void init(barrier *b, int count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;"
                 ::"r"(shared_address(b)), "r"(count) : "memory");
}

DEVICE void arrive(barrier *b) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}

DEVICE void arrive_expect(barrier *b, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;"
                 ::"r"(shared_address(b)), "r"(bytes) : "memory");
}

DEVICE void wait(barrier *b, int parity) {
    asm volatile("{\n\t.reg .pred done;\n\t"
                 "again: mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n\t"
                 "@!done bra again;\n\t}"
                 ::"r"(shared_address(b)), "r"(parity) : "memory");
}

DEVICE void fence_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// ---- bulk copies and tensor copies ----

DEVICE void fence_proxy() { asm volatile("fence.proxy.async;" ::: "memory"); }

DEVICE void bulk_store(int *to, const int *from, int bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                 ::"l"(to), "r"(shared_address(from)), "r"(bytes) : "memory");
}

DEVICE void bulk_load(int *to, const int *from, int bytes, barrier *b) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1], %2, [%3];"
                 ::"r"(shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(b))
                 : "memory");
}

DEVICE void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
DEVICE void bulk_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
DEVICE void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }

DEVICE void tensor_load(void *to, const CUtensorMap *map, int column, int row, barrier *b) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2, %3}], [%4];"
                 ::"r"(shared_address(to)), "l"(map), "r"(column), "r"(row),
                 "r"(shared_address(b)) : "memory");
}

DEVICE void tensor_store(const CUtensorMap *map, const void *from, int column, int row) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"
                 " [%0, {%1, %2}], [%3];"
                 ::"l"(map), "r"(column), "r"(row), "r"(shared_address(from)) : "memory");
}

// ---- clusters ----

DEVICE void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory");
}

// The address of the same variable in the other of two blocks.
DEVICE unsigned peer_address(const volatile void *p) {
    unsigned peer;
    asm volatile("{\n\t.reg .b32 rank;\n\tmov.u32 rank, %%cluster_ctarank;\n\t"
                 "xor.b32 rank, rank, 1;\n\tmapa.shared::cluster.u32 %0, %1, rank;\n\t}"
                 : "=r"(peer) : "r"(shared_address(p)));
    return peer;
}

// ---- wgmma ----

// Keeps the compiler from moving uses of registers across what follows or precedes.
DEVICE void hold(float (&d)[8]) {
    for (int i = 0; i < 8; i++) asm volatile("" : "+f"(d[i])::"memory");
}

DEVICE void hold(unsigned (&a)[4]) {
    for (int i = 0; i < 4; i++) asm volatile("" : "+r"(a[i])::"memory");
}

DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int groups> DEVICE void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(groups) : "memory");
}

// The descriptor of a K-major tile of rows of 128 bytes, swizzled by 128 bytes.
DEVICE unsigned long long descriptor(const void *tile) {
    return (shared_address(tile) & 0x3ffff) >> 4 | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

// d += A B^T for tiles of 64 and 16 rows and 16 columns.
DEVICE void multiply(float (&d)[8], unsigned long long a, unsigned long long b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16"
                 " {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, 1, 1, 1, 0, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]),
                   "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
                 : "l"(a), "l"(b) : "memory");
}

// The same with A in registers.
DEVICE void multiply(float (&d)[8], const unsigned (&a)[4], unsigned long long b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16"
                 " {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, %12, 1, 1, 1, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]),
                   "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b) : "memory");
}
