// Events and recorded graphs of the CPU device.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "tessera/device/cpu/cpu_device.h"

namespace tessera {

// Work is done before the call that enqueues it returns, so an event has only to order memory
// between threads: what its recorder wrote is seen by whoever waited.
class CpuEvent final : public Event {
 public:
  CpuEvent(CpuDevice& device, std::string name) : device_(device), name_(std::move(name)) {}
  Status synchronize() override;

  const CpuDevice* device() const { return &device_; }
  void mark() { marks_.fetch_add(1, std::memory_order_release); }
  void observe() const { (void)marks_.load(std::memory_order_acquire); }

 private:
  CpuDevice& device_;
  std::string name_;
  std::atomic<std::uint64_t> marks_{0};
};

class CpuGraph final : public RecordedGraph {
 public:
  CpuGraph(const CpuDevice& device, std::string name, std::vector<CpuLaunch> launches)
      : device_(&device), name_(std::move(name)), launches_(std::move(launches)) {}
  // kInvalidArgument for a stream of another device.
  Status launch(Stream& stream) override;
  GraphStats stats() const override;

 private:
  const CpuDevice* device_;  // compared, never followed
  std::string name_;
  std::vector<CpuLaunch> launches_;
};

}  // namespace tessera
