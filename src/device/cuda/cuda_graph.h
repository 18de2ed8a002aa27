// Implements events and recorded graphs of the CUDA device.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "tessera/device/cuda/cuda_device.h"

namespace tessera {

class CudaEvent final : public Event {
 public:
  static Result<std::unique_ptr<CudaEvent>> create(CudaDevice& device, std::string name, EventKind kind);
  ~CudaEvent() override;
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  Status synchronize() override;
  Result<double> milliseconds_since(const Event& earlier) const override;
  // Records the event after all work enqueued on `stream`. Replaces an earlier recording.
  Status record(CUstream stream, std::string_view stream_name);
  CUevent handle() const { return handle_; }
  const CudaDevice* device() const { return &device_; }

 private:
  CudaEvent(CudaDevice& device, std::string name, EventKind kind)
      : device_(device), name_(std::move(name)), kind_(kind) {}
  bool has_time() const { return kind_ == EventKind::kTime && recorded_.load(std::memory_order_acquire); }

  CudaDevice& device_;
  std::string name_;
  EventKind kind_;
  std::atomic<bool> recorded_{false};
  CUevent handle_ = nullptr;
};

// A captured graph. It is instantiated and uploaded to the GPU in advance, so the first launch takes no longer than
// later ones. stats().bytes is always 0 (see GraphStats).
class CudaGraph final : public RecordedGraph {
 public:
  // Instantiates `graph`, which is not changed and still belongs to the caller. The upload is enqueued on `stream`.
  // With `priorities`, kernels have the priorities of the streams on which they were captured. Otherwise all kernels
  // have the priority of the launching stream.
  static Result<std::unique_ptr<CudaGraph>> create(CudaDevice& device, std::string name, CUgraph graph, CUstream stream,
                                                   bool priorities);
  ~CudaGraph() override;
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  // Replays the graph. Returns kInvalidArgument for a stream of another device.
  Status launch(Stream& stream) override;
  GraphStats stats() const override { return {.nodes = nodes_, .bytes = 0}; }

 private:
  CudaGraph(CudaDevice& device, std::string name) : device_(device), name_(std::move(name)) {}

  CudaDevice& device_;
  std::string name_;
  std::int64_t nodes_ = 0;
  CUgraphExec exec_ = nullptr;
};

}  // namespace tessera
