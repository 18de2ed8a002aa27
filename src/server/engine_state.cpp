#include "tessera/server/engine_state.h"

#include <algorithm>
#include <array>
#include <utility>

#include "tessera/ir/type.h"
#include "tessera/server/part_groups.h"

namespace tessera {
namespace {

// A part that is the whole forward has hundreds of operators; the first ones tell what it is.
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

// Without the object's end.
std::string runner_head(const GraphRunner& runner, bool enabled) {
  const StitchingGraph& graph = runner.executable().graph();
  std::size_t ops = 0;
  for (const Part& part : graph.parts) ops += part.graph.nodes.size();
  JsonWriter json;
  json.object().key("enabled").value(enabled).key("pieces").value(graph.num_pieces());
  json.key("split_ops").value(graph.num_split_ops()).key("ops").value(ops);
  json.key("capture_seconds").value(runner.report().seconds).key("groups");
  write_groups(json, graph);
  json.key("dropped").array();
  for (const auto& [size, why] : runner.report().dropped) {
    json.object().key("size").value(size).key("why").value(why.message()).end_object();
  }
  return json.end_array().take();
}

std::string memory_list(const MemoryLedger& memory) {
  const std::array<std::pair<const char*, std::int64_t>, 6> kinds = {{{"weights", memory.weights},
                                                                      {"kv_cache", memory.kv_cache},
                                                                      {"arena", memory.arena},
                                                                      {"workspace", memory.workspace},
                                                                      {"static_inputs", memory.static_inputs},
                                                                      {"graph_objects", memory.graph_objects}}};
  JsonWriter json;
  json.array();
  for (const auto& [kind, bytes] : kinds) json.object().key("kind").value(kind).key("bytes").value(bytes).end_object();
  return json.end_array().take();
}

// Without the object's end.
std::string state_head(const Engine& engine, const ServedModel& model) {
  const ModelConfig& config = engine.config();
  const ModelRunner& runner = engine.runner();
  const StitchingGraph& body = runner.prefill().executable().graph();
  const ir::Type& hidden = body.slots[static_cast<std::size_t>(body.outputs[0])].type;
  JsonWriter json;
  json.object().key("version").value(TESSERA_VERSION).key("model").object();
  json.key("name").value(model.name).key("architecture").value(architecture_name(config.architecture));
  json.key("layers").value(config.num_hidden_layers).key("parameters").value(config.parameter_count());
  json.key("dtype")
      .value(ir::dtype_name(hidden.dtype))
      .key("vocab_size")
      .value(model.vocab_size)
      .key("context_length")
      .value(model.context_length);
  json.key("chat").value(model.chat.has_value()).end_object();
  json.key("device").object().key("name").value(runner.device().properties().name);
  json.key("attention").value(runner.attention_kernels(BatchKind::kDecode)).end_object();
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
  for (std::size_t i = 0; i < forwards.by_reason.size(); ++i) {
    const auto reason = static_cast<Reason>(i);
    json.object().key("name").value(reason_name(reason)).key("text").value(reason_text(reason));
    json.key("replayed").value(reason == Reason::kExactSize || reason == Reason::kPaddedToSize);
    json.key("count").value(forwards.by_reason[i]).end_object();
  }
  json.end_array();
}

}  // namespace

EngineState::EngineState(const Engine& engine, const ServedModel& model)
    : head_(state_head(engine, model)), memory_(memory_list(engine.runner().memory())) {
  const DispatchTable& table = engine.runner().dispatch_table();
  const auto runner = [&](RunnerKind kind, const GraphRunner& graphs, bool enabled) {
    enabled = enabled && table.graphs_enabled;
    return Runner{.kind = kind, .head = runner_head(graphs, enabled), .sizes = graphs.report().captured};
  };
  prefill_ = runner(RunnerKind::kPrefill, engine.runner().prefill(), table.prefill_enabled);
  decode_ = runner(RunnerKind::kDecode, engine.runner().decode(), table.decode_enabled);
}

void EngineState::write_runner(JsonWriter& json, const Runner& runner, const ForwardCounters& forwards) const {
  const auto count_of = [&](const auto& counts, std::int64_t size) {
    const auto found = counts.find({runner.kind, size});
    return found == counts.end() ? std::int64_t{0} : found->second;
  };
  json.raw(runner.head).key("sizes").array();
  for (const std::int64_t size : runner.sizes) {
    json.object().key("size").value(size).key("count").value(count_of(forwards.by_bucket, size));
    json.key("padded").value(count_of(forwards.padding_by_bucket, size)).end_object();
  }
  json.end_array().end_object();
}

std::string EngineState::body(const EngineStats& stats, const ServerLatencies& latencies) const {
  JsonWriter json;
  json.raw(head_).key("memory").raw(memory_);
  write_runner(json.key("prefill"), prefill_, stats.forwards);
  write_runner(json.key("decode"), decode_, stats.forwards);
  json.key("requests").object().key("running").value(stats.running).key("queued").value(stats.queued);
  json.key("preemptions").value(stats.preemptions).end_object();
  json.key("kv").object().key("used_pages").value(stats.used_pages).key("cached_pages").value(stats.cached_pages);
  json.key("usable_pages").value(stats.usable_pages).key("page_size").value(stats.page_size).end_object();
  json.key("totals").object().key("prompt_tokens").value(stats.prompt_tokens);
  json.key("cached_tokens").value(stats.cached_tokens).key("output_tokens").value(stats.output_tokens);
  json.key("steps").value(stats.steps).key("forward_tokens").value(stats.forwards.tokens);
  json.key("padded_tokens").value(stats.forwards.padded_tokens).end_object();
  write_reasons(json.key("reasons"), stats.forwards);
  write_latencies(json.key("latency"), latencies);
  return json.end_object().take();
}

}  // namespace tessera
