// Implements the contract of device/device.h with the functions of a plugin's table. PluginDevice refuses calls that
// the contract forbids, such as calls while a recording is open, copies without addresses and empty operations, so that
// the plugin never gets such a call.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/device/recording.h"
#include "tessera/plugin/c_call.h"
#include "tessera_plugin.h"

namespace tessera::plugin {

// The checked copy of the table of functions with which a plugin implements a device. Immutable.
class DeviceTable {
 public:
  // Checks and copies the table. Returns kInvalidArgument if a required member is missing.
  static Result<std::shared_ptr<const DeviceTable>> create(const tessera_plugin_device* given);

  const tessera_plugin_device* get() const { return &table_; }
  std::string_view type() const { return table_.type; }
  // Returns the reason why the most recently opened device records no graphs. The engine's start plan shows the reason.
  // Returns "" if the device records graphs, or if no device was opened.
  std::string why_no_graphs() const;
  void note_opened(std::string why_no_graphs) const;

 private:
  explicit DeviceTable(const tessera_plugin_device& table) : table_(table) {}
  tessera_plugin_device table_;
  mutable std::mutex mutex_;
  mutable std::string why_no_graphs_;
};

class PluginDevice final : public Device {
 public:
  // Opens the device. Returns kInternal if its properties are inconsistent.
  static Result<std::unique_ptr<PluginDevice>> open(std::shared_ptr<const DeviceTable> table, int ordinal);
  ~PluginDevice() override;
  PluginDevice(const PluginDevice&) = delete;
  PluginDevice& operator=(const PluginDevice&) = delete;

  const DeviceProperties& properties() const override { return properties_; }
  Result<std::unique_ptr<Allocation>> allocate(std::size_t bytes, std::string_view name) override;
  Result<std::unique_ptr<HostAllocation>> allocate_host(std::size_t bytes, std::string_view name) override;
  Result<std::unique_ptr<Arena>> create_arena(ArenaOptions options) override;
  Result<std::unique_ptr<Stream>> create_stream(std::string name) override;
  using Device::create_event;
  Result<std::unique_ptr<Event>> create_event(EventKind kind) override;
  Status begin_initialisation(std::string_view library) override {
    return recording_.check(DeviceCall::kInitialiseLibrary, library);
  }
  std::int64_t available_bytes() const override;

  const tessera_plugin_device* table() const { return table_->get(); }
  // Returns the reason why the device records no graphs, or "" if it records graphs.
  const std::string& why_no_graphs() const { return why_no_graphs_; }
  void* handle() const { return handle_; }  // the plugin's handle from open()
  OpenRecording& recording() { return recording_; }
  // Reserves `bytes` of the device's memory until give_back(). Fails if the sum of all reservations would exceed
  // memory_bytes.
  Status claim(DeviceCall call, std::string_view object, std::size_t bytes);
  void give_back(std::size_t bytes) { used_bytes_ -= static_cast<std::int64_t>(bytes); }

 private:
  PluginDevice(std::shared_ptr<const DeviceTable> table, void* handle) : table_(std::move(table)), handle_(handle) {}

  std::shared_ptr<const DeviceTable> table_;
  void* handle_;
  DeviceProperties properties_;
  std::string why_no_graphs_;
  OpenRecording recording_;
  std::atomic<std::int64_t> used_bytes_{0};
  std::atomic<int> events_{0};
};

class PluginStream final : public Stream {
 public:
  PluginStream(PluginDevice& device, std::string name, void* handle)
      : device_(device), name_(std::move(name)), handle_(handle) {}
  ~PluginStream() override;
  PluginStream(const PluginStream&) = delete;
  PluginStream& operator=(const PluginStream&) = delete;

  // Calls `enqueue` with the plugin's handle of this stream. Adds `name` to an error.
  template <class F>
  Status launch(std::string_view name, const F& enqueue) {
    Status status = enqueue(handle_);
    return status.ok() ? ok_status() : std::move(status).with_context(name);
  }

  Status upload(DeviceAddress device, const void* host, std::size_t bytes) override;
  Status download(void* host, DeviceAddress device, std::size_t bytes) override;
  Status copy(DeviceAddress to, DeviceAddress from, std::size_t bytes) override;
  Status fill(DeviceAddress to, std::uint8_t value, std::size_t bytes) override;
  Status record(Event& event) override;
  Status wait(Event& event) override;
  Status synchronize() override;
  Status begin_recording(std::string what) override;
  Result<std::unique_ptr<RecordedGraph>> end_recording() override;
  void abandon_recording() override;
  bool recording() const override { return recording_; }
  Status recording_status() const override { return device_.recording().status(*this); }

  PluginDevice& device() const { return device_; }
  void* handle() const { return handle_; }
  const std::string& recording_what() const { return recording_what_; }

 private:
  // Returns an error if a recording is open. Every call that is illegal during a recording begins with this check.
  Status enter(DeviceCall call) const;
  // Calls `function`, which must call one of the table's functions with this stream. `what` names this call in errors.
  template <class F>
  Status run(DeviceCall what, const F& function) const;

  PluginDevice& device_;
  std::string name_;
  void* handle_;
  bool recording_ = false;
  std::string recording_what_;
};

// Casts a stream to PluginStream. Precondition: a PluginDevice made the stream.
inline PluginStream& as_plugin(Stream& stream) { return static_cast<PluginStream&>(stream); }

}  // namespace tessera::plugin
