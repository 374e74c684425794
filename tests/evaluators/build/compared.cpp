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

// Operators, by name.
std::vector<torch::Tensor> operate(std::string name, const torch::Tensor& x, const torch::Tensor& y) {
#define CASE(label, ...) if (name == label) return {__VA_ARGS__};
  CASE("add", x + y, x.add(y), torch::add(x, 2), x + 0.1, 3 + x)
  CASE("sub", x - y, x - 0.1f, 2 - x, -x, x.sub(1))
  CASE("mul", x * y, x * 0.1, 2 * x, torch::mul(x, y))
  CASE("div", x / y, x / 3, 1.0 / x, x.div(0.3))
  CASE("compare", x < y, x > 0.5, 0 < x, x <= y, x >= 1, x == y, x != 0)
  CASE("exp", torch::exp(x), x.log(), x.sqrt(), torch::tanh(x), torch::sigmoid(x), x.relu(), torch::silu(x))
  CASE("round", x.abs(), x.neg(), x.sign(), x.square(), x.floor(), torch::round(x), x.reciprocal(), torch::erf(x))
  CASE("limits", torch::maximum(x, y), torch::minimum(x, y), torch::clamp(x, -0.5, 0.5), x.clamp(0), torch::clamp_min(x, 1),
       torch::where(x > 0, x, y))
  CASE("sum", x.sum(), x.sum(1), x.sum(torch::IntArrayRef({0, 1}), true), torch::sum(x, 0), torch::sum(x, torch::IntArrayRef(1), false, torch::kFloat64))
  CASE("mean", x.mean(), x.mean(1, true), torch::mean(x, torch::IntArrayRef(0)))
  CASE("max", x.max(), x.amax(1), torch::amin(x, 0, true), x.argmax(), x.argmin(1), std::get<0>(x.max(0)),
       std::get<1>(torch::min(x, 1, true)))
  CASE("scan", x.cumsum(0), torch::cumprod(x, 1), x.cumsum(-1, torch::kFloat64))
  CASE("softmax", torch::softmax(x, 1), x.log_softmax(0))
  CASE("matmul", torch::matmul(x, y.t()), x.mm(y.t()), torch::bmm(x.unsqueeze(0), y.unsqueeze(0).transpose(1, 2)),
       torch::linear(x, y), torch::linear(x, y, x.select(1, 0)))
  CASE("conv", torch::conv1d(x.unsqueeze(0), y.reshape({1, 4, 6}), {}, 1, 2), torch::conv2d(x.view({1, 4, 2, 3}),
       y.view({2, 2, 2, 3}), x.flatten().slice(0, 0, 2), {1, 1}, {1, 1}, 1, 2))
  CASE("shape", x.view({2, -1}), x.t(), x.permute({1, 0}), x.t().reshape({-1}), x.unsqueeze(-1).expand({4, 6, 2}),
       x.flip({0}), torch::flip(x, {0, 1}), x.select(0, -1), x.narrow(1, 2, 3), x.slice(1, 1, 5, 2), x[1], x.flatten(),
       x.view({4, 1, 6}).squeeze(), x.view({4, 1, 6}).squeeze(1), x.detach())
  CASE("join", torch::cat({x, y}), torch::cat({x, y}, 1), torch::stack({x, y}, -1), torch::constant_pad_nd(x, {1, 2}),
       torch::constant_pad_nd(x, {0, 1, 2, 0}, 3), x.index_select(1, torch::ones({2}, torch::kLong)))
  CASE("convert", x.to(torch::kFloat64), x.to(torch::kInt32), x.to(torch::kCPU), x.cpu(), x.to(y.options()),
       x.t().to(torch::kHalf), x.toType(torch::kFloat), x.to(torch::kCPU, torch::kDouble))
  CASE("fill", torch::full({2, 3}, 7), torch::full({2}, 0.5), torch::full({2}, 1, torch::kFloat64), torch::ones({3}),
       torch::ones_like(x), torch::full_like(x, 2), torch::empty_like(x).fill_(3), torch::zeros({2}, x.options()))
  CASE("format", x.view({1, 4, 2, 3}).contiguous(torch::MemoryFormat::ChannelsLast),
       torch::full({1}, x.view({1, 4, 2, 3}).is_contiguous(torch::MemoryFormat::ChannelsLast)),
       torch::zeros_like(x.slice(1, 0, 5, 2)), torch::full({1}, x.sum().item<double>()), torch::full({1}, x[0][0].item<int>()))
  if (name == "in place") {
    auto z = x.clone();
    z += y, z.sub_(1), z.mul_(y), z *= 2, z.abs_().add_(x), z.relu_();
    return {z};
  }
  if (name == "real in place") { auto z = x.clone(); z += 0.5; z /= y; return {z.exp_()}; }
  if (name == "larger in place") { auto z = x.select(0, 0).clone(); z += y; return {z}; }
  if (name == "accessor") {
    auto a = x.accessor<float, 2>();
    auto p = y.packed_accessor32<float, 2>();
    auto z = torch::empty({a.size(0)}, x.options());
    for (int64_t i = 0; i < a.size(0); ++i) z.data_ptr<float>()[i] = a[i][1] + p[i][0] * a.stride(0);
    return {z};
  }
  TORCH_CHECK(false, "no operator ", name);
}

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
  m.def("operate", &operate);
}
