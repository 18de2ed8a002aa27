#include "tessera/model/gguf/gguf_value.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <limits>

#include "tessera/base/json.h"
#include "tessera/base/json_fields.h"

namespace tessera {
namespace {

template <class T>
T value_at(std::span<const std::byte> bytes, std::size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
  return value;
}

}  // namespace

std::string_view gguf_type_name(GgufType type) {
  constexpr std::array<std::string_view, kGgufTypes> kNames = {"UINT8",  "INT8",    "UINT16", "INT16",  "UINT32",
                                                               "INT32",  "FLOAT32", "BOOL",   "STRING", "ARRAY",
                                                               "UINT64", "INT64",   "FLOAT64"};
  return kNames[static_cast<std::size_t>(type)];
}

std::size_t gguf_type_bytes(GgufType type) {
  constexpr std::array<std::size_t, kGgufTypes> kBytes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return kBytes[static_cast<std::size_t>(type)];
}

std::optional<std::int64_t> GgufValue::integer_at(std::size_t index) const {
  switch (type_) {
    case GgufType::kUint8: return value_at<std::uint8_t>(bytes_, index);
    case GgufType::kInt8: return value_at<std::int8_t>(bytes_, index);
    case GgufType::kUint16: return value_at<std::uint16_t>(bytes_, index);
    case GgufType::kInt16: return value_at<std::int16_t>(bytes_, index);
    case GgufType::kUint32: return value_at<std::uint32_t>(bytes_, index);
    case GgufType::kInt32: return value_at<std::int32_t>(bytes_, index);
    case GgufType::kInt64: return value_at<std::int64_t>(bytes_, index);
    case GgufType::kUint64: {
      const auto value = value_at<std::uint64_t>(bytes_, index);
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
      return static_cast<std::int64_t>(value);
    }
    default: return std::nullopt;
  }
}

std::optional<double> GgufValue::number_at(std::size_t index) const {
  if (type_ == GgufType::kFloat32) return static_cast<double>(value_at<float>(bytes_, index));
  if (type_ == GgufType::kFloat64) return value_at<double>(bytes_, index);
  const std::optional<std::int64_t> integer = integer_at(index);
  return integer ? std::optional(static_cast<double>(*integer)) : std::nullopt;
}

std::optional<std::int64_t> GgufValue::integer() const { return is_list() ? std::nullopt : integer_at(0); }
std::optional<double> GgufValue::number() const { return is_list() ? std::nullopt : number_at(0); }

std::optional<bool> GgufValue::boolean() const {
  if (is_list() || type_ != GgufType::kBool) return std::nullopt;
  return value_at<std::uint8_t>(bytes_, 0) != 0;
}

std::optional<std::string_view> GgufValue::string() const {
  if (is_list() || type_ != GgufType::kString) return std::nullopt;
  return std::string_view(reinterpret_cast<const char*>(bytes_.data()), bytes_.size()).substr(sizeof(std::uint64_t));
}

std::optional<std::vector<std::int64_t>> GgufValue::integers() const {
  if (!is_list()) return std::nullopt;
  std::vector<std::int64_t> values;
  values.reserve(size());
  for (std::size_t i = 0; i < size(); ++i) {
    const std::optional<std::int64_t> value = integer_at(i);
    if (!value) return std::nullopt;
    values.push_back(*value);
  }
  return values;
}

std::optional<std::vector<double>> GgufValue::numbers() const {
  if (!is_list()) return std::nullopt;
  std::vector<double> values;
  values.reserve(size());
  for (std::size_t i = 0; i < size(); ++i) {
    const std::optional<double> value = number_at(i);
    if (!value) return std::nullopt;
    values.push_back(*value);
  }
  return values;
}

std::optional<std::vector<bool>> GgufValue::booleans() const {
  if (!is_list() || type_ != GgufType::kBool) return std::nullopt;
  std::vector<bool> values;
  for (const std::byte value : bytes_) values.push_back(value != std::byte{0});
  return values;
}

std::optional<std::vector<std::string_view>> GgufValue::strings() const {
  if (!is_list() || type_ != GgufType::kString) return std::nullopt;
  std::vector<std::string_view> values;
  values.reserve(size());
  std::string_view rest(reinterpret_cast<const char*>(bytes_.data()), bytes_.size());
  for (std::uint64_t i = 0; i < size(); ++i) {
    std::uint64_t length = 0;
    if (rest.size() < sizeof length) return std::nullopt;
    std::memcpy(&length, rest.data(), sizeof length);
    rest.remove_prefix(sizeof length);
    if (length > rest.size()) return std::nullopt;
    values.push_back(rest.substr(0, length));
    rest.remove_prefix(length);
  }
  return values;
}

std::string GgufValue::shown() const {
  if (is_list()) return fmt::format("{} of {}", size(), gguf_type_name(type_));
  if (const auto text = string()) return clip_text(Json(*text).dump());
  if (const auto value = boolean()) return *value ? "true" : "false";
  if (const auto value = integer()) return fmt::format("{}", *value);
  if (type_ == GgufType::kUint64) return fmt::format("{}", value_at<std::uint64_t>(bytes_, 0));
  return fmt::format("{}", number().value_or(0));
}

}  // namespace tessera
