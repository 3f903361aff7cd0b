// Random numbers of PyTorch: cuRAND's Philox4x32-10 and its distributions, in their arithmetic.
//
// A thread makes the four words of one counter. PyTorch's own threads make several, one after the
// other: `threads` is how many of those there are, so that word j of step s belongs to the element
// thread + threads (4 s + j). Where `together` is set, a thread of PyTorch's makes so many elements
// in a row, in one step or two.
// nvcc 13.0 makes random.ptx of this file, as test_torch_kernels says.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

typedef unsigned long long u64;

__device__ float rounded(float x, int type) {
  if (type == 1) return __half2float(__float2half_rn(x));
  if (type == 2) return __bfloat162float(__float2bfloat16_rn(x));
  return x;
}

__device__ uint4 philox(u64 seed, u64 step, unsigned thread) {
  unsigned key0 = (unsigned)seed, key1 = (unsigned)(seed >> 32);
  uint4 c = make_uint4((unsigned)step, (unsigned)(step >> 32), thread, 0);
  for (int round = 0; round < 10; round++) {
    unsigned high0 = __umulhi(0xD2511F53u, c.x), high1 = __umulhi(0xCD9E8D57u, c.z);
    c = make_uint4(high1 ^ c.y ^ key0, 0xCD9E8D57u * c.z, high0 ^ c.w ^ key1, 0xD2511F53u * c.x);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return c;
}

// Of a word, a number above 0 and up to 1.
__device__ float uniform(unsigned word) { return word * 0x1p-32f + 0x1p-33f; }

__device__ float2 normals(unsigned x, unsigned y) {
  const float turn = 6.2831855f * 0x1p-32f;
  float angle = y * turn + turn / 2;
  float radius = sqrtf(-2.0f * logf(uniform(x)));
  return make_float2(__sinf(angle) * radius, __cosf(angle) * radius);
}

__device__ float exponential(float u, float rate) {
  float log = u >= 1.0f - 0x1p-24f ? -0x1p-24f : __logf(u);
  return -1.0f / rate * log;
}

__device__ float between(float u, float low, float high, float range, int type) {
  float value = rounded(u * range + low, type);
  return value == high ? low : value;
}

#define RANDOM(name, element, values, ...)                                                        \
  extern "C" __global__ void random_##name(element *out, unsigned count, unsigned threads,        \
                                           unsigned together, u64 seed, u64 offset, float p,      \
                                           float q, float r, int type) {                          \
    unsigned number = blockIdx.x * blockDim.x + threadIdx.x;                                      \
    unsigned steps = together > 4 ? together / 4 : 1, width = together ? together / steps : values; \
    unsigned step = number / steps / threads * steps + number % steps;                            \
    unsigned thread = number / steps % threads;                                                   \
    uint4 w = philox(seed, offset / 4 + step, thread);                                            \
    element made[values] = {__VA_ARGS__};                                                         \
    u64 first = together ? (u64)number * width : thread + (u64)threads * width * step;            \
    for (unsigned j = 0; j < width; j++) {                                                        \
      u64 i = first + j * (u64)(together ? 1 : threads);                                          \
      if (i < count) out[i] = made[j];                                                            \
    }                                                                                             \
  }
#define EACH(f) f(w.x), f(w.y), f(w.z), f(w.w)
#pragma nv_diag_suppress 177  // most take fewer than three numbers

#define BETWEEN(x) between(uniform(x), p, q, r, type)
RANDOM(uniform, float, 4, EACH(BETWEEN))

#define NORMAL(pair) (pair).x *q + p, (pair).y *q + p
RANDOM(normal, float, 4, NORMAL(normals(w.x, w.y)), NORMAL(normals(w.z, w.w)))

#define EXPONENTIAL(x) exponential(uniform(x), p)
RANDOM(exponential, float, 4, EACH(EXPONENTIAL))

#define BELOW(x) uniform(x) < p ? 1.0f : 0.0f
RANDOM(below, float, 4, EACH(BELOW))

#define WORD(x) x
RANDOM(words, unsigned, 4, EACH(WORD))
RANDOM(pairs, u64, 2, (u64)w.x << 32 | w.y, (u64)w.z << 32 | w.w)
