#include "tessera/server/report/server_info.h"

#include <optional>

#include "tessera/ops/cache/cache_type.h"
#include "tessera/runner/dispatch/rules.h"
#include "tessera/server/events/load_publisher.h"
#include "tessera/server/report/forwards_json.h"
#include "tessera/server/report/start_info.h"

namespace tessera {
namespace {

void write_options(JsonWriter& json, const EngineOptions& options) {
  json.object().key("model_path").value(options.model_path).key("tokenizer_path").value(options.tokenizer_path);
  json.key("device").value(options.device).key("tp_size").value(options.tp_size).key("pp_size").value(options.pp_size);
  json.key("ep_size").value(options.ep_size).key("dp_size").value(options.replicas);
  json.key("dp_attention").value(options.dp_attention).key("nnodes").value(options.nnodes);
  json.key("node_rank").value(options.node_rank).key("dtype").value(options.dtype);
  json.key("kv_cache_dtype").value(options.kv_cache_dtype);
  json.key("quantization").value(options.quantization.empty() ? "none" : options.quantization);
  json.key("context_length").value(options.context_length);
  json.key("chunked_prefill_size").value(options.chunked_prefill_size);
  json.key("max_running_requests").value(options.max_running_requests);
  json.key("max_queued_requests").value(options.max_queued_requests);
  json.key("max_total_tokens").value(options.max_total_tokens).key("page_size").value(options.page_size);
  json.key("prefix_cache").value(!options.disable_radix_cache).key("deterministic").value(options.deterministic);
  json.key("mem_fraction_static").value(options.mem_fraction_static);
  json.key("cuda_graph_mode").value(graph_mode_name(options.graphs.mode)).end_object();
}

// Writes, in SGLang's form, the addresses at which a gateway subscribes to KV cache events and to reports of the load.
// Writes nothing if events are off, or if the endpoint is not a TCP address. The ports are those of the first engine.
void write_kv_events(JsonWriter& json, const KvEventsOptions& events, std::int64_t block_size, std::int64_t engines) {
  const std::optional<TcpAddress> published = tcp_address(events.endpoint);
  if (!events.enabled || !published) return;
  json.key("kv_events").object().key("publisher").value("zmq").key("endpoint_host").value(published->host);
  json.key("endpoint_port_base").value(std::int64_t{published->port}).key("topic").value(events.topic);
  json.key("block_size").value(block_size).key("dp_size").value(engines);
  if (const std::optional<TcpAddress> replayed = tcp_address(events.replay_endpoint))
    json.key("replay_endpoint_port_base").value(std::int64_t{replayed->port});
  if (const std::optional<TcpAddress> load = tcp_address(events.load_endpoint))
    json.key("load_endpoint_port_base").value(std::int64_t{load->port}).key("load_topic").value(LoadPublisher::kTopic);
  json.end_object();
}

// Writes the members that gateways read about a worker, in the places and under the names that SGLang uses.
void write_worker(JsonWriter& json, const Engine& engine, const ServedModel& model) {
  const EngineOptions& options = engine.options();
  const EngineStats stats = engine.stats();
  json.key("model_path").value(options.model_path).key("tokenizer_path");
  json.value(options.tokenizer_path.empty() ? options.model_path : options.tokenizer_path);
  json.key("tp_size").value(options.tp_size).key("pp_size").value(options.pp_size);
  json.key("dp_size").value(options.replicas).key("ep_size").value(options.ep_size);
  json.key("context_length").value(model.context_length);
  json.key("max_total_num_tokens").value(stats.fullest_group().usable_pages * stats.page_size);
  json.key("max_running_requests").value(engine.max_running());
  json.key("page_size").value(stats.page_size).key("weight_version").value(kWeightVersion);
  json.key("disaggregation_mode").value("null");
  write_kv_events(json, model.kv_events, stats.page_size, options.replicas);
}

void write_sizes(JsonWriter& json, std::span<const std::int64_t> sizes) {
  json.array();
  for (const std::int64_t size : sizes) json.value(size);
  json.end_array();
}

void write_plan(JsonWriter& json, const Engine& engine) {
  const RunnerOptions& runner = engine.runner().options();
  json.object().key("context_length").value(runner.context_length).key("max_tokens").value(runner.max_tokens);
  json.key("max_requests").value(runner.max_requests).key("num_pages");
  write_sizes(json, runner.num_pages);
  json.key("page_size").value(runner.page_size);
  json.key("kv_cache_dtype").value(cache_type_name(engine.kv_cache_type())).key("prefill_sizes");
  write_sizes(json, runner.prefill_sizes);
  write_sizes(json.key("decode_sizes"), runner.decode_sizes);
  json.key("memory_bytes").object();
  for (const auto& [use, bytes] : engine.runner().memory().device_entries())
    json.key(memory_use_name(use)).value(bytes);
  json.end_object();
  json.key("notes").array();
  for (const std::string& note : engine.notes()) json.value(note);
  json.end_array().end_object();
}

void write_stats(JsonWriter& json, const EngineStats& stats) {
  json.object().key("running").value(stats.running).key("queued").value(stats.queued);
  const CacheGroupStats& cache = stats.fullest_group();
  json.key("used_pages").value(cache.used_pages).key("cached_pages").value(cache.cached_pages);
  json.key("usable_pages").value(cache.usable_pages).key("prompt_tokens").value(stats.prompt_tokens);
  json.key("cached_tokens").value(stats.cached_tokens).key("output_tokens").value(stats.output_tokens);
  json.key("drafts").object().key("steps").value(stats.drafts.steps).key("drafted").value(stats.drafts.drafted);
  json.key("kept").value(stats.drafts.kept);
  write_sizes(json.key("drafted_at"), stats.drafts.by_position(stats.drafts.drafted_at));
  write_sizes(json.key("kept_at"), stats.drafts.by_position(stats.drafts.kept_at));
  json.end_object();
  json.key("preemptions").value(stats.preemptions).key("steps").value(stats.steps).key("forwards");
  write_forwards(json, stats.forwards);
  json.end_object();
}

}  // namespace

std::string options_json(const EngineOptions& options) {
  JsonWriter json;
  write_options(json, options);
  return json.take();
}

std::string server_info_body(const Engine& engine, const ServedModel& model) {
  JsonWriter json;
  json.object().key("version").value(TESSERA_VERSION).key("served_model_name").value(model.name);
  json.key("max_request_tokens").value(model.context_length);
  write_worker(json, engine, model);
  json.key("tool_call_parser").value_or_null(model.tool_call_parser);
  json.key("reasoning_parser").value_or_null(model.reasoning_parser);
  write_options(json.key("options"), engine.options());
  write_plan(json.key("plan"), engine);
  json.key("start").value(start_json(engine));
  write_stats(json.key("stats"), engine.stats());
  return json.end_object().take();
}

}  // namespace tessera
