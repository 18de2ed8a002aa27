// Checked access to the members of a request's JSON object. An error is a 400 whose `param` is the field's path and
// whose message names the field, its value and the accepted values. A member that is null counts as absent.
// request_fields.h lists the members that a request may have.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/json_fields.h"
#include "tessera/base/strong_id.h"
#include "tessera/server/api_result.h"

namespace tessera {

// Parses a request's body. The top-level value must be an object.
ApiResult<Json> parse_body(std::string_view body);

// Returns a 400 that names `param`, for an invalid value.
ApiError invalid_field(std::string param, std::string message);
// Returns a 400 that names `param`, for a valid value that this server does not support.
ApiError unsupported_field(std::string param, std::string message);

class ApiFields {
 public:
  // Borrows `object`. Errors put `prefix` ("sampling_params.") before each key.
  explicit ApiFields(const Json& object, std::string prefix = {})
      : object_(object), fields_(object, "request", prefix), prefix_(std::move(prefix)) {}

  const Json::Object& members() const { return object_.as_object(); }
  // Returns null if the key is absent or its value is null.
  const Json* find(std::string_view key) const { return fields_.find(key); }
  std::string param(std::string_view key) const { return prefix_ + std::string(key); }

  // Read a member, or return nothing if it is absent. Values of integer() and number() must be within [low, high].
  ApiResult<std::optional<std::int64_t>> integer(std::string_view key, std::int64_t low, std::int64_t high) const;
  ApiResult<std::optional<double>> number(std::string_view key, double low, double high) const;
  ApiResult<std::optional<bool>> boolean(std::string_view key) const;
  ApiResult<bool> boolean_or(std::string_view key, bool otherwise) const;
  ApiResult<std::optional<std::string>> string(std::string_view key) const;
  // Reads a string or a list of strings. The result is empty if the key is absent.
  ApiResult<std::vector<std::string>> strings(std::string_view key) const;
  // Reads an id or a list of ids, each below vocab_size. The result is empty if the key is absent.
  ApiResult<std::vector<TokenId>> token_ids(std::string_view key, std::int64_t vocab_size) const;
  // Read an object or a list. The result is null if the key is absent.
  ApiResult<const Json*> object(std::string_view key) const;
  ApiResult<const Json*> array(std::string_view key) const;

  // Reads a field that has several names. If two names have different values, the error is a 400 that names both.
  ApiResult<std::optional<std::int64_t>> integer_of(std::initializer_list<std::string_view> keys, std::int64_t low,
                                                    std::int64_t high) const;
  ApiResult<bool> boolean_of(std::initializer_list<std::string_view> keys, bool otherwise) const;

  // Returns the error for a request whose fields `key` and `other` contradict each other.
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
