// Loads a model's weights in the background.
#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/engine/engine_options.h"
#include "tessera/engine/plan/engine_plan.h"
#include "tessera/model/weights/weights.h"

namespace tessera {

// Returns the source of the model's weights: its folder, or random numbers. For a folder, logs the tensors that
// the model does not use, such as those of a vision tower or of next-token layers.
Result<WeightSource> weight_source(const EngineOptions& options, const EnginePlan& plan);

// The times at which a load began and ended.
struct LoadTimes {
  std::chrono::steady_clock::time_point begin{};
  std::chrono::steady_clock::time_point end{};
};

// On a GPU, loads weights while the graphs that read them are built and captured. On a CPU, loads the weights first,
// because loading and capturing would compete for cores.
class WeightLoad {
 public:
  // `device` must outlive the load.
  WeightLoad(std::vector<WeightSpec> specs, const Weights& weights, WeightSource source, Device& device,
             bool show_progress);

  Status start();
  bool done() const { return times_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }
  // Waits for the end of the load.
  Result<LoadTimes> wait() { return times_.get(); }

 private:
  Result<LoadTimes> run();

  std::vector<WeightSpec> specs_;
  // The memory of the weights, which this reference keeps alive even if no runner can be made.
  std::shared_ptr<const Allocation> memory_;
  Weights::Addresses addresses_;
  WeightSource source_;
  Device& device_;
  bool show_progress_;
  std::shared_future<Result<LoadTimes>> times_;  // last member: its destructor waits for the thread
};

}  // namespace tessera
