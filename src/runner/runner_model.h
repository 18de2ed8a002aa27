// Holds the fixed part of one model's runner: its graphs, weights and options, and the values derived from these alone.
// Nothing changes after creation.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/model/model.h"
#include "tessera/runner/runner_options.h"
#include "tessera/runner/runner_spec.h"

namespace tessera {

struct RunnerModel {
  Device& device;
  RunnerOptions options;
  ModelGraphs graphs;
  Weights weights;
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::vector<HandedOver> handed_over{};  // outputs of the prefill runner that the head reads, at the arena's start
  std::int64_t handed_over_bytes = 0;     // total bytes of `handed_over` at the largest size
  std::int64_t choice_logits_offset = 0;  // offset from the arena's start, in bytes

  std::size_t num_cache_groups() const { return graphs.body.cache_groups.size(); }

  // `device` must outlive the model.
  static Result<RunnerModel> create(ModelGraphs graphs, Weights weights, Device& device, RunnerOptions options);
};

}  // namespace tessera
