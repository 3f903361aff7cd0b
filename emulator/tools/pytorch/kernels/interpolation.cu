// Interpolation of images in PyTorch, with the arithmetic of its CUDA kernels in their order.
//
// They compute in f32, as PyTorch does for f16, bf16 and f32. A thread makes one pixel of one plane.
// nvcc 13.0 makes interpolation.ptx of this file, as test_torch_kernels says.

__device__ float source(float scale, int place, int corners, bool cubic) {
  if (corners) return scale * place;
  float at = scale * (place + 0.5f) - 0.5f;
  return !cubic && at < 0 ? 0 : at;
}

// Where a thread is: its place in the result, and its plane of the image.
struct Place {
  int row, column;
  const float *plane;
};

__device__ Place place_of(const float *in, int i, int height, int width, int rows, int columns) {
  return {i / columns % rows, i % columns, in + (size_t)(i / columns / rows) * height * width};
}

extern "C" __global__ void bilinear(const float *in, float *out, int planes, int height, int width,
                                    int rows, int columns, float scale_y, float scale_x,
                                    int corners) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= planes * rows * columns) return;
  Place at = place_of(in, i, height, width, rows, columns);
  float y = source(scale_y, at.row, corners, false), x = source(scale_x, at.column, corners, false);
  int top = y, left = x;
  int down = top < height - 1 ? width : 0, right = left < width - 1 ? 1 : 0;
  float y1 = y - top, y0 = 1.0f - y1, x1 = x - left, x0 = 1.0f - x1;
  const float *corner = at.plane + top * width + left;
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
  Place at = place_of(in, i, height, width, rows, columns);
  float y = source(scale_y, at.row, corners, true), x = source(scale_x, at.column, corners, true);
  int top = floorf(y), left = floorf(x);
  float ty = y - top, tx = x - left, lines[4];
  for (int k = 0; k < 4; k++) {
    const float *line = at.plane + max(min(top - 1 + k, height - 1), 0) * width;
    float held[4];
    for (int j = 0; j < 4; j++) held[j] = line[max(min(left - 1 + j, width - 1), 0)];
    lines[k] = cubic(held[0], held[1], held[2], held[3], tx);
  }
  out[i] = cubic(lines[0], lines[1], lines[2], lines[3], ty);
}

// --- at places that a grid gives ---

// Words of PyTorch's for how to interpolate, and for what is outside.
enum { BILINEAR, NEAREST, BICUBIC };
enum { ZEROS, BORDER, REFLECTION };

__device__ float pixels(float at, int size, int corners) {
  return corners ? ((at + 1.0f) / 2) * (size - 1) : ((at + 1.0f) * size - 1) / 2;
}

__device__ float reflected(float at, int twice_low, int twice_high) {
  if (twice_low == twice_high) return 0;
  float low = (float)twice_low / 2, span = (float)(twice_high - twice_low) / 2;
  at = fabsf(at - low);
  float extra = fmodf(at, span);
  int flips = (int)floorf(at / span);
  return flips % 2 == 0 ? extra + low : span - extra + low;
}

__device__ float inside(float at, int size, int padding, int corners) {
  if (padding == REFLECTION)
    at = corners ? reflected(at, 0, 2 * (size - 1)) : reflected(at, -1, 2 * size - 1);
  if (padding != ZEROS) at = fminf(size - 1, fmaxf(at, 0));
  return at > 2147483646.0f || at < -2147483648.0f || !isfinite(at) ? -100.0f : at;
}

__device__ float pixel(const float *plane, int y, int x, int height, int width) {
  return y >= 0 && y < height && x >= 0 && x < width ? plane[y * width + x] : 0.0f;
}

extern "C" __global__ void grid_sample(const float *in, const float *grid, float *out, int count,
                                       int channels, int height, int width, int rows, int columns,
                                       int mode, int padding, int corners) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  Place at = place_of(in, i, height, width, rows, columns);
  int image = i / columns / rows / channels;
  const float *given = grid + 2 * ((size_t)(image * rows + at.row) * columns + at.column);
  float x = pixels(given[0], width, corners), y = pixels(given[1], height, corners);
  if (mode == BICUBIC) {
    float left = floorf(x), top = floorf(y), lines[4];
    for (int k = 0; k < 4; k++) {
      int row = (int)inside(top - 1 + k, height, padding, corners);
      float held[4];
      for (int j = 0; j < 4; j++) {
        int column = (int)inside(left - 1 + j, width, padding, corners);
        held[j] = pixel(at.plane, row, column, height, width);
      }
      lines[k] = cubic(held[0], held[1], held[2], held[3], x - left);
    }
    out[i] = cubic(lines[0], lines[1], lines[2], lines[3], y - top);
    return;
  }
  x = inside(x, width, padding, corners);
  y = inside(y, height, padding, corners);
  if (mode == NEAREST) {
    out[i] = pixel(at.plane, (int)nearbyintf(y), (int)nearbyintf(x), height, width);
    return;
  }
  int left = (int)floorf(x), top = (int)floorf(y), right = left + 1, down = top + 1;
  float sum = 0;
  sum += pixel(at.plane, top, left, height, width) * ((right - x) * (down - y));
  sum += pixel(at.plane, top, right, height, width) * ((x - left) * (down - y));
  sum += pixel(at.plane, down, left, height, width) * ((right - x) * (y - top));
  sum += pixel(at.plane, down, right, height, width) * ((x - left) * (y - top));
  out[i] = sum;
}
