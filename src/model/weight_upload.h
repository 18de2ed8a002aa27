// The way of weights to a device: the CPU's are written where they lie; any other device's go through pinned buffers,
// one being filled by all cores while the ones before it are copied.
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
  // Bytes of one write() at most.
  static constexpr std::size_t kBufferBytes = std::size_t{8} << 20;

  // `device` outlives the object.
  static Result<WeightUpload> create(Device& device);

  // Lets `fill` write `bytes` bytes of host memory, which then go to `to`. Precondition: 1 <= bytes <= kBufferBytes.
  Status write(std::byte* to, std::size_t bytes, const std::function<Status(std::span<std::byte>)>& fill);
  // Waits for what was written. To be called once, at the end.
  Status finish();

 private:
  struct Buffer {
    std::unique_ptr<Allocation> memory;
    std::unique_ptr<Event> copied;
  };
  bool direct_ = false;            // host memory is device memory
  std::array<Buffer, 4> buffers_;  // freed after the stream, which waits for its copies
  std::unique_ptr<Stream> stream_;
  std::size_t next_ = 0;
};

}  // namespace tessera
