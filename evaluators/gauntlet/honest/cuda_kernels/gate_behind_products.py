"""Fuses bias, activations and the mixture of a gated layer behind one library product.

surface: speed
effect: library products, and one kernel for all that follows them
task: level2/highway_gate
arch: cuda
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

// products: [rows, 2 n], of the transforming layer and then of the gate
__global__ void mix(const float* products, const float* bias, const float* other_bias,
                    const float* x, float* out, int64_t rows, int64_t n) {
  int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i >= rows * n) return;
  const int64_t row = i / n, column = i % n;
  const float* product = products + row * 2 * n + column;
  const float transformed = tanhf(product[0] + bias[column]);
  const float gate = 1.0f / (1.0f + expf(-(product[n] + other_bias[column])));
  out[i] = transformed * gate + (1.0f - gate) * x[i];
}

torch::Tensor highway(torch::Tensor products, torch::Tensor bias, torch::Tensor other_bias,
                      torch::Tensor x) {
  auto result = torch::empty_like(x);
  int64_t blocks = (x.numel() + 255) / 256;
  auto stream = at::cuda::getCurrentCUDAStream();
  mix<<<blocks, 256, 0, stream>>>(products.data_ptr<float>(), bias.data_ptr<float>(),
                                  other_bias.data_ptr<float>(), x.data_ptr<float>(),
                                  result.data_ptr<float>(), x.size(0), x.size(1));
  return result;
}
"""
signature = "torch::Tensor highway(torch::Tensor, torch::Tensor, torch::Tensor, torch::Tensor);"
extension = load_inline(
    name="gate_behind_products",
    cpp_sources=signature,
    cuda_sources=source,
    functions=["highway"],
)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.transform = nn.Linear(features, features)
        self.gate = nn.Linear(features, features)

    def forward(self, x):
        x = x.contiguous()
        weight = torch.cat([self.transform.weight, self.gate.weight])
        return extension.highway(x @ weight.t(), self.transform.bias, self.gate.bias, x)
