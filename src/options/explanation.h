// Gathers the facts that the command `explain` shows, and writes them as JSON. The facts come from the options, the
// model's files, the device's properties and the measurements of earlier starts. No weights are loaded.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/engine/engine_options.h"
#include "tessera/engine/plan/engine_plan.h"
#include "tessera/options/explained_schedules.h"
#include "tessera/options/flags.h"
#include "tessera/piecewise/stitching.h"
#include "tessera/runner/dispatch/dispatch.h"
#include "tessera/runner/memory/prediction.h"
#include "tessera/runner/vision/vision_choice.h"

namespace tessera {

// How dispatch would run a batch, assuming that every size is captured.
struct DispatchExample {
  std::string batch;  // "prefill" or "decode"
  std::int64_t tokens = 0;
  Decision decision;
};

// How dispatch would run an image of this many tokens.
struct ImageExample {
  std::int64_t tokens = 0;
  std::int64_t patches = 0;
  VisionChoice choice;
};

// The next-token layer that makes draft tokens in speculative decoding (EnginePlan::drafts).
struct ExplainedDraftLayer {
  std::int64_t layer_ops = 0;
  std::int64_t head_ops = 0;   // number of operators of the head and the sampler
  std::int64_t head_ids = 0;   // ids that the head can choose
  std::int64_t own_bytes = 0;  // bytes of the weights that only the layer and its head read
  std::int64_t hidden_rows = 0;
  std::int64_t hidden_bytes = 0;  // memory of the hidden states from which the layer makes draft tokens
};

// A tensor as a GGUF file stores it.
struct ExplainedTensor {
  std::string name;
  std::string type;                 // "Q4_K", …
  std::vector<std::int64_t> shape;  // rows first
  std::int64_t bytes = 0;
};

struct Explanation {
  std::string model_path;
  std::string device;  // the value of --device
  EnginePlan plan;
  StitchingGraph stitching;              // the graph from tokens to hidden states, cut as prefill runs it
  std::vector<std::int64_t> full_sizes;  // prefill sizes that earlier starts measured to be faster as one graph
  std::int64_t decode_ops = 0;
  std::int64_t weight_bytes = 0;
  std::vector<ExplainedTensor> tensors;  // the file's tensors, if the model is in GGUF files
  std::optional<ExplainedDraftLayer> draft_layer;
  std::vector<ExplainedSchedule> schedules;
  MemoryReport memory;                    // predicted for the case that every size is captured
  std::vector<DispatchExample> examples;  // set with --num-tokens
  std::optional<ImageExample> image;      // set with --num-tokens if the model reads images
};

// Explains how an engine with these options would run. `flags` are the command's flags. The notes call each option by
// the name of its flag.
Result<Explanation> explain(const EngineOptions& options, std::optional<std::int64_t> num_tokens,
                            std::span<const FlagValue> flags);

// Returns whether a rule of piecewise_rules() applied.
bool rule_applied(const Explanation& explanation, const Rule& rule);

Json to_json(const Explanation& explanation);

}  // namespace tessera
