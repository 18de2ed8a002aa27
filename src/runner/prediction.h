// The memory that a runner will take, from shapes alone: before weights are loaded or anything is captured.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/model/model.h"
#include "tessera/runner/graph_runner.h"
#include "tessera/runner/memory_report.h"
#include "tessera/runner/runner_options.h"

namespace tessera {

// kTotals plans the largest sizes alone, since one arena serves all: some milliseconds for a large model, where the
// need of every size takes some tens.
enum class PredictionDetail : std::uint8_t { kTotals, kEverySize };

// Without weights and KV cache, whose shares follow from this. options.num_pages may still be 1 for each group: no
// value of a forward has the cache's size.
Result<MemoryReport> predict_memory(const ModelGraphs& graphs, const RunnerOptions& options, Device& device,
                                    PredictionDetail detail = PredictionDetail::kTotals);
// The same of runners that are there.
Result<MemoryReport> predict_memory(std::span<const GraphRunner> runners, const ModelGraphs& graphs,
                                    const RunnerOptions& options, Device& device, PredictionDetail detail);

}  // namespace tessera
