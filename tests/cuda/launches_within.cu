// Kernels that launch kernels (CUDA dynamic parallelism): nvcc 13.0 -arch=sm_90 -rdc=true -ptx

extern "C" __global__ void sort(int *data, int left, int right, int depth)
{
    int *low = data + left, *high = data + right;
    int pivot = data[(left + right) / 2];
    while (low <= high) {
        int l = *low, h = *high;
        while (l < pivot)
            l = *++low;
        while (h > pivot)
            h = *--high;
        if (low <= high) {
            *low++ = h;
            *high-- = l;
        }
    }
    int new_right = high - data, new_left = low - data;
    cudaStream_t stream;
    if (left < new_right && depth < 20) {
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
        sort<<<1, 1, 0, stream>>>(data, left, new_right, depth + 1);
        cudaStreamDestroy(stream);
    }
    if (new_left < right && depth < 20) {
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
        sort<<<1, 1, 0, stream>>>(data, new_left, right, depth + 1);
        cudaStreamDestroy(stream);
    }
}

// Each grid appends its number: one stream keeps its order, and a tail comes last.
extern "C" __global__ void mark(int *log, int number)
{
    if (threadIdx.x == 0)
        log[1 + atomicAdd(log, 1)] = number;
}

extern "C" __global__ void nested(int *log, int number)
{
    if (threadIdx.x == 0) {
        log[1 + atomicAdd(log, 1)] = number;
        mark<<<1, 32>>>(log, number + 1);
        mark<<<1, 32, 0, cudaStreamTailLaunch>>>(log, number + 2);
        mark<<<1, 32>>>(log, number + 3);
    }
}

extern "C" __global__ void order(int *log)
{
    log[1 + atomicAdd(log, 1)] = 1;
    nested<<<1, 32, 0, cudaStreamTailLaunch>>>(log, 100);
    nested<<<1, 32>>>(log, 10);
    nested<<<1, 32>>>(log, 20);
}

// Blocks of several threads with dynamic shared memory, structs, and memory of the parent's.
struct Line {
    float slope, offset;
    int count, unused;
    float *points;
};

extern "C" __global__ void draw(Line line, int scale)
{
    extern __shared__ float buffer[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    buffer[threadIdx.x] = line.slope * i + line.offset;
    __syncthreads();
    if (i < line.count)
        line.points[i] = buffer[blockDim.x - 1 - threadIdx.x] * scale;
}

extern "C" __global__ void lines(Line *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    Line line = {0.5f * i, 1.0f / (i + 1), 24 + 8 * i, 0, nullptr};
    cudaMalloc((void **)&line.points, line.count * sizeof(float));
    out[i] = line;
    cudaMemsetAsync(line.points, 0xC1, line.count * sizeof(float), 0);
    draw<<<(line.count + 31) / 32, 32, 128>>>(line, i + 2);
}

extern "C" __global__ void collect(const Line *in, float *out, int n)
{
    int i = threadIdx.x, at = 0;
    for (int j = 0; j < i; j++)
        at += in[j].count;
    if (i < n) {
        for (int j = 0; j < in[i].count; j++)
            out[at + j] = in[i].points[j];
        cudaFree(in[i].points);
    }
}

extern "C" __global__ void all(Line *in, float *out, float *copy, int n, int total)
{
    lines<<<1, n>>>(in, n);
    collect<<<1, n>>>(in, out, n);
    cudaMemcpyAsync(copy, out, total * sizeof(float), cudaMemcpyDeviceToDevice, 0);
    if (cudaGetLastError() != cudaSuccess)
        out[0] = -1.0f;
}

// What the device refuses, and says of it.
extern "C" __global__ void refused(int *log, int *errors, int zero)
{
    mark<<<1, 2048>>>(log, 1);
    errors[0] = cudaPeekAtLastError();
    errors[1] = cudaGetLastError();
    errors[2] = cudaGetLastError();
    mark<<<zero, 32>>>(log, 1);
    errors[3] = cudaGetLastError();
    mark<<<1, zero>>>(log, 1);
    errors[4] = cudaGetLastError();
    mark<<<1, 32, 50 << 10>>>(log, 1);
    errors[5] = cudaGetLastError();
    mark<<<dim3(1, 65536), 32>>>(log, 1);
    errors[6] = cudaGetLastError();
    void *memory;
    errors[7] = cudaMalloc(&memory, (size_t)1 << 40);
    errors[8] = memory != nullptr;
    errors[9] = cudaGetLastError();
    mark<<<1, 32, 48 << 10>>>(log, 1);
    errors[10] = cudaGetLastError();
    const char *text = cudaGetErrorString(cudaErrorInvalidConfiguration);
    for (int i = 0; text[i]; i++)
        ((char *)(errors + 11))[i] = text[i];
}

extern "C" __global__ void deep(int *log, int level)
{
    if (threadIdx.x)
        return;
    log[0] = level;
    deep<<<1, 32>>>(log, level + 1);
    if (int error = cudaGetLastError()) {
        log[1] = error;
        log[2] = level;
    }
}
