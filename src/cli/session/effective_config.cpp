#include "tessera/cli/session/effective_config.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "tessera/base/log.h"
#include "tessera/cli/output.h"
#include "tessera/engine/plan/rank_places.h"
#include "tessera/engine/ranks/engine_rank.h"
#include "tessera/options/config_file.h"

namespace tessera::cli {
namespace {

Json list_of(const auto& items) {
  if (items.empty()) return {};
  Json list = Json::array();
  for (const auto& item : items) list.push_back(item);
  return list;
}

// Returns the type's name as --dtype and --kv-cache-dtype spell it.
std::string_view dtype_text(ir::DType dtype) {
  switch (dtype) {
    case ir::DType::kBFloat16: return "bfloat16";
    case ir::DType::kFloat16: return "float16";
    case ir::DType::kFloat8E4M3: return "fp8_e4m3";
    case ir::DType::kUInt8: return "int8";
    default: return "float32";
  }
}

std::string_view source_text(FlagSource source) {
  switch (source) {
    case FlagSource::kDefault: return "default";
    case FlagSource::kFile: return "file";
    case FlagSource::kCommandLine: return "command line";
    case FlagSource::kEnvironment: return "environment";
  }
  return "";
}

}  // namespace

const EngineOptions* engine_of(const Command& command) {
  return std::visit(
      [](const auto& options) -> const EngineOptions* {
        if constexpr (requires { options.engine; }) {
          return options.engine.model_path.empty() ? nullptr : &options.engine;
        } else {
          return nullptr;
        }
      },
      command);
}

std::vector<std::pair<std::string, Json>> planned_values(const EnginePlan& plan) {
  const RunnerOptions& runner = plan.runner;
  std::vector<std::pair<std::string, Json>> values = {
      {"--dtype", dtype_text(plan.model.dtype)},
      {"--kv-cache-dtype", dtype_text(plan.model.kv_cache_type())},
      {"--ep-size", std::int64_t{plan.model.ep_size}},
      {"--context-length", runner.context_length},
      {"--chunked-prefill-size", runner.max_tokens},
      {"--max-running-requests", plan.max_running},
      {"--max-total-tokens", plan.memory.context_tokens},
      {"--piecewise-cuda-graph-tokens", list_of(runner.prefill_sizes)},
      {"--cuda-graph-bs", list_of(runner.decode_sizes)},
      {"--cuda-graph-split-ops", list_of(runner.split_ops)},
  };
  if (!runner.prefill_sizes.empty())
    values.emplace_back("--piecewise-cuda-graph-max-tokens", runner.prefill_sizes.back());
  if (!runner.decode_sizes.empty()) values.emplace_back("--cuda-graph-max-bs", runner.decode_sizes.back());
  if (plan.config.images)
    values.emplace_back("--image-cache-bytes", runner.embedding_rows * plan.config.embedding_row_values() *
                                                   static_cast<std::int64_t>(ir::dtype_size(plan.model.dtype)));
  if (!runner.graphs.prefill || runner.prefill_sizes.empty())
    values.emplace_back("--disable-piecewise-cuda-graph", true);
  return values;
}

Json effective_config(const std::vector<FlagValue>& values, const EnginePlan* plan) {
  const std::vector<std::pair<std::string, Json>> planned =
      plan == nullptr ? std::vector<std::pair<std::string, Json>>{} : planned_values(*plan);
  Json config = Json::object();
  Json sources = Json::object();
  for (const auto& [flag, value, source] : values) {
    if (flag == "--print-config") continue;
    const std::string key = flag.substr(2);
    const auto decided = std::find_if(planned.begin(), planned.end(), [&](const auto& p) { return p.first == flag; });
    const bool differs = decided != planned.end() && decided->second != value;
    config.set(key, differs ? decided->second : value);
    sources.set(key, differs ? "engine" : source_text(source));
  }
  config.set(std::string(kSourcesKey), std::move(sources));
  return config;
}

Status print_config(const CommandLine& line) {
  std::optional<EnginePlan> plan;
  if (const EngineOptions* engine = engine_of(line.command); engine != nullptr) {
    const std::unique_ptr<Device> device = TRY(open_device(*engine));
    EngineOptions known = *engine;
    plan = TRY(plan_as_ranks(known, *device));
    for (const std::string& note : plan->notes) log_warn("engine", "{}", note);
  }
  return write_output(effective_config(line.values, plan ? &*plan : nullptr).dump(2) + "\n");
}

}  // namespace tessera::cli
