// The CUDA implementation of Stream.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <memory>
#include <string>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/device/errors.h"

namespace tessera {

class CudaDevice;
class CudaEvent;
class StagingRing;

// A CUDA stream. It does not synchronise with the legacy default stream. Uploads from ordinary memory go through a ring
// of pinned memory. Downloads to ordinary memory may wait for the stream.
class CudaStream final : public Stream {
 public:
  static Result<std::unique_ptr<CudaStream>> create(CudaDevice& device, std::string name);
  // Waits for the stream's work.
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  // Returns the CUDA stream. The driver's CUstream and the runtime's cudaStream_t are the same type.
  CUstream handle() const { return handle_; }
  CudaDevice& device() const { return device_; }

  // Makes the device current on the calling thread. Call it before a kernel launch, from any thread.
  Status begin_launch(const char* kernel);
  // Returns the Status of a failed launch. The code is kDeviceLost if the process must be restarted.
  Status launch_error(const char* kernel, cudaError_t error) const;

  Status upload(DeviceAddress device, const void* host, std::size_t bytes) override;
  Status download(void* host, DeviceAddress device, std::size_t bytes) override;
  Status copy(DeviceAddress to, DeviceAddress from, std::size_t bytes) override;
  Status copy_rows(DeviceAddress to, DeviceAddress from, std::size_t bytes, std::int64_t pitch,
                   std::int64_t rows) override;
  Status fill(DeviceAddress to, std::uint8_t value, std::size_t bytes) override;
  Result<Stream*> side() override;
  Status fork_side() override;
  Status join_side() override;
  Status record(Event& event) override;
  Status wait(Event& event) override;
  Status synchronize() override;
  Status begin_recording(std::string what) override;
  Result<std::unique_ptr<RecordedGraph>> end_recording() override;
  void abandon_recording() override;
  bool recording() const override { return recording_; }
  Status recording_status() const override;
  // Returns the name of the open recording, or of the last one if none is open. The name is empty before the first
  // recording.
  const std::string& recording_what() const { return recording_what_; }

 private:
  CudaStream(CudaDevice& device, std::string name);
  // Makes `later` wait for all work that was enqueued on `earlier` until now. The wait may also be recorded.
  Status order(const CudaStream& earlier, const CudaStream& later, CudaEvent& by) const;
  // Returns an error if `call` is not allowed now. Every operation of the stream begins with enter(), except launches,
  // begin_recording() and end_recording().
  Status enter(DeviceCall call) const;
  Status of_the_host_alone() const;
  // Ends the capture, even if this function returns an error. Sets `*graph` to the driver's graph, or to null if there
  // is none.
  Status end_capture(CUgraph* graph);
  Status replace_handle();

  CudaDevice& device_;
  std::string name_;
  CUstream handle_ = nullptr;
  std::unique_ptr<StagingRing> staging_;  // null for a side stream, which makes no copies between host and device
  bool recording_ = false;
  bool forked_in_recording_ = false;  // whether the last recording has side work
  std::string recording_what_;
  // The side stream and its events. They are null until they are first used.
  std::unique_ptr<CudaStream> side_;
  std::unique_ptr<CudaEvent> forked_;
  std::unique_ptr<CudaEvent> joined_;
};

// Returns `stream` as a CudaStream, for a CUDA kernel. Precondition: a CudaDevice made the stream.
inline CudaStream& as_cuda(Stream& stream) { return static_cast<CudaStream&>(stream); }

}  // namespace tessera
