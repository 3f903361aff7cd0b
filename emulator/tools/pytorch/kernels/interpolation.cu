// Interpolation of images in PyTorch, with the arithmetic of its CUDA kernels in their order.
//
// They compute in f32, as PyTorch does for f16, bf16 and f32. A thread makes one pixel of one plane.
// nvcc 13.0 makes interpolation.ptx of this file, as the test test_torch_images says.

__device__ float source(float scale, int place, int corners, bool cubic) {
  if (corners) return scale * place;
  float at = scale * (place + 0.5f) - 0.5f;
  return !cubic && at < 0 ? 0 : at;
}

extern "C" __global__ void bilinear(const float *in, float *out, int planes, int height, int width,
                                    int rows, int columns, float scale_y, float scale_x,
                                    int corners) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= planes * rows * columns) return;
  int column = i % columns, row = i / columns % rows;
  const float *plane = in + (size_t)(i / columns / rows) * height * width;
  float y = source(scale_y, row, corners, false), x = source(scale_x, column, corners, false);
  int top = y, left = x;
  int down = top < height - 1 ? width : 0, right = left < width - 1 ? 1 : 0;
  float y1 = y - top, y0 = 1.0f - y1, x1 = x - left, x0 = 1.0f - x1;
  const float *corner = plane + top * width + left;
  // PyTorch writes a plain sum of products; its kernel fuses the first of each pair.
  float upper = fmaf(x0, corner[0], x1 * corner[right]);
  float lower = fmaf(x0, corner[down], x1 * corner[down + right]);
  out[i] = fmaf(y0, upper, y1 * lower);
}

#define A -0.75f
__device__ float near(float x) { return ((A + 2) * x - (A + 3)) * x * x + 1; }
__device__ float far(float x) { return ((A * x - 5 * A) * x + 8 * A) * x - 4 * A; }

__device__ float cubic(float a, float b, float c, float d, float t) {
  float rest = 1.0 - t;
  return a * far(t + 1.0) + b * near(t) + c * near(rest) + d * far(rest + 1.0);
}

extern "C" __global__ void bicubic(const float *in, float *out, int planes, int height, int width,
                                   int rows, int columns, float scale_y, float scale_x,
                                   int corners) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= planes * rows * columns) return;
  int column = i % columns, row = i / columns % rows;
  const float *plane = in + (size_t)(i / columns / rows) * height * width;
  float y = source(scale_y, row, corners, true), x = source(scale_x, column, corners, true);
  int top = floorf(y), left = floorf(x);
  float ty = y - top, tx = x - left, lines[4];
  for (int k = 0; k < 4; k++) {
    const float *line = plane + max(min(top - 1 + k, height - 1), 0) * width;
    float held[4];
    for (int j = 0; j < 4; j++) held[j] = line[max(min(left - 1 + j, width - 1), 0)];
    lines[k] = cubic(held[0], held[1], held[2], held[3], tx);
  }
  out[i] = cubic(lines[0], lines[1], lines[2], lines[3], ty);
}
