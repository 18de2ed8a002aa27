// Holds the host data that a forward needs on the device: token inputs, sampling parameters, and the arrays of plans.
// All of them lie in one allocation, and the host has a mirror of this allocation. So a step needs few copies to the
// device, usually only one.
//
//   buffer.reserve(bytes) → offset      before allocate(); ranges lie in the order of these calls
//   buffer.allocate(device, stream)     once; addresses are fixed from now on
//   buffer.host(offset), written()      every step: fill the mirror, and report what was filled
//   buffer.upload(stream)               once a step
//
// The device only reads this memory. Not thread-safe: the thread of the stream owns it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"

namespace tessera {

class StepBuffer {
 public:
  // Ranges at most this many bytes apart are uploaded as one range, because starting another copy takes the GPU about
  // as long as copying this many bytes.
  static constexpr std::size_t kMaxGap = std::size_t{32} << 10;

  // Reserves `bytes` bytes and returns their offset. The begin and the end of the range are aligned for any device.
  // Precondition: allocate() was not called yet.
  std::size_t reserve(std::size_t bytes);
  // Allocates zeros on the host and on the device. Called once, after the last reserve().
  Status allocate(Device& device, Stream& stream);

  std::int64_t bytes() const { return static_cast<std::int64_t>(size_); }
  // Preconditions of the functions below: allocate() was called, and the range was reserved.
  DeviceAddress device_address(std::size_t offset) const { return memory_->data() + offset; }
  std::byte* host(std::size_t offset) { return mirror_.data() + offset; }  // address in the mirror
  // Marks bytes of the mirror for the next upload().
  void written(std::size_t offset, std::size_t bytes);

  // Copies what was written since the last upload. Ranges at most kMaxGap bytes apart are copied as one. The copies run
  // asynchronously on `stream`, but the caller may write to the mirror again as soon as upload() has returned.
  // Allocates nothing if an earlier step had the same ranges. After an error the next upload copies the ranges again.
  Status upload(Stream& stream);

 private:
  struct Range {
    std::size_t begin;
    std::size_t end;
  };

  std::size_t size_ = 0;
  std::unique_ptr<Allocation> memory_;
  std::vector<std::byte> mirror_;
  std::vector<Range> written_;
};

}  // namespace tessera
