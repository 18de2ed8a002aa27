#include "tessera/server/report/engine_state.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "tessera/ir/type.h"
#include "tessera/ops/cache/cache_type.h"
#include "tessera/runner/vision/vision_runner.h"
#include "tessera/server/work/part_groups.h"

namespace tessera {
namespace {

// The largest number of operators that are shown for a part of the stitching graph. A part that is a whole forward has
// hundreds of operators, but the first few suffice to identify the part.
constexpr std::size_t kMaxOpsShown = 24;

void write_part(JsonWriter& json, const Part& part) {
  const std::vector<ir::Node>& nodes = part.graph.nodes;
  json.object().key("kind").value(part_kind_name(part.kind)).key("name").value(part.name);
  json.key("num_ops").value(nodes.size()).key("ops").array();
  for (std::size_t i = 0; i < std::min(nodes.size(), kMaxOpsShown); ++i) json.value(nodes[i].op);
  json.end_array().key("outputs").array();
  for (const ir::ValueId output : part.graph.outputs) {
    const ir::Value& value = part.graph.value(output);
    json.object().key("name").value(value.name).key("type").value(value.type.to_string()).end_object();
  }
  json.end_array().end_object();
}

void write_groups(JsonWriter& json, const StitchingGraph& graph) {
  json.array();
  for (const PartGroup& group : group_parts(graph.parts)) {
    json.object().key("repeats").value(group.repeats).key("parts").array();
    for (std::size_t i = 0; i < group.length; ++i) write_part(json, graph.parts[group.first + i]);
    json.end_array().end_object();
  }
  json.end_array();
}

// Returns the runner's constant members as an unfinished JSON object.
std::string runner_head(const GraphRunner& runner) {
  const StitchingGraph& graph = runner.executable().graph();
  std::size_t ops = 0;
  for (const Part& part : graph.parts) ops += part.graph.nodes.size();
  JsonWriter json;
  json.object().key("pieces").value(graph.num_pieces());
  json.key("split_ops").value(graph.num_split_ops()).key("ops").value(ops);
  write_groups(json.key("groups"), graph);
  return json.take();
}

// Writes a runner's variable members. They can change, because the server may capture or drop sizes while it runs.
// `used` returns the number of forwards that ran at a size, and the number of padding tokens in them.
void write_runner(JsonWriter& json, std::string_view head, const RunnerInventory& runner,
                  const std::function<std::pair<std::int64_t, std::int64_t>(std::int64_t size)>& used) {
  json.raw(head).key("enabled").value(runner.enabled).key("capture_seconds").value(runner.capture_seconds);
  json.key("sizes").array();
  for (const std::int64_t size : runner.captured) {
    const auto [forwards, padding] = used(size);
    json.object().key("size").value(size).key("count").value(forwards);
    json.key("padded").value(padding);
    json.key("full").value(std::ranges::binary_search(runner.full, size)).end_object();
  }
  json.end_array().key("to_come").array();
  for (const std::int64_t size : runner.pending) json.value(size);
  json.end_array().key("dropped").array();
  for (const auto& [size, why] : runner.dropped)
    json.object().key("size").value(size).key("why").value(why).end_object();
  json.end_array().end_object();
}

void write_memory(JsonWriter& json, const MemoryReport& memory) {
  json.array();
  for (const auto& [use, bytes] : memory.device_entries())
    json.object().key("kind").value(memory_use_name(use)).key("bytes").value(bytes).end_object();
  json.end_array();
}

// Returns the constant members of the state as an unfinished JSON object.
std::string state_head(const Engine& engine, const ServedModel& model) {
  const ModelConfig& config = engine.config();
  const ModelRunner& runner = engine.runner();
  const StitchingGraph& body = runner.prefill().executable().graph();
  const ir::Type& hidden = body.slots[static_cast<std::size_t>(body.outputs[0])].type;
  JsonWriter json;
  json.object().key("version").value(TESSERA_VERSION).key("model").object();
  json.key("name").value(model.name).key("architecture").value(config.architecture);
  json.key("layers").value(config.num_hidden_layers).key("parameters").value(engine.parameters());
  json.key("dtype")
      .value(ir::dtype_name(hidden.dtype))
      .key("kv_cache_dtype")
      .value(cache_type_name(engine.kv_cache_type()))
      .key("vocab_size")
      .value(model.vocab_size)
      .key("context_length")
      .value(model.context_length);
  json.key("chat").value(model.chat.has_value()).key("images").value(model.images.has_value()).end_object();
  json.key("device").object().key("name").value(runner.device().properties().name);
  json.key("attention").value(runner.planned_kernels(BatchKind::kDecode)).end_object();
  json.key("notes").array();
  for (const std::string& note : engine.notes()) json.value(note);
  return json.end_array().take();
}

void write_percentiles(JsonWriter& json, const LatencyPercentiles& p) {
  json.object().key("count").value(p.count);
  for (const auto& [name, seconds] :
       {std::pair("p50", p.p50), std::pair("p90", p.p90), std::pair("p99", p.p99), std::pair("max", p.max)}) {
    json.key(name);
    if (p.count > 0) {
      json.value(seconds);
    } else {
      json.null();
    }
  }
  json.end_object();
}

void write_latencies(JsonWriter& json, const ServerLatencies& latencies) {
  json.object().key("window_s").value(std::int64_t{LatencyWindow::kWindow.count()});
  write_percentiles(json.key("first_token"), latencies.first_token);
  write_percentiles(json.key("next_token"), latencies.next_token);
  write_percentiles(json.key("request"), latencies.request);
  json.end_object();
}

void write_reasons(JsonWriter& json, const ForwardCounters& forwards) {
  json.array();
  for (int i = 0; i < kNumReasons; ++i) {
    const auto reason = static_cast<Reason>(i);
    json.object().key("name").value(reason_name(reason)).key("text").value(reason_text(reason));
    json.key("replayed").value(is_replay(reason));
    json.key("count").value(forwards.forwards(reason)).end_object();
  }
  json.end_array();
}

void write_reasons(JsonWriter& json, const TowerCounts& forwards) {
  json.array();
  for (int i = 0; i < kNumVisionReasons; ++i) {
    const auto reason = static_cast<VisionReason>(i);
    json.object().key("name").value(vision_reason_name(reason)).key("text").value(vision_reason_text(reason));
    json.key("replayed").value(is_replay(reason));
    json.key("count").value(forwards.of(reason).forwards).end_object();
  }
  json.end_array();
}

void write_tower(JsonWriter& json, const std::string& head, const EngineStats& stats) {
  const TowerCounts& counts = stats.images.by_reason;
  write_runner(json.key("vision"), head, *stats.graphs->vision, [&](std::int64_t size) {
    const TowerCount count = counts.of_size(size);
    return std::pair(count.forwards, count.padding);
  });
  write_reasons(json.key("vision_reasons"), counts);
}

}  // namespace

EngineState::EngineState(const Engine& engine, const ServedModel& model)
    : head_(state_head(engine, model)),
      prefill_head_(runner_head(engine.runner().prefill())),
      decode_head_(runner_head(engine.runner().decode())),
      vision_head_(engine.runner().vision() == nullptr ? "" : runner_head(engine.runner().vision()->runner())) {}

std::string EngineState::body(const EngineStats& stats, const ServerLatencies& latencies) const {
  JsonWriter json;
  write_memory(json.raw(head_).key("memory"), stats.graphs->memory);
  const auto used_by = [&](RunnerKind kind) {
    return [&stats, kind](std::int64_t size) {
      const ForwardCount count = stats.forwards.of_size(kind, size);
      return std::pair(count.forwards, count.padding);
    };
  };
  write_runner(json.key("prefill"), prefill_head_, stats.graphs->prefill, used_by(RunnerKind::kPrefill));
  write_runner(json.key("decode"), decode_head_, stats.graphs->decode, used_by(RunnerKind::kDecode));
  if (stats.graphs->vision) write_tower(json, vision_head_, stats);
  json.key("requests").object().key("running").value(stats.running).key("queued").value(stats.queued);
  json.key("preemptions").value(stats.preemptions).end_object();
  const CacheGroupStats& cache = stats.fullest_group();
  json.key("kv").object().key("used_pages").value(cache.used_pages).key("cached_pages").value(cache.cached_pages);
  json.key("usable_pages").value(cache.usable_pages).key("page_size").value(stats.page_size).end_object();
  json.key("totals").object().key("prompt_tokens").value(stats.prompt_tokens);
  json.key("cached_tokens").value(stats.cached_tokens).key("output_tokens").value(stats.output_tokens);
  json.key("steps").value(stats.steps).key("forward_tokens").value(stats.forwards.tokens);
  json.key("padded_tokens").value(stats.forwards.padded_tokens);
  if (stats.drafts.steps > 0) json.key("tokens_per_draft_forward").value(stats.drafts.mean_length());
  json.end_object();
  write_reasons(json.key("reasons"), stats.forwards);
  write_latencies(json.key("latency"), latencies);
  return json.end_object().take();
}

}  // namespace tessera
