// nvcc -ptx -arch=sm_80 -G names.cu
struct Pair { int a; float b; };
template <int N> __global__ void scale(float *x, Pair pair, const int count) {
    int i = threadIdx.x;
    if (i < count) x[i] = x[i] * pair.b + N;
}
template __global__ void scale<32>(float *, Pair, int);
