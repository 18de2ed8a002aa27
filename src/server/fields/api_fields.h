// Checked access to the members of a request's JSON object. Errors are 400s whose `param` is the field's path and whose
// message names field, value and what is accepted. A member that is null counts as absent; request_fields.h says which
// there may be.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/strong_id.h"
#include "tessera/model/config/fields.h"
#include "tessera/server/api_result.h"

namespace tessera {

// A request's body; its top is an object.
ApiResult<Json> parse_body(std::string_view body);

// 400 that names `param`: the value is of no use.
ApiError invalid_field(std::string param, std::string message);
// 400 that names `param`: the value is good, and this server does not do it.
ApiError unsupported_field(std::string param, std::string message);

class ApiFields {
 public:
  // Borrows `object`. `prefix` stands before each key ("sampling_params.").
  explicit ApiFields(const Json& object, std::string prefix = {})
      : object_(object), fields_(object, "request", prefix), prefix_(std::move(prefix)) {}

  const Json::Object& members() const { return object_.as_object(); }
  const Json* find(std::string_view key) const { return fields_.find(key); }  // null where absent or null
  std::string param(std::string_view key) const { return prefix_ + std::string(key); }

  // Within [low, high].
  ApiResult<std::optional<std::int64_t>> integer(std::string_view key, std::int64_t low, std::int64_t high) const;
  ApiResult<std::optional<double>> number(std::string_view key, double low, double high) const;
  ApiResult<std::optional<bool>> boolean(std::string_view key) const;
  ApiResult<bool> boolean_or(std::string_view key, bool otherwise) const;
  ApiResult<std::optional<std::string>> string(std::string_view key) const;
  // A string or a list of strings; empty where absent.
  ApiResult<std::vector<std::string>> strings(std::string_view key) const;
  // An id or a list of ids, each below vocab_size; empty where absent.
  ApiResult<std::vector<TokenId>> token_ids(std::string_view key, std::int64_t vocab_size) const;
  // An object, or null where absent.
  ApiResult<const Json*> object(std::string_view key) const;
  ApiResult<const Json*> array(std::string_view key) const;

  // Of a field with several names: 400 that names both where two of them differ.
  ApiResult<std::optional<std::int64_t>> integer_of(std::initializer_list<std::string_view> keys, std::int64_t low,
                                                    std::int64_t high) const;
  ApiResult<bool> boolean_of(std::initializer_list<std::string_view> keys, bool otherwise) const;

  // `key` and `other` ask for different things.
  ApiError contradiction(std::string_view key, std::string_view other) const;
  ApiError wrong(std::string_view key, std::string_view accepted) const;
  ApiError unsupported(std::string_view key, std::string_view accepted) const;

 private:
  template <class T>
  using Read = std::function<ApiResult<std::optional<T>>(std::string_view key)>;
  template <class T>
  ApiResult<std::optional<T>> one_of(std::initializer_list<std::string_view> keys, const Read<T>& read) const;
  template <class T>
  ApiResult<T> named(std::string_view key, Result<T> result) const;

  const Json& object_;
  Fields fields_;
  std::string prefix_;
};

}  // namespace tessera
