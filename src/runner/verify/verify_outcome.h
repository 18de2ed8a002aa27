// Holds the results of one run, so that verify() can compare them, and finds where the results of two runs differ.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"

namespace tessera {

struct MemoryRange {
  DeviceAddress data;
  std::size_t bytes;
};

// Sections of a run's memory, copied to the host. The copies lie in memory from Device::allocate_host(), to which the
// device copies fastest. All runs reuse this memory.
class VerifyOutcome {
 public:
  explicit VerifyOutcome(Device& device) : device_(device) {}

  // Replaces the sections of the previous run. Each section consists of its memory ranges, one after another. The
  // sections are valid once the stream has completed the copy.
  Status download(std::span<const std::vector<MemoryRange>> sections, Stream& stream) {
    std::size_t total = 0;
    for (const std::vector<MemoryRange>& ranges : sections)
      for (const MemoryRange& range : ranges) total += range.bytes;
    TRY(make_room(total));
    sections_.clear();
    std::byte* to = memory_->data();
    for (const std::vector<MemoryRange>& ranges : sections) {
      std::byte* const begin = to;
      for (const MemoryRange& range : ranges) {
        TRY(stream.download(to, range.data, range.bytes));
        to += range.bytes;
      }
      sections_.emplace_back(begin, to);
    }
    return ok_status();
  }
  std::span<const std::byte> section(std::size_t i) const { return sections_[i]; }
  std::size_t num_sections() const { return sections_.size(); }

 private:
  Status make_room(std::size_t bytes) {
    if (memory_ != nullptr && memory_->size() >= bytes) return ok_status();
    memory_ = nullptr;
    memory_ = TRY(device_.allocate_host(bytes + bytes / 2, "verified rows"));
    return ok_status();
  }

  Device& device_;
  std::unique_ptr<HostAllocation> memory_;
  std::vector<std::span<const std::byte>> sections_;
};

// Returns the index of the first byte in which two runs differ, or -1 if they are equal.
inline std::int64_t find_difference(std::span<const std::byte> a, std::span<const std::byte> b) {
  if (std::memcmp(a.data(), b.data(), a.size()) == 0) return -1;
  return std::mismatch(a.begin(), a.end(), b.begin()).first - a.begin();
}

}  // namespace tessera
