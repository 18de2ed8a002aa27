#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "tessera/cli/bench.h"
#include "tessera/cli/output.h"
#include "tessera/cli/session.h"
#include "tessera/cli/table.h"
#include "tessera/ops/backend.h"

namespace tessera::cli {
namespace {

// Seconds from options and config.json to a plan: graphs built, ladders and memory decided.
Result<double> time_plan(const EngineOptions& options) {
  const std::unique_ptr<Device> device = TRY(open_device(options.device));
  const auto start = std::chrono::steady_clock::now();
  TRY(plan_engine(options, device->properties()));
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Status bench_startup(const BenchOptions& options) {
  EngineOptions engine_options = options.engine;
  engine_options.show_progress = progress_wanted();
  const double plan_seconds = TRY(time_plan(engine_options));
  const std::unique_ptr<Engine> engine = TRY(Engine::create(engine_options));
  const ModelRunner& runner = engine->runner();
  const MemoryLedger memory = runner.memory();

  Table table({"runner", ">sizes", ">graphs", ">nodes", ">graph bytes", ">seconds"});
  Json runners = Json::object();
  for (const GraphRunner* graphs : {&runner.prefill(), &runner.decode()}) {
    const CaptureReport& report = graphs->report();
    const std::int64_t count = graphs->executable().num_captured() * graphs->executable().graph().num_pieces();
    table.add({graphs->name(), count_text(std::ssize(report.captured)), count_text(count),
               count_text(report.graphs.nodes), bytes_text(report.graphs.bytes), number_text(report.seconds)});
    Json json = Json::object();
    json.set("sizes", report.captured.size()).set("graphs", count).set("nodes", report.graphs.nodes);
    json.set("graph_bytes", report.graphs.bytes).set("seconds", report.seconds);
    runners.set(graphs->name(), std::move(json));
  }
  Json json = bench_header(options, *engine);
  json.set("plan_s", plan_seconds).set("load_s", engine->load_seconds()).set("capture_s", engine->capture_seconds());
  json.set("runners", std::move(runners)).set("arena_bytes", memory.arena).set("weights_bytes", memory.weights);
  json.set("kv_cache_bytes", memory.kv_cache).set("graph_bytes", memory.graph_objects);
  if (options.json) return write_output(json.dump() + "\n");
  return write_output(fmt::format(
      "{}  plan     {} ms\n  load     {} s, plan included: weights {}, KV cache {}\n  capture  {} s: arena {}\n\n{}",
      bench_title(options, *engine), number_text(1e3 * plan_seconds), number_text(engine->load_seconds()),
      bytes_text(memory.weights), bytes_text(memory.kv_cache), number_text(engine->capture_seconds()),
      bytes_text(memory.arena), table.text()));
}

}  // namespace tessera::cli
