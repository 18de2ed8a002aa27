#include "tessera/server/batches/batch_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/base/json_fields.h"
#include "tessera/server/fields/api_fields.h"
#include "tessera/server/fields/json_writer.h"
#include "tessera/server/openai/chat_request.h"
#include "tessera/server/openai/completion_request.h"
#include "tessera/server/openai/pooled/classify_request.h"
#include "tessera/server/openai/pooled/embedding_request.h"
#include "tessera/server/responses/response_request.h"

namespace tessera {
namespace {

struct KindNames {
  BatchRequestKind kind;
  std::string_view url;
  // A line that is only a request's body has this kind if the body has the member `field`. If `field` is "", a line of
  // this kind must have the whole form, which names the url.
  std::string_view field;
};
constexpr KindNames kKinds[] = {{BatchRequestKind::kChat, "/v1/chat/completions", "messages"},
                                {BatchRequestKind::kCompletion, "/v1/completions", "prompt"},
                                {BatchRequestKind::kEmbedding, "/v1/embeddings", "input"},
                                {BatchRequestKind::kClassification, "/v1/classify", ""},
                                {BatchRequestKind::kResponse, "/v1/responses", ""}};

JsonWriter begin_line(const Json& custom_id) {
  JsonWriter json;
  json.object().key("id").value(make_id("batch_req_")).key("custom_id").value(custom_id);
  return json;
}

void write_response(JsonWriter& json, int status, std::string_view request_id, std::string_view body) {
  json.key("response").object().key("status_code").value(status);
  json.key("request_id").value(request_id).key("body").raw(body).end_object();
}

Result<Json> read_object(std::string_view line) {
  Json json = TRY(Json::parse(line, "the line"));
  if (!json.is_object())
    return invalid_argument(fmt::format("the line is {}; accepted is a JSON object", shown_value(&json)));
  return json;
}

Result<BatchRequest> read_batch_form(const Fields& fields) {
  BatchRequest request;
  const std::optional<std::string> method = TRY(fields.optional_string("method"));
  if (method && *method != "POST") return fields.wrong("method", "\"POST\"");
  const std::optional<std::string> url = TRY(fields.optional_string("url"));
  const std::optional<BatchRequestKind> kind = batch_kind(url.value_or(""));
  if (!kind) return fields.wrong("url", batch_urls());
  const Json* body = fields.find("body");
  if (body == nullptr || !body->is_object()) return fields.wrong("body", "an object");
  request.kind = *kind;
  request.body = body->dump();
  return request;
}

// Returns the line without "custom_id", which is not a field of the request.
std::string without_id(const Json& line) {
  Json body = Json::object();
  for (const auto& [key, value] : line.as_object()) {
    if (key != "custom_id") body.set(key, value);
  }
  return body.dump();
}

}  // namespace

std::string_view batch_url(BatchRequestKind kind) { return std::ranges::find(kKinds, kind, &KindNames::kind)->url; }

std::optional<BatchRequestKind> batch_kind(std::string_view url) {
  const auto* const found = std::ranges::find(kKinds, url, &KindNames::url);
  if (found == std::end(kKinds)) return std::nullopt;
  return found->kind;
}

std::string batch_urls() {
  std::string all;
  for (std::size_t i = 0; i < std::size(kKinds); ++i) {
    if (i > 0) all += i + 1 == std::size(kKinds) ? " or " : ", ";
    all += fmt::format("\"{}\"", kKinds[i].url);
  }
  return all;
}

Result<BatchRequest> read_whole_batch_line(std::string_view line, Json& custom_id) {
  const Json json = TRY(read_object(line));
  const Fields fields(json, "the line");
  const std::optional<std::string> id = TRY(fields.optional_string("custom_id"));
  if (!id || id->empty()) return fields.wrong("custom_id", "a string that is not empty");
  custom_id = *id;
  if (!fields.has("method")) return fields.wrong("method", "\"POST\"");
  return read_batch_form(fields);
}

Result<BatchRequest> read_batch_line(std::string_view line, Json& custom_id) {
  const Json json = TRY(read_object(line));
  const Fields fields(json, "the line");
  const std::optional<std::string> id = TRY(fields.optional_string("custom_id"));
  if (id) custom_id = *id;
  if (fields.has("body") || fields.has("url")) {
    if (!id) return fields.wrong("custom_id", "a string");
    return read_batch_form(fields);
  }
  const auto* const kind =
      std::ranges::find_if(kKinds, [&](const KindNames& k) { return !k.field.empty() && fields.has(k.field); });
  if (kind == std::end(kKinds))
    return invalid_argument(
        "the line has none of \"body\", \"messages\", \"prompt\" and \"input\"; accepted: a request in "
        "OpenAI's batch form, or only the body of a request");
  return BatchRequest{.kind = kind->kind, .body = id ? without_id(json) : std::string(line)};
}

ApiResult<ApiJob> prepare_batch_request(const ServedModel& model, const BatchRequest& request, ResponseStore& store,
                                        const std::string& owner) {
  const auto prepare = [&]() -> ApiResult<ApiJob> {
    switch (request.kind) {
      case BatchRequestKind::kChat: return prepare_chat(model, request.body);
      case BatchRequestKind::kCompletion: return prepare_completion(model, request.body);
      case BatchRequestKind::kEmbedding: return prepare_embeddings(model, request.body);
      case BatchRequestKind::kClassification: return prepare_classify(model, request.body);
      case BatchRequestKind::kResponse: break;
    }
    ResponseJob made = TRY(prepare_response(model, request.body, store, owner));
    if (made.background)
      return invalid_field("background", "a request of a batch is answered in its file; accepted: false");
    return std::move(made.job);
  };
  ApiJob job = TRY(prepare());
  if (job.stream) return invalid_field("stream", "a file of requests has no streams; accepted: false");
  return job;
}

std::string batch_answer(const Json& custom_id, std::string_view request_id, std::string_view body) {
  JsonWriter json = begin_line(custom_id);
  write_response(json, 200, request_id, body);
  return json.key("error").null().end_object().take() + "\n";
}

std::string batch_refusal(const Json& custom_id, const ApiError& error) {
  JsonWriter json = begin_line(custom_id);
  write_response(json, error.http_status, make_id("req-"), error.to_json());
  return json.key("error").null().end_object().take() + "\n";
}

std::string batch_error(const Json& custom_id, std::string_view code, std::string_view message) {
  JsonWriter json = begin_line(custom_id);
  json.key("response").null().key("error").object().key("code").value(code);
  return json.key("message").value(message).end_object().end_object().take() + "\n";
}

}  // namespace tessera
