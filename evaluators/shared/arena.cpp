// An allocator for torch's CPU tensors inside one mapping that another process shares.
//
// The judge maps the same memory and reads a program's outputs where they lie, while the program is stopped. What does
// not fit comes from the heap.

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <pthread.h>
#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "free_blocks.h"

namespace {

constexpr size_t kAlignment = 64;  // as in torch's own allocator

class Arena final : public c10::Allocator {
 public:
  void open(char* base, size_t size) {
    blocks_.open(base, size);
    is_open_ = true;
  }

  void abandon() { is_open_ = false; }

  c10::DataPtr allocate(size_t bytes) override {
    void* data = bytes ? take(bytes) : nullptr;
    return {data, data, &release, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }

  void copy_data(void* target, const void* source, size_t bytes) const override { std::memcpy(target, source, bytes); }

 private:
  void* take(size_t bytes) {
    if (is_open_) {
      if (char* data = blocks_.take(bytes)) return data;
    }
    void* data = nullptr;
    TORCH_CHECK(posix_memalign(&data, kAlignment, bytes) == 0, "DefaultCPUAllocator: can't allocate memory: ", bytes,
                " bytes");
    return data;
  }

  void give_back(char* data) {
    if (!blocks_.holds(data)) {
      std::free(data);
    } else if (is_open_) {  // a forked child owns nothing in here
      blocks_.give_back(data);
    }
  }

  static void release(void* data);

  warpsmith::FreeBlocks blocks_{kAlignment};
  std::atomic<bool> is_open_{false};
};

Arena& arena() {
  static Arena* one = new Arena;  // never destroyed: tensors may die after every other object
  return *one;
}

void Arena::release(void* data) {
  if (data) arena().give_back(static_cast<char*>(data));
}

void in_child() { arena().abandon(); }

}  // namespace

// Maps the descriptor, and takes the memory of all CPU tensors from there from now on. Returns its address, or 0.
extern "C" uintptr_t warpsmith_open_arena(int descriptor, size_t size) {
  void* base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (base == MAP_FAILED) return 0;
  arena().open(static_cast<char*>(base), size);
  pthread_atfork(nullptr, nullptr, &in_child);
  c10::SetCPUAllocator(&arena(), /*priority=*/100);
  return reinterpret_cast<uintptr_t>(base);
}
