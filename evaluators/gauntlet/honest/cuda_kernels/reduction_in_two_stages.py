"""Reduces all pairs to one number in two kernels, without writing out any pair.

surface: comparison
effect: partial sums in a fixed order instead of atomics, so results repeat
task: level1/quantile_huber_loss
arch: cuda
"""

from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

__device__ double block_sum(double value) {
  __shared__ double parts[256];
  parts[threadIdx.x] = value;
  __syncthreads();
  for (int width = 128; width; width >>= 1) {
    if (threadIdx.x < width) parts[threadIdx.x] += parts[threadIdx.x + width];
    __syncthreads();
  }
  return parts[0];
}

__global__ void pairs(const float* prediction, const float* target, double* partial, int quantiles,
                      int targets, float delta) {
  const int64_t row = blockIdx.x;
  const float p = prediction[row], level = (row % quantiles + 0.5f) / quantiles;
  const float* t = target + row / quantiles * targets;
  double sum = 0.0;
  for (int i = threadIdx.x; i < targets; i += 256) {
    const float error = t[i] - p, size = fabsf(error), inner = fminf(size, delta);
    sum += (error < 0.0f ? 1.0f - level : level) * inner * (size - 0.5f * inner);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[row] = sum;
}

__global__ void total(const double* partial, int64_t count, double divisor, float* out) {
  double sum = 0.0;
  for (int64_t i = threadIdx.x; i < count; i += 256) sum += partial[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *out = static_cast<float>(sum / divisor);
}

torch::Tensor loss(torch::Tensor prediction, torch::Tensor target, double delta) {
  int64_t rows = prediction.numel(), quantiles = prediction.size(1), targets = target.size(1);
  auto partial = torch::empty({rows}, prediction.options().dtype(torch::kFloat64));
  auto result = torch::empty({}, prediction.options());
  auto stream = at::cuda::getCurrentCUDAStream();
  pairs<<<rows, 256, 0, stream>>>(prediction.data_ptr<float>(), target.data_ptr<float>(),
                                  partial.data_ptr<double>(), static_cast<int>(quantiles),
                                  static_cast<int>(targets), static_cast<float>(delta));
  total<<<1, 256, 0, stream>>>(partial.data_ptr<double>(), rows,
                               static_cast<double>(rows) * targets, result.data_ptr<float>());
  return result;
}
"""
extension = load_inline(
    name="reduction_in_two_stages",
    cpp_sources="torch::Tensor loss(torch::Tensor, torch::Tensor, double);",
    cuda_sources=source,
    functions=["loss"],
)


class ModelNew(nn.Module):
    def __init__(self, delta):
        super().__init__()
        self.delta = float(delta)

    def forward(self, prediction, target):
        return extension.loss(prediction.contiguous(), target.contiguous(), self.delta)
