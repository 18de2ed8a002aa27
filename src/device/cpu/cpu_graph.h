// Implements events and recorded graphs of the CPU device.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tessera/device/cpu/cpu_device.h"

namespace tessera {

// On a CPU, work is done when the call that enqueues it returns. An event therefore only orders memory accesses between
// threads. If one thread records the event and another thread then waits for it, the waiting thread sees everything
// that the recording thread wrote before.
class CpuEvent final : public Event {
 public:
  CpuEvent(CpuDevice& device, std::string name, EventKind kind)
      : device_(device), name_(std::move(name)), kind_(kind) {}
  Status synchronize() override;
  Result<double> milliseconds_since(const Event& earlier) const override;

  const CpuDevice* device() const { return &device_; }
  void mark() { passed_.store(Clock::now().time_since_epoch().count(), std::memory_order_release); }
  void observe() const { (void)passed_.load(std::memory_order_acquire); }

 private:
  using Clock = std::chrono::steady_clock;

  CpuDevice& device_;
  std::string name_;
  EventKind kind_;
  std::atomic<Clock::rep> passed_{0};  // clock ticks at the time of the last recording, or 0 if there is none
};

class CpuGraph final : public RecordedGraph {
 public:
  CpuGraph(const CpuDevice& device, std::string name, std::vector<CpuLaunch> launches)
      : device_(&device), name_(std::move(name)), launches_(std::move(launches)) {}
  // Replays the graph. Returns kInvalidArgument for a stream of another device.
  Status launch(Stream& stream) override;
  GraphStats stats() const override;

 private:
  const CpuDevice* device_;  // only compared with other pointers, never dereferenced
  std::string name_;
  std::vector<CpuLaunch> launches_;
};

}  // namespace tessera
