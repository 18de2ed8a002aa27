// Loading a model's weights in the background.
#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/model/weights/weights.h"

namespace tessera {

// When a load began and ended.
struct LoadTimes {
  std::chrono::steady_clock::time_point begin{};
  std::chrono::steady_clock::time_point end{};
};

// Loads weights while the graphs that read them are built and captured. On a CPU, where both would compete for cores,
// the weights are loaded first.
class WeightLoad {
 public:
  // `device` outlives the load.
  WeightLoad(std::vector<WeightSpec> specs, const Weights& weights, WeightSource source, Device& device,
             bool show_progress);

  Status start();
  bool done() const { return times_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }
  // Waits for its end.
  Result<LoadTimes> wait() { return times_.get(); }

 private:
  Result<LoadTimes> run();

  std::vector<WeightSpec> specs_;
  std::shared_ptr<const Allocation> memory_;  // a runner that cannot be made frees its own share
  Weights::Addresses addresses_;
  WeightSource source_;
  Device& device_;
  bool show_progress_;
  std::shared_future<Result<LoadTimes>> times_;  // last: its destructor waits for the thread
};

}  // namespace tessera
