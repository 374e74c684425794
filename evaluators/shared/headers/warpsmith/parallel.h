// Loops over torch's own threads.
#pragma once

#include "warpsmith/core.h"

#include <atomic>
#include <exception>

extern "C" {  // torch/csrc/stable/c/shim.h, from torch 2.10 on
int32_t torch_parallel_for(int64_t, int64_t, int64_t, void (*)(int64_t, int64_t, void*), void*);
int32_t torch_get_thread_idx(uint32_t*);
int32_t torch_get_num_threads(uint32_t*);
}

namespace at {
inline int64_t divup(int64_t x, int64_t y) { return (x + y - 1) / y; }
inline int get_num_threads() {
  uint32_t number = 0;
  c10::check(torch_get_num_threads(&number));
  return static_cast<int>(number);
}
inline int get_thread_num() {
  uint32_t number = 0;
  c10::check(torch_get_thread_idx(&number));
  return static_cast<int>(number);
}
// Like torch's own, it is a plain call in a program that is compiled without OpenMP. The first exception that a thread
// throws passes the C interface unchanged.
template <class F> void parallel_for(int64_t begin, int64_t end, int64_t grain_size, const F& f) {
#ifdef _OPENMP
  struct Work {
    const F& f;
    std::atomic_flag one_threw = ATOMIC_FLAG_INIT;
    std::exception_ptr thrown;
    explicit Work(const F& f) : f(f) {}
  } work(f);
  auto chunk = [](int64_t from, int64_t to, void* at) {
    auto& work = *static_cast<Work*>(at);
    try {
      work.f(from, to);
    } catch (...) {
      if (!work.one_threw.test_and_set()) work.thrown = std::current_exception();
    }
  };
  c10::check(torch_parallel_for(begin, end, grain_size, chunk, &work));
  if (work.thrown) std::rethrow_exception(work.thrown);
#else
  if (begin < end) f(begin, end);
#endif
}
}  // namespace at
