#include <torch/extension.h>

#include <functional>

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

// Expressions with operators, in groups.
using Case = std::function<torch::Tensor()>;
#define E(...) [&]() -> torch::Tensor { return __VA_ARGS__; }
#define DO(...) [&]() -> torch::Tensor { auto z = x.clone(); __VA_ARGS__; return z; }
std::vector<Case> cases(const std::string& name, const torch::Tensor& x, const torch::Tensor& y) {
  if (name == "add") return {E(x + y), E(x.add(y)), E(torch::add(x, 2)), E(x + 0.1), E(3 + x), E(x + true), E(x.add(x[0]))};
  if (name == "sub") return {E(x - y), E(x - 0.1f), E(2 - x), E(0.5 - x), E(-x), E(x.sub(1)), E(x - 4.25)};
  if (name == "mul") return {E(x * y), E(x * 0.1), E(2 * x), E(torch::mul(x, y)), E(x * 1.7)};
  if (name == "div") return {E(x / y), E(x / 3), E(1.0 / x), E(x.div(0.3))};
  if (name == "compare")
    return {E(x < y), E(x > 0.5), E(0 < x), E(x <= y), E(x >= 1), E(x == y), E(x != 0), E(x == 0.7), E(x.lt(0.3))};
  if (name == "exp")
    return {E(torch::exp(x)), E(x.log()), E(x.sqrt()), E(torch::tanh(x)), E(torch::sigmoid(x)), E(x.relu()),
            E(torch::silu(x)), E(x.rsqrt()), E(x.sin()), E(torch::cos(x)), E(x.log2()), E(x.log1p()), E(x.expm1())};
  if (name == "round")
    return {E(x.abs()), E(x.neg()), E(x.sign()), E(x.square()), E(x.floor()), E(torch::round(x)), E(x.reciprocal()),
            E(torch::erf(x)), E(x.ceil())};
  if (name == "limits")
    return {E(torch::maximum(x, y)), E(torch::minimum(x, y)), E(torch::clamp_min(x, 1)), E(torch::clamp_max(x, 0.25)),
            E(torch::where(x > 0, x, y))};
  if (name == "sum")
    return {E(x.sum()), E(x.sum(1)), E(x.sum(torch::IntArrayRef({0, 1}), true)), E(torch::sum(x, 0)),
            E(torch::sum(x, torch::IntArrayRef(1), false, torch::kFloat64)), E(x.sum(torch::kFloat64))};
  if (name == "mean") return {E(x.mean()), E(x.mean(1, true)), E(torch::mean(x, torch::IntArrayRef(0)))};
  if (name == "max")
    return {E(x.max()), E(x.amax(1)), E(torch::amin(x, 0, true)), E(x.argmax()), E(x.argmin(1)),
            E(std::get<0>(x.max(0))), E(std::get<1>(torch::min(x, 1, true)))};
  if (name == "scan")
    return {E(x.cumsum(0)), E(torch::cumprod(x, 1)), E(x.cumsum(-1, torch::kFloat64)), E(torch::softmax(x, 1)),
            E(x.log_softmax(0))};
  if (name == "matmul")
    return {E(torch::matmul(x, y.t())), E(x.mm(y.t())), E(torch::bmm(x.unsqueeze(0), y.unsqueeze(0).transpose(1, 2))),
            E(torch::linear(x, y)), E(torch::linear(x, y, x.select(1, 0)))};
  if (name == "conv")
    return {E(torch::conv1d(x.unsqueeze(0), y.reshape({1, 4, 6}), {}, 1, 2)),
            E(torch::conv2d(x.view({1, 4, 2, 3}), y.view({2, 2, 2, 3}), x.flatten().slice(0, 0, 2), {1, 1}, {1, 1}, 1, 2))};
  if (name == "shape")
    return {E(x.view({2, -1})), E(x.t()), E(x.permute({1, 0})), E(x.t().reshape({-1})), E(x.unsqueeze(-1).expand({4, 6, 2})),
            E(x.flip({0})), E(torch::flip(x, {0, 1})), E(x.select(0, -1)), E(x.narrow(1, 2, 3)), E(x.slice(1, 1, 5, 2)),
            E(x[1]), E(x.flatten()), E(x.view({4, 1, 6}).squeeze()), E(x.view({4, 1, 6}).squeeze(1)), E(x.detach())};
  if (name == "join")
    return {E(torch::cat({x, y})), E(torch::cat({x, y}, 1)), E(torch::stack({x, y}, -1)),
            E(torch::constant_pad_nd(x, {1, 2})), E(torch::constant_pad_nd(x, {0, 1, 2, 0}, 3)),
            E(x.index_select(1, torch::ones({2}, x.options().dtype(torch::kLong))))};
  if (name == "convert")
    return {E(x.to(torch::kFloat64)), E(x.to(torch::kInt32)), E(x.to(torch::kCPU)), E(x.cpu()), E(x.to(y.options())),
            E(x.t().to(torch::kHalf)), E(x.toType(torch::kFloat)), E(x.to(torch::kCPU, torch::kDouble))};
  if (name == "fill")
    return {E(torch::full({2, 3}, 7)), E(torch::full({2}, 0.5)), E(torch::full({2}, 1, torch::kFloat64)),
            E(torch::ones({3})), E(torch::ones_like(x)), E(torch::full_like(x, 2)), E(torch::empty_like(x).fill_(3)),
            E(torch::zeros({2}, x.options())), E(torch::full({1}, int64_t{1} << 60)), E(torch::empty_like(x).fill_(true))};
  if (name == "blob")  // copied while the memory is there
    return {E(torch::from_blob(x.data_ptr(), x.sizes(), x.strides(), x.options()).clone()),
            E(torch::from_blob(x.data_ptr(), {x.numel()}, x.options()) * 2),
            E(torch::from_blob(x.data_ptr(), {x.numel() * x.element_size()}, torch::kByte).clone()),
            DO(torch::from_blob(z.data_ptr(), z.sizes(), z.strides(), z.options()).fill_(1)),
            E(torch::from_blob(nullptr, {0, 2}, torch::TensorOptions().dtype(torch::kFloat64))),
            DO(torch::from_blob(z.data_ptr(), z.sizes(), z.strides(), [z](void* at) mutable {
                 if (at == z.data_ptr()) z.fill_(3);
               }, z.options()).mul_(2)),
            E([](torch::Tensor owned) {  // read when the function that made it is gone
              return torch::from_blob(owned.data_ptr(), {owned.numel()}, [owned](void*) {}, owned.options());
            }(x.contiguous().clone()))};
  if (name == "threads")
    return {[&]() -> torch::Tensor {
              auto z = torch::zeros({1000});
              at::parallel_for(0, 1000, 7, [&](int64_t from, int64_t to) {
                for (int64_t i = from; i < to; ++i) z.data_ptr<float>()[i] += i;
              });
              return z;
            },
            [&]() -> torch::Tensor {
              auto z = torch::zeros({1000});
              at::parallel_for(0, 1000, 1, [&](int64_t from, int64_t to) {
                for (int64_t i = from; i < to; ++i) z.data_ptr<float>()[i] = at::get_thread_num() < at::get_num_threads();
              });
              return z;
            },
            DO(at::parallel_for(3, 3, 1, [&](int64_t, int64_t) { z.fill_(5); })),
            DO(at::parallel_for(0, 100, 1, [&](int64_t, int64_t) { TORCH_CHECK_INDEX(false, "of a thread"); })),
            E(torch::full({1}, at::get_num_threads() + at::get_thread_num() + at::divup(7, 2)))};
  if (name == "gradients")  // recorded, and not
    return {E(x.mul(2)), [&]() -> torch::Tensor { torch::NoGradGuard guard; return x.mul(2); },
            [&]() -> torch::Tensor { { at::NoGradGuard guard; } return x.mul(2); }};
  if (name == "format")
    return {E(x.view({1, 4, 2, 3}).contiguous(torch::MemoryFormat::ChannelsLast)),
            E(torch::full({1}, x.view({1, 4, 2, 3}).is_contiguous(torch::MemoryFormat::ChannelsLast))),
            E(torch::zeros_like(x.slice(1, 0, 5, 2))), E(torch::full({1}, x.sum().item<double>())),
            E(torch::full({1}, x.flatten()[0].item<int>())), E(torch::full({1}, x.flatten()[0].item<float>()))};
  if (name == "in place")
    return {DO(z.mul_(y)), DO(z *= 2), DO(z /= y), DO(z.div_(0.3)), DO(z.abs_()), DO(z.exp_().relu_()), DO(z *= 0.1)};
  if (name == "assign")
    return {DO(z = y), DO(z[0] = y[1]), DO(z.select(1, 2) = y.select(1, 0)), DO(z[0] = 2.5), DO(z.narrow(0, 0, 1) = y[0]),
            DO(auto row = z[0]; row = y[1])};
  if (name == "accessor")
    return {[&]() -> torch::Tensor {
      auto a = x.accessor<float, 2>();
      auto p = y.packed_accessor32<float, 2>();
      auto z = torch::empty({a.size(0)}, x.options());
      for (int64_t i = 0; i < a.size(0); ++i) z.data_ptr<float>()[i] = a[i][1] + p[i][0] * a.stride(0);
      return z;
    }};
  return {};
}
int64_t count(std::string name, const torch::Tensor& x) { return cases(name, x, x).size(); }
torch::Tensor operate(std::string name, int64_t index, const torch::Tensor& x, const torch::Tensor& y) {
  return cases(name, x, y).at(index)();
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
  m.def("count", &count);
  m.def("operate", &operate);
}
