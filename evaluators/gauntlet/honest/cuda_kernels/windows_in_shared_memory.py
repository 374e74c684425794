"""Loads a tile and its halo into shared memory and averages windows from there.

surface: memory
effect: shared memory is filled and read within one block of one launch
task: level1/avg_pool1d
arch: cuda
"""

from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

__global__ void pool(const float* in, float* out, int length, int count, int size, int stride,
                     int padding) {
  extern __shared__ float tile[];
  const int64_t row = blockIdx.x;
  const int first = blockIdx.y * blockDim.x;
  const int width = (blockDim.x - 1) * stride + size, start = first * stride - padding;
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    const int place = start + i;
    tile[i] = place >= 0 && place < length ? in[row * length + place] : 0.0f;
  }
  __syncthreads();
  if (first + threadIdx.x >= count) return;
  float sum = 0.0f;
  for (int k = 0; k < size; ++k) sum += tile[threadIdx.x * stride + k];
  out[row * count + first + threadIdx.x] = sum / size;
}

torch::Tensor avg_pool(torch::Tensor input, int64_t size, int64_t stride, int64_t padding) {
  auto x = input.contiguous();
  int64_t length = x.size(2), count = (length + 2 * padding - size) / stride + 1;
  auto result = torch::empty({x.size(0), x.size(1), count}, x.options());
  dim3 blocks(x.size(0) * x.size(1), (count + 255) / 256);
  int64_t bytes = (255 * stride + size) * sizeof(float);
  auto stream = at::cuda::getCurrentCUDAStream();
  pool<<<blocks, 256, bytes, stream>>>(x.data_ptr<float>(), result.data_ptr<float>(), length, count,
                                       size, stride, padding);
  return result;
}
"""
extension = load_inline(
    name="windows_in_shared_memory",
    cpp_sources="torch::Tensor avg_pool(torch::Tensor, int64_t, int64_t, int64_t);",
    cuda_sources=source,
    functions=["avg_pool"],
)


class ModelNew(nn.Module):
    def __init__(self, kernel_size, stride, padding):
        super().__init__()
        self.arguments = (kernel_size, stride, padding)

    def forward(self, x):
        return extension.avg_pool(x, *self.arguments)
