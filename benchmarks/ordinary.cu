// Kernels as programs have them: no instruction of matrices, most of the time in ordinary arithmetic.

extern "C" __global__ void nbody(const float4 *at, float4 *force, int n) {
    __shared__ float4 tile[128];
    float4 mine = at[blockIdx.x * blockDim.x + threadIdx.x];
    float x = 0, y = 0, z = 0;
    for (int first = 0; first < n; first += blockDim.x) {
        tile[threadIdx.x] = at[first + threadIdx.x];
        __syncthreads();
        for (int j = 0; j < blockDim.x; ++j) {
            float4 other = tile[j];
            float dx = other.x - mine.x, dy = other.y - mine.y, dz = other.z - mine.z;
            float r = rsqrtf(dx * dx + dy * dy + dz * dz + 1e-3f), s = other.w * r * r * r;
            x += dx * s, y += dy * s, z += dz * s;
        }
        __syncthreads();
    }
    force[blockIdx.x * blockDim.x + threadIdx.x] = make_float4(x, y, z, 0);
}

extern "C" __global__ void nbody_global(const float4 *at, float4 *force, int n) {
    float4 mine = at[blockIdx.x * blockDim.x + threadIdx.x];
    float x = 0, y = 0, z = 0;
    for (int j = 0; j < n; ++j) {
        float4 other = at[j];
        float dx = other.x - mine.x, dy = other.y - mine.y, dz = other.z - mine.z;
        float r = rsqrtf(dx * dx + dy * dy + dz * dz + 1e-3f), s = other.w * r * r * r;
        x += dx * s, y += dy * s, z += dz * s;
    }
    force[blockIdx.x * blockDim.x + threadIdx.x] = make_float4(x, y, z, 0);
}

extern "C" __global__ void mandelbrot(int *turns, int width, int most) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, n = 0;
    float cx = -2.0f + 3.0f * (i % width) / width, cy = -1.5f + 3.0f * (i / width) / width;
    for (float x = 0, y = 0; n < most && x * x + y * y < 4.0f; ++n) {
        float next = x * x - y * y + cx;
        y = 2 * x * y + cy, x = next;
    }
    turns[i] = n;
}

extern "C" __global__ void histogram(const unsigned char *data, unsigned *bins, int n) {
    __shared__ unsigned mine[256];
    mine[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&mine[data[i]], 1u);
    __syncthreads();
    atomicAdd(&bins[threadIdx.x], mine[threadIdx.x]);
}

extern "C" __global__ void sgemm(const float *a, const float *b, float *c, int n) {
    __shared__ float left[16][16], right[16][16];
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < n; k += 16) {
        left[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];
        right[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + column];
        __syncthreads();
        for (int i = 0; i < 16; ++i) sum += left[threadIdx.y][i] * right[i][threadIdx.x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

extern "C" __global__ void reduction(const float *data, float *out, int n) {
    __shared__ float parts[256];
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        sum += data[i];
    parts[threadIdx.x] = sum;
    __syncthreads();
    for (int half = 128; half > 0; half >>= 1) {
        if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = parts[0];
}

extern "C" __global__ void hashes(unsigned *words, int rounds) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, h = words[i];
    for (int n = 0; n < rounds; ++n) {
        h ^= h >> 16, h *= 0x85ebca6bu;
        h ^= h >> 13, h *= 0xc2b2ae35u;
        h ^= h >> 16, h += n;
        h = (h << 7) | (h >> 25);
    }
    words[i] = h;
}

extern "C" __global__ void bitonic(unsigned *keys) {
    __shared__ unsigned held[512];
    unsigned i = threadIdx.x, first = blockIdx.x * 512;
    held[i] = keys[first + i];
    __syncthreads();
    for (unsigned size = 2; size <= 512; size <<= 1)
        for (unsigned stride = size >> 1; stride > 0; stride >>= 1) {
            unsigned other = i ^ stride;
            if (other > i) {
                bool up = (i & size) == 0;
                if ((held[i] > held[other]) == up) {
                    unsigned swapped = held[i];
                    held[i] = held[other];
                    held[other] = swapped;
                }
            }
            __syncthreads();
        }
    keys[first + i] = held[i];
}

extern "C" __global__ void black_scholes(
    const float *price, const float *strike, const float *years, float *call, float *put, int n) {
    const float rate = 0.02f, volatility = 0.3f;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float root = sqrtf(years[i]), spread = volatility * root;
    float d1 = (logf(price[i] / strike[i]) + (rate + 0.5f * volatility * volatility) * years[i]) / spread;
    float d2 = d1 - spread, discounted = strike[i] * expf(-rate * years[i]);
    call[i] = price[i] * normcdff(d1) - discounted * normcdff(d2);
    put[i] = discounted * normcdff(-d2) - price[i] * normcdff(-d1);
}
