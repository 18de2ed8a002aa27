#include "tessera/server/trace/trace_span.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "tessera/server/fields/json_writer.h"
#include "tessera/text/unicode.h"

namespace tessera {
namespace {

constexpr std::size_t kMostText = 1024;
constexpr int kInternalKind = 1;  // SPAN_KIND_INTERNAL
constexpr int kServerKind = 2;    // SPAN_KIND_SERVER
constexpr int kFailed = 2;        // STATUS_CODE_ERROR

struct Operation {
  std::string_view route;
  std::string_view name;  // the operation's name in OpenTelemetry's conventions
};
constexpr Operation kOperations[] = {
    {"/v1/chat/completions", "chat"},
    {"/v1/messages", "chat"},
    {"/v1/responses", "chat"},
    {"/responses", "chat"},
    {"/api/chat", "chat"},
    {"/v1/completions", "text_completion"},
    {"/generate", "text_completion"},
    {"/api/generate", "text_completion"},
    {"/v1/embeddings", "embeddings"},
    {"/api/embed", "embeddings"},
    {"/api/embeddings", "embeddings"},
};

std::string_view operation_of(std::string_view route) {
  const auto* const found = std::ranges::find(kOperations, route, &Operation::route);
  return found == std::end(kOperations) ? std::string_view() : found->name;
}

// Returns a client's text for an attribute: its first kMostText bytes, with invalid UTF-8 replaced.
std::string shown(std::string_view text) { return replace_invalid_utf8(text.substr(0, kMostText)); }

// Writes attributes in OTLP's form, in which integers are JSON strings.
class Attributes {
 public:
  explicit Attributes(JsonWriter& json) : json_(json) { json_.key("attributes").array(); }
  void text(std::string_view key, std::string_view value) {
    if (!value.empty()) begin(key).key("stringValue").value(value).end_object().end_object();
  }
  void number(std::string_view key, std::int64_t value) {
    begin(key).key("intValue").value(std::to_string(value)).end_object().end_object();
  }
  void number(std::string_view key, double value) {
    begin(key).key("doubleValue").value(value).end_object().end_object();
  }
  void list(std::string_view key, std::string_view value) {
    begin(key).key("arrayValue").object().key("values").array().object().key("stringValue").value(value);
    json_.end_object().end_array().end_object().end_object().end_object();
  }
  void end() { json_.end_array(); }

 private:
  JsonWriter& begin(std::string_view key) { return json_.object().key("key").value(key).key("value").object(); }
  JsonWriter& json_;
};

void write_model(Attributes& out, std::string_view operation, std::string_view model) {
  out.text("gen_ai.operation.name", operation);
  out.text("gen_ai.provider.name", "tessera");
  out.text("gen_ai.request.model", model);
  out.text("gen_ai.response.model", model);
}

// Writes the facts of the generation, under the names of vLLM's spans and of OpenTelemetry's conventions.
void write_generation(Attributes& out, const FinishedRequest& request, std::string_view model) {
  const GenerationFacts& facts = request.generation;
  if (facts.id.empty()) return;
  write_model(out, operation_of(facts.route), model);
  out.text("gen_ai.request.id", facts.id);
  out.text("gen_ai.response.id", facts.id);
  out.number("gen_ai.request.n", facts.asked.texts);
  if (facts.asked.generates) {
    out.number("gen_ai.request.max_tokens", facts.asked.max_tokens);
    out.number("gen_ai.request.temperature", facts.asked.temperature);
    out.number("gen_ai.request.top_p", facts.asked.top_p);
  }
  if (facts.tokens) {
    out.number("gen_ai.usage.num_sequences", facts.asked.texts);
    out.number("gen_ai.usage.prompt_tokens", facts.tokens->prompt);
    out.number("gen_ai.usage.input_tokens", facts.tokens->prompt);
    out.number("gen_ai.usage.cache_read.input_tokens", facts.tokens->cached);
    out.number("gen_ai.usage.completion_tokens", facts.tokens->completion);
    out.number("gen_ai.usage.output_tokens", facts.tokens->completion);
    out.number("gen_ai.latency.time_in_queue", facts.queue_s);
    out.number("gen_ai.latency.time_to_first_token", facts.first_token_s);
    out.number("gen_ai.latency.time_in_model_prefill", std::max(0.0, facts.first_token_s - facts.queue_s));
    out.number("gen_ai.latency.time_in_model_decode", std::max(0.0, facts.engine_s - facts.first_token_s));
    out.number("gen_ai.latency.time_in_model_inference", std::max(0.0, facts.engine_s - facts.queue_s));
  }
  if (!facts.finish.empty()) out.list("gen_ai.response.finish_reasons", facts.finish);
  out.number("gen_ai.latency.e2e", request.seconds);
}

// Writes the attributes that spans of HTTP requests and spans of requests in batches have in common.
void write_request(Attributes& out, const FinishedRequest& request, std::string_view model) {
  out.text("http.request.method", request.method);
  out.text("http.route", request.generation.route);
  out.text("url.path", shown(request.path));
  out.text("client.address", request.address);
  out.number("http.response.status_code", std::int64_t{request.status});
  write_generation(out, request, model);
}

void write_batch(Attributes& out, const FinishedBatch& batch, std::string_view model) {
  out.text("tessera.batch.id", batch.id);
  out.text("tessera.batch.status", batch.status);
  out.number("tessera.batch.requests.total", batch.total);
  out.number("tessera.batch.requests.completed", batch.completed);
  out.number("tessera.batch.requests.failed", batch.failed_requests);
  out.text("http.route", batch.endpoint);
  write_model(out, operation_of(batch.endpoint), model);
  out.number("gen_ai.usage.input_tokens", batch.usage.prompt_tokens);
  out.number("gen_ai.usage.cache_read.input_tokens", batch.usage.cached_tokens);
  out.number("gen_ai.usage.output_tokens", batch.usage.completion_tokens);
}

std::string name_of(const FinishedRequest& request) {
  return request.generation.id.empty() ? fmt::format("{} {}", request.method, request.generation.route) : "llm_request";
}

bool has_failed(const FinishedRequest& request) {
  const std::string_view finish = request.generation.finish;
  return request.status >= 500 || finish == "error" || finish == "timeout";
}

// Writes a name, a kind and attributes for each type of work that a span can describe.
class WorkWriter {
 public:
  WorkWriter(JsonWriter& json, std::string_view model) : json_(json), model_(model) {}

  // Return whether the work failed.
  bool operator()(const FinishedRequest& request) const {
    Attributes out = begin(name_of(request), kServerKind);
    write_request(out, request, model_);
    out.end();
    return has_failed(request);
  }
  bool operator()(const FinishedLine& line) const {
    Attributes out = begin(name_of(line.request), kInternalKind);
    out.text("tessera.batch.id", line.batch_id);
    out.text("tessera.batch.custom_id", shown(line.custom_id));
    write_request(out, line.request, model_);
    out.end();
    return has_failed(line.request);
  }
  bool operator()(const FinishedBatch& batch) const {
    Attributes out = begin("batch", kInternalKind);
    write_batch(out, batch, model_);
    out.end();
    return batch.failed;
  }

 private:
  Attributes begin(std::string_view name, int kind) const {
    json_.key("name").value(name).key("kind").value(kind);
    return Attributes(json_);
  }

  JsonWriter& json_;
  std::string_view model_;
};

void write_span(JsonWriter& json, const TraceSpan& span, std::string_view model) {
  json.object().key("traceId").value(span.trace_id).key("spanId").value(span.span_id);
  if (!span.parent_id.empty()) json.key("parentSpanId").value(span.parent_id);
  json.key("startTimeUnixNano").value(std::to_string(span.start_ns));
  json.key("endTimeUnixNano").value(std::to_string(span.end_ns));
  if (span.cause) {
    json.key("links").array().object().key("traceId").value(span.cause->trace_id);
    json.key("spanId").value(span.cause->span_id).end_object().end_array();
  }
  const bool failed = std::visit(WorkWriter(json, model), span.work);
  json.key("status").object();
  if (failed) json.key("code").value(kFailed);
  json.end_object().end_object();
}

}  // namespace

std::string spans_json(std::span<const TraceSpan> spans, std::string_view service, std::string_view model) {
  JsonWriter json;
  json.object().key("resourceSpans").array().object().key("resource").object();
  Attributes resource(json);
  resource.text("service.name", service);
  resource.text("service.version", TESSERA_VERSION);
  resource.end();
  json.end_object().key("scopeSpans").array().object().key("scope").object();
  json.key("name").value("tessera").key("version").value(TESSERA_VERSION).end_object().key("spans").array();
  for (const TraceSpan& span : spans) write_span(json, span, model);
  return json.end_array().end_object().end_array().end_object().end_array().end_object().take();
}

}  // namespace tessera
