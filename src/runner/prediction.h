// The memory that a runner will take, from shapes alone: before weights are loaded or anything is captured.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/model/model.h"
#include "tessera/runner/graph_runner.h"
#include "tessera/runner/memory_ledger.h"
#include "tessera/runner/runner_options.h"

namespace tessera {

struct SizeNeed {
  std::int64_t size = 0;  // tokens of a prefill graph, requests of a decode graph
  MemoryNeed need;
};

// Graphs of one size, of which a runner's sizes all have the same; none where the runner is off. On a CPU every
// operator is one launch of known bytes, so that the prediction is exact; on a GPU it is DeviceProperties' fit.
struct GraphCost {
  std::int64_t graphs = 0;
  std::int64_t operators = 0;
  std::int64_t bytes = 0;
};

struct Prediction {
  WorkingMemory memory;  // graph_objects: of every size of the ladders
  GraphCost prefill_graphs;
  GraphCost decode_graphs;
  // Of each size; empty unless asked for.
  std::vector<SizeNeed> prefill;
  std::vector<SizeNeed> decode;
};

// kTotals plans the largest sizes alone, since one arena serves all: some milliseconds for a large model, where every
// size takes some tens.
enum class PredictionDetail : std::uint8_t { kTotals, kEverySize };

// options.num_pages may still be 1 for each group: no value of a forward has the cache's size.
Result<Prediction> predict_memory(const ModelGraphs& graphs, const RunnerOptions& options, Device& device,
                                  PredictionDetail detail = PredictionDetail::kTotals);
// The same of runners that are there.
Result<Prediction> predict_memory(std::span<const GraphRunner> runners, const ModelGraphs& graphs,
                                  const RunnerOptions& options, Device& device, PredictionDetail detail);

}  // namespace tessera
