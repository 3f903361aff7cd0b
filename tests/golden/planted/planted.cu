// Kernels with one mistake each, and beside each its right twin.
//
// NAME_bad is a body with right = false, NAME_ok the same body with right = true. An arrow in a
// comment marks the lines that a finding may name: those of the accesses or of the wait.
#include "common.cuh"

// ---- shared memory and barriers ----

// The warps that are left at the end of a sum are not one warp yet.
MISTAKE(last_steps) {
    __shared__ int s[128];
    int t = threadIdx.x;
    s[t] = x[t];  // <-
    for (int half = 64; half > 0; half /= 2) {
        if (right || half == 64) __syncthreads();
        if (t < half) s[t] += s[t + half];  // <-
    }
    if (t == 0) o[0] = s[0];
}
PLANT(last_steps)

// A buffer is filled again while others still read it.
MISTAKE(refilled) {
    __shared__ int s[128];
    int t = threadIdx.x, sum = 0;
    for (int i = 0; i < 4; i++) {
        s[t] = x[128 * i + t];  // <-
        __syncthreads();
        sum += s[(t + 32) % 128] * (i + 1);  // <-
        if (right) __syncthreads();
    }
    o[t] = sum;
}
PLANT(refilled)

// Lanes of a warp run in step no longer: a sum in shared memory needs __syncwarp.
MISTAKE(warp_sum) {
    __shared__ volatile int s[128];
    int t = threadIdx.x;
    s[t] = x[t];  // <-
    for (int step = 16; step > 0; step /= 2) {
        if (right) __syncwarp();
        int other = s[t ^ step];  // <-
        if (right) __syncwarp();
        s[t] = s[t] + other;  // <-
    }
    o[t] = s[t];
}
PLANT(warp_sum)

// A barrier for 64 threads lets any two of the four warps go on.
MISTAKE(pairs_of_warps) {
    __shared__ int s[128];
    int t = threadIdx.x;
    s[t] = x[t];  // <-
    if (right) asm volatile("bar.sync 1, 128;" ::: "memory");
    else asm volatile("bar.sync 1, 64;" ::: "memory");  // <-
    o[t] = s[t] + s[(t + 32) % 128] + s[(t + 64) % 128] + s[(t + 96) % 128];  // <-
}
PLANT(pairs_of_warps)

// Two warps produce and two consume: 128 threads arrive, the barrier is for 96.
MISTAKE(arrive_count) {
    __shared__ int s[64];
    int t = threadIdx.x, count = right ? 128 : 96;
    if (t < 64) {
        s[t] = x[t];  // <-
        asm volatile("bar.arrive 1, %0;" ::"r"(count) : "memory");  // <-
    } else {
        asm volatile("bar.sync 1, %0;" ::"r"(count) : "memory");  // <-
        o[t] = s[127 - t];  // <-
    }
}
PLANT(arrive_count)

// The producers arrive at a barrier other than the one that the consumers wait at.
MISTAKE(other_barrier) {
    __shared__ int s[64];
    int t = threadIdx.x;
    if (t < 64) {
        s[t] = x[t];
        asm volatile("bar.arrive %0, 128;" ::"r"(right ? 2 : 1) : "memory");  // <-
    } else {
        asm volatile("bar.sync 2, 128;" ::: "memory");  // <-
        o[t] = s[127 - t];
    }
}
PLANT(other_barrier)

// A warp that has returned never comes to a barrier that counts it.
MISTAKE(returned_warp) {
    __shared__ int s[96];
    int t = threadIdx.x;
    if (t >= 96) return;
    s[t] = x[t];
    asm volatile("bar.sync 0, %0;" ::"r"(right ? 96 : 128) : "memory");  // <-
    o[t] = s[95 - t];
}
PLANT(returned_warp)

// Counts are read before all have counted.
MISTAKE(histogram) {
    __shared__ int count[32];
    int t = threadIdx.x;
    if (t < 32) count[t] = 0;  // <-
    __syncthreads();
    atomicAdd(&count[x[t] % 32], 1);  // <-
    if (right) __syncthreads();
    if (t < 32) o[t] = count[t];  // <-
}
PLANT(histogram)

// Rows that another warp has stored are taken by ldmatrix.
MISTAKE(matrix_rows) {
    __shared__ alignas(16) int s[128];
    int t = threadIdx.x, d;
    s[t] = x[t];  // <-
    if (right) __syncthreads(); else __syncwarp();
    unsigned row = shared_address(s) + (t + 32) % 128 / 32 * 128 + t % 8 * 16;
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"  // <-
                 : "=r"(d) : "r"(row) : "memory");  // <-
    o[t] = d;
}
PLANT(matrix_rows)

// The last numbers of the tile are never stored.
MISTAKE(tail) {
    __shared__ int s[128];
    int t = threadIdx.x;
    if (right || t < 100) s[t] = x[t];
    __syncthreads();
    o[t] = 2 * s[127 - t];  // <-
}
PLANT(tail)

// An index past the end of an array in shared memory is in the next one.
MISTAKE(next_array) {
    __shared__ int a[64], b[64];
    int t = threadIdx.x;
    if (t < 64) b[t] = x[t];  // <-
    __syncthreads();
    if (t < (right ? 64 : 80)) a[t] = -x[t];  // <-
    __syncthreads();
    o[t] = a[t % 64] + b[63 - t % 64];
}
PLANT(next_array)

// ---- registers and local memory ----

// Three of four elements are set, and all are indices.
MISTAKE(unset_index) {
    int where[4], t = threadIdx.x;
    for (int i = 0; i < (right ? 4 : 3); i++) where[i] = x[t + i] % 128;
    o[t] = x[where[x[t] % 4] & 127];  // <-
}
PLANT(unset_index)

// A predicate has a value in some threads alone.
MISTAKE(unset_predicate) {
    int t = threadIdx.x, d;
    if (right)
        asm volatile("{.reg .pred p, q; setp.gt.s32 q, %1, 300; setp.gt.s32 p, %1, 600;\n\t"
                     "selp.b32 %0, 5, 7, p;}" : "=r"(d) : "r"(x[t]));
    else
        asm volatile("{.reg .pred p, q; setp.gt.s32 q, %1, 300; @q setp.gt.s32 p, %1, 600;\n\t"
                     "selp.b32 %0, 5, 7, p;}" : "=r"(d) : "r"(x[t]));  // <-
    o[t] = d;  // <-
}
PLANT(unset_predicate)

// The ninth of eight elements on the stack.
MISTAKE(stack) {
    int a[8], t = threadIdx.x;
    for (int i = 0; i < 8; i++) a[i] = i;
    a[x[t] % (right ? 8 : 9)] = t;  // <-
    o[t] = a[x[t + 1] % 8] + a[x[t + 2] % 8];
}
PLANT(stack)

// ---- lanes of a warp ----

// Each half of a warp votes; one of them names all 32 lanes.
MISTAKE(vote_masks) {
    int t = threadIdx.x, p = x[t] > 500;
    if (t % 32 < 16) o[t] = __ballot_sync(right ? 0x0000ffff : 0xffffffff, p);  // <-
    else o[t] = __ballot_sync(0xffff0000, p);  // <-
}
PLANT(vote_masks)

// Lanes outside the mask take part.
MISTAKE(shuffle_mask) {
    int t = threadIdx.x;
    o[t] = __shfl_xor_sync(right ? 0xffffffff : 0x0000ffff, x[t], 16);  // <-
}
PLANT(shuffle_mask)

// Lanes of one sum disagree about who takes part.
MISTAKE(sum_masks) {
    int t = threadIdx.x;
    unsigned rest = right ? 0xffffff00 : 0xffffffff;
    o[t] = __reduce_add_sync(t % 32 < 8 ? 0x000000ff : rest, x[t]);  // <-
}
PLANT(sum_masks)

// ---- global memory ----

// Four words are read from an address that is no multiple of 16.
MISTAKE(misaligned) {
    int t = threadIdx.x;
    int4 v = *reinterpret_cast<const int4 *>(x + 4 * t + (right ? 0 : 1));  // <-
    o[t] = v.x + v.y + v.z + v.w;
}
PLANT(misaligned)

// Memory is read after it was given back.
MISTAKE(freed) {
    __shared__ int *held;
    int t = threadIdx.x;
    if (t == 0) held = static_cast<int *>(malloc(512));
    __syncthreads();
    int *mine = held;
    mine[t] = x[t];
    __syncthreads();
    if (!right && t == 0) free(mine);
    __syncthreads();
    o[t] = mine[127 - t];  // <-
    __syncthreads();
    if (right && t == 0) free(mine);
}
PLANT(freed)

// What the kernel has written is read by ld.global.nc.
MISTAKE(read_only) {
    int t = threadIdx.x;
    o[t] = x[t];  // <-
    __syncthreads();
    int v = right ? o[127 - t] : __ldg(&o[127 - t]);  // <-
    o[128 + t] = v;
}
PLANT(read_only)

// Four blocks add to one number.
MISTAKE(sum_of_blocks) {
    if (threadIdx.x) return;
    if (right) atomicAdd(o, x[blockIdx.x]);
    else o[0] += x[blockIdx.x];  // <-
}
PLANT(sum_of_blocks)

// One block writes, the other waits for a flag; nothing orders the flag behind the data.
MISTAKE(flag) {
    volatile int *ready = o;
    int t = threadIdx.x, *data = o + 128, *copy = o + 256;
    if (blockIdx.x == 0) {
        data[t] = 3 * x[t];  // <-
        __syncthreads();
        if (right) __threadfence();
        if (t == 0) *ready = 1;  // <-
    } else {
        if (t == 0) while (*ready == 0) {}  // <-
        if (right) __threadfence();
        __syncthreads();
        copy[t] = data[127 - t];  // <-
    }
}
PLANT(flag)

// A fence for the threads of one block orders nothing for those of another.
MISTAKE(fence_scope) {
    int t = threadIdx.x;
    int *ready = o, *data = o + 128, *copy = o + 256;
    if (blockIdx.x == 0) {
        data[t] = 3 * x[t];  // <-
        __syncthreads();
        if (t == 0) {
            if (right) asm volatile("st.release.gpu.b32 [%0], 1;" ::"l"(ready) : "memory");
            else asm volatile("st.release.cta.b32 [%0], 1;" ::"l"(ready) : "memory");  // <-
        }
    } else {
        int seen = 0;
        while (t == 0 && seen == 0)
            if (right)
                asm volatile("ld.acquire.gpu.b32 %0, [%1];" : "=r"(seen) : "l"(ready) : "memory");
            else  // <-
                asm volatile("ld.acquire.cta.b32 %0, [%1];" : "=r"(seen) : "l"(ready) : "memory");
        __syncthreads();
        copy[t] = data[127 - t];  // <-
    }
}
PLANT(fence_scope)

// The last block to come adds up the parts of all, which it may not see yet.
MISTAKE(last_block) {
    __shared__ bool last;
    int t = threadIdx.x, *part = o + 128, *ticket = o + 1;
    part[128 * blockIdx.x + t] = x[128 * blockIdx.x + t];  // <-
    if (right) __threadfence();
    __syncthreads();
    if (t == 0) last = atomicAdd(ticket, 1) == gridDim.x - 1;
    __syncthreads();
    if (!last) return;
    if (right) __threadfence();
    int sum = 0;
    for (int b = 0; b < gridDim.x; b++) sum += part[128 * b + t];  // <-
    o[768 + t] = sum;
}
PLANT(last_block)

// A counter is reset by a plain store while other blocks count.
MISTAKE(reset) {
    if (threadIdx.x) return;
    __threadfence();
    int before = atomicAdd(o, 1);  // <-
    __threadfence();
    if (right ? before == gridDim.x - 1 : blockIdx.x == 2) o[0] = 100;  // <-
}
PLANT(reset)

// A lock is taken and given back by atomics that order nothing.
MISTAKE(lock) {
    if (threadIdx.x) return;
    int *held = o, *total = o + 1;
    while (atomicCAS(held, 0, 1)) {}
    if (right) __threadfence();
    *total += x[blockIdx.x];  // <-
    if (right) __threadfence();
    atomicExch(held, 0);
}
PLANT(lock)

// ---- cp.async ----

// Two copies are under way; the second is used when one group may still be open.
MISTAKE(wait_one) {
    __shared__ alignas(16) int s[2][128];
    int t = threadIdx.x;
    for (int i = 0; i < 2; i++) {
        if (t < 32) copy_async(&s[i][4 * t], &x[128 * i + 4 * t]);  // <-
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
    int sum = s[0][127 - t];
    if (right) asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    o[t] = sum + s[1][127 - t];  // <-
}
PLANT(wait_one)

// What is in no group is not waited for.
MISTAKE(no_commit) {
    __shared__ alignas(16) int s[128];
    int t = threadIdx.x;
    if (t < 32) copy_async(&s[4 * t], &x[4 * t]);  // <-
    if (right) asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    o[t] = s[127 - t];  // <-
}
PLANT(no_commit)

// Each thread has waited for its own copies, not for those of others.
MISTAKE(own_copies) {
    __shared__ alignas(16) int s[512];
    int t = threadIdx.x;
    copy_async(&s[4 * t], &x[4 * t]);  // <-
    asm volatile("cp.async.wait_all;" ::: "memory");
    if (right) __syncthreads();
    o[t] = s[511 - 4 * t];  // <-
}
PLANT(own_copies)

// The source of the next round goes where others still read this one's.
MISTAKE(one_stage_less) {
    __shared__ alignas(16) int s[2][512];
    int t = threadIdx.x, sum = 0;
    copy_async(&s[0][4 * t], &x[4 * t]);
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    copy_async(&s[right ? 1 : 0][4 * t], &x[512 + 4 * t]);  // <-
    sum = s[0][511 - 4 * t];  // <-
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    o[t] = sum + s[right ? 1 : 0][511 - 4 * t];
}
PLANT(one_stage_less)

// ---- mbarrier ----

// A barrier for 64 arrivals gets 128.
MISTAKE(too_many_arrive) {
    __shared__ int s[128];
    __shared__ barrier full;
    int t = threadIdx.x;
    if (t == 0) init(&full, right ? 128 : 64);
    __syncthreads();
    s[t] = x[t];  // <-
    arrive(&full);  // <-
    wait(&full, 0);  // <-
    o[t] = s[127 - t];  // <-
}
PLANT(too_many_arrive)

// The second round waits for the phase of the first.
MISTAKE(same_phase) {
    __shared__ int s[2][128];
    __shared__ barrier full;
    int t = threadIdx.x, sum = 0;
    if (t == 0) init(&full, 128);
    __syncthreads();
    for (int i = 0; i < 2; i++) {
        s[i][t] = x[128 * i + t];  // <-
        arrive(&full);
        wait(&full, right ? i : 0);  // <-
        sum += s[i][127 - t];  // <-
    }
    o[t] = sum;
}
PLANT(same_phase)

// Threads arrive at a barrier that may not be initialised yet.
MISTAKE(no_init) {
    __shared__ int s[128];
    __shared__ barrier full;
    int t = threadIdx.x;
    if (t == 127) init(&full, 128);  // <-
    if (right) __syncthreads();
    s[t] = x[t];
    arrive(&full);  // <-
    wait(&full, 0);  // <-
    o[t] = s[127 - t];
}
PLANT(no_init)

// A lane says that the warp has read, while others of it may still read.
MISTAKE(lane_speaks) {
    __shared__ volatile int s[32];
    __shared__ barrier empty;
    int t = threadIdx.x, lane = t % 32;
    if (t == 0) init(&empty, 1);
    if (t < 32) s[t] = x[t];
    __syncthreads();
    if (t < 32) {
        wait(&empty, 0);
        s[lane] = -x[lane];  // <-
    } else if (t < 64) {
        o[lane] = s[31 - lane];  // <-
        if (right) __syncwarp();
        if (lane == 0) arrive(&empty);
    }
    __syncthreads();
    if (t < 32) o[32 + t] = s[t];
}
PLANT(lane_speaks)

// ---- bulk copies ----

// The proxy fence stands before the stores that it should cover.
MISTAKE(fence_too_early) {
    __shared__ alignas(16) int s[128];
    int t = threadIdx.x;
    if (!right) fence_proxy();
    s[t] = 5 * x[t];  // <-
    if (right) fence_proxy();
    __syncthreads();
    if (t == 0) {
        bulk_store(o, s, 512);  // <-
        bulk_commit();
        bulk_wait();
    }
}
PLANT(fence_too_early)

// The source of a bulk copy is overwritten before it was read.
MISTAKE(source_reused) {
    __shared__ alignas(16) int s[128];
    int t = threadIdx.x;
    for (int i = 0; i < 2; i++) {
        s[t] = x[t] + i;  // <-
        fence_proxy();
        __syncthreads();
        if (t == 0) {
            bulk_store(o + 128 * i, s, 512);  // <-
            bulk_commit();
            if (right) bulk_wait_read();
        }
        __syncthreads();
    }
    if (t == 0) bulk_wait();
}
PLANT(source_reused)

// The block ends while a bulk copy still reads its shared memory.
MISTAKE(open_group) {
    __shared__ alignas(16) int s[128];
    int t = threadIdx.x;
    s[t] = 7 * x[t];
    fence_proxy();
    __syncthreads();
    if (t == 0) {
        bulk_store(o, s, 512);  // <-
        bulk_commit();  // <-
        if (right) bulk_wait();
    }
}
PLANT(open_group)  // <-

// A tile is set to zero, then loaded over: nothing orders the two.
MISTAKE(zeroed) {
    __shared__ alignas(16) int s[128];
    __shared__ barrier full;
    int t = threadIdx.x;
    if (t == 0) init(&full, 1);
    s[t] = 0;  // <-
    if (right) fence_proxy();
    __syncthreads();
    if (t == 0) {
        arrive_expect(&full, 256);
        bulk_load(s, x, 256, &full);  // <-
    }
    wait(&full, 0);
    o[t] = s[127 - t] + 1;
}
PLANT(zeroed)

// One thread waits for the bytes, the others read them.
MISTAKE(one_waits) {
    __shared__ alignas(16) int s[128];
    __shared__ barrier full;
    int t = threadIdx.x;
    if (t == 0) init(&full, 1);
    __syncthreads();
    if (t == 0) {
        arrive_expect(&full, 512);
        bulk_load(s, x, 512, &full);  // <-
    }
    if (right || t == 0) wait(&full, 0);
    o[t] = s[127 - t] + 2;  // <-
}
PLANT(one_waits)

// ---- clusters of two blocks ----

// Each block writes into the other's shared memory; a barrier of one block orders nothing there.
MISTAKE(remote_write) {
    __shared__ int s[128];
    int t = threadIdx.x;
    cluster_barrier();
    asm volatile("st.shared::cluster.b32 [%0], %1;"  // <-
                 ::"r"(peer_address(&s[t])), "r"(x[128 * blockIdx.x + t]) : "memory");  // <-
    if (right) cluster_barrier();
    else __syncthreads();
    o[128 * blockIdx.x + t] = s[127 - t];  // <-
}
PLANT_CLUSTER(remote_write)

// A block may end before the other has read its shared memory.
MISTAKE(peer_gone) {
    __shared__ int s[128];
    int t = threadIdx.x, v = 0;
    s[t] = x[128 * blockIdx.x + t];
    cluster_barrier();
    if (blockIdx.x == 0)
        asm volatile("ld.shared::cluster.b32 %0, [%1];"  // <-
                     : "=r"(v) : "r"(peer_address(&s[127 - t])) : "memory");  // <-
    if (right) cluster_barrier();
    o[128 * blockIdx.x + t] = v;
}  // <-
PLANT_CLUSTER(peer_gone)
