// Fused optimisers of PyTorch, with the arithmetic of its CUDA kernels in their order.
//
// They compute in f32; the tensors are f32 here, and rounded to their own
// type after the step. nvcc 13.0 makes optimisers.ptx of this file, as test_torch_kernels says.

extern "C" __global__ void fused_adam(float *params, const float *grads, float *means,
                                      float *squares, float *greatest, unsigned count, float step,
                                      float lr, float beta1, float beta2, float decay, float eps,
                                      int decoupled, int amsgrad, int maximize) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  float param = params[i], grad = maximize ? -grads[i] : grads[i];
  float correction1 = 1 - powf(beta1, step), correction2 = sqrtf(1 - powf(beta2, step));
  if (decay != 0) {
    if (decoupled) param -= lr * decay * param;
    else grad += param * decay;
  }
  float mean = fmaf(beta1, means[i], fmaf(-beta1, grad, grad));
  float square = fmaf(beta2, squares[i], fmaf(-beta2, grad * grad, grad * grad));
  means[i] = mean;
  squares[i] = square;
  if (amsgrad) greatest[i] = square = fmaxf(greatest[i], square);
  float denominator = sqrtf(square) / correction2 + eps;
  params[i] = param - lr / correction1 * mean / denominator;
}

extern "C" __global__ void fused_sgd(float *params, const float *grads, float *buffers,
                                     unsigned count, float lr, float momentum, float decay,
                                     float dampening, int nesterov, int maximize, int first) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  float param = params[i], grad = maximize ? -grads[i] : grads[i];
  if (decay != 0) grad += decay * param;
  if (momentum != 0) {
    float buffer = first ? grad : momentum * buffers[i] + (1 - dampening) * grad;
    buffers[i] = buffer;
    grad = nesterov ? grad + momentum * buffer : buffer;
  }
  params[i] = param - lr * grad;
}
