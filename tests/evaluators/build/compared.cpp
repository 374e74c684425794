#include <torch/extension.h>

torch::Tensor scale(torch::Tensor x, double factor, bool twice, int64_t plus) {
  TORCH_CHECK(x.dim() >= 1, "x must have a dimension, has ", x.dim());
  auto source = x.contiguous();
  auto result = torch::empty_like(source);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "scale", ([&] {
    const scalar_t* from = source.data_ptr<scalar_t>();
    scalar_t* to = result.data_ptr<scalar_t>();
    for (int64_t i = 0; i < source.numel(); ++i) to[i] = from[i] * factor * (twice ? 2 : 1) + plus;
  }));
  return result;
}
torch::Tensor like(const torch::Tensor& x) { return torch::zeros_like(x); }
torch::Tensor made(std::vector<int64_t> sizes, const torch::Tensor& x) {
  return torch::zeros(sizes, torch::TensorOptions().dtype(torch::kInt64).device(x.device()));
}
std::vector<torch::Tensor> pair(torch::Tensor x, std::optional<torch::Tensor> y) {
  return {x, y.has_value() ? *y : x.clone()};
}
std::string about(const torch::Tensor& x, std::string text) {
  std::ostringstream stream;
  stream << text << x.sizes() << x.strides() << x.scalar_type() << x.dtype() << x.device() << x.size(-1)
         << x.is_contiguous() << x.is_cuda() << int(x.get_device()) << x.numel() << x.element_size() << x.nbytes();
  return stream.str();
}
void fill(torch::Tensor x) { x.zero_(); }
int64_t last(const torch::Tensor& x) { return x.size(x.dim()); }
double half(int x) { return x / 2.0; }
torch::Tensor wrong_type(torch::Tensor x) { x.data_ptr<int64_t>(); return x; }

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("scale", &scale, "Scales.");
  m.def("like", &like);
  m.def("made", &made);
  m.def("pair", &pair);
  m.def("about", &about);
  m.def("fill", &fill);
  m.def("last", &last);
  m.def("half", &half);
  m.def("wrong_type", &wrong_type);
}
