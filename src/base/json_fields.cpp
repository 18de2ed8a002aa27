#include "tessera/base/json_fields.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <utility>

namespace tessera {
namespace {

constexpr std::uintmax_t kMaxJsonFileBytes = 16u << 20;
constexpr std::size_t kMaxShownText = 120;

}  // namespace

std::string shown_value(const Json* value) {
  if (value == nullptr) return "missing";
  if (value->is_object()) return fmt::format("an object of {} members", value->as_object().size());
  if (value->is_array() && value->as_array().size() > 8) {
    return fmt::format("a list of {} values", value->as_array().size());
  }
  return clip_text(value->dump());
}

std::string clip_text(std::string text) {
  if (text.size() <= kMaxShownText) return text;
  std::size_t end = kMaxShownText;
  // Moves the cut to the start of a UTF-8 character.
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0u) == 0x80u) --end;
  text.resize(end);
  return text + "…";
}

Result<Json> read_json_object(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    return not_found(fmt::format("{} is not there or is no regular file", path));
  }
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) return not_found(fmt::format("cannot read {}: {}", path, error.message()));
  if (size > kMaxJsonFileBytes) {
    return invalid_argument(fmt::format("{} is {} bytes long; accepted: at most {}", path, size, kMaxJsonFileBytes));
  }
  Json json = TRY(Json::read_file(path));
  if (!json.is_object()) {
    return invalid_argument(fmt::format("{} holds {} {}; accepted: an object", path,
                                        json.is_array() || json.is_int() ? "an" : "a", json.type_name()));
  }
  return json;
}

const Json* Fields::find(std::string_view key) const {
  const Json* value = object_.find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

Result<std::int64_t> Fields::required_int(std::string_view key, std::int64_t low, std::int64_t high) const {
  const std::optional<std::int64_t> value = TRY(optional_int(key, low, high));
  if (!value) return wrong(key, fmt::format("an integer in [{}, {}]", low, high));
  return *value;
}

Status Fields::read_size(std::string_view key, std::int64_t most, std::int64_t& size) const {
  if (size == 0 || find(key) != nullptr) size = TRY(required_int(key, 1, most));
  return ok_status();
}

Result<std::optional<std::int64_t>> Fields::optional_int(std::string_view key, std::int64_t low,
                                                         std::int64_t high) const {
  const Json* value = find(key);
  if (value == nullptr) return std::optional<std::int64_t>();
  if (!value->is_int() || value->as_int() < low || value->as_int() > high) {
    return wrong(key, fmt::format("an integer in [{}, {}]", low, high));
  }
  return std::optional(value->as_int());
}

Result<double> Fields::required_number(std::string_view key, double low, double high) const {
  const std::optional<double> value = TRY(optional_number(key, low, high));
  if (!value) return wrong(key, fmt::format("a number in [{}, {}]", low, high));
  return *value;
}

Result<std::optional<double>> Fields::optional_number(std::string_view key, double low, double high) const {
  const Json* value = find(key);
  if (value == nullptr) return std::optional<double>();
  if (!value->is_number() || !(value->as_double() >= low && value->as_double() <= high)) {
    return wrong(key, fmt::format("a number in [{}, {}]", low, high));
  }
  return std::optional(value->as_double());
}

Result<std::vector<double>> Fields::required_numbers(std::string_view key, std::size_t count, double low,
                                                     double high) const {
  const std::string accepted = fmt::format("a list of {} numbers in [{}, {}]", count, low, high);
  const Json* value = find(key);
  if (value == nullptr || !value->is_array() || value->as_array().size() != count) return wrong(key, accepted);
  std::vector<double> numbers;
  for (const Json& number : value->as_array()) {
    if (!number.is_number() || !(number.as_double() >= low && number.as_double() <= high)) return wrong(key, accepted);
    numbers.push_back(number.as_double());
  }
  return numbers;
}

Result<std::optional<bool>> Fields::optional_bool(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::optional<bool>();
  if (!value->is_bool()) return wrong(key, "true or false");
  return std::optional(value->as_bool());
}

Result<std::optional<std::string>> Fields::optional_string(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::optional<std::string>();
  if (!value->is_string()) return wrong(key, "a string");
  return std::optional(value->as_string());
}

Result<std::vector<TokenId>> Fields::token_ids(std::string_view key, std::int64_t vocab_size) const {
  std::vector<TokenId> ids;
  const Json* value = find(key);
  if (value == nullptr) return ids;
  const auto add = [&](const Json& id) {
    if (!id.is_int() || id.as_int() < 0 || id.as_int() >= vocab_size) return false;
    ids.emplace_back(static_cast<std::int32_t>(id.as_int()));
    return true;
  };
  bool good = true;
  if (value->is_array()) {
    for (const Json& id : value->as_array()) good = good && add(id);
  } else {
    good = add(*value);
  }
  if (!good) return wrong(key, fmt::format("a token id in [0, {}] or a list of them", vocab_size - 1));
  return ids;
}

Fields Fields::inside(std::string_view key, const Json& member) const {
  return {member, file_, fmt::format("{}{}.", prefix_, key)};
}

Status Fields::wrong(std::string_view key, std::string_view accepted) const {
  return invalid_argument(describe(key, accepted));
}

Status Fields::unsupported(std::string_view key, std::string_view accepted) const {
  return unimplemented(describe(key, accepted));
}

std::string Fields::describe(std::string_view key, std::string_view accepted) const {
  return fmt::format("{}: field \"{}{}\" is {}; accepted: {}", file_, prefix_, key, shown_value(object_.find(key)),
                     accepted);
}

}  // namespace tessera
