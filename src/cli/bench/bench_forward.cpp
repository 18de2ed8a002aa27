// Measures prefills and decodes of given sizes. Times the kernels alone, both eagerly and through graphs, and also
// times the whole forward.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "tessera/cli/bench/bench.h"
#include "tessera/cli/bench/bench_batches.h"
#include "tessera/cli/bench/memory_bandwidth.h"
#include "tessera/cli/bench/step_bytes.h"
#include "tessera/cli/output.h"
#include "tessera/cli/session/session.h"
#include "tessera/cli/table.h"
#include "tessera/runner/ranks/rank_order.h"

namespace tessera::cli {
namespace {

constexpr int kWarmUps = 5;

using Clock = std::chrono::steady_clock;
double ms_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

// The median times of the kernels when they run in one way (eagerly or as a replay), in milliseconds.
struct Timing {
  double wall = 0;    // from the first call until the device is done
  double device = 0;  // from the first to the last kernel, measured by the device
  double host = 0;    // until everything is enqueued, measured by the host
};

// The times of repeated runs of the same work.
struct Samples {
  std::vector<double> wall, device, host;
  Timing medians() && { return {median(std::move(wall)), median(std::move(device)), median(std::move(host))}; }
};

// A function that enqueues the kernels of one forward and then records `end`.
using Way = std::function<Status(Event& end)>;

// Runs the two ways alternately, so that clock rates and temperature are similar for both. Waits for the device after
// each run.
Result<std::array<Timing, 2>> time_in_turn(ModelRunner& runner, std::int64_t repeat, const std::array<Way, 2>& ways) {
  const std::unique_ptr<Event> begin = TRY(runner.device().create_event(EventKind::kTime));
  const std::unique_ptr<Event> end = TRY(runner.device().create_event(EventKind::kTime));
  std::array<Samples, 2> samples;
  for (std::int64_t i = -kWarmUps; i < repeat; ++i) {
    for (std::size_t way = 0; way < ways.size(); ++way) {
      const Clock::time_point start = Clock::now();
      TRY(runner.stream().record(*begin));
      TRY(ways[way](*end));
      const Clock::time_point enqueued = Clock::now();
      TRY(runner.stream().synchronize());
      const Clock::time_point done = Clock::now();
      if (i < 0) continue;
      samples[way].wall.push_back(ms_between(start, done));
      samples[way].device.push_back(TRY(end->milliseconds_since(*begin)));
      samples[way].host.push_back(ms_between(start, enqueued));
    }
  }
  return std::array{std::move(samples[0]).medians(), std::move(samples[1]).medians()};
}

struct Comparison {
  std::int64_t tokens = 0;
  Timing eager;
  Timing graph;
  double forward_ms = 0;    // a whole forward: staging, plans, graphs, and the download of sampled ids
  std::int64_t cuts = 0;    // number of cuts between graphs
  std::string attention{};  // the attention kernels that were used
  Decision decision;
  double speedup() const { return eager.wall / graph.wall; }
  double per_second(double ms) const { return 1e3 * static_cast<double>(tokens) / ms; }
};

// Runs one runner's kernels on all ranks. Records `end` before waiting for the other ranks.
Status run_part(ModelRunner& runner, const GraphRunner& part, std::int64_t size, std::optional<GraphForm> replayed,
                Event* end) {
  const RankOrder order{.kind = replayed ? RankOrderKind::kReplay : RankOrderKind::kRunEagerly,
                        .role = part.spec().role,
                        .size = size,
                        .form = replayed.value_or(GraphForm::kPieces)};
  return runner.together(order, [&]() -> Status {
    TRY(replayed ? part.replay(size, *replayed) : part.run(size));
    return end != nullptr ? runner.stream().record(*end) : ok_status();
  });
}

// Runs the kernels of one forward: body and head, or the decode graph. Precondition: the forward's inputs are staged.
Status run_kernels(ModelRunner& runner, const ForwardBatch& batch, const Decision& decision, bool eager, Event& end) {
  std::optional<GraphForm> replayed;
  if (!eager && decision.runner != RunnerKind::kEager) replayed = decision.form;
  if (decision.runner == RunnerKind::kDecode)
    return run_part(runner, runner_of(runner, RunnerRole::kDecode, decision), decision.size, replayed, &end);
  TRY(run_part(runner, runner_of(runner, RunnerRole::kPrefill, decision), decision.size, replayed, nullptr));
  const GraphRunner& head = runner_of(runner, RunnerRole::kHead, decision);
  return run_part(runner, head, head.padded_size(batch.num_wanted_rows()), std::nullopt, &end);
}

Result<Comparison> compare(ModelRunner& runner, const ForwardBatch& batch, std::int64_t repeat) {
  const std::vector<SampleRow> greedy(batch.wanted_rows.size());
  Comparison result{.tokens = batch.num_tokens(), .eager = {}, .graph = {}, .decision = {}};
  std::vector<double> forwards;
  for (std::int64_t i = -kWarmUps; i < repeat; ++i) {
    const Clock::time_point start = Clock::now();
    result.decision = TRY(runner.forward({.batch = batch, .sampling = greedy, .logits = {}})).decision;
    if (i >= 0) forwards.push_back(ms_between(start, Clock::now()));
  }
  result.forward_ms = median(std::move(forwards));
  const auto enqueue = [&](bool eager) {
    return [&, eager](Event& end) { return run_kernels(runner, batch, result.decision, eager, end); };
  };
  const std::array<Timing, 2> timings =
      TRY(time_in_turn(runner, repeat, {enqueue(/*eager=*/false), enqueue(/*eager=*/true)}));
  result.graph = timings[0];
  result.eager = timings[1];
  if (result.decision.runner == RunnerKind::kPrefill && result.decision.form == GraphForm::kPieces)
    result.cuts = runner.prefill().executable().graph().num_split_ops();
  result.attention =
      runner.planned_kernels(result.decision.runner == RunnerKind::kDecode ? BatchKind::kDecode : BatchKind::kExtend);
  return result;
}

std::string graph_name(const Decision& decision) {
  if (decision.runner == RunnerKind::kEager) return "eager";
  return fmt::format("{} {}", runner_kind_name(decision.runner), decision.size);
}

Json row_json(const Comparison& c) {
  Json row = Json::object();
  row.set("tokens", c.tokens).set("eager_ms", c.eager.wall).set("graph_ms", c.graph.wall);
  row.set("eager_device_ms", c.eager.device).set("graph_device_ms", c.graph.device);
  row.set("eager_host_ms", c.eager.host).set("graph_host_ms", c.graph.host).set("forward_ms", c.forward_ms);
  row.set("eager_tokens_per_s", c.per_second(c.eager.wall)).set("graph_tokens_per_s", c.per_second(c.graph.wall));
  row.set("cuts", c.cuts).set("attention", c.attention);
  row.set("speedup", c.speedup()).set("runner", runner_kind_name(c.decision.runner)).set("size", c.decision.size);
  row.set("padding", c.decision.padding).set("reason", reason_name(c.decision.reason));
  return row;
}

// Returns the requested sizes. If none were requested, returns those of the sizes `usual` that are at most `most`.
std::vector<std::int64_t> sizes_or(const std::vector<std::int64_t>& asked, std::vector<std::int64_t> usual,
                                   std::int64_t most) {
  if (!asked.empty()) return asked;
  std::erase_if(usual, [most](std::int64_t size) { return size > most; });
  return usual;
}

}  // namespace

Status bench_prefill(const BenchOptions& options) {
  const std::unique_ptr<Engine> engine = TRY(Engine::create(bench_engine_options(options)));
  ModelRunner& runner = engine->runner();
  TRY(runner.capture_rest());  // otherwise an uncaptured size would be measured with padding
  TRY(runner.fill_adapters());

  Table table({">tokens", ">eager ms", ">graph ms", ">device ms", ">host ms", ">forward ms", ">tok/s", ">speed-up",
               "graph", ">cuts", ">padding", "attention"});
  Json rows = Json::array();
  for (const std::int64_t tokens :
       sizes_or(options.num_tokens, {16, 64, 256, 1024, 2048}, max_prefill_tokens(runner))) {
    ForwardBatch batch = TRY(make_prefill_batch(runner, tokens));
    assign_adapters(batch, options.adapters);
    const Comparison c = TRY(compare(runner, batch, options.repeat));
    table.add({count_text(tokens), number_text(c.eager.wall), number_text(c.graph.wall), number_text(c.graph.device),
               number_text(c.graph.host), number_text(c.forward_ms), number_text(c.per_second(c.graph.wall)),
               fmt::format("{:.2f}x", c.speedup()), graph_name(c.decision), count_text(c.cuts),
               count_text(c.decision.padding), c.attention});
    rows.push_back(row_json(c));
  }
  Json json = bench_header(options, *engine);
  json.set("rows", std::move(rows));
  return write_output(options.json ? json.dump() + "\n" : bench_title(options, *engine) + table.text());
}

Status bench_decode(const BenchOptions& options) {
  EngineOptions engine_options = with_adapter_slots(options.engine, options.adapters);
  engine_options.show_progress = progress_wanted();
  const std::vector<StagePart> stages = TRY(stage_parts(engine_options));
  const std::unique_ptr<Engine> engine = TRY(Engine::create(engine_options));
  ModelRunner& runner = engine->runner();
  TRY(runner.capture_rest());  // otherwise an uncaptured size would be measured with padding
  TRY(runner.fill_adapters());
  if (options.context > runner.options().context_length) {
    return invalid_argument(fmt::format("--context: {} is more than the context length of {}", options.context,
                                        runner.options().context_length));
  }
  const MemoryBandwidth memory = TRY(measure_memory_bandwidth(runner.device()));

  Table table({">requests", ">eager ms", ">graph ms", ">device ms", ">host ms", ">forward ms", ">tok/s", ">speed-up",
               "graph", ">read", ">GB/s", ">of memory", "attention"});
  Json rows = Json::array();
  for (const std::int64_t requests :
       sizes_or(options.batch_sizes, {1, 4, 16, 64}, max_decode_requests(runner, options.context))) {
    ForwardBatch batch = TRY(make_decode_batch(runner, requests, options.context));
    assign_adapters(batch, options.adapters);
    const Comparison c = TRY(compare(runner, batch, options.repeat));
    const std::int64_t bytes = TRY(step_bytes(*engine, stages, {.requests = requests, .context = options.context}));
    const double rate = 1e3 * static_cast<double>(bytes) / c.graph.wall;
    const double share = rate / memory.bytes_per_second;
    table.add({count_text(requests), number_text(c.eager.wall), number_text(c.graph.wall), number_text(c.graph.device),
               number_text(c.graph.host), number_text(c.forward_ms), number_text(c.per_second(c.graph.wall)),
               fmt::format("{:.2f}x", c.speedup()), graph_name(c.decision), bytes_text(bytes), number_text(rate / 1e9),
               fmt::format("{:.0f} %", 100 * share), c.attention});
    Json row = row_json(c);
    row.set("bytes_read", bytes).set("bytes_per_s", rate).set("memory_share", share);
    rows.push_back(std::move(row));
  }
  Json json = bench_header(options, *engine);
  json.set("context", options.context).set("memory_bytes_per_s", memory.bytes_per_second);
  json.set("rows", std::move(rows));
  if (options.json) return write_output(json.dump() + "\n");
  return write_output(fmt::format(
      "{}{}\n  {} tokens cached by each request\n  of memory: the share of the {} GB/s at which this "
      "machine reads memory; above 100 % if its cache keeps weights between steps\n",
      bench_title(options, *engine), table.text(), options.context, number_text(memory.bytes_per_second / 1e9)));
}

}  // namespace tessera::cli
