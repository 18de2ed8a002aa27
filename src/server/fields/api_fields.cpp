#include "tessera/server/fields/api_fields.h"

#include <fmt/format.h>

namespace tessera {

ApiResult<Json> parse_body(std::string_view body) {
  Json json = TRY(Json::parse(body, "the request's body"));
  if (!json.is_object()) {
    return invalid_field("", fmt::format("the request's body is {}; accepted: a JSON object", shown_value(&json)));
  }
  return json;
}

ApiError invalid_field(std::string param, std::string message) {
  return {.http_status = 400, .message = std::move(message), .param = std::move(param), .code = "invalid_value"};
}

ApiError unsupported_field(std::string param, std::string message) {
  return {.http_status = 400, .message = std::move(message), .param = std::move(param), .code = "unsupported_value"};
}

template <class T>
ApiResult<T> ApiFields::named(std::string_view key, Result<T> result) const {
  if (!result.ok()) return invalid_field(param(key), result.status().message());
  return *std::move(result);
}

ApiResult<std::optional<std::int64_t>> ApiFields::integer(std::string_view key, std::int64_t low,
                                                          std::int64_t high) const {
  return named(key, fields_.optional_int(key, low, high));
}

ApiResult<std::optional<double>> ApiFields::number(std::string_view key, double low, double high) const {
  return named(key, fields_.optional_number(key, low, high));
}

ApiResult<std::optional<bool>> ApiFields::boolean(std::string_view key) const {
  return named(key, fields_.optional_bool(key));
}

ApiResult<bool> ApiFields::boolean_or(std::string_view key, bool otherwise) const {
  const std::optional<bool> value = TRY(boolean(key));
  return value.value_or(otherwise);
}

template <class T>
ApiResult<std::optional<T>> ApiFields::one_of(std::initializer_list<std::string_view> keys, const Read<T>& read) const {
  std::optional<T> out;
  std::string_view first;
  for (const std::string_view key : keys) {
    const std::optional<T> value = TRY(read(key));
    if (!value) continue;
    if (out && *out != *value) return contradiction(key, first);
    if (!out) first = key;
    out = value;
  }
  return out;
}

ApiResult<std::optional<std::int64_t>> ApiFields::integer_of(std::initializer_list<std::string_view> keys,
                                                             std::int64_t low, std::int64_t high) const {
  return one_of<std::int64_t>(keys, [&](std::string_view key) { return integer(key, low, high); });
}

ApiResult<bool> ApiFields::boolean_of(std::initializer_list<std::string_view> keys, bool otherwise) const {
  const std::optional<bool> value = TRY(one_of<bool>(keys, [&](std::string_view key) { return boolean(key); }));
  return value.value_or(otherwise);
}

ApiResult<std::optional<std::string>> ApiFields::string(std::string_view key) const {
  return named(key, fields_.optional_string(key));
}

ApiResult<std::vector<std::string>> ApiFields::strings(std::string_view key) const {
  std::vector<std::string> texts;
  const Json* value = find(key);
  if (value == nullptr) return texts;
  if (value->is_string()) return std::vector<std::string>{value->as_string()};
  if (!value->is_array()) return wrong(key, "a string or a list of strings");
  for (const Json& text : value->as_array()) {
    if (!text.is_string()) return wrong(key, "a string or a list of strings");
    texts.push_back(text.as_string());
  }
  return texts;
}

ApiResult<std::vector<TokenId>> ApiFields::token_ids(std::string_view key, std::int64_t vocab_size) const {
  return named(key, fields_.token_ids(key, vocab_size));
}

ApiResult<const Json*> ApiFields::object(std::string_view key) const {
  const Json* value = find(key);
  if (value != nullptr && !value->is_object()) return wrong(key, "an object");
  return value;
}

ApiResult<const Json*> ApiFields::array(std::string_view key) const {
  const Json* value = find(key);
  if (value != nullptr && !value->is_array()) return wrong(key, "a list");
  return value;
}

ApiError ApiFields::contradiction(std::string_view key, std::string_view other) const {
  return invalid_field(param(key),
                       fmt::format("request: field \"{}\" is {} and \"{}\" is {}; accepted: one of them, or the same "
                                   "value for both",
                                   param(key), shown_value(find(key)), param(other), shown_value(find(other))));
}

ApiError ApiFields::wrong(std::string_view key, std::string_view accepted) const {
  return invalid_field(param(key), fields_.wrong(key, accepted).message());
}

ApiError ApiFields::unsupported(std::string_view key, std::string_view accepted) const {
  return unsupported_field(param(key), fields_.unsupported(key, accepted).message());
}

}  // namespace tessera
