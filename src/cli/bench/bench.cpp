#include "tessera/cli/bench/bench.h"
#include "tessera/cli/bench/bench_batches.h"

#include <fmt/format.h>

#include "tessera/cli/commands.h"
#include "tessera/cli/session/session.h"
#include "tessera/device/cpu/parallel.h"
#include "tessera/engine/plan/rank_places.h"

namespace tessera::cli {
namespace {

std::string_view kind_name(BenchKind kind) {
  switch (kind) {
    case BenchKind::kPrefill: return "prefill";
    case BenchKind::kDecode: return "decode";
    case BenchKind::kGraphs: return "graphs";
    case BenchKind::kStartup: return "startup";
    case BenchKind::kProfile: return "profile";
    case BenchKind::kVision: return "vision";
  }
  return "";
}

std::string_view dtype_of(const Engine& engine) {
  const StitchingGraph& graph = engine.runner().prefill().executable().graph();
  return ir::dtype_name(graph.slots[static_cast<std::size_t>(graph.outputs[0])].type.dtype);
}

}  // namespace

EngineOptions bench_engine_options(const BenchOptions& options) {
  EngineOptions engine = with_adapter_slots(options.engine, options.adapters);
  engine.show_progress = progress_wanted();
  if (engine.chunked_prefill_size == 0 && !options.num_tokens.empty() && options.num_tokens.back() > 2048)
    engine.chunked_prefill_size = options.num_tokens.back();
  return engine;
}

Status refuse_ranks(const BenchOptions& options, std::string_view bench, std::string_view what) {
  const bool stages = options.engine.pp_size > 1;
  if (layout_of(options.engine).ranks() == 1) return ok_status();
  return unimplemented(fmt::format("--{}-size: {} is not accepted by {}, which times {}; accepted: 1",
                                   stages ? "pp" : "tp", stages ? options.engine.pp_size : options.engine.tp_size,
                                   bench, what));
}

Json bench_header(const BenchOptions& options, const Engine& engine) {
  Json json = Json::object();
  json.set("bench", kind_name(options.kind)).set("model", options.engine.model_path);
  json.set("parameters", engine.parameters()).set("dtype", dtype_of(engine));
  json.set("ranks", layout_of(options.engine).ranks()).set("stages", options.engine.pp_size);
  json.set("device", options.engine.device).set("device_name", engine.runner().device().properties().name);
  json.set("threads", worker_threads()).set("repeat", options.repeat);
  return json;
}

std::string bench_title(const BenchOptions& options, const Engine& engine) {
  const int ranks = layout_of(options.engine).ranks();
  const int stages = options.engine.pp_size;
  return fmt::format("{} of {}: {:.1f} M parameters, {}, on {}{}{}\n\n", kind_name(options.kind),
                     options.engine.model_path, static_cast<double>(engine.parameters()) / 1e6, dtype_of(engine),
                     ranks > 1 ? fmt::format("{} × ", ranks) : "", engine.runner().device().properties().name,
                     stages > 1 ? fmt::format(" in {} stages", stages) : "");
}

Status run_bench(const BenchOptions& options) {
  switch (options.kind) {
    case BenchKind::kPrefill: return bench_prefill(options);
    case BenchKind::kDecode: return bench_decode(options);
    case BenchKind::kGraphs: return bench_graphs(options);
    case BenchKind::kStartup: return bench_startup(options);
    case BenchKind::kProfile: return bench_profile(options);
    case BenchKind::kVision: return bench_vision(options);
  }
  return internal_error("unknown benchmark");
}

}  // namespace tessera::cli
