#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "tessera/cli/bench/bench.h"
#include "tessera/cli/output.h"
#include "tessera/cli/session/session.h"
#include "tessera/cli/table.h"
#include "tessera/server/report/start_info.h"

namespace tessera::cli {
namespace {

// Returns a table of the start's phases up to the first token.
std::string phases_text(const Engine& engine) {
  Table table({"phase", ">begin ms", ">end ms", ">ms"});
  const auto row = [&](const Timeline::Phase& phase) {
    const auto ms = [](double seconds) { return fmt::format("{:.1f}", 1e3 * seconds); };
    table.add({phase.name, ms(phase.begin_s), ms(phase.end_s), ms(phase.seconds())});
  };
  for (const Timeline::Phase& phase : engine.start().phases()) row(phase);
  if (engine.first_token()) row(*engine.first_token());
  return fmt::format("{}  started in {:.1f} ms from the process's start, {:.1f} of them in no phase\n", table.text(),
                     1e3 * engine.start().end_s(), 1e3 * engine.start().uncovered_s());
}

// Generates one token for a short prompt. The engine records the time of this token.
Status first_token(Engine& engine) {
  constexpr std::int64_t kPrompt = 16;
  const Request request{
      .prompt = std::vector<TokenId>(static_cast<std::size_t>(std::min(kPrompt, engine.max_request_tokens() - 1))),
      .stop = {.max_new_tokens = 1, .ignore_eos = true}};
  return engine.run({&request, 1}).status();
}

std::int64_t captured_sizes(const ModelRunner& runner) {
  return std::ssize(runner.prefill().report().captured) + std::ssize(runner.decode().report().captured);
}

// Returns the rate, in bytes per second, of copies from the fastest host memory to the device. Weights cannot be loaded
// faster than this. Returns 0 on a CPU, where weights are not copied.
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
  const std::unique_ptr<Engine> engine = TRY(Engine::create(engine_options));
  const ModelRunner& runner = engine->runner();
  using enum MemoryUse;
  TRY(first_token(*engine));
  const std::int64_t at_first_token = captured_sizes(runner);
  const Timeline::Clock::time_point idle = Timeline::Clock::now();
  while (engine->captures_when_idle()) TRY(engine->idle_work());
  const double idle_s = std::chrono::duration<double>(Timeline::Clock::now() - idle).count();
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
  json.set("start", start_json(*engine));
  json.set("load_s", engine->load_seconds()).set("capture_s", engine->capture_seconds());
  json.set("sizes_at_first_token", at_first_token).set("idle_capture_s", idle_s);
  json.set("load_bytes_per_s", load_rate).set("host_copy_bytes_per_s", host_copies);
  json.set("runners", std::move(runners)).set("arena_bytes", memory[kArena]).set("weights_bytes", memory[kWeights]);
  json.set("kv_cache_bytes", memory[kKvCache]).set("graph_bytes", memory[kGraphObjects]);
  json.set("workspace_bytes", memory[kWorkspace]).set("static_input_bytes", memory[kStaticInputs]);
  json.set("communication_bytes", memory[kCommunication]);
  if (options.json) return write_output(json.dump() + "\n");
  const std::string pinned =
      host_copies > 0 ? fmt::format("; copies from pinned memory: {} GB/s", number_text(host_copies / 1e9)) : "";
  const std::int64_t later = captured_sizes(runner) - at_first_token;
  const std::string when_idle =
      later > 0
          ? fmt::format("  {} of {} sizes captured before the first token; the others took {:.1f} ms, when idle\n",
                        at_first_token, at_first_token + later, 1e3 * idle_s)
          : "";
  return write_output(
      fmt::format("{}{}{}  weights at {} GB/s{}\n"
                  "  memory: weights {}, KV cache {}, arena {}, workspace {}, inputs {}, graphs {}\n\n{}",
                  bench_title(options, *engine), phases_text(*engine), when_idle, number_text(load_rate / 1e9), pinned,
                  bytes_text(memory[kWeights]), bytes_text(memory[kKvCache]), bytes_text(memory[kArena]),
                  bytes_text(memory[kWorkspace]), bytes_text(memory[kStaticInputs]), bytes_text(memory[kGraphObjects]),
                  table.text()));
}

}  // namespace tessera::cli
