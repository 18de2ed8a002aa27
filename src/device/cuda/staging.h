// Uploads ordinary host memory. Bytes are copied to a ring of pinned memory, from which the GPU copies them when the
// stream reaches the upload. The host does not wait for the stream unless the ring is full.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include "tessera/device/cuda/cuda_device.h"

namespace tessera {

// The ring of one stream. Its segments are filled in turn. After the last copy out of a segment, an event is recorded.
// When the event has passed, the segment may be reused. The host waits only if the GPU has not yet copied the segment
// that the host needs next. upload() allocates nothing.
class StagingRing {
 public:
  static constexpr std::size_t kSegmentBytes = std::size_t{256} << 10;
  static constexpr std::size_t kSegments = 16;  // the ring has 16 · 256 KiB = 4 MiB

  // Allocates the ring. `stream` is the stream's name, for errors.
  static Result<std::unique_ptr<StagingRing>> create(CudaDevice& device, const std::string& stream);
  ~StagingRing();
  StagingRing(const StagingRing&) = delete;
  StagingRing& operator=(const StagingRing&) = delete;

  // Uploads `bytes` bytes. When the call returns, `host` has been read. Preconditions: the device is current on the
  // thread, and the ring is used with one stream at a time.
  Status upload(CUstream stream, std::byte* device, const std::byte* host, std::size_t bytes);

 private:
  StagingRing(CudaDevice& device, const std::string& stream) : device_(device), stream_(stream) {}
  Status enter_next_segment(CUstream stream);

  struct Segment {
    CUevent fetched = nullptr;
    bool in_flight = false;  // whether `fetched` was recorded and not yet waited for
  };

  CudaDevice& device_;
  std::string stream_;
  std::byte* ring_ = nullptr;
  std::array<Segment, kSegments> segments_;
  std::size_t current_ = 0;  // current segment
  std::size_t offset_ = 0;   // number of used bytes in the current segment
};

}  // namespace tessera
