"""Scans with one thread for each channel, in one pass over memory.

surface: speed
effect: a thread for each channel walks along the sequence and reads each value once
task: level1/masked_cumsum
arch: cuda
"""

from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

__global__ void scan(const float* in, const bool* mask, float* out, int64_t length,
                     int64_t channels) {
  int64_t channel = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  int64_t sample = blockIdx.y;
  if (channel >= channels) return;
  const float* x = in + sample * length * channels + channel;
  float* y = out + sample * length * channels + channel;
  const bool* keep = mask + sample * length;
  float sum = 0.0f;
#pragma unroll 8
  for (int64_t t = 0; t < length; ++t) {
    const float value = x[t * channels];
    sum += keep[t] ? value : 0.0f;
    y[t * channels] = sum;
  }
}

torch::Tensor masked_scan(torch::Tensor input, torch::Tensor keep) {
  auto x = input.contiguous();
  auto mask = keep.contiguous();
  auto result = torch::empty_like(x);
  dim3 blocks((x.size(2) + 63) / 64, x.size(0));
  auto stream = at::cuda::getCurrentCUDAStream();
  scan<<<blocks, 64, 0, stream>>>(x.data_ptr<float>(), mask.data_ptr<bool>(),
                                  result.data_ptr<float>(), x.size(1), x.size(2));
  return result;
}
"""
extension = load_inline(
    name="scan_by_channel",
    cpp_sources="torch::Tensor masked_scan(torch::Tensor input, torch::Tensor keep);",
    cuda_sources=source,
    functions=["masked_scan"],
)


class ModelNew(nn.Module):
    def forward(self, x, mask):
        return extension.masked_scan(x, mask)
