// Plans an engine from its options, config.json and, where needed, the headers of the checkpoint. A plan says which
// model is built, how large its forwards are, for which sizes graphs are captured (the ladders), which rules turn
// graphs off, and how memory is divided. `tessera explain` shows the plan, and the start (loaded_model.h) carries it
// out.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/compile/pass.h"
#include "tessera/device/device.h"
#include "tessera/engine/cache/cache_pool.h"
#include "tessera/engine/engine_options.h"
#include "tessera/model/config/config.h"
#include "tessera/model/config/embedding_config.h"
#include "tessera/model/model.h"
#include "tessera/model/weights/checkpoint.h"
#include "tessera/runner/runner_options.h"

namespace tessera {

// The plan's division of the device's memory, in bytes (memory_shares.h).
struct MemoryShares {
  std::int64_t capacity = 0;
  std::int64_t taken = 0;  // what the driver and other processes used before the start
  std::int64_t weights = 0;
  std::int64_t kv_cache = 0;
  std::vector<CacheGroupOptions> cache_groups{};  // groups of the KV cache; every num_pages includes page 0
  std::int64_t context_tokens = 0;                // tokens that the KV cache has room for, over all requests
  std::int64_t activations = 0;                   // memory of forwards, with graphs or without
  std::int64_t graph_objects = 0;                 // predicted memory of captured graphs
  double fraction = 0;                            // weights and KV cache as a fraction of the capacity
  std::int64_t free() const { return capacity - taken - weights - kv_cache - activations - graph_objects; }
};

// Says how far a step may overlap with the step before it.
struct StepOrder {
  // True if a step is scheduled and enqueued while the step before it runs.
  bool overlap = false;
  // True if a step waits until the previous step nearly ends, so that new requests can join it meanwhile (step_pace.h).
  bool paced = false;
  int turns = 1;  // SchedulerOptions::turns
};

struct EnginePlan {
  ModelConfig config;
  std::optional<EmbeddingConfig> embedding;  // none: the model is not an embedding model
  ModelOptions model;
  std::shared_ptr<const Checkpoint> checkpoint;  // null: the plan needed no tensor's type
  ModelGraphs graphs;
  RunnerOptions runner;
  // Maximum number of requests that run at once. runner.max_requests is greater if requests may draft, because it also
  // counts the drafts of a forward.
  std::int64_t max_running = 0;
  StepOrder steps;
  DraftOptions drafts;             // the options as decided: the source is never kAuto
  std::vector<PassReport> passes;  // reports on the passes over each graph, in the order of the passes
  std::int64_t parameters = 0;     // parameters of the whole model, over all ranks; without those of drafts.model_path
  std::int64_t draft_parameters = 0;  // parameters of the layer or model of drafts.model_path; 0 without one
  std::vector<std::string> facts;     // lines that are shown without a warning
  std::vector<std::string> notes;     // lines about rules that applied, dropped sizes and lowered limits
  MemoryShares memory;
  double config_s = 0;  // seconds that reading config.json took

  // Returns whether the model generates tokens. Embedding models and classifiers do not.
  bool generates() const { return !embedding && config.num_labels == 0; }
};

// Plans one rank. Returns the errors with which the start would fail: an unknown architecture, bad sizes, an unknown
// dtype, too little memory. Reads only the properties and the amount of free memory of `device`, and takes no memory.
Result<EnginePlan> plan_engine(const EngineOptions& options, Device& device, int rank = 0);

// Return the device's default limits on the tokens of a forward and on the running requests. For a model that keeps a
// state for each request, plan_engine() lowers the default number of requests if fewer states fit.
std::int64_t default_chunk(const DeviceProperties& device);
std::int64_t default_running(const DeviceProperties& device);

}  // namespace tessera
