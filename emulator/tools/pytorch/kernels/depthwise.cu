// Convolutions of every channel by itself, with the arithmetic of PyTorch's own kernels in their
// order: one chain of fused multiply-adds over the taps of the filter.
//
// They compute in f32, as PyTorch does for f16, bf16 and f32. nvcc 13.0 makes depthwise.ptx of this
// file, as test_torch_kernels says.

// Sizes that the kernels share. An input channel has `multiplier` channels of the output, `outputs`
// is their number; rows and columns are those of the filter.
struct Sizes {
  int images, outputs, multiplier, height, width, rows, columns, made_height, made_width;
  int stride_y, stride_x, padding_y, padding_x, dilation_y, dilation_x;
};

// A place of an image, or -1 where it has none.
__device__ int inside(int place, int size) { return place >= 0 && place < size ? place : -1; }

extern "C" __global__ void output(const float *x, const float *w, const float *bias, float *out,
                                  Sizes s, int has_bias) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, pixels = s.made_height * s.made_width;
  if (i >= s.images * s.outputs * pixels) return;
  int channel = i / pixels % s.outputs, plane = i / pixels / s.outputs * (s.outputs / s.multiplier);
  x += (plane + channel / s.multiplier) * s.height * s.width;
  w += channel * s.rows * s.columns;
  int top = i % pixels / s.made_width * s.stride_y - s.padding_y;
  int left = i % s.made_width * s.stride_x - s.padding_x;
  float sum = has_bias ? bias[channel] : 0;
#pragma unroll 1
  for (int tap = 0; tap < s.rows * s.columns; tap++) {
    int row = inside(top + tap / s.columns * s.dilation_y, s.height);
    int column = inside(left + tap % s.columns * s.dilation_x, s.width);
    if (row >= 0 && column >= 0) sum = fmaf(w[tap], x[row * s.width + column], sum);
  }
  out[i] = sum;
}

// A place of the output that a place of the input meets at a tap, or -1.
__device__ int met(int place, int stride, int size) {
  return place % stride ? -1 : inside(place / stride, size);
}

extern "C" __global__ void input_gradient(const float *g, const float *w, float *out, Sizes s) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, pixels = s.height * s.width;
  int channels = s.outputs / s.multiplier, taps = s.rows * s.columns;
  if (i >= s.images * channels * pixels) return;
  int first = i / pixels % channels * s.multiplier, y = i % pixels / s.width, x = i % s.width;
  g += (i / pixels / channels * s.outputs + first) * s.made_height * s.made_width;
  float sum = 0;
#pragma unroll 1
  for (int tap = 0; tap < s.multiplier * taps; tap++) {
    int at_y = y + s.padding_y - tap % taps / s.columns * s.dilation_y;
    int at_x = x + s.padding_x - tap % s.columns * s.dilation_x;
    int row = met(at_y, s.stride_y, s.made_height), column = met(at_x, s.stride_x, s.made_width);
    if (row < 0 || column < 0) continue;
    int place = (tap / taps * s.made_height + row) * s.made_width + column;
    sum = fmaf(w[first * taps + tap], g[place], sum);
  }
  out[i] = sum;
}

// What each thread of PyTorch's blocks adds up: a warp takes every `warps`-th image, and a lane every
// 32nd of its pixels. A block makes one tap of a channel.
extern "C" __global__ void filter_gradient(const float *g, const float *x, float *out, Sizes s,
                                           int warps) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, lanes = 32 * warps, taps = s.rows * s.columns;
  if (i >= s.outputs * taps * lanes) return;
  int channel = i / lanes / taps, tap = i / lanes % taps, pixels = s.made_height * s.made_width;
  float sum = 0;
#pragma unroll 1
  for (int image = i % lanes / 32; image < s.images; image += warps) {
    const float *given = g + (image * s.outputs + channel) * pixels;
    int plane = image * (s.outputs / s.multiplier) + channel / s.multiplier;
#pragma unroll 1
    for (int pixel = i % 32; pixel < pixels; pixel += 32) {
      int y = pixel / s.made_width * s.stride_y + tap / s.columns * s.dilation_y - s.padding_y;
      int at = pixel % s.made_width * s.stride_x + tap % s.columns * s.dilation_x - s.padding_x;
      int row = inside(y, s.height), column = inside(at, s.width);
      if (row >= 0 && column >= 0)
        sum = fmaf(x[(plane * s.height + row) * s.width + column], given[pixel], sum);
    }
  }
  out[i] = sum;
}
