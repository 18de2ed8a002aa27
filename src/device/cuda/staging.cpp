#include "tessera/device/cuda/staging.h"

#include <algorithm>
#include <cstring>

#include "tessera/device/alignment.h"
#include "tessera/device/cpu/host_limits.h"

namespace tessera {

Result<std::unique_ptr<StagingRing>> StagingRing::create(CudaDevice& device, const std::string& stream) {
  std::unique_ptr<StagingRing> ring(new StagingRing(device, stream));
  const Driver& driver = device.driver();
  void* data = nullptr;
  const CUresult result = driver.cuMemHostAlloc(&data, kSegments * kSegmentBytes, CU_MEMHOSTALLOC_PORTABLE);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {  // the error concerns host memory, not GPU memory
    return out_of_device_memory(DeviceCall::kCreateStream, stream, kSegments * kSegmentBytes,
                                read_host_memory().available_bytes)
        .with_context("cuMemHostAlloc");
  }
  TRY(device.check(result, {"cuMemHostAlloc", DeviceCall::kCreateStream, stream, kSegments * kSegmentBytes}));
  ring->ring_ = static_cast<std::byte*>(data);
  for (Segment& segment : ring->segments_) {
    TRY(device.check(driver.cuEventCreate(&segment.fetched, CU_EVENT_DISABLE_TIMING),
                     {"cuEventCreate", DeviceCall::kCreateStream, stream}));
  }
  return ring;
}

StagingRing::~StagingRing() {
  device_.release([&driver = device_.driver(), ring = ring_, segments = segments_] {
    for (const Segment& segment : segments) {
      if (segment.fetched != nullptr) (void)driver.cuEventDestroy(segment.fetched);
    }
    if (ring != nullptr) (void)driver.cuMemFreeHost(ring);
  });
}

Status StagingRing::upload(CUstream stream, std::byte* device, const std::byte* host, std::size_t bytes) {
  while (bytes > 0) {
    if (offset_ == kSegmentBytes) TRY(enter_next_segment(stream));
    const std::size_t part = std::min(bytes, kSegmentBytes - offset_);
    std::byte* const staged = ring_ + current_ * kSegmentBytes + offset_;
    std::memcpy(staged, host, part);
    TRY(device_.check(device_.driver().cuMemcpyHtoDAsync(address_of(device), staged, part, stream),
                      {"cuMemcpyHtoDAsync", DeviceCall::kUpload, stream_, part}));
    offset_ += align_up(part);  // stays within the segment, whose size is a multiple of the alignment
    device += part;
    host += part;
    bytes -= part;
  }
  return ok_status();
}

Status StagingRing::enter_next_segment(CUstream stream) {
  const Driver& driver = device_.driver();
  Segment& full = segments_[current_];
  TRY(device_.check(driver.cuEventRecord(full.fetched, stream), {"cuEventRecord", DeviceCall::kUpload, stream_}));
  full.in_flight = true;
  const std::size_t next = (current_ + 1) % kSegments;
  if (segments_[next].in_flight) {
    TRY(device_.check(driver.cuEventSynchronize(segments_[next].fetched),
                      {"cuEventSynchronize", DeviceCall::kUpload, stream_}));
    segments_[next].in_flight = false;
  }
  current_ = next;
  offset_ = 0;
  return ok_status();
}

}  // namespace tessera
