// Pointwise operators of PyTorch, with the arithmetic of its CUDA kernels in their order.
//
// A kernel is named op_, its operator, and the words that choose among its forms. All compute in
// f32, as PyTorch does for f16, bf16 and f32 (its opmath): a, b and c are the tensors, p, q and r
// numbers. ROUND marks where PyTorch rounds to the type of the tensors in between: type 0 is f32,
// 1 is f16, 2 is bf16. nvcc 13.0 makes pointwise.ptx of this file, as test_torch_kernels says.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

__device__ float rounded(float x, int type) {
  if (type == 1) return __half2float(__float2half_rn(x));
  if (type == 2) return __bfloat162float(__float2bfloat16_rn(x));
  return x;
}

#define ROUND(x) rounded(x, type)
#pragma nv_diag_suppress 177  // most take fewer than three tensors
// Each warp takes a share of the elements that lie together, which caches like better.
#define POINTWISE(name, value)                                                                  \
  extern "C" __global__ void op_##name(const float *as, const float *bs, const float *cs,       \
                                       float *out, unsigned count, unsigned share, float p,     \
                                       float q, float r, int type) {                            \
    unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;                                    \
    unsigned first = thread / 32 * share, end = min(first + share, count);                      \
    _Pragma("unroll 1") for (unsigned i = first + thread % 32; i < end; i += 32) {              \
      float a = as[i], b = bs[i], c = cs[i];                                                    \
      out[i] = (value);                                                                         \
    }                                                                                           \
  }
// CUDA's own NaN, and minimum and maximum that keep the first operand where they cannot compare.
#define NOT_A_NUMBER __int_as_float(0x7fffffff)
#define LESS(x, y) ((y) < (x) ? (y) : (x))
#define MORE(x, y) ((x) < (y) ? (y) : (x))

// --- functions of CUDA's library, and roundings ---

POINTWISE(abs, fabsf(a))
POINTWISE(acos, acosf(a))
POINTWISE(acosh, acoshf(a))
POINTWISE(asin, asinf(a))
POINTWISE(asinh, asinhf(a))
POINTWISE(atan, atanf(a))
POINTWISE(atan2, atan2f(a, b))
POINTWISE(atanh, atanhf(a))
POINTWISE(ceil, ceilf(a))
POINTWISE(copysign, copysignf(a, b))
POINTWISE(cos, cosf(a))
POINTWISE(cosh, coshf(a))
POINTWISE(erf, erff(a))
POINTWISE(erfc, erfcf(a))
POINTWISE(erfinv, erfinvf(a))
POINTWISE(exp, expf(a))
POINTWISE(exp2, exp2f(a))
POINTWISE(expm1, expm1f(a))
POINTWISE(floor, floorf(a))
POINTWISE(fmin, fminf(a, b))
POINTWISE(fmax, fmaxf(a, b))
POINTWISE(fmod, fmodf(a, b))
POINTWISE(frac, a - truncf(a))
POINTWISE(hypot, hypotf(a, b))
POINTWISE(lgamma, lgammaf(a))
POINTWISE(log, logf(a))
POINTWISE(log10, log10f(a))
POINTWISE(log1p, log1pf(a))
POINTWISE(log2, log2f(a))
POINTWISE(neg, -a)
POINTWISE(nextafter, nextafterf(a, b))
POINTWISE(pow, powf(a, b))
POINTWISE(reciprocal, 1.0f / a)
POINTWISE(round, nearbyintf(a))
POINTWISE(rsqrt, rsqrtf(a))
POINTWISE(sin, sinf(a))
POINTWISE(sinh, sinhf(a))
POINTWISE(sqrt, sqrtf(a))
POINTWISE(tan, tanf(a))
POINTWISE(tanh, tanhf(a))
POINTWISE(trunc, truncf(a))

// --- arithmetic ---

POINTWISE(add, a + p * b)
POINTWISE(sub, a - p * b)
POINTWISE(rsub, b - p * a)
POINTWISE(mul, a *b)
POINTWISE(div, a / b)
POINTWISE(div_trunc, truncf(ROUND(a / b)))
POINTWISE(addcmul, p == 1 ? fmaf(b, c, a) : a + p * (b * c))
POINTWISE(addcdiv, a + p * (b / c))
POINTWISE(lerp, fabsf(c) < 0.5f ? a + c * (b - a) : b - (b - a) * (1.0f - c))
POINTWISE(cube, ROUND(a *a) * a)
POINTWISE(inverse_square, 1.0f / ROUND(a *a))
POINTWISE(copy, a)
POINTWISE(one, 1.0f)
POINTWISE(clamp, a != a ? a : b != b ? b : c != c ? c : fminf(fmaxf(a, b), c))
POINTWISE(maximum, a != a ? a : b != b ? b : fmaxf(a, b))
POINTWISE(minimum, a != a ? a : b != b ? b : fminf(a, b))

__device__ float remainder_of(float a, float b) {
  float rest = fmodf(a, b);
  if (rest != 0 && (b < 0) != (rest < 0)) rest += b;
  return rest;
}
POINTWISE(remainder, remainder_of(a, b))

__device__ float floor_of_quotient(float a, float b) {
  if (b == 0) return a / b;
  float rest = fmodf(a, b), quotient = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
  if (quotient == 0) return copysignf(0, a / b);
  float whole = floorf(quotient);
  return quotient - whole > 0.5f ? whole + 1.0f : whole;
}
POINTWISE(div_floor, floor_of_quotient(a, b))
// By a number, with its reciprocal.
POINTWISE(div_trunc_by, truncf(a *p))

__device__ float floor_of_product(float a, float b, float inverse, int type) {
  float rest = fmodf(a, b), quotient = (a - rest) * inverse;
  if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
  if (quotient == 0) return copysignf(0, a * inverse);
  float whole = ROUND(floorf(quotient));
  return quotient - whole > 0.5f ? whole + 1.0f : whole;
}
POINTWISE(div_floor_by, floor_of_product(a, p, q, type))

// --- special functions ---

__device__ float logaddexp_of(float a, float b) {
  if (isinf(a) && a == b) return a;
  return fmaxf(a, b) + log1pf(expf(-fabsf(a - b)));
}
POINTWISE(logaddexp, logaddexp_of(a, b))

__device__ float log_of_sum(float a, float b) {
  float low = b != b ? b : LESS(a, b), high = b != b ? b : MORE(a, b);
  return low != high || isfinite(low) ? log1pf(expf(low - high)) + high : a;
}
POINTWISE(log_of_sum, log_of_sum(a, b))
POINTWISE(logit, logf(a / (1.0f - a)))
POINTWISE(sigmoid, 1.0f / (1.0f + expf(-a)))
POINTWISE(xlogy, b != b ? NAN : a == 0 ? 0.0f : a * logf(b))
POINTWISE(special_entr, a != a ? a : a > 0 ? -a * logf(a) : a == 0 ? 0.0f : -INFINITY)

__device__ float sinc_of(float a) {
  float product = 3.14159265358979323846f * a;
  return a == 0 ? 1.0f : sinf(product) / product;
}
POINTWISE(sinc, sinc_of(a))

__device__ float digamma_of(float x) {
  const float of_square[] = {
      8.33333333333333333333e-2f, -2.10927960927960927961e-2f, 7.57575757575757575758e-3f,
      -4.16666666666666666667e-3f, 3.96825396825396825397e-3f, -8.33333333333333333333e-3f,
      8.33333333333333333333e-2f};
  if (x == 0) return copysignf(INFINITY, -x);
  float result = 0;
  if (x < 0) {
    if (x == truncf(x)) return NOT_A_NUMBER;
    double whole, part = modf((double)x, &whole);
    result = (float)(-3.14159265358979323846 / tan(3.14159265358979323846 * part));
    x = 1 - x;
  }
  for (; x < 10; x += 1) result -= 1.0f / x;
  if (x == 10) return result + 2.25175258906672110764f;
  float tail = 0;
  if (x < 1.0e17f) {
    float square = 1.0f / (x * x), sum = 0;
    for (int i = 0; i < 7; i++) sum = sum * square + of_square[i];
    tail = square * sum;
  }
  return logf(x) - 0.5f / x - tail + result;
}
POINTWISE(digamma, digamma_of(a))

template <int N>
__device__ float chebyshev(float x, const float (&of)[N]) {
  float last = of[0], before = 0, older = 0;
  for (int i = 1; i < N; i++) {
    older = before;
    before = last;
    last = x * before - older + of[i];
  }
  return 0.5f * (last - older);
}

__device__ float i0_of(float a) {
  const float small[] = {
      -4.41534164647933937950e-18f, 3.33079451882223809783e-17f, -2.43127984654795469359e-16f,
      1.71539128555513303061e-15f, -1.16853328779934516808e-14f, 7.67618549860493561688e-14f,
      -4.85644678311192946090e-13f, 2.95505266312963983461e-12f, -1.72682629144155570723e-11f,
      9.67580903537323691224e-11f, -5.18979560163526290666e-10f, 2.65982372468238665035e-9f,
      -1.30002500998624804212e-8f, 6.04699502254191894932e-8f, -2.67079385394061173391e-7f,
      1.11738753912010371815e-6f, -4.41673835845875056359e-6f, 1.64484480707288970893e-5f,
      -5.75419501008210370398e-5f, 1.88502885095841655729e-4f, -5.76375574538582365885e-4f,
      1.63947561694133579842e-3f, -4.32430999505057594430e-3f, 1.05464603945949983183e-2f,
      -2.37374148058994688156e-2f, 4.93052842396707084878e-2f, -9.49010970480476444210e-2f,
      1.71620901522208775349e-1f, -3.04682672343198398683e-1f, 6.76795274409476084995e-1f};
  const float large[] = {
      -7.23318048787475395456e-18f, -4.83050448594418207126e-18f, 4.46562142029675999901e-17f,
      3.46122286769746109310e-17f, -2.82762398051658348494e-16f, -3.42548561967721913462e-16f,
      1.77256013305652638360e-15f, 3.81168066935262242075e-15f, -9.55484669882830764870e-15f,
      -4.15056934728722208663e-14f, 1.54008621752140982691e-14f, 3.85277838274214270114e-13f,
      7.18012445138366623367e-13f, -1.79417853150680611778e-12f, -1.32158118404477131188e-11f,
      -3.14991652796324136454e-11f, 1.18891471078464383424e-11f, 4.94060238822496958910e-10f,
      3.39623202570838634515e-9f, 2.26666899049817806459e-8f, 2.04891858946906374183e-7f,
      2.89137052083475648297e-6f, 6.88975834691682398426e-5f, 3.36911647825569408990e-3f,
      8.04490411014108831608e-1f};
  float x = fabsf(a);
  if (x <= 8.0f) return expf(x) * chebyshev(x / 2.0f - 2.0f, small);
  return expf(x) * chebyshev(32.0f / x - 2.0f, large) / sqrtf(x);
}
POINTWISE(i0, i0_of(a))

__device__ float i1_of(float a) {
  const float small[] = {
      2.77791411276104639959e-18f, -2.11142121435816608115e-17f, 1.55363195773620046921e-16f,
      -1.10559694773538630805e-15f, 7.60068429473540693410e-15f, -5.04218550472791168711e-14f,
      3.22379336594557470981e-13f, -1.98397439776494371520e-12f, 1.17361862988909016308e-11f,
      -6.66348972350202774223e-11f, 3.62559028155211703701e-10f, -1.88724975172282928790e-9f,
      9.38153738649577178388e-9f, -4.44505912879632808065e-8f, 2.00329475355213526229e-7f,
      -8.56872026469545474066e-7f, 3.47025130813767847674e-6f, -1.32731636560394358279e-5f,
      4.78156510755005422638e-5f, -1.61760815825896745588e-4f, 5.12285956168575772895e-4f,
      -1.51357245063125314899e-3f, 4.15642294431288815669e-3f, -1.05640848946261981558e-2f,
      2.47264490306265168283e-2f, -5.29459812080949914269e-2f, 1.02643658689847095384e-1f,
      -1.76416518357834055153e-1f, 2.52587186443633654823e-1f};
  const float large[] = {
      7.51729631084210481353e-18f, 4.41434832307170791151e-18f, -4.65030536848935832153e-17f,
      -3.20952592199342395980e-17f, 2.96262899764595013876e-16f, 3.30820231092092828324e-16f,
      -1.88035477551078244854e-15f, -3.81440307243700780478e-15f, 1.04202769841288027642e-14f,
      4.27244001671195135429e-14f, -2.10154184277266431302e-14f, -4.08355111109219731823e-13f,
      -7.19855177624590851209e-13f, 2.03562854414708950722e-12f, 1.41258074366137813316e-11f,
      3.25260358301548823856e-11f, -1.89749581235054123450e-11f, -5.58974346219658380687e-10f,
      -3.83538038596423702205e-9f, -2.63146884688951950684e-8f, -2.51223623787020892529e-7f,
      -3.88256480887769039346e-6f, -1.10588938762623716291e-4f, -9.76109749136146840777e-3f,
      7.78576235018280120474e-1f};
  float x = fabsf(a);
  float size = x <= 8.0f ? expf(x) * x * chebyshev(x / 2.0f - 2.0f, small)
                         : expf(x) * chebyshev(32.0f / x - 2.0f, large) / sqrtf(x);
  return a < 0.0f ? -size : size;
}
POINTWISE(special_i1, i1_of(a))

template <int N>
__device__ float polynomial(float x, const float (&of)[N]) {
  float sum = 0;
  for (int i = 0; i < N; i++) sum = sum * x + of[i];
  return sum;
}

__device__ float ndtri_of(float given) {
  const float p0[] = {-5.99633501014107895267e1f, 9.80010754185999661536e1f,
                      -5.66762857469070293439e1f, 1.39312609387279679503e1f,
                      -1.23916583867381258016e0f};
  const float q0[] = {1.00000000000000000000e0f, 1.95448858338141759834e0f,
                      4.67627912898881538453e0f, 8.63602421390890590575e1f,
                      -2.25462687854119370527e2f, 2.00260212380060660359e2f,
                      -8.20372256168333339912e1f, 1.59056225126211695515e1f,
                      -1.18331621121330003142e0f};
  const float p1[] = {4.05544892305962419923e0f, 3.15251094599893866154e1f,
                      5.71628192246421288162e1f, 4.40805073893200834700e1f,
                      1.46849561928858024014e1f, 2.18663306850790267539e0f,
                      -1.40256079171354495875e-1f, -3.50424626827848203418e-2f,
                      -8.57456785154685413611e-4f};
  const float q1[] = {1.00000000000000000000e0f, 1.57799883256466749731e1f,
                      4.53907635128879210584e1f, 4.13172038254672030440e1f,
                      1.50425385692907503408e1f, 2.50464946208309415979e0f,
                      -1.42182922854787788574e-1f, -3.80806407691578277194e-2f,
                      -9.33259480895457427372e-4f};
  const float p2[] = {3.23774891776946035970e0f, 6.91522889068984211695e0f,
                      3.93881025292474443415e0f, 1.33303460815807542389e0f,
                      2.01485389549179081538e-1f, 1.23716634817820021358e-2f,
                      3.01581553508235416007e-4f, 2.65806974686737550832e-6f,
                      6.23974539184983293730e-9f};
  const float q2[] = {1.00000000000000000000e0f, 6.02427039364742014255e0f,
                      3.67983563856160859403e0f, 1.37702099489081330271e0f,
                      2.16236993594496635890e-1f, 1.34204006088543189037e-2f,
                      3.28014464682127739104e-4f, 2.89247864745380683936e-6f,
                      6.79019408009981274425e-9f};
  const float edge = 0.13533528323661269189f;
  if (given == 0) return -INFINITY;
  if (given == 1) return INFINITY;
  if (given < 0 || given > 1) return NOT_A_NUMBER;
  bool lower = true;
  float y = given;
  if (y > 1.0f - edge) {
    y = 1.0f - y;
    lower = false;
  }
  if (y > edge) {
    y = y - 0.5f;
    float square = y * y;
    float x = y + y * (square * polynomial(square, p0) / polynomial(square, q0));
    return x * 2.50662827463100050242f;
  }
  float x = sqrtf(-2.0f * logf(y));
  float first = x - logf(x) / x, z = 1.0f / x;
  float second = x < 8.0f ? z * polynomial(z, p1) / polynomial(z, q1)
                          : z * polynomial(z, p2) / polynomial(z, q2);
  x = first - second;
  return lower ? -x : x;
}
POINTWISE(special_ndtri, ndtri_of(a))

__device__ float log_ndtr_of(float x) {
  float t = x * 0.707106781186547524400844362104849039f;
  return x < -1.0f ? logf(erfcxf(-t) / 2) - t * t : log1pf(-erfcf(t) / 2);
}
POINTWISE(special_log_ndtr, log_ndtr_of(a))

// --- activations ---

POINTWISE(gelu, a * 0.5f * (1.0f + erff(a * 0.70710678118654752440f)))

#define GELU_BETA ((float)(1.41421356237309504880 * 1.12837916709551257390 * 0.5))
__device__ float gelu_tanh_of(float x) {
  float cube = x * x * x, inner = GELU_BETA * (x + 0.044715f * cube);
  return 0.5f * x * (1.0f + tanhf(inner));
}
POINTWISE(gelu_tanh, gelu_tanh_of(a))
POINTWISE(silu, a / (1.0f + expf(-a)))
POINTWISE(softplus, a *p > q ? a : log1pf(expf(a *p)) / p)
POINTWISE(mish, a *tanhf(log1pf(expf(a))))
POINTWISE(elu, a > 0 ? a * q : expm1f(a * r) * (p * q))
POINTWISE(hardswish, a *LESS(MORE(a + 3.0f, 0.0f), 6.0f) * (1.0f / 6.0f))
POINTWISE(hardsigmoid, LESS(MORE(a + 3.0f, 0.0f), 6.0f) * (1.0f / 6.0f))
POINTWISE(hardtanh, a != a ? a : fminf(fmaxf(a, p), q))
POINTWISE(leaky_relu, a > 0 ? a : a * p)
POINTWISE(log_sigmoid_forward, LESS(0.0f, a) - log1pf(expf(-fabsf(a))))

// --- gradients: a is that of the result ---

__device__ float gelu_backward_of(float dy, float x) {
  const float beta = 1.12837916709551257390 * 0.70710678118654752440 * 0.5;
  float cdf = 0.5f * (1.0f + erff(x * 0.70710678118654752440f));
  float pdf = expf(-0.5f * x * x) * beta;
  return dy * (cdf + x * pdf);
}
POINTWISE(gelu_backward, gelu_backward_of(a, b))

__device__ float gelu_tanh_backward_of(float dy, float x) {
  float square = x * x, cube = square * x, inner = GELU_BETA * (x + 0.044715f * cube);
  float tanh = tanhf(inner), left = 0.5f * x, right = 1.0f + tanh;
  float of_tanh = 1.0f - tanh * tanh;
  float of_inner = GELU_BETA * (1.0f + 3.0f * 0.044715f * square);
  return dy * (0.5f * right + left * of_tanh * of_inner);
}
POINTWISE(gelu_backward_tanh, gelu_tanh_backward_of(a, b))

__device__ float silu_backward_of(float dy, float x) {
  float s = 1.0f / (1.0f + expf(-x));
  return dy * s * (1.0f + x * (1.0f - s));
}
POINTWISE(silu_backward, silu_backward_of(a, b))

__device__ float softplus_backward_of(float dy, float x, float beta, float threshold) {
  float z = expf(x * beta);
  return x * beta > threshold ? dy : dy * z / (z + 1.0f);
}
POINTWISE(softplus_backward, softplus_backward_of(a, b, p, q))

__device__ float mish_backward_of(float dy, float x) {
  float s = 1.0f / (1.0f + expf(-x)), t = tanhf(log1pf(expf(x)));
  return dy * (t + x * s * (1.0f - t * t));
}
POINTWISE(mish_backward, mish_backward_of(a, b))
POINTWISE(elu_backward, b <= 0 ? a * r * (p * q) * expf(b * r) : a * q)
POINTWISE(hardswish_backward, b <= -3.0f ? 0.0f : b < 3.0f ? a * (b / 3.0f + 0.5f) : a)
POINTWISE(hardsigmoid_backward, b > -3.0f && b < 3.0f ? a * (1.0f / 6.0f) : 0.0f)
POINTWISE(hardtanh_backward, b <= p || b >= q ? 0.0f : a)
POINTWISE(leaky_relu_backward, b > 0 ? a : a * p)

__device__ float log_sigmoid_backward_of(float dy, float x) {
  bool negative = x < 0;
  float z = expf(-fabsf(x));
  return dy * ((negative ? 1.0f : 0.0f) - (negative ? 1.0f : -1.0f) * (z / (1.0f + z)));
}
POINTWISE(log_sigmoid_backward, log_sigmoid_backward_of(a, b))
POINTWISE(sigmoid_backward, a * (1.0f - b) * b)
POINTWISE(tanh_backward, a * (1.0f - b * b))
// Those of f16 and bf16 round after every step.
POINTWISE(sigmoid_backward_rounded, ROUND(a *ROUND(1.0f - b)) * b)
POINTWISE(tanh_backward_rounded, a *ROUND(1.0f - ROUND(b * b)))
