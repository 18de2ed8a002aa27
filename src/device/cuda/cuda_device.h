// Implements the device contract (device.h) on an NVIDIA GPU, through the driver API. The device uses the GPU's primary
// context, which the runtime API, kernels and libraries of this process share.
//
//   std::unique_ptr<CudaDevice> device = TRY(CudaDevice::create({.ordinal = 0}));
//
// The driver keeps a current context per thread. Every call of the device makes the device's context current, unless it
// already is, and leaves it current. Other code that changes the current context of a thread must restore it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/device/cuda/driver.h"
#include "tessera/device/device.h"
#include "tessera/device/errors.h"
#include "tessera/device/recording.h"

namespace tessera {

class CudaDevice final : public Device {
 public:
  struct Options {
    int ordinal = 0;                 // index among the GPUs that this process sees
    const Driver* driver = nullptr;  // driver functions for tests; if null, the system's driver is used
    // A lower compute capability that properties() reports instead of the GPU's own. 0 means the GPU's own.
    int act_as = 0;
  };
  // The oldest supported capability, as 10 · major + minor. Kernels are built for it and for newer ones.
  static constexpr int kOldestComputeCapability = 80;

  // Opens the GPU. Returns kNotFound if there is no driver, if the driver is too old, or if there is no such GPU.
  // Returns kUnimplemented if the GPU is too old.
  static Result<std::unique_ptr<CudaDevice>> create(Options options);
  ~CudaDevice() override;
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  const DeviceProperties& properties() const override { return properties_; }
  Result<std::unique_ptr<Allocation>> allocate(std::size_t bytes, std::string_view name) override;
  Result<std::unique_ptr<HostAllocation>> allocate_host(std::size_t bytes, std::string_view name) override;
  // Creates an arena backed by cuMemCreate. Other processes and network cards can access the arena's memory if the GPU
  // supports this.
  Result<std::unique_ptr<Arena>> create_arena(ArenaOptions options) override;
  Result<std::unique_ptr<Stream>> create_stream(std::string name) override;
  using Device::create_event;
  Result<std::unique_ptr<Event>> create_event(EventKind kind) override;
  Status begin_initialisation(std::string_view library) override {
    return enter(DeviceCall::kInitialiseLibrary, library);
  }
  std::int64_t available_bytes() const override;

  CUdevice handle() const { return device_; }
  // Returns the largest distance between rows, in bytes, that copies of rows accept.
  std::int64_t largest_pitch() const { return largest_pitch_; }
  // Makes the device's context current on the calling thread. Makes no driver call if the context is current already.
  Status make_current() const;

  // The functions below are for the other classes of this backend: memory, arenas, streams, events and graphs.
  const Driver& driver() const { return driver_; }
  OpenRecording& recording() { return recording_; }

  // Returns an error at once if the device is lost. Otherwise makes the context current. Every call of the device
  // begins with this function.
  Status begin(DeviceCall call, std::string_view object) const {
    if (is_lost_.load(std::memory_order_acquire)) [[unlikely]]
      return lost_before(call, object);
    return make_current();
  }
  // Like begin(), but also returns an error for calls that the recording thread may not make.
  Status enter(DeviceCall call, std::string_view object) const;
  // Converts the result of a driver call to a Status. If the process must be restarted after the error, also marks the
  // device as lost.
  Status check(CUresult result, const DriverCall& call) {
    if (result == CUDA_SUCCESS) [[likely]]
      return ok_status();
    return fail(result, call);
  }
  // Runs `release`, which frees a driver object. Freeing waits for the device, which would invalidate a capture. If
  // this thread has a recording open, `release` is therefore deferred until the recording ends.
  void release(std::function<void()> release);
  // Runs the deferred releases. Call it after a recording has ended.
  void release_deferred();

  // Registers pinned memory. Copies from and to it are asynchronous on the stream.
  void add_pinned(const std::byte* data, std::size_t bytes);
  void remove_pinned(const std::byte* data);
  bool is_pinned(const void* data, std::size_t bytes) const;

  // Returns `error`. If the device was not lost before, records `error` as the cause of its loss.
  Status lose(Status error);

 private:
  explicit CudaDevice(const Driver& driver);
  Status open(int ordinal);
  Status read_properties();
  Result<int> read_attribute(CUdevice_attribute attribute);
  Status fail(CUresult result, const DriverCall& call);
  Status lost_before(DeviceCall call, std::string_view object) const;

  Driver driver_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  std::string name_;        // for example "cuda:0"
  const std::uint64_t id_;  // unique, unlike context handles, which the driver reuses
  DeviceProperties properties_;
  std::int64_t largest_pitch_ = 0;
  std::atomic<int> events_{0};
  OpenRecording recording_;

  std::atomic<bool> is_lost_{false};
  mutable std::mutex mutex_;                        // guards the members below
  Status lost_;                                     // the error that lost the device
  std::vector<std::function<void()>> deferred_;     // deferred releases, in order
  std::map<const std::byte*, std::size_t> pinned_;  // start → bytes
};

}  // namespace tessera
