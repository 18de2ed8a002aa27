// Implements a plugin device's events and recorded graphs, and the PiecewiseBackend that captures pieces of a forward
// as graphs on that device.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "tessera/device/device.h"
#include "tessera/piecewise/backend.h"
#include "tessera/plugin/device.h"

namespace tessera::plugin {

class PluginEvent final : public Event {
 public:
  static Result<std::unique_ptr<PluginEvent>> create(PluginDevice& device, std::string name, EventKind kind);
  ~PluginEvent() override;
  PluginEvent(const PluginEvent&) = delete;
  PluginEvent& operator=(const PluginEvent&) = delete;

  Status synchronize() override;
  Result<double> milliseconds_since(const Event& earlier) const override;

  const PluginDevice* device() const { return &device_; }
  void* handle() const { return handle_; }
  bool is_recorded() const { return recorded_; }
  void set_recorded() { recorded_ = true; }

 private:
  PluginEvent(PluginDevice& device, std::string name, EventKind kind, void* handle)
      : device_(device), name_(std::move(name)), kind_(kind), handle_(handle) {}
  PluginDevice& device_;
  std::string name_;
  EventKind kind_;
  void* handle_;
  std::atomic<bool> recorded_{false};
};

class PluginGraph final : public RecordedGraph {
 public:
  PluginGraph(const PluginDevice& device, std::string name, void* handle, GraphStats stats)
      : device_(device), name_(std::move(name)), handle_(handle), stats_(stats) {}
  ~PluginGraph() override;
  PluginGraph(const PluginGraph&) = delete;
  PluginGraph& operator=(const PluginGraph&) = delete;

  Status launch(Stream& stream) override;
  GraphStats stats() const override { return stats_; }

 private:
  const PluginDevice& device_;
  std::string name_;
  void* handle_;
  GraphStats stats_;
};

// Makes the backend that captures pieces of a forward as graphs. The backend uses the device's capture function if
// there is one. Otherwise it records the device's stream. On a device that records no graphs, the operators of a piece
// run one by one, and note() says so.
std::shared_ptr<const PiecewiseBackend> make_backend(std::shared_ptr<const DeviceTable> table);

}  // namespace tessera::plugin
