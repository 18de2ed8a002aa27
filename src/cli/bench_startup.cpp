#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "tessera/cli/bench.h"
#include "tessera/cli/output.h"
#include "tessera/cli/session.h"
#include "tessera/cli/table.h"

namespace tessera::cli {
namespace {

// Seconds from options and config.json to a plan: graphs built, ladders and memory decided.
Result<double> time_plan(const EngineOptions& options, Device& device) {
  const auto start = std::chrono::steady_clock::now();
  TRY(plan_engine(options, device));
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Bytes a second from the host's fastest memory to the device: the most that loading weights could do. 0 on a CPU,
// whose weights are not copied.
Result<double> measure_host_copies(Device& device) {
  if (device.properties().on_host) return 0.0;
  constexpr std::size_t kBytes = std::size_t{256} << 20;
  constexpr int kCopies = 8;
  const std::unique_ptr<HostAllocation> from = TRY(device.allocate_host(kBytes, "bandwidth test"));
  const std::unique_ptr<Allocation> to = TRY(device.allocate(kBytes, "bandwidth test"));
  const std::unique_ptr<Event> begin = TRY(device.create_event(EventKind::kTime));
  const std::unique_ptr<Event> end = TRY(device.create_event(EventKind::kTime));
  const std::unique_ptr<Stream> stream = TRY(device.create_stream("bandwidth test"));
  TRY(stream->upload(to->data(), from->data(), kBytes));
  TRY(stream->record(*begin));
  for (int i = 0; i < kCopies; ++i) TRY(stream->upload(to->data(), from->data(), kBytes));
  TRY(stream->record(*end));
  TRY(stream->synchronize());
  const double milliseconds = TRY(end->milliseconds_since(*begin));
  return 1e3 * kCopies * static_cast<double>(kBytes) / milliseconds;
}

}  // namespace

Status bench_startup(const BenchOptions& options) {
  EngineOptions engine_options = options.engine;
  engine_options.show_progress = progress_wanted();
  std::unique_ptr<Device> device = TRY(engine_options.registry->devices.open(engine_options.device));
  const double plan_seconds = TRY(time_plan(engine_options, *device));
  const std::unique_ptr<Engine> engine = TRY(Engine::create(engine_options, std::move(device)));
  const ModelRunner& runner = engine->runner();
  using enum MemoryUse;
  const MemoryReport memory = runner.memory();

  Table table({"runner", ">sizes", ">graphs", ">nodes", ">seconds"});
  Json runners = Json::object();
  for (const GraphRunner* graphs : {&runner.prefill(), &runner.decode()}) {
    const CaptureReport& report = graphs->report();
    const std::int64_t count = graphs->executable().num_captured() * graphs->executable().graph().num_pieces();
    table.add({std::string(graphs->name()), count_text(std::ssize(report.captured)), count_text(count),
               count_text(report.graphs.nodes), number_text(report.seconds)});
    Json json = Json::object();
    json.set("sizes", report.captured.size()).set("graphs", count).set("nodes", report.graphs.nodes);
    json.set("graph_bytes", report.graphs.bytes).set("seconds", report.seconds);
    runners.set(std::string(graphs->name()), std::move(json));
  }
  Json json = bench_header(options, *engine);
  const double load_rate = static_cast<double>(memory[kWeights]) / engine->load_seconds();
  const double host_copies = TRY(measure_host_copies(runner.device()));
  json.set("plan_s", plan_seconds).set("prepare_s", engine->prepare_seconds());
  json.set("load_s", engine->load_seconds()).set("capture_s", engine->capture_seconds());
  json.set("load_bytes_per_s", load_rate).set("host_copy_bytes_per_s", host_copies);
  json.set("runners", std::move(runners)).set("arena_bytes", memory[kArena]).set("weights_bytes", memory[kWeights]);
  json.set("kv_cache_bytes", memory[kKvCache]).set("graph_bytes", memory[kGraphObjects]);
  json.set("workspace_bytes", memory[kWorkspace]).set("static_input_bytes", memory[kStaticInputs]);
  if (options.json) return write_output(json.dump() + "\n");
  const std::string pinned =
      host_copies > 0 ? fmt::format("; copies from pinned memory: {} GB/s", number_text(host_copies / 1e9)) : "";
  return write_output(fmt::format(
      "{}  plan     {} ms\n  prepare  {} s: device, plan and memory\n  load     {} s: weights at {} GB/s{}\n"
      "  capture  {} s\n  memory   weights {}, KV cache {}, arena {}, workspace {}, inputs {}, graphs {}\n\n{}",
      bench_title(options, *engine), number_text(1e3 * plan_seconds), number_text(engine->prepare_seconds()),
      number_text(engine->load_seconds()), number_text(load_rate / 1e9), pinned, number_text(engine->capture_seconds()),
      bytes_text(memory[kWeights]), bytes_text(memory[kKvCache]), bytes_text(memory[kArena]),
      bytes_text(memory[kWorkspace]), bytes_text(memory[kStaticInputs]), bytes_text(memory[kGraphObjects]),
      table.text()));
}

}  // namespace tessera::cli
