// The schedules that explain shows: those that earlier starts measured for a model's generated kernels.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/engine/engine_options.h"
#include "tessera/engine/start/engine_plan.h"
#include "tessera/ops/fused/row_schedules.h"

namespace tessera {

struct ExplainedSchedule {
  std::int64_t rows = 0;
  MeasuredSchedules measured;
};

// Returns the schedules, by kernel and rows, of the kernels that the fused compiler generates for the plan's prefill
// and decode graphs. Returns none if no runner uses that compiler or nothing was measured.
Result<std::vector<ExplainedSchedule>> explained_schedules(const EngineOptions& options, const EnginePlan& plan,
                                                           const Device& device);

// Returns [{"kernel": …, "rows": …, "chosen": 64, "own": 128, "us": {"128": 3.1, "64": 2.8, …}}, …]; "own" is the
// device's own choice.
Json to_json(const std::vector<ExplainedSchedule>& schedules);

}  // namespace tessera
