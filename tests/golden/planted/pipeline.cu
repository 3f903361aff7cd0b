// A warp-specialised product of matrices with TMA and wgmma, and with one mistake each.
//
// D = A B^T: one warpgroup loads tiles of A (64 rows) and B (32 rows) of 64 columns into two stages,
// two warpgroups multiply, each with 16 rows of B, and store their part of D by TMA. Words in brackets
// are those of the arrows at lines that findings about the mistake may name.
#include "common.cuh"

enum Mistake {
    NONE,
    NO_FULL_WAIT,      // the consumers do not wait until a stage is full [stages, waits]
    NO_EMPTY_WAIT,     // the producer does not wait until a stage is empty [stages, waits]
    FULL_PARITY,       // the consumers wait for the first phase in every round [stages, waits]
    EMPTY_PARITY,      // the producer waits for the phase before [stages, waits]
    EARLY_RELEASE,     // a stage is released while wgmma reads it [stages]
    WAIT_ONE,          // one group of wgmma may be open where none may [stages]
    NO_RELEASE,        // the consumers never say that a stage is empty [waits]
    EMPTY_COUNT,       // one of two consumers is enough to empty a stage [stages, waits, arrivals]
    EXPECT_SMALL,      // the bytes of B are not expected [stages, waits, arrivals]
    EXPECT_LARGE,      // more bytes are expected than come [waits, arrivals]
    NO_EXPECT,         // no bytes are expected at all [stages, waits, arrivals]
    NO_INIT_BARRIER,   // nobody waits for the initialisation of the barriers [waits, arrivals, init]
    ONE_WARP_WAITS,    // the first warp of each consumer alone waits for full [stages]
    NO_WGMMA_FENCE,    // registers are set, and wgmma takes them without a fence [stages, sums]
    NO_WGMMA_WAIT,     // the accumulators are read while wgmma may still write them [tile]
    UNSET,             // the accumulators are never set to zero [stages, tile, store]
    PART_OF_REGISTERS, // two of four warps change their number of registers [registers]
    STORE_NO_FENCE,    // TMA stores what the generic proxy wrote, without a fence [tile, store]
    STORE_NO_BARRIER,  // TMA stores what other threads may not have written yet [tile, store]
    STORE_OPEN,        // the block ends while TMA reads its shared memory [store, end]
    STORE_UNCOMMITTED, // the store is in no group when it is waited for [store, end]
};

constexpr int ROWS_A = 64, ROWS_B = 32, COLUMNS = 64, STAGES = 2, STEPS = 4;

struct Stage {
    unsigned short a[ROWS_A * COLUMNS], b[ROWS_B * COLUMNS];
};

template <Mistake mistake>
DEVICE void load_stages(const CUtensorMap *a, const CUtensorMap *b, Stage *stages, barrier *full,
                        barrier *empty) {
    constexpr int more = mistake == EXPECT_SMALL   ? -2 * ROWS_B * COLUMNS
                         : mistake == EXPECT_LARGE ? 16
                                                   : 0;
#pragma unroll 1
    for (int k = 0; k < STEPS; k++) {
        int i = k % STAGES, round = k / STAGES;
        if (mistake != NO_EMPTY_WAIT && round > 0)
            wait(&empty[i], mistake == EMPTY_PARITY ? round % 2 : (round - 1) % 2);  // <- waits
        if (mistake == NO_EXPECT) arrive(&full[i]);  // <- arrivals
        else arrive_expect(&full[i], int(sizeof(Stage)) + more);  // <- arrivals
        tensor_load(stages[i].a, a, COLUMNS * k, 0, &full[i]);  // <- stages
        tensor_load(stages[i].b, b, COLUMNS * k, 0, &full[i]);  // <- stages
    }
}

template <Mistake mistake>
DEVICE void multiply_stages(float (&d)[8], int part, Stage *stages, barrier *full,
                            barrier *empty) {
    hold(d);
#pragma unroll 1
    for (int k = 0; k < STEPS; k++) {
        int i = k % STAGES, round = k / STAGES;
        if (mistake != NO_FULL_WAIT && (mistake != ONE_WARP_WAITS || threadIdx.x % 128 < 32))
            wait(&full[i], mistake == FULL_PARITY ? 0 : round % 2);  // <- waits
        if (mistake != NO_WGMMA_FENCE) wgmma_fence();
        for (int j = 0; j < 4; j++)
            multiply(d, descriptor(stages[i].a) + 2 * j,  // <- stages
                     descriptor(stages[i].b + 16 * COLUMNS * part) + 2 * j);
        wgmma_commit();
        if (mistake == WAIT_ONE) wgmma_wait<1>();
        else if (mistake == NO_WGMMA_WAIT && k == STEPS - 1) {}
        else if (mistake != EARLY_RELEASE) wgmma_wait<0>();
        asm volatile("bar.sync %0, 128;" ::"r"(1 + part) : "memory");
        if (mistake != NO_RELEASE && threadIdx.x % 128 == 0) arrive(&empty[i]);  // <- arrivals
        if (mistake == EARLY_RELEASE) wgmma_wait<0>();
        hold(d);
    }
    if (mistake == WAIT_ONE) wgmma_wait<0>();
    hold(d);
}

template <Mistake mistake>
DEVICE void store(const float (&d)[8], int part, float *tile, const CUtensorMap *map) {
    int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    for (int j = 0; j < 8; j++) {
        int row = 16 * warp + lane / 4 + j / 2 % 2 * 8, column = j / 4 * 8 + lane % 4 * 2 + j % 2;
        tile[16 * row + column] = d[j];  // <- tile
    }
    if (mistake != STORE_NO_FENCE) fence_proxy();
    if (mistake != STORE_NO_BARRIER) asm volatile("bar.sync %0, 128;" ::"r"(1 + part) : "memory");
    if (threadIdx.x % 128 == 0) {
        tensor_store(map, tile, 16 * part, 0);  // <- store
        if (mistake != STORE_UNCOMMITTED) bulk_commit();  // <- store
        if (mistake != STORE_OPEN) bulk_wait();
    }
}

template <Mistake mistake>
DEVICE void pipeline(const CUtensorMap *a, const CUtensorMap *b, const CUtensorMap *d) {
    __shared__ alignas(1024) Stage stages[STAGES];
    __shared__ alignas(128) float tiles[2][ROWS_A * 16];
    __shared__ barrier full[STAGES], empty[STAGES];
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            init(&full[i], 1);  // <- init
            init(&empty[i], mistake == EMPTY_COUNT ? 1 : 2);  // <- init
        }
        fence_init();
    }
    if (mistake != NO_INIT_BARRIER) __syncthreads();
    int part = threadIdx.x / 128 - 1;
    if (part < 0) {
        if (mistake != PART_OF_REGISTERS || threadIdx.x < 64)
            asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");  // <- registers
        if (threadIdx.x == 0) load_stages<mistake>(a, b, stages, full, empty);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        float sums[8];
        if (mistake != UNSET)
            for (int j = 0; j < 8; j++) sums[j] = 0;  // <- sums
        multiply_stages<mistake>(sums, part, stages, full, empty);
        store<mistake>(sums, part, tiles[part], d);
    }
}

#define ARGUMENTS                                                                                \
    const int *x, float *o, CUtensorMap *scratch, const __grid_constant__ CUtensorMap a,         \
        const __grid_constant__ CUtensorMap b, const __grid_constant__ CUtensorMap d

#define PIPELINE(name, mistake)                                                                  \
    extern "C" __global__ void __launch_bounds__(384, 1) pipeline_##name(ARGUMENTS) {            \
        pipeline<mistake>(&a, &b, &d);                                                           \
    }

PIPELINE(ok, NONE)
PIPELINE(no_full_wait_bad, NO_FULL_WAIT)
PIPELINE(no_empty_wait_bad, NO_EMPTY_WAIT)
PIPELINE(full_parity_bad, FULL_PARITY)
PIPELINE(empty_parity_bad, EMPTY_PARITY)
PIPELINE(early_release_bad, EARLY_RELEASE)
PIPELINE(wait_one_bad, WAIT_ONE)
PIPELINE(no_release_bad, NO_RELEASE)
PIPELINE(empty_count_bad, EMPTY_COUNT)
PIPELINE(expect_small_bad, EXPECT_SMALL)
PIPELINE(expect_large_bad, EXPECT_LARGE)
PIPELINE(no_expect_bad, NO_EXPECT)
PIPELINE(no_init_barrier_bad, NO_INIT_BARRIER)
PIPELINE(one_warp_waits_bad, ONE_WARP_WAITS)
PIPELINE(no_wgmma_fence_bad, NO_WGMMA_FENCE)
PIPELINE(no_wgmma_wait_bad, NO_WGMMA_WAIT)
PIPELINE(unset_bad, UNSET)
PIPELINE(part_of_registers_bad, PART_OF_REGISTERS)
PIPELINE(store_no_fence_bad, STORE_NO_FENCE)
PIPELINE(store_no_barrier_bad, STORE_NO_BARRIER)
PIPELINE(store_open_bad, STORE_OPEN)  // <- end
PIPELINE(store_uncommitted_bad, STORE_UNCOMMITTED)  // <- end

// ---- one warpgroup, other ways to the operands ----

#define TILES(name)                                                                              \
    extern "C" __global__ void __launch_bounds__(128) name##_ok(ARGUMENTS) {                     \
        name<true>(x, scratch, &a, &b, &d);                                                      \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(128) name##_bad(ARGUMENTS) {                    \
        name<false>(x, scratch, &a, &b, &d);                                                     \
    }

#define ONE_WARPGROUP(name)                                                                      \
    template <bool right>                                                                        \
    DEVICE void name(const int *x, CUtensorMap *scratch, const CUtensorMap *a,                   \
                     const CUtensorMap *b, const CUtensorMap *d)

// Loads one stage, and returns when all threads may read it.
DEVICE void load_one(Stage *stage, const CUtensorMap *a, const CUtensorMap *b, barrier *full) {
    if (threadIdx.x == 0) {
        init(full, 1);
        fence_init();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        arrive_expect(full, sizeof(Stage));
        tensor_load(stage->a, a, 0, 0, full);
        tensor_load(stage->b, b, 0, 0, full);
    }
    wait(full, 0);
}

// A tile is changed in place, and wgmma reads it.
ONE_WARPGROUP(in_place) {
    __shared__ alignas(1024) Stage stage;
    __shared__ alignas(128) float tile[ROWS_A * 16];
    __shared__ barrier full;
    load_one(&stage, a, b, &full);
    unsigned *words = reinterpret_cast<unsigned *>(stage.a);
    for (int i = threadIdx.x; i < ROWS_A * COLUMNS / 2; i += 128) words[i] ^= 0x80008000;  // <-
    if (right) fence_proxy();
    __syncthreads();
    float sums[8] = {};
    hold(sums);
    wgmma_fence();
    for (int j = 0; j < 4; j++)
        multiply(sums, descriptor(stage.a) + 2 * j, descriptor(stage.b) + 2 * j);  // <-
    wgmma_commit();
    wgmma_wait<0>();
    hold(sums);
    store<NONE>(sums, 0, tile, d);
}
TILES(in_place)

// A tile is overwritten by stores while wgmma reads it.
ONE_WARPGROUP(overwritten) {
    __shared__ alignas(1024) Stage stage;
    __shared__ alignas(128) float tile[ROWS_A * 16];
    __shared__ barrier full;
    load_one(&stage, a, b, &full);
    float sums[8] = {};
    hold(sums);
    wgmma_fence();
    for (int j = 0; j < 4; j++)
        multiply(sums, descriptor(stage.a) + 2 * j, descriptor(stage.b) + 2 * j);  // <-
    wgmma_commit();
    if (right) wgmma_wait<0>();
    __syncthreads();
    for (int i = threadIdx.x; i < ROWS_B * COLUMNS; i += 128) stage.b[i] = 0;  // <-
    if (!right) wgmma_wait<0>();
    hold(sums);
    __syncthreads();
    sums[0] += stage.b[threadIdx.x];
    store<NONE>(sums, 0, tile, d);
}
TILES(overwritten)

// cp.async writes as ordinary stores do: wgmma sees it after a proxy fence.
ONE_WARPGROUP(copied) {
    __shared__ alignas(1024) Stage stage;
    __shared__ alignas(128) float tile[ROWS_A * 16];
    __shared__ barrier full;
    load_one(&stage, a, b, &full);
    int *words = reinterpret_cast<int *>(stage.b);
    __syncthreads();
    copy_async(words + 4 * threadIdx.x, x + 4 * threadIdx.x);  // <-
    asm volatile("cp.async.wait_all;" ::: "memory");
    if (right) fence_proxy();
    __syncthreads();
    float sums[8] = {};
    hold(sums);
    wgmma_fence();
    for (int j = 0; j < 4; j++)
        multiply(sums, descriptor(stage.a) + 2 * j, descriptor(stage.b) + 2 * j);  // <-
    wgmma_commit();
    wgmma_wait<0>();
    hold(sums);
    store<NONE>(sums, 0, tile, d);
}
TILES(copied)

// Registers of A are set anew while wgmma may still read them.
ONE_WARPGROUP(registers_reused) {
    __shared__ alignas(1024) Stage stage;
    __shared__ alignas(128) float tile[ROWS_A * 16];
    __shared__ barrier full;
    load_one(&stage, a, b, &full);
    float sums[8] = {};
    unsigned mine[4];
    for (int j = 0; j < 4; j++) mine[j] = x[4 * threadIdx.x + j];
    hold(sums);
    hold(mine);
    wgmma_fence();
    multiply(sums, mine, descriptor(stage.b));  // <-
    wgmma_commit();
    if (right) wgmma_wait<0>();
    for (int j = 0; j < 4; j++)
        asm volatile("xor.b32 %0, %0, 0x80008000;" : "+r"(mine[j])::"memory");  // <-
    hold(sums);
    wgmma_fence();
    multiply(sums, mine, descriptor(stage.b) + 2);  // <-
    wgmma_commit();
    wgmma_wait<0>();
    hold(sums);
    store<NONE>(sums, 0, tile, d);
}
TILES(registers_reused)

// A tensor map is changed in memory, and used without a fence of its proxy.
ONE_WARPGROUP(edited_map) {
    __shared__ alignas(1024) Stage stage;
    __shared__ alignas(128) float tile[ROWS_A * 16];
    __shared__ barrier full;
    if (threadIdx.x == 0) {
        *scratch = *a;  // <-
        asm volatile("tensormap.replace.tile.global_address.global.b1024.b64 [%0], %1;"  // <-
                     ::"l"(scratch), "l"(x + 16 * 128) : "memory");
        if (right) {
            asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");
            asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;"
                         ::"l"(scratch) : "memory");
        }
    }
    load_one(&stage, scratch, b, &full);  // <-
    float sums[8] = {};
    hold(sums);
    wgmma_fence();
    for (int j = 0; j < 4; j++)
        multiply(sums, descriptor(stage.a) + 2 * j, descriptor(stage.b) + 2 * j);
    wgmma_commit();
    wgmma_wait<0>();
    hold(sums);
    store<NONE>(sums, 0, tile, d);
}
TILES(edited_map)

// Four tiles go through one buffer; a store may still read it when the next tile comes.
ONE_WARPGROUP(tile_reused) {
    __shared__ alignas(1024) Stage stage;
    __shared__ alignas(128) float tile[ROWS_A * 16];
    __shared__ barrier full;
    load_one(&stage, a, b, &full);
    for (int part = 0; part < 2; part++) {
        float sums[8] = {};
        hold(sums);
        wgmma_fence();
        for (int j = 0; j < 4; j++)
            multiply(sums, descriptor(stage.a) + 2 * j,
                     descriptor(stage.b + 16 * COLUMNS * part) + 2 * j);
        wgmma_commit();
        wgmma_wait<0>();
        hold(sums);
        if (part > 0) {
            if (right && threadIdx.x == 0) bulk_wait_read();
            __syncthreads();
        }
        int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        for (int j = 0; j < 8; j++) {
            int row = 16 * warp + lane / 4 + j / 2 % 2 * 8;
            tile[16 * row + j / 4 * 8 + lane % 4 * 2 + j % 2] = sums[j];  // <-
        }
        fence_proxy();
        __syncthreads();
        if (threadIdx.x == 0) {
            tensor_store(d, tile, 16 * part, 0);  // <-
            bulk_commit();
        }
    }
    if (threadIdx.x == 0) bulk_wait();
}
TILES(tile_reused)
