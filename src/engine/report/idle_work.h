// Does the work of idle moments: postponed captures, and measurements of forwards, matmuls and generated kernels.
#pragma once

#include <chrono>

#include "tessera/base/status.h"
#include "tessera/engine/report/engine_report.h"
#include "tessera/engine/start/loaded_model.h"

namespace tessera {

class IdleWork {
 public:
  // Both arguments must outlive this object.
  IdleWork(LoadedModel& model, EngineReport& report) : model_(model), report_(report) {}

  // Does one piece of work. Stores the results for later starts every now and then. Returns false if nothing is left.
  // Precondition: no forward is in flight.
  Result<bool> work();

 private:
  LoadedModel& model_;
  EngineReport& report_;
  std::chrono::steady_clock::time_point next_save_{};
};

}  // namespace tessera
