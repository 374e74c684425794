// AT_DISPATCH_*: runs a block of code for one of some scalar types, as in ATen/Dispatch.h.
#pragma once

#include "warpsmith/core.h"

#define AT_PRIVATE_CASE_TYPE_USING_HINT(enum_type, hint, ...)                  \
  case enum_type: {                                                            \
    using hint [[maybe_unused]] = typename ::warpsmith::OfScalar<enum_type>::type; \
    return __VA_ARGS__();                                                      \
  }
#define AT_DISPATCH_CASE(enum_type, ...) AT_PRIVATE_CASE_TYPE_USING_HINT(enum_type, scalar_t, __VA_ARGS__)
#define AT_DISPATCH_SWITCH(TYPE, NAME, ...)                                                         \
  [&] {                                                                                             \
    const ::c10::ScalarType _scalar_type = ::warpsmith::scalar_type(TYPE);                          \
    switch (_scalar_type) {                                                                         \
      __VA_ARGS__                                                                                   \
      default:                                                                                      \
        throw ::c10::NotImplementedError(::c10::detail::joined(                                     \
            '"', NAME, "\" not implemented for '", ::c10::toString(_scalar_type), "'"));            \
    }                                                                                               \
  }()

#define AT_DISPATCH_CASE_FLOATING_TYPES(...)                  \
  AT_DISPATCH_CASE(::c10::ScalarType::Double, __VA_ARGS__)    \
  AT_DISPATCH_CASE(::c10::ScalarType::Float, __VA_ARGS__)
#define AT_DISPATCH_CASE_INTEGRAL_TYPES(...)                  \
  AT_DISPATCH_CASE(::c10::ScalarType::Byte, __VA_ARGS__)      \
  AT_DISPATCH_CASE(::c10::ScalarType::Char, __VA_ARGS__)      \
  AT_DISPATCH_CASE(::c10::ScalarType::Int, __VA_ARGS__)       \
  AT_DISPATCH_CASE(::c10::ScalarType::Long, __VA_ARGS__)      \
  AT_DISPATCH_CASE(::c10::ScalarType::Short, __VA_ARGS__)
#define AT_DISPATCH_CASE_ALL_TYPES(...)        \
  AT_DISPATCH_CASE_INTEGRAL_TYPES(__VA_ARGS__) \
  AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__)

#define AT_DISPATCH_FLOATING_TYPES(TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__))
#define AT_DISPATCH_INTEGRAL_TYPES(TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_INTEGRAL_TYPES(__VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES(TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_ALL_TYPES(__VA_ARGS__))
#ifdef WARPSMITH_HALF
#define AT_DISPATCH_FLOATING_TYPES_AND_HALF(TYPE, NAME, ...)                         \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__)        \
                     AT_DISPATCH_CASE(::c10::ScalarType::Half, __VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND(EXTRA, TYPE, NAME, ...)                       \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__)        \
                     AT_DISPATCH_CASE(EXTRA, __VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND2(ONE, TWO, TYPE, NAME, ...)                   \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__)        \
                     AT_DISPATCH_CASE(ONE, __VA_ARGS__) AT_DISPATCH_CASE(TWO, __VA_ARGS__))
#endif

namespace warpsmith {
inline ::c10::ScalarType scalar_type(::c10::ScalarType type) { return type; }

template <::c10::ScalarType> struct OfScalar;
#define WARPSMITH_OF_SCALAR(name, cpp) \
  template <> struct OfScalar<::c10::ScalarType::name> { using type = cpp; }
WARPSMITH_OF_SCALAR(Byte, uint8_t);
WARPSMITH_OF_SCALAR(Char, int8_t);
WARPSMITH_OF_SCALAR(Short, int16_t);
WARPSMITH_OF_SCALAR(Int, int32_t);
WARPSMITH_OF_SCALAR(Long, int64_t);
WARPSMITH_OF_SCALAR(Float, float);
WARPSMITH_OF_SCALAR(Double, double);
WARPSMITH_OF_SCALAR(Bool, bool);
#ifdef WARPSMITH_HALF
WARPSMITH_OF_SCALAR(Half, ::c10::Half);
WARPSMITH_OF_SCALAR(BFloat16, ::c10::BFloat16);
#endif
#undef WARPSMITH_OF_SCALAR
}  // namespace warpsmith
