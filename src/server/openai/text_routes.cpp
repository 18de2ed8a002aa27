#include "tessera/server/openai/text_routes.h"

#include <fmt/format.h>

#include "tessera/server/fields/api_fields.h"
#include "tessera/server/fields/json_writer.h"
#include "tessera/server/fields/request_fields.h"
#include "tessera/server/report/server_info.h"

namespace tessera {
namespace {

// Writes the list entry of the model, or of the adapter whose folder is `adapter`.
void write_model(JsonWriter& json, const ServedModel& model, std::string_view id, std::string_view adapter = {}) {
  json.object().key("id").value(id).key("object").value("model").key("created").value(model.created);
  json.key("owned_by").value("tessera").key("root").value(adapter.empty() ? std::string_view(model.path) : adapter);
  json.key("parent");
  if (adapter.empty())
    json.null();
  else
    json.value(model.name);
  json.key("max_model_len").value(model.context_length).end_object();
}

ApiStatus need_tokenizer(const ServedModel& model, const std::string& param) {
  if (model.tokenizer != nullptr) return api_ok();
  return unsupported_field(param, "the model was loaded without a tokenizer");
}

}  // namespace

std::string models_body(const ServedModel& model, bool for_codex) {
  JsonWriter json;
  json.object().key("object").value("list").key("data").array();
  for (const std::string& name : model.names()) write_model(json, model, name);
  if (model.adapters != nullptr)
    for (const auto& [name, path] : model.adapters->all()) write_model(json, model, name, path);
  json.end_array();
  if (for_codex) json.key("models").array().end_array();
  return json.end_object().take();
}

ApiResult<std::string> model_body(const ServedModel& model, std::string_view id) {
  JsonWriter json;
  if (const std::string adapter = model.adapter_of(id); !adapter.empty()) {
    write_model(json, model, id, model.adapters->all()[adapter]);
    return json.take();
  }
  Json asked = Json::object();
  asked.set("model", id);
  TRY(model.check_name(asked));
  write_model(json, model, id);
  return json.take();
}

std::string model_info_body(const ServedModel& model) {
  JsonWriter json;
  json.object().key("model_path").value(model.path).key("served_model_name").value(model.name);
  json.key("weight_version").value(kWeightVersion).key("architectures").array().value(model.architecture).end_array();
  json.key("is_generation").value(model.generates()).key("max_model_len").value(model.context_length);
  json.key("vocab_size").value(model.vocab_size).key("hidden_size").value(model.hidden_size);
  json.key("has_tokenizer").value(model.tokenizer != nullptr).key("has_chat_template").value(model.chat.has_value());
  json.key("has_image_understanding").value(model.images.has_value());
  json.key("tool_call_parser").value_or_null(model.tool_call_parser);
  json.key("reasoning_parser").value_or_null(model.reasoning_parser);
  return json.end_object().take();
}

ApiResult<std::string> tokenize_body(const ServedModel& model, std::string_view body) {
  const Json request = TRY(parse_body(body));
  const ApiFields fields(request);
  TRY(check_request_fields(fields, request_object::kTokenize, model.allow_unknown_fields));
  TRY(model.check_name(request));
  TRY(need_tokenizer(model, "prompt"));
  const std::optional<std::string> prompt = TRY(fields.string("prompt"));
  if (!prompt) return fields.wrong("prompt", "a string");
  const bool add_special = TRY(fields.boolean_or("add_special_tokens", true));
  const std::vector<TokenId> ids = TRY(model.encode(*prompt, add_special, "prompt"));
  JsonWriter json;
  json.object().key("tokens").array();
  for (const TokenId id : ids) json.value(id.value());
  json.end_array();
  if (TRY(fields.boolean_or("return_token_strs", false))) {
    json.key("token_strs").array();
    for (const TokenId id : ids) json.value(model.tokenizer->id_to_token(id).value_or(""));
    json.end_array();
  }
  json.key("count").value(ids.size()).key("max_model_len").value(model.context_length);
  return json.end_object().take();
}

ApiResult<std::string> detokenize_body(const ServedModel& model, std::string_view body) {
  const Json request = TRY(parse_body(body));
  const ApiFields fields(request);
  TRY(check_request_fields(fields, request_object::kDetokenize, model.allow_unknown_fields));
  TRY(model.check_name(request));
  TRY(need_tokenizer(model, "tokens"));
  if (TRY(fields.array("tokens")) == nullptr) return fields.wrong("tokens", "a list of token ids");
  const std::vector<TokenId> ids = TRY(fields.token_ids("tokens", model.vocab_size));
  const bool skip_special = TRY(fields.boolean_or("skip_special_tokens", false));
  JsonWriter json;
  json.object().key("prompt").value(model.tokenizer->decode(ids, skip_special));
  return json.end_object().take();
}

}  // namespace tessera
