// A model's weights on their way into memory.
#pragma once

#include <future>
#include <memory>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/model/weights.h"

namespace tessera {

// Weights on their way while the graphs that will read them are built and captured. On a CPU both would fight for the
// same cores, and the weights come first.
class WeightLoad {
 public:
  // `device` outlives the load.
  WeightLoad(std::vector<WeightSpec> specs, const Weights& weights, WeightSource source, Device& device,
             bool show_progress);

  Status start();
  // Seconds that it took.
  Result<double> wait() { return seconds_.get(); }

 private:
  Result<double> run();

  std::vector<WeightSpec> specs_;
  std::shared_ptr<const Allocation> memory_;  // a runner that cannot be made frees its own share
  Weights::Addresses addresses_;
  WeightSource source_;
  Device& device_;
  bool show_progress_;
  std::shared_future<Result<double>> seconds_;  // last: its destructor waits for the thread
};

}  // namespace tessera
