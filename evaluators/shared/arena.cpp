// An allocator for torch's CPU tensors inside one mapping that another process shares.
//
// The judge maps the same memory and reads a program's outputs where they lie, while the program is stopped. What does
// not fit comes from the heap. The list of free blocks lies in private memory, outside the mapping.

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <pthread.h>
#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <unordered_map>

namespace {

constexpr size_t kAlignment = 64;  // as in torch's own allocator

class Arena final : public c10::Allocator {
 public:
  void open(char* base, size_t size) {
    base_ = base;
    size_ = size;
    free_.emplace(0, size);
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
    const size_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (is_open_ && whole >= bytes) {
      std::lock_guard<std::mutex> guard(mutex_);
      for (auto block = free_.begin(); block != free_.end(); ++block) {
        if (block->second < whole) continue;
        const size_t offset = block->first;
        const size_t left = block->second - whole;
        free_.erase(block);
        if (left) free_.emplace(offset + whole, left);
        taken_.emplace(offset, whole);
        return base_ + offset;
      }
    }
    void* data = nullptr;
    TORCH_CHECK(posix_memalign(&data, kAlignment, bytes) == 0, "DefaultCPUAllocator: can't allocate memory: ", bytes,
                " bytes");
    return data;
  }

  void give_back(char* data) {
    if (data < base_ || data >= base_ + size_) {
      std::free(data);
      return;
    }
    if (!is_open_) return;  // a forked child owns nothing in here
    std::lock_guard<std::mutex> guard(mutex_);
    const auto found = taken_.find(data - base_);
    if (found == taken_.end()) return;
    size_t offset = found->first, size = found->second;
    taken_.erase(found);
    auto next = free_.lower_bound(offset);
    if (next != free_.end() && offset + size == next->first) {
      size += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == offset) {
        before->second += size;
        return;
      }
    }
    free_.emplace_hint(next, offset, size);
  }

  static void release(void* data);

  char* base_ = nullptr;
  size_t size_ = 0;
  std::atomic<bool> is_open_{false};
  std::mutex mutex_;
  std::map<size_t, size_t> free_;
  std::unordered_map<size_t, size_t> taken_;
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
