// cudaMalloc and cudaFree of this process, in place of the CUDA runtime's: device memory comes from one range that
// another process maps, too.
//
// The judge reads a program's outputs where they lie, be they torch's own or those of a CUDA graph. What does not fit
// comes from the runtime, as it does before the range is opened. The library is preloaded (LD_PRELOAD).

#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "free_blocks.h"

namespace {

constexpr size_t kAlignment = 512;  // as the runtime aligns; torch asks for segments, and divides them itself

std::atomic<bool> is_open{false};

warpsmith::FreeBlocks& blocks() {
  static auto* one = new warpsmith::FreeBlocks(kAlignment);  // never destroyed, as tensors may die after it
  return *one;
}

template <typename Call>
Call of_runtime(const char* name) {
  if (void* found = dlsym(RTLD_NEXT, name)) return reinterpret_cast<Call>(found);
  for (const char* library : {"libcudart.so.13", "libcudart.so.12"}) {
    if (void* loaded = dlopen(library, RTLD_NOW | RTLD_NOLOAD)) {
      if (void* found = dlsym(loaded, name)) return reinterpret_cast<Call>(found);
    }
  }
  return nullptr;
}

constexpr int kNotInitialized = 3;  // cudaErrorInitializationError

}  // namespace

// Takes memory from these addresses from now on.
extern "C" void warpsmith_open_device_arena(uintptr_t base, size_t size) {
  blocks().open(reinterpret_cast<char*>(base), size);
  is_open = true;
}

extern "C" int cudaMalloc(void** data, size_t size) {
  if (is_open && data && size) {
    if (char* taken = blocks().take(size)) {
      *data = taken;
      return 0;
    }
  }
  static const auto allocate = of_runtime<int (*)(void**, size_t)>("cudaMalloc");
  return allocate ? allocate(data, size) : kNotInitialized;
}

extern "C" int cudaFree(void* data) {
  if (is_open && data && blocks().holds(static_cast<char*>(data))) {
    // The runtime waits until nothing uses the memory any more.
    static const auto synchronize = of_runtime<int (*)()>("cudaDeviceSynchronize");
    const int status = synchronize ? synchronize() : kNotInitialized;
    blocks().give_back(static_cast<char*>(data));
    return status;
  }
  static const auto release = of_runtime<int (*)(void*)>("cudaFree");
  return release ? release(data) : kNotInitialized;
}
