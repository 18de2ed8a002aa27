// What an engine will do, decided from options and config.json alone: model, sizes, ladders, rules,
// memory. `tessera explain` shows it; Engine::create carries it out.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/model/config.h"
#include "tessera/model/model.h"
#include "tessera/model/weights.h"
#include "tessera/piecewise/ladder.h"
#include "tessera/runner/model_runner.h"
#include "tessera/runner/rules.h"

namespace tessera {

enum class LoadFormat : std::uint8_t { kAuto, kSafetensors, kDummy };  // kAuto: safetensors

// Graph options as the flags of the same names have them.
struct GraphOptions {
  GraphMode mode = GraphMode::kFullAndPiecewise;
  bool disable_cuda_graph = false;
  bool disable_piecewise_cuda_graph = false;
  bool enforce_piecewise_cuda_graph = false;
  bool disable_cuda_graph_padding = false;
  PrefillSchedule schedule = PrefillSchedule::kDefault;
  std::int64_t piecewise_max_tokens = 0;       // 0: the chunk size
  std::vector<std::int64_t> piecewise_tokens;  // empty: the schedule
  std::int64_t decode_max_batch = 0;           // 0: 256
  std::vector<std::int64_t> decode_batches;    // empty: the schedule
  std::vector<std::string> split_ops;          // empty: what operators declare
};

struct EngineOptions {
  std::string model_path{};      // a model folder, or a config.json
  std::string tokenizer_path{};  // a folder or tokenizer.json; empty: in the model's folder
  std::string device = "cpu";
  std::string dtype = "auto";  // auto, float32, bfloat16, float16
  LoadFormat load_format = LoadFormat::kAuto;
  std::int64_t context_length = 0;        // 0: the model's
  std::int64_t chunked_prefill_size = 0;  // tokens of a forward; 0: 2048 on the CPU, 8192 on a GPU
  std::int64_t max_running_requests = 0;  // 0: 256
  std::int64_t max_queued_requests = 0;   // that wait for room; 0: any number
  std::int64_t max_total_tokens = 0;      // of the KV cache; 0: what memory allows
  std::int64_t page_size = 16;
  bool disable_radix_cache = false;  // no prompt is taken from the prefix cache
  bool deterministic = false;        // the same bits whatever else is in the batch
  double mem_fraction_static = 0;    // of the memory, for weights and KV cache; 0: chosen
  std::uint64_t random_seed = 0;     // 0: drawn
  // Schedule and enqueue a step while the one before it runs; none: where the device runs beside the host.
  std::optional<bool> overlap_schedule{};
  GraphOptions graphs{};
  MemoryPlanKind memory_plan = MemoryPlanKind::kPlanned;
  bool show_progress = false;
};

struct EnginePlan {
  ModelConfig config;
  ModelOptions model;
  ModelGraphs graphs;
  RunnerOptions runner;
  std::vector<std::string> notes;  // one line each: rules that applied, sizes dropped, caps
};

// Fails where the command would: unknown architecture, bad sizes, a dtype or device that is not there.
Result<EnginePlan> plan_engine(const EngineOptions& options, const DeviceProperties& device);

// The model's weights as the options say: of its folder, or random.
Result<WeightSource> weight_source(const EngineOptions& options);
// The folder of config.json and what lies beside it.
std::string model_folder(const std::string& model_path);

}  // namespace tessera
