// `explain` shows the schedules of generated row kernels. A schedule is how a kernel divides rows among threads.
// Earlier starts of the engine measured which schedule is the fastest, and `explain` reads their results.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/engine/engine_options.h"
#include "tessera/engine/plan/engine_plan.h"
#include "tessera/ops/fused/row_schedules.h"

namespace tessera {

struct ExplainedSchedule {
  std::int64_t rows = 0;
  MeasuredSchedules measured;
};

// Returns the measured schedules of the kernels that the fused compiler generates for the plan's prefill and decode
// graphs: one entry for each kernel and number of rows. The list is empty if no runner uses the fused compiler, or if
// nothing was measured.
Result<std::vector<ExplainedSchedule>> explained_schedules(const EngineOptions& options, const EnginePlan& plan,
                                                           const Device& device);

// Returns [{"kernel": …, "rows": …, "chosen": 64, "own": 128, "us": {"128": 3.1, "64": 2.8, …}}, …]. The device names
// each schedule by a number, here 64 and 128. "chosen" is the fastest schedule, "own" the one that the device chooses
// without measurements, and "us" has the measured times in µs.
Json to_json(const std::vector<ExplainedSchedule>& schedules);

}  // namespace tessera
