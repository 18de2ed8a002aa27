// The memory that graphs will take, from shapes alone: before weights are loaded or anything is captured.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/model/model.h"
#include "tessera/runner/model_runner.h"

namespace tessera {

struct SizeNeed {
  std::int64_t size = 0;  // tokens of a prefill graph, requests of a decode graph
  MemoryNeed need;
};

struct Prediction {
  std::vector<SizeNeed> prefill;
  std::vector<SizeNeed> decode;
  std::int64_t arena_bytes = 0;  // shared by all: the largest need
  std::int64_t workspace_bytes = 0;
  std::int64_t static_input_bytes = 0;
};

Result<Prediction> predict_memory(const ModelGraphs& graphs, const RunnerOptions& options, Device& device);

}  // namespace tessera
