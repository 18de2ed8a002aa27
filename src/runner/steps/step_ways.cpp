#include "tessera/runner/steps/step_ways.h"

#include <utility>

namespace tessera {

// Returns the first StepWay in the list that fits.
Result<std::unique_ptr<StepWay>> make_step_way(const StepContext& context) {
  for (MakeStepWay* const make : {make_data_parallel, make_host_pipeline, make_leader, make_peer, make_alone}) {
    std::unique_ptr<StepWay> way = TRY(make(context));
    if (way != nullptr) return way;
  }
  return internal_error("no way to run a step fits these ranks");
}

}  // namespace tessera
