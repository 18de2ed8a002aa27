// A device without pointers, for tests of code that might assume pointers. Memory has handles that are not addresses,
// and arenas have their full size from the start. Only the device's own streams can access the bytes, which are host
// memory.
//
//   auto device = HandleDevice::create().value();
//   std::unique_ptr<Allocation> x = device->allocate(64, "x").value();
//   x->data().raw();                        // points nowhere
//   float* values = reinterpret_cast<float*>(device->resolve(x->data(), 64));   // what the device's own kernels do
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "tessera/device/cpu/cpu_device.h"

namespace tessera::testing {

class HandleDevice final : public Device {
 public:
  static constexpr const char* kType = "handles";
  static Result<std::unique_ptr<HandleDevice>> create();

  const DeviceProperties& properties() const override { return properties_; }
  Result<std::unique_ptr<Allocation>> allocate(std::size_t bytes, std::string_view name) override;
  Result<std::unique_ptr<HostAllocation>> allocate_host(std::size_t bytes, std::string_view name) override {
    return host_->allocate_host(bytes, name);
  }
  Result<std::unique_ptr<Arena>> create_arena(ArenaOptions options) override;
  Result<std::unique_ptr<Stream>> create_stream(std::string name) override;
  using Device::create_event;
  Result<std::unique_ptr<Event>> create_event(EventKind kind) override { return host_->create_event(kind); }
  Status begin_initialisation(std::string_view library) override { return host_->begin_initialisation(library); }
  std::int64_t available_bytes() const override { return host_->available_bytes(); }

  // Returns the host address of the bytes. Returns null if the memory was freed, or if the range exceeds the memory.
  std::byte* resolve(DeviceAddress address, std::size_t bytes) const;

 private:
  friend class HandleAllocation;
  friend class HandleArena;
  struct Range {
    std::byte* data;
    std::size_t bytes;
  };
  HandleDevice() = default;
  std::byte* add(std::byte* data, std::size_t bytes);
  void remove(const std::byte* handle);

  std::unique_ptr<CpuDevice> host_;
  DeviceProperties properties_;
  mutable std::mutex mutex_;
  std::size_t last_handle_ = 0;
  std::map<const std::byte*, Range> ranges_;  // the key is the handle
};

class HandleStream final : public Stream {
 public:
  HandleStream(HandleDevice& device, std::unique_ptr<Stream> host) : device_(device), host_(std::move(host)) {}

  // Runs or records `kernel`, like CpuStream::launch().
  template <class F>
  Status launch(const char* name, const F& kernel) {
    return as_cpu(*host_).launch(name, kernel);
  }
  HandleDevice& device() { return device_; }
  Stream& host() { return *host_; }

  Status upload(DeviceAddress device, const void* host, std::size_t bytes) override;
  Status download(void* host, DeviceAddress device, std::size_t bytes) override;
  Status copy(DeviceAddress to, DeviceAddress from, std::size_t bytes) override;
  Status fill(DeviceAddress to, std::uint8_t value, std::size_t bytes) override;
  Status record(Event& event) override { return host_->record(event); }
  Status wait(Event& event) override { return host_->wait(event); }
  Status synchronize() override { return host_->synchronize(); }
  Status begin_recording(std::string what) override { return host_->begin_recording(std::move(what)); }
  Result<std::unique_ptr<RecordedGraph>> end_recording() override;
  void abandon_recording() override { host_->abandon_recording(); }
  bool recording() const override { return host_->recording(); }
  Status recording_status() const override { return host_->recording_status(); }

 private:
  Result<DeviceAddress> find(DeviceAddress address, std::size_t bytes) const;

  HandleDevice& device_;
  std::unique_ptr<Stream> host_;
};

}  // namespace tessera::testing
