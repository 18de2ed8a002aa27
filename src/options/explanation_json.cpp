#include "tessera/ops/cache/cache_type.h"
#include "tessera/options/explanation.h"

namespace tessera {
namespace {

Json values_json(const ir::Graph& graph, const std::vector<ir::ValueId>& values) {
  Json array = Json::array();
  for (const ir::ValueId id : values) {
    Json value = Json::object();
    value.set("name", graph.value(id).name).set("type", graph.value(id).type.to_string());
    array.push_back(std::move(value));
  }
  return array;
}

Json parts_json(const StitchingGraph& stitching) {
  Json parts = Json::array();
  for (const Part& part : stitching.parts) {
    Json ops = Json::array();
    for (const ir::Node& node : part.graph.nodes) ops.push_back(node.op);
    Json json = Json::object();
    json.set("kind", part_kind_name(part.kind)).set("name", part.name).set("ops", std::move(ops));
    json.set("inputs", values_json(part.graph, part.graph.inputs));
    json.set("outputs", values_json(part.graph, part.graph.outputs));
    parts.push_back(std::move(json));
  }
  return parts;
}

Json model_json(const Explanation& e) {
  const ModelConfig& config = e.plan.config;
  Json json = Json::object();
  json.set("path", e.model_path).set("architecture", config.architecture);
  json.set("parameters", e.plan.parameters).set("layers", config.num_hidden_layers);
  json.set("vocab_size", config.vocab_size).set("dtype", ir::dtype_name(e.plan.model.dtype));
  json.set("kv_cache_dtype", cache_type_name(e.plan.model.kv_cache_type()));
  json.set("context_length", e.plan.runner.context_length);
  json.set("tp_size", std::int64_t{e.plan.model.tp_size});
  json.set("pp_size", std::int64_t{e.plan.model.pp_size});
  json.set("ep_size", std::int64_t{e.plan.model.ep_size});
  return json;
}

Json runners_json(const Explanation& e) {
  const RunnerOptions& runner = e.plan.runner;
  Json prefill = Json::object();
  prefill.set("enabled", runner.graphs.prefill).set("pieces", e.stitching.num_pieces());
  prefill.set("split_ops", e.stitching.num_split_ops());
  prefill.set("sizes", Json::Array(runner.prefill_sizes.begin(), runner.prefill_sizes.end()));
  prefill.set("full_sizes", Json::Array(e.full_sizes.begin(), e.full_sizes.end()));
  Json decode = Json::object();
  decode.set("enabled", runner.graphs.decode).set("ops", e.decode_ops).set("padding", runner.decode_padding);
  decode.set("sizes", Json::Array(runner.decode_sizes.begin(), runner.decode_sizes.end()));
  Json json = Json::object();
  json.set("prefill", std::move(prefill)).set("decode", std::move(decode));
  if (!e.plan.graphs.vision) return json;
  Json vision = Json::object();
  vision.set("enabled", runner.vision.graphs).set("exact_graphs", runner.vision.exact_graphs);
  vision.set("ops", std::ssize(e.plan.graphs.vision->graph.nodes)).set("max_patches", runner.vision.max_patches);
  vision.set("sizes", Json::Array(runner.vision.sizes.begin(), runner.vision.sizes.end()));
  json.set("vision", std::move(vision));
  return json;
}

Json drafts_json(const Explanation& e) {
  const DraftOptions& drafts = e.plan.drafts;
  Json json = Json::object();
  json.set("source", draft_source_name(drafts.source)).set("most_by_step", drafts.most());
  if (!e.draft_layer) return json;
  json.set("parameters", e.plan.draft_parameters);
  json.set("layer_ops", e.draft_layer->layer_ops).set("head_ops", e.draft_layer->head_ops);
  json.set("head_ids", e.draft_layer->head_ids).set("own_weight_bytes", e.draft_layer->own_bytes);
  json.set("hidden_rows", e.draft_layer->hidden_rows).set("hidden_bytes", e.draft_layer->hidden_bytes);
  return json;
}

Json rules_json(const Explanation& e) {
  Json rules = Json::array();
  for (const Rule& rule : piecewise_rules()) {
    Json json = Json::object();
    json.set("name", rule.name).set("applied", rule_applied(e, rule)).set("message", rule.message);
    rules.push_back(std::move(json));
  }
  return rules;
}

Json needs_json(const RunnerMemory& runner) {
  Json array = Json::array();
  for (const SizeMemory& size : runner.sizes) {
    Json json = Json::object();
    json.set("size", size.size).set("arena_bytes", size.need.arena_bytes);
    json.set("lower_bound_bytes", size.need.lower_bound_bytes).set("unshared_bytes", size.need.unshared_bytes);
    json.set("workspace_bytes", size.need.workspace_bytes);
    json.set("graphs", size.graphs.graphs).set("operators", size.graphs.nodes);
    json.set("graph_bytes", size.graphs.bytes);
    array.push_back(std::move(json));
  }
  return array;
}

Json shares_json(const MemoryShares& shares) {
  Json json = Json::object();
  json.set("capacity", shares.capacity).set("taken_before", shares.taken).set("weights", shares.weights);
  json.set("kv_cache", shares.kv_cache).set("forwards", shares.activations).set("graphs", shares.graph_objects);
  json.set("free", shares.free()).set("mem_fraction_static", shares.fraction);
  return json;
}

Json cache_groups_json(const std::vector<CacheGroupOptions>& groups) {
  Json array = Json::array();
  for (const CacheGroupOptions& group : groups) {
    Json json = Json::object();
    json.set("name", group.name).set("kind", ir::cache_group_kind_name(group.kind)).set("window", group.window);
    json.set("pages", group.num_pages).set("page_bytes", group.page_bytes);
    json.set("bytes", group.num_pages * group.page_bytes);
    array.push_back(std::move(json));
  }
  return array;
}

Json memory_json(const Explanation& e) {
  const RunnerOptions& runner = e.plan.runner;
  Json json = Json::object();
  const MemoryShares& shares = e.plan.memory;
  json.set("weights_bytes", e.weight_bytes).set("kv_cache_bytes", shares.kv_cache);
  json.set("kv_cache_tokens", shares.context_tokens).set("page_size", runner.page_size);
  json.set("cache_groups", cache_groups_json(shares.cache_groups));
  using enum MemoryUse;
  const MemoryReport& memory = e.memory;
  json.set("arena_bytes", memory[kArena]).set("workspace_bytes", memory[kWorkspace]);
  json.set("static_input_bytes", memory[kStaticInputs]).set("attention_bytes", memory[kPlans]);
  json.set("communication_bytes", memory[kCommunication]);
  json.set("step_result_bytes", memory[kStepResults]).set("graph_object_bytes", memory[kGraphObjects]);
  json.set("plan", memory_plan_kind_name(runner.memory_plan)).set("shares", shares_json(e.plan.memory));
  for (const RunnerMemory& each : memory.runners) json.set(std::string(runner_role_name(each.role)), needs_json(each));
  return json;
}

Json tensors_json(const Explanation& e) {
  Json array = Json::array();
  for (const ExplainedTensor& tensor : e.tensors) {
    Json json = Json::object();
    json.set("name", tensor.name).set("type", tensor.type);
    json.set("shape", Json::Array(tensor.shape.begin(), tensor.shape.end())).set("bytes", tensor.bytes);
    array.push_back(std::move(json));
  }
  return array;
}

Json passes_json(const Explanation& e) {
  Json array = Json::array();
  for (const PassReport& report : e.plan.passes) {
    Json json = Json::object();
    json.set("graph", report.graph).set("name", report.pass).set("changed", report.changed);
    json.set("nodes_before", report.nodes_before).set("nodes_after", report.nodes_after).set("ms", report.ms);
    array.push_back(std::move(json));
  }
  return array;
}

Json examples_json(const Explanation& e) {
  Json array = Json::array();
  for (const DispatchExample& example : e.examples) {
    const Decision& decision = example.decision;
    Json json = Json::object();
    json.set("batch", example.batch).set("tokens", example.tokens);
    json.set("runner", runner_kind_name(decision.runner)).set("size", decision.size);
    json.set("padding", decision.padding).set("reason", reason_name(decision.reason));
    json.set("text", reason_text(decision.reason));
    array.push_back(std::move(json));
  }
  if (!e.image) return array;
  const VisionChoice& choice = e.image->choice;
  Json json = Json::object();
  json.set("batch", "image").set("tokens", e.image->tokens).set("patches", e.image->patches);
  json.set("runner", choice.graph ? "vision" : "eager").set("size", choice.size);
  json.set("padding", choice.size - e.image->patches).set("reason", vision_reason_name(choice.reason));
  json.set("text", vision_reason_text(choice.reason));
  array.push_back(std::move(json));
  return array;
}

}  // namespace

Json to_json(const Explanation& e) {
  Json notes = Json::array();
  for (const std::string& fact : e.plan.facts) notes.push_back(fact);
  for (const std::string& note : e.plan.notes) notes.push_back(note);
  for (const std::string& note : e.stitching.notes) notes.push_back(note);
  Json json = Json::object();
  json.set("model", model_json(e)).set("pieces", parts_json(e.stitching));
  json.set("num_pieces", e.stitching.num_pieces()).set("num_split_ops", e.stitching.num_split_ops());
  json.set("split_ops", Json::Array(e.plan.runner.split_ops.begin(), e.plan.runner.split_ops.end()));
  json.set("passes", passes_json(e));
  json.set("runners", runners_json(e)).set("rules", rules_json(e)).set("notes", std::move(notes));
  json.set("memory", memory_json(e));
  if (!e.tensors.empty()) json.set("tensors", tensors_json(e));
  if (e.plan.drafts.any()) json.set("drafts", drafts_json(e));
  if (!e.schedules.empty()) json.set("schedules", to_json(e.schedules));
  if (!e.examples.empty()) json.set("dispatch", examples_json(e));
  return json;
}

}  // namespace tessera
