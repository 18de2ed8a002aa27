#include "tessera/cli/generate/batch_lines.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/model/config/fields.h"
#include "tessera/server/api_job.h"
#include "tessera/server/fields/json_writer.h"

namespace tessera::cli {
namespace {

struct KindNames {
  BatchRequestKind kind;
  std::string_view url;
  std::string_view field;  // a field that only bodies of this kind have
};
constexpr KindNames kKinds[] = {{BatchRequestKind::kChat, "/v1/chat/completions", "messages"},
                                {BatchRequestKind::kCompletion, "/v1/completions", "prompt"},
                                {BatchRequestKind::kEmbedding, "/v1/embeddings", "input"}};

JsonWriter begin_line(const Json& custom_id) {
  JsonWriter json;
  json.object().key("id").value(make_id("batch_req_")).key("custom_id").value(custom_id);
  return json;
}

void write_response(JsonWriter& json, int status, std::string_view request_id, std::string_view body) {
  json.key("response").object().key("status_code").value(status);
  json.key("request_id").value(request_id).key("body").raw(body).end_object();
}

Result<BatchRequest> read_batch_form(const Fields& fields) {
  BatchRequest request;
  const std::optional<std::string> method = TRY(fields.optional_string("method"));
  if (method && *method != "POST") return fields.wrong("method", "\"POST\"");
  const std::optional<std::string> url = TRY(fields.optional_string("url"));
  const auto* const kind = std::ranges::find_if(kKinds, [&](const KindNames& names) { return url == names.url; });
  if (kind == std::end(kKinds))
    return fields.wrong("url", fmt::format("\"{}\", \"{}\" or \"{}\"", kKinds[0].url, kKinds[1].url, kKinds[2].url));
  const Json* body = fields.find("body");
  if (body == nullptr || !body->is_object()) return fields.wrong("body", "an object");
  request.kind = kind->kind;
  request.body = body->dump();
  return request;
}

// Returns the line without its id, which is not a field of the request.
std::string without_id(const Json& line) {
  Json body = Json::object();
  for (const auto& [key, value] : line.as_object()) {
    if (key != "custom_id") body.set(key, value);
  }
  return body.dump();
}

}  // namespace

Result<BatchRequest> read_batch_line(std::string_view line, Json& custom_id) {
  const Json json = TRY(Json::parse(line, "the line"));
  if (!json.is_object())
    return invalid_argument(fmt::format("the line is {}; accepted is a JSON object", shown_value(&json)));
  const Fields fields(json, "the line");
  const std::optional<std::string> id = TRY(fields.optional_string("custom_id"));
  if (id) custom_id = *id;
  if (fields.has("body") || fields.has("url")) {
    if (!id) return fields.wrong("custom_id", "a string");
    return read_batch_form(fields);
  }
  const auto* const kind = std::ranges::find_if(kKinds, [&](const KindNames& k) { return fields.has(k.field); });
  if (kind == std::end(kKinds))
    return invalid_argument(
        "the line has none of \"body\", \"messages\", \"prompt\" and \"input\"; accepted is a request of "
        "OpenAI's batch form, or its body");
  return BatchRequest{.kind = kind->kind, .body = id ? without_id(json) : std::string(line)};
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

std::string batch_error(const Json& custom_id, const Status& error) {
  JsonWriter json = begin_line(custom_id);
  json.key("response").null().key("error").object().key("code").value("invalid_line");
  return json.key("message").value(error.message()).end_object().end_object().take() + "\n";
}

}  // namespace tessera::cli
