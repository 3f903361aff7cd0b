// The jobs of ordinary.cu in plain C++, all cores and vectors.

#include <algorithm>
#include <cmath>
#include <vector>

using std::sqrt;

extern "C" void nbody(const float *at, float *force, int n) {
    std::vector<float> x(n), y(n), z(n), mass(n);
    for (int i = 0; i < n; ++i)
        x[i] = at[4 * i], y[i] = at[4 * i + 1], z[i] = at[4 * i + 2], mass[i] = at[4 * i + 3];
#pragma omp parallel for
    for (int i = 0; i < n; ++i) {
        float fx = 0, fy = 0, fz = 0;
#pragma omp simd reduction(+ : fx, fy, fz)
        for (int j = 0; j < n; ++j) {
            float dx = x[j] - x[i], dy = y[j] - y[i], dz = z[j] - z[i];
            float r = 1 / sqrt(dx * dx + dy * dy + dz * dz + 1e-3f), s = mass[j] * r * r * r;
            fx += dx * s, fy += dy * s, fz += dz * s;
        }
        force[4 * i] = fx, force[4 * i + 1] = fy, force[4 * i + 2] = fz, force[4 * i + 3] = 0;
    }
}

extern "C" void mandelbrot(int *turns, int width, int most) {
#pragma omp parallel for schedule(dynamic, 16)
    for (int row = 0; row < width; ++row)
        for (int column = 0; column < width; ++column) {
            float cx = -2.0f + 3.0f * column / width, cy = -1.5f + 3.0f * row / width;
            int n = 0;
            for (float x = 0, y = 0; n < most && x * x + y * y < 4.0f; ++n) {
                float next = x * x - y * y + cx;
                y = 2 * x * y + cy, x = next;
            }
            turns[row * width + column] = n;
        }
}

extern "C" void histogram(const unsigned char *data, unsigned *bins, int n) {
#pragma omp parallel
    {
        unsigned mine[256] = {};
#pragma omp for
        for (int i = 0; i < n; ++i) ++mine[data[i]];
        for (int i = 0; i < 256; ++i)
#pragma omp atomic
            bins[i] += mine[i];
    }
}

extern "C" void sgemm(const float *a, const float *b, float *c, int n) {
#pragma omp parallel for
    for (int row = 0; row < n; ++row) {
        float *out = c + row * n;
        std::fill(out, out + n, 0.0f);
        for (int k = 0; k < n; ++k) {
            float left = a[row * n + k];
            for (int column = 0; column < n; ++column) out[column] += left * b[k * n + column];
        }
    }
}

extern "C" void reduction(const float *data, float *out, int n) {
    float sum = 0;
#pragma omp parallel for simd reduction(+ : sum)
    for (int i = 0; i < n; ++i) sum += data[i];
    *out = sum;
}

extern "C" void hashes(unsigned *words, int rounds, int n) {
#pragma omp parallel for
    for (int i = 0; i < n; ++i) {
        unsigned h = words[i];
        for (int round = 0; round < rounds; ++round) {
            h ^= h >> 16, h *= 0x85ebca6bu;
            h ^= h >> 13, h *= 0xc2b2ae35u;
            h ^= h >> 16, h += round;
            h = (h << 7) | (h >> 25);
        }
        words[i] = h;
    }
}

extern "C" void bitonic(unsigned *keys, int blocks) {
#pragma omp parallel for
    for (int i = 0; i < blocks; ++i) std::sort(keys + 512 * i, keys + 512 * i + 512);
}

static float cdf(float x) { return 0.5f * std::erfc(-0.70710678f * x); }

extern "C" void black_scholes(
    const float *price, const float *strike, const float *years, float *call, float *put, int n) {
    const float rate = 0.02f, volatility = 0.3f;
#pragma omp parallel for simd
    for (int i = 0; i < n; ++i) {
        float spread = volatility * sqrt(years[i]);
        float d1 = (std::log(price[i] / strike[i]) + (rate + 0.5f * volatility * volatility) * years[i]) / spread;
        float d2 = d1 - spread, discounted = strike[i] * std::exp(-rate * years[i]);
        call[i] = price[i] * cdf(d1) - discounted * cdf(d2);
        put[i] = discounted * cdf(-d2) - price[i] * cdf(-d1);
    }
}

// What a machine can do at most: two jobs that need nothing but its arithmetic units, and its first
// caches.

typedef float Lanes __attribute__((vector_size(32)));

extern "C" void multiply_adds() {
#pragma omp parallel for schedule(dynamic)
    for (int part = 0; part < 256; ++part) {
        Lanes factor = Lanes{} + 0.999f, sums[10];
        for (int i = 0; i < 10; ++i) sums[i] = factor + float(i);
        for (int turn = 0; turn < 200000; ++turn) {
            for (int i = 0; i < 10; ++i) sums[i] = sums[i] * factor + factor;
            asm volatile("" : "+x"(factor));
        }
        for (int i = 0; i < 10; ++i) asm volatile("" : : "x"(sums[i]));
    }
}

extern "C" void first_cache() {
#pragma omp parallel for schedule(dynamic)
    for (int part = 0; part < 256; ++part) {
        alignas(64) unsigned words[4096] = {};
        for (int turn = 0; turn < 1000; ++turn) {
            for (unsigned &word : words) word ^= turn;
            asm volatile("" : : "r"(words) : "memory");
        }
    }
}
