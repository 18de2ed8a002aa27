// Forwards of one shape, eagerly and through graphs in turn, so that both see the same machine.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "tessera/cli/bench.h"
#include "tessera/cli/bench_batches.h"
#include "tessera/cli/memory_bandwidth.h"
#include "tessera/cli/output.h"
#include "tessera/cli/session.h"
#include "tessera/cli/table.h"

namespace tessera::cli {
namespace {

constexpr int kWarmUps = 2;

struct Comparison {
  std::int64_t tokens = 0;
  double eager_ms = 0;  // medians
  double graph_ms = 0;
  Decision decision;  // of the run that was not forced to be eager
  double speedup() const { return eager_ms / graph_ms; }
  double per_second(double ms) const { return 1e3 * static_cast<double>(tokens) / ms; }
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Result<Comparison> compare(ModelRunner& runner, const ForwardBatch& batch, std::int64_t repeat) {
  const std::vector<SampleRow> greedy(batch.wanted_rows.size());
  Comparison result{.tokens = batch.num_tokens(), .eager_ms = 0, .graph_ms = 0, .decision = {}};
  const auto run = [&](bool force_eager) -> Result<double> {
    const auto start = std::chrono::steady_clock::now();
    const ForwardOutputs outputs =
        TRY(runner.forward({.batch = batch, .sampling = greedy, .logits = {}, .force_eager = force_eager}));
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    if (!force_eager) result.decision = outputs.decision;
    return ms;
  };
  std::vector<double> eager;
  std::vector<double> graph;
  for (std::int64_t i = -kWarmUps; i < repeat; ++i) {
    const double eager_ms = TRY(run(/*force_eager=*/true));
    const double graph_ms = TRY(run(/*force_eager=*/false));
    if (i < 0) continue;
    eager.push_back(eager_ms);
    graph.push_back(graph_ms);
  }
  result.eager_ms = median(std::move(eager));
  result.graph_ms = median(std::move(graph));
  return result;
}

std::string graph_name(const Decision& decision) {
  if (decision.runner == RunnerKind::kEager) return "eager";
  return fmt::format("{} {}", runner_kind_name(decision.runner), decision.size);
}

Json row_json(const Comparison& c) {
  Json row = Json::object();
  row.set("tokens", c.tokens).set("eager_ms", c.eager_ms).set("graph_ms", c.graph_ms);
  row.set("eager_tokens_per_s", c.per_second(c.eager_ms)).set("graph_tokens_per_s", c.per_second(c.graph_ms));
  row.set("speedup", c.speedup()).set("runner", runner_kind_name(c.decision.runner)).set("size", c.decision.size);
  row.set("padding", c.decision.padding).set("reason", reason_name(c.decision.reason));
  return row;
}

// The sizes asked for, else those of `usual` up to `most`.
std::vector<std::int64_t> sizes_or(const std::vector<std::int64_t>& asked, std::vector<std::int64_t> usual,
                                   std::int64_t most) {
  if (!asked.empty()) return asked;
  std::erase_if(usual, [most](std::int64_t size) { return size > most; });
  return usual;
}

// Bytes that one decode step must read: each weight once (of an untied embedding only a few rows) and
// the keys and values that are in each layer's window.
std::int64_t step_bytes(const Engine& engine, std::int64_t requests, std::int64_t context) {
  const ModelConfig& config = engine.config();
  const StitchingGraph& graph = engine.runner().prefill().executable().graph();
  const ir::DType dtype = graph.slots[static_cast<std::size_t>(graph.outputs[0])].type.dtype;
  const auto element = static_cast<std::int64_t>(ir::dtype_size(dtype));
  std::int64_t bytes = engine.runner().memory().weights;
  if (!config.tie_word_embeddings) bytes -= config.vocab_size * config.hidden_size * element;
  for (const std::int64_t window : config.sliding_windows) {
    const std::int64_t seen = window == 0 ? context : std::min(context, window);
    bytes += requests * seen * 2 * config.key_value_size() * element;
  }
  return bytes;
}

}  // namespace

Status bench_prefill(const BenchOptions& options) {
  EngineOptions engine_options = options.engine;
  engine_options.show_progress = progress_wanted();
  if (engine_options.chunked_prefill_size == 0 && !options.num_tokens.empty() && options.num_tokens.back() > 2048)
    engine_options.chunked_prefill_size = options.num_tokens.back();
  const std::unique_ptr<Engine> engine = TRY(Engine::create(engine_options));
  ModelRunner& runner = engine->runner();

  Table table({">tokens", ">eager ms", ">graph ms", ">eager tok/s", ">graph tok/s", ">speed-up", "graph", ">padding"});
  Json rows = Json::array();
  for (const std::int64_t tokens :
       sizes_or(options.num_tokens, {16, 64, 256, 1024, 2048}, max_prefill_tokens(runner))) {
    const ForwardBatch batch = TRY(make_prefill_batch(runner, tokens));
    const Comparison c = TRY(compare(runner, batch, options.repeat));
    table.add({count_text(tokens), number_text(c.eager_ms), number_text(c.graph_ms),
               number_text(c.per_second(c.eager_ms)), number_text(c.per_second(c.graph_ms)),
               fmt::format("{:.2f}x", c.speedup()), graph_name(c.decision), count_text(c.decision.padding)});
    rows.push_back(row_json(c));
  }
  Json json = bench_header(options, *engine);
  json.set("rows", std::move(rows));
  return write_output(options.json ? json.dump() + "\n" : bench_title(options, *engine) + table.text());
}

Status bench_decode(const BenchOptions& options) {
  EngineOptions engine_options = options.engine;
  engine_options.show_progress = progress_wanted();
  const std::unique_ptr<Engine> engine = TRY(Engine::create(engine_options));
  ModelRunner& runner = engine->runner();
  if (options.context > runner.options().context_length) {
    return invalid_argument(fmt::format("--context: {} is more than the context length of {}", options.context,
                                        runner.options().context_length));
  }
  const MemoryBandwidth memory = TRY(measure_memory_bandwidth());

  Table table({">requests", ">eager ms", ">graph ms", ">eager tok/s", ">graph tok/s", ">speed-up", "graph", ">read",
               ">GB/s", ">of memory"});
  Json rows = Json::array();
  for (const std::int64_t requests :
       sizes_or(options.batch_sizes, {1, 4, 16, 64}, max_decode_requests(runner, options.context))) {
    const ForwardBatch batch = TRY(make_decode_batch(runner, requests, options.context));
    const Comparison c = TRY(compare(runner, batch, options.repeat));
    const std::int64_t bytes = step_bytes(*engine, requests, options.context);
    const double rate = 1e3 * static_cast<double>(bytes) / c.graph_ms;
    const double share = rate / memory.bytes_per_second;  // above 1: weights stay in the cache from step to step
    table.add({count_text(requests), number_text(c.eager_ms), number_text(c.graph_ms),
               number_text(c.per_second(c.eager_ms)), number_text(c.per_second(c.graph_ms)),
               fmt::format("{:.2f}x", c.speedup()), graph_name(c.decision), bytes_text(bytes), number_text(rate / 1e9),
               share > 1 ? "from cache" : fmt::format("{:.0f} %", 100 * share)});
    Json row = row_json(c);
    row.set("bytes_read", bytes).set("bytes_per_s", rate).set("memory_share", share);
    rows.push_back(std::move(row));
  }
  Json json = bench_header(options, *engine);
  json.set("context", options.context).set("memory_bytes_per_s", memory.bytes_per_second);
  json.set("rows", std::move(rows));
  if (options.json) return write_output(json.dump() + "\n");
  return write_output(fmt::format("{}{}\n  {} tokens cached by each request; this machine reads memory at {} GB/s\n",
                                  bench_title(options, *engine), table.text(), options.context,
                                  number_text(memory.bytes_per_second / 1e9)));
}

}  // namespace tessera::cli
