#include <cstdio>
#include <cassert>
extern "C" __global__ void say(int n, double x, float* out) {
  int i = threadIdx.x;
  if (i < n) {
    int r = printf("t%d %5d|%-5d|%05d|%+d|% d|%x|%#X|%o|%u|%c|%s|%%\n", i, i*37-50, i, -i, i, i, 255+i, 255+i, 8+i, 4000000000u+i, 'a'+i, i&1?"odd":"even");
    int q = printf("%f %e %g %G %.3f %10.2f|%-10.1f|%010.3f %a %.2a %lld %llx %p %hd %hhu %*d %.*f\n", x, x*i, x/3, x*1e20, x, x, x, -x, x, x, (long long)i<<40, 1ull<<63, (void*)0, (short)(40000+i), (unsigned char)(250+i), 7, i, 2, x);
    out[i] = r*100+q;
  }
}
extern "C" __global__ void heap(int* out) {
  int* p = (int*)malloc(4*threadIdx.x+4);
  for (int k=0;k<=threadIdx.x;k++) p[k]=k*threadIdx.x;
  __syncthreads();
  int s=0; for (int k=0;k<=threadIdx.x;k++) s+=p[k];
  out[threadIdx.x]=s;
  free(p);
  if (threadIdx.x==40) free(p);
}
extern "C" __global__ void check(int* out, int n) { assert(out[threadIdx.x] < n); out[threadIdx.x]+=1; }
