// What PyTorch's fused attention does between its matrix products, a row of scores in a thread.
//
// The forms are FlashAttention-2, the efficient kernel of CUTLASS, and cuDNN's for Hopper, whose
// order was found from recordings. Intrinsics say where the compiler fused a product and a sum, and
// where not. nvcc 13.0 makes attention.ptx of this file, as test_torch_kernels says.
#define FLASH 0
#define EFFICIENT 1
#define CUDNN 2
#define LOG2E 1.4426950408889634074f
#define LN2 0.69314718055994530942f

// A score in powers of 2.
__device__ float scaled_of(float score, float scale, int form) {
  float scaled = __fmul_rn(score, scale);
  return form == EFFICIENT ? __fmul_rn(scaled, LOG2E) : scaled;
}

// The weights of one block of keys, and by how much what was summed before shrinks. The four
// threads that share a row in tensor cores' registers have two of every eight keys each.
extern "C" __global__ void block_weights(const float *scores, float *weights, float *highest,
                                         float *sums, float *factors, unsigned rows,
                                         unsigned keys, float scale, int form) {
  unsigned row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  const float *from = scores + (size_t)row * keys;
  float *to = weights + (size_t)row * keys, *sum = sums + 4 * row;
  float before = highest[row], high = before;
#pragma unroll 1
  for (unsigned i = 0; i < keys; i++) {
    high = fmaxf(high, form == FLASH ? from[i] : scaled_of(from[i], scale, form));
  }
  float shown = high == -INFINITY ? 0.0f : high;
  float less = form == FLASH ? __fmul_rn(before - shown, scale) : before - shown;
  float subtrahend = form == FLASH ? __fmul_rn(shown, scale) : shown, factor = exp2f(less);
  unsigned width = form == EFFICIENT ? 32 : keys;
  if (form == EFFICIENT) sum[0] = __fmul_rn(sum[0], factor);
  for (unsigned start = 0; start < keys; start += width) {
    float parts[4];
    for (unsigned lane = 0; lane < 4; lane++) {
      float part = 0;
      bool fused = form == FLASH;
#pragma unroll 1
      for (unsigned i = start + 2 * lane; i < start + width; i += i % 2 ? 7 : 1) {
        float weight = exp2f(__fsub_rn(scaled_of(from[i], scale, form), subtrahend));
        to[i] = weight;
        part = fused ? __fmaf_rn(sum[lane], factor, weight) : __fadd_rn(part, weight);
        fused = false;
      }
      parts[lane] = part;
      if (form == FLASH) sum[lane] = part;
      if (form == CUDNN) sum[lane] = __fmaf_rn(sum[lane], factor, part);
    }
    if (form == EFFICIENT) sum[0] += (parts[0] + parts[1]) + (parts[2] + parts[3]);
  }
  highest[row] = high;
  factors[row] = factor;
}

// What the sums of weighted values are multiplied by, and the logarithm of the sum of exponentials.
extern "C" __global__ void row_end(const float *highest, const float *sums, float *inverses,
                                   float *logarithms, unsigned rows, float scale, int form,
                                   int split) {
  unsigned row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  const float *own = sums + 4 * row;
  float high = highest[row], sum = own[0], logarithm;
  if (form == FLASH) sum = (own[0] + own[2]) + (own[1] + own[3]);
  if (form == CUDNN) sum = (own[0] + own[1]) + (own[2] + own[3]);
  if (form == FLASH) logarithm = __fmaf_rn(high, scale, __logf(sum));
  if (form == EFFICIENT) logarithm = __fadd_rn(high / LOG2E, logf(sum));
  if (form == CUDNN) logarithm = __fmaf_rn(high, LN2, __logf(sum));
  bool none = form == FLASH && (sum == 0.0f || sum != sum);
  float inverse = 1.0f / sum;
  if (form == CUDNN) asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(sum));
  inverses[row] = none ? 1.0f : inverse;
  logarithms[row] = none ? (split ? -INFINITY : INFINITY) : logarithm;
}

// The factors of FlashAttention's splits of the keys: logarithms become factors, in place. So many
// threads share a row, each with every so manieth split.
extern "C" __global__ void split_factors(float *logarithms, float *total, unsigned rows,
                                         unsigned splits, unsigned threads) {
  unsigned row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  float high = -INFINITY, sums[32];
#pragma unroll 1
  for (unsigned i = 0; i < splits; i++) high = fmaxf(high, logarithms[i * rows + row]);
  float shown = high == -INFINITY ? 0.0f : high;
#pragma unroll 1
  for (unsigned i = 0; i < threads; i++) sums[i] = 0;
#pragma unroll 1
  for (unsigned i = 0; i < splits; i++) {
    sums[i % threads] += expf(logarithms[i * rows + row] - shown);
  }
#pragma unroll 1
  for (unsigned half = threads / 2; half > 0; half /= 2) {
#pragma unroll 1
    for (unsigned i = 0; i < half; i++) sums[i] += sums[i + half];
  }
  float sum = sums[0], all = sum == 0.0f || sum != sum ? INFINITY : logf(sum) + shown;
#pragma unroll 1
  for (unsigned i = 0; i < splits; i++) {
    logarithms[i * rows + row] = expf(logarithms[i * rows + row] - all);
  }
  total[row] = all;
}

// The sum over the splits of their results times their factors.
extern "C" __global__ void join_splits(const float *results, const float *factors, float *joined,
                                       unsigned rows, unsigned columns, unsigned splits) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= rows * columns) return;
  float sum = 0;
#pragma unroll 1
  for (unsigned split = 0; split < splits; split++) {
    float result = results[(size_t)split * rows * columns + i];
    sum = __fmaf_rn(factors[split * rows + i / columns], result, sum);
  }
  joined[i] = sum;
}

// For every query, the gradient of its result times the result. A thread has eight columns in turn;
// cuDNN's add them in pairs. The efficient kernel's threads add up neighbours first.
extern "C" __global__ void row_dots(const float *given, const float *results, float *dots,
                                    unsigned rows, unsigned width, unsigned threads, int form) {
  unsigned row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  const float *a = given + (size_t)row * width, *b = results + (size_t)row * width;
  float sums[16];
#pragma unroll 1
  for (unsigned thread = 0; thread < threads; thread++) {
    float sum = 0;
#pragma unroll 1
    for (unsigned i = 8 * thread; i < width; i += i % 8 == 7 ? 8 * threads - 7 : 1) {
      if (form != CUDNN) {
        sum = __fmaf_rn(a[i], b[i], sum);
      } else if (i % 2) {
        sum += __fmaf_rn(a[i], b[i], a[i - 1] * b[i - 1]);
      }
    }
    sums[thread] = sum;
  }
#pragma unroll 1
  for (unsigned half = threads / 2; half > 0; half /= 2) {
    unsigned step = form == EFFICIENT ? threads / 2 / half : half;
#pragma unroll 1
    for (unsigned i = 0; i + step < threads; i++) {
      if (!(i & step)) sums[i] += sums[i + step];
    }
  }
  dots[row] = sums[0];
}

// Weights as the gradient computes them again, from the logarithms of the sums.
extern "C" __global__ void weights_again(const float *scores, const float *logarithms,
                                         float *weights, unsigned count, unsigned keys,
                                         float scale, float power, int form) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  float score = scores[i], logarithm = logarithms[i / keys], weight;
  if (form == FLASH) {
    weight = exp2f(__fsub_rn(__fmul_rn(score, power), __fmul_rn(logarithm, LOG2E)));
  } else if (form == EFFICIENT) {
    weight = expf(__fsub_rn(__fmul_rn(score, scale), logarithm));
  } else {
    weight = exp2f(__fmul_rn(__fmaf_rn(score, scale, -logarithm), LOG2E));
  }
  weights[i] = weight;
}
