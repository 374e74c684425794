// Free blocks of one range of addresses: the first that is large enough is taken. The list lies in memory of its own,
// outside the range.

#pragma once

#include <cstddef>
#include <iterator>
#include <map>
#include <mutex>
#include <unordered_map>

namespace warpsmith {

class FreeBlocks {
 public:
  explicit FreeBlocks(size_t alignment) : alignment_(alignment) {}

  void open(char* base, size_t size) {
    std::lock_guard<std::mutex> guard(mutex_);
    base_ = base;
    size_ = size;
    free_.clear();
    taken_.clear();
    free_.emplace(0, size);
  }

  bool holds(const char* data) const { return data >= base_ && data < base_ + size_; }

  // A block of at least `bytes`, or null if there is none.
  char* take(size_t bytes) {
    const size_t whole = (bytes + alignment_ - 1) / alignment_ * alignment_;
    if (whole < bytes) return nullptr;
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
    return nullptr;
  }

  void give_back(const char* data) {
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

 private:
  const size_t alignment_;
  char* base_ = nullptr;
  size_t size_ = 0;
  std::mutex mutex_;
  std::map<size_t, size_t> free_;
  std::unordered_map<size_t, size_t> taken_;
};

}  // namespace warpsmith
