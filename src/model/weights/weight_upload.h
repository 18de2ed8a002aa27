// Uploads weights to a device. On the CPU they are written in place. On other devices they pass through pinned staging
// buffers. All cores fill one buffer while earlier buffers are copied.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "tessera/base/status.h"
#include "tessera/device/device.h"

namespace tessera {

class WeightUpload {
 public:
  // The maximum size of one write().
  static constexpr std::size_t kBufferBytes = std::size_t{8} << 20;

  // `device` must outlive the object.
  static Result<WeightUpload> create(Device& device);

  // Calls `fill` for a buffer of `bytes` bytes in host memory, and copies the buffer's content to `to`. If the device's
  // memory is host memory, the buffer is the memory at `to` itself. Precondition: 1 <= bytes <= kBufferBytes.
  Status write(DeviceAddress to, std::size_t bytes, const std::function<Status(std::span<std::byte>)>& fill);
  // Waits for all writes. Call it once, after the last write().
  Status finish();

 private:
  struct Buffer {
    std::unique_ptr<HostAllocation> memory;
    std::unique_ptr<Event> copied;
  };
  bool direct_ = false;            // host memory is device memory
  std::array<Buffer, 4> buffers_;  // destroyed after the stream, whose destructor waits for the copies
  std::unique_ptr<Stream> stream_;
  std::size_t next_ = 0;
};

}  // namespace tessera
