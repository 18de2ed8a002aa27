#include "tessera/server/trace/request_span.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/server/fields/json_writer.h"
#include "tessera/server/http/random_id.h"
#include "tessera/text/unicode.h"

namespace tessera {
namespace {

constexpr std::size_t kTraceDigits = 32;
constexpr std::size_t kSpanDigits = 16;
constexpr std::size_t kMostPath = 1024;
constexpr int kServerKind = 2;  // SPAN_KIND_SERVER
constexpr int kFailed = 2;      // STATUS_CODE_ERROR

// Returns whether the text has only lower-case hexadecimal digits, not all of them 0.
bool is_id(std::string_view text) {
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return std::ranges::all_of(text, is_digit) && text.find_first_not_of('0') != std::string_view::npos;
}

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

// Writes the facts of the generation, under the names of vLLM's spans and of OpenTelemetry's conventions.
void write_generation(Attributes& out, const FinishedRequest& request, std::string_view model) {
  const GenerationFacts& facts = request.generation;
  if (facts.id.empty()) return;
  out.text("gen_ai.operation.name", operation_of(facts.route));
  out.text("gen_ai.provider.name", "tessera");
  out.text("gen_ai.request.model", model);
  out.text("gen_ai.response.model", model);
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

void write_span(JsonWriter& json, const RequestSpan& span, std::string_view model) {
  const FinishedRequest& request = span.request;
  const GenerationFacts& facts = request.generation;
  json.object().key("traceId").value(span.trace_id).key("spanId").value(span.span_id);
  if (!span.parent_id.empty()) json.key("parentSpanId").value(span.parent_id);
  json.key("name").value(facts.id.empty() ? fmt::format("{} {}", request.method, facts.route) : "llm_request");
  json.key("kind").value(kServerKind).key("startTimeUnixNano").value(std::to_string(span.start_ns));
  json.key("endTimeUnixNano").value(std::to_string(span.end_ns));
  Attributes out(json);
  out.text("http.request.method", request.method);
  out.text("http.route", facts.route);
  out.text("url.path", replace_invalid_utf8(std::string_view(request.path).substr(0, kMostPath)));
  out.text("client.address", request.address);
  out.number("http.response.status_code", std::int64_t{request.status});
  write_generation(out, request, model);
  out.end();
  const bool failed = request.status >= 500 || facts.finish == "error" || facts.finish == "timeout";
  json.key("status").object();
  if (failed) json.key("code").value(kFailed);
  json.end_object().end_object();
}

}  // namespace

std::optional<TraceParent> read_trace_parent(std::string_view header) {
  // The form is "00-TRACE-SPAN-FLAGS"; later versions may append more.
  constexpr std::size_t kLength = 2 + 1 + kTraceDigits + 1 + kSpanDigits + 1 + 2;
  if (header.size() < kLength || header.starts_with("ff")) return std::nullopt;
  const std::string_view trace = header.substr(3, kTraceDigits);
  const std::string_view span = header.substr(3 + kTraceDigits + 1, kSpanDigits);
  const std::string_view flags = header.substr(kLength - 2, 2);
  const bool separated = header[2] == '-' && header[3 + kTraceDigits] == '-' && header[kLength - 3] == '-';
  const bool ends = header.size() == kLength || (header[kLength] == '-' && !header.starts_with("00"));
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (!separated || !ends || !is_id(trace) || !is_id(span) || !std::ranges::all_of(flags, is_hex) ||
      !std::ranges::all_of(header.substr(0, 2), is_hex))
    return std::nullopt;
  const int last = flags[1] <= '9' ? flags[1] - '0' : flags[1] - 'a' + 10;
  return TraceParent{.trace_id = std::string(trace), .span_id = std::string(span), .sampled = (last & 1) != 0};
}

std::optional<RequestSpan> make_request_span(const FinishedRequest& finished, std::int64_t end_ns) {
  const GenerationFacts& facts = finished.generation;
  std::optional<TraceParent> parent = read_trace_parent(facts.trace_parent);
  if (parent ? !parent->sampled : facts.id.empty()) return std::nullopt;
  RequestSpan span{.span_id = make_id("").substr(0, kSpanDigits), .end_ns = end_ns, .request = finished};
  span.start_ns = end_ns - static_cast<std::int64_t>(finished.seconds * 1e9);
  if (parent) {
    span.trace_id = std::move(parent->trace_id);
    span.parent_id = std::move(parent->span_id);
  } else {
    span.trace_id = make_id("");
  }
  return span;
}

std::string spans_json(std::span<const RequestSpan> spans, std::string_view service, std::string_view model) {
  JsonWriter json;
  json.object().key("resourceSpans").array().object().key("resource").object();
  Attributes resource(json);
  resource.text("service.name", service);
  resource.text("service.version", TESSERA_VERSION);
  resource.end();
  json.end_object().key("scopeSpans").array().object().key("scope").object();
  json.key("name").value("tessera").key("version").value(TESSERA_VERSION).end_object().key("spans").array();
  for (const RequestSpan& span : spans) write_span(json, span, model);
  return json.end_array().end_object().end_array().end_object().end_array().end_object().take();
}

}  // namespace tessera
