#include "tessera/model/gguf/gguf_metadata.h"

#include <algorithm>
#include <type_traits>
#include <utility>

namespace tessera {
namespace {

template <class T>
void append(std::string& to, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append_text(std::string& to, std::string_view text) {
  append(to, std::uint64_t{text.size()});
  to += text;
}

std::string start_of(GgufType type) {
  std::string bytes;
  append(bytes, type);
  return bytes;
}

std::string start_of_list(GgufType type, std::size_t count) {
  std::string bytes = start_of(GgufType::kArray);
  append(bytes, type);
  append(bytes, std::uint64_t{count});
  return bytes;
}

template <class T>
std::string one(GgufType type, T value) {
  std::string bytes = start_of(type);
  append(bytes, value);
  return bytes;
}

template <class T>
std::string list(GgufType type, std::span<const T> values) {
  std::string bytes = start_of_list(type, values.size());
  for (const T value : values) append(bytes, value);
  return bytes;
}

}  // namespace

void GgufMetadata::put(std::string_view key, std::string value) {
  const auto found = std::ranges::find(entries_, key, &Entry::key);
  if (found != entries_.end())
    found->value = std::move(value);
  else
    entries_.push_back({std::string(key), std::move(value)});
}

void GgufMetadata::set_string(std::string_view key, std::string_view text) {
  std::string bytes = start_of(GgufType::kString);
  append_text(bytes, text);
  put(key, std::move(bytes));
}

void GgufMetadata::set_uint32(std::string_view key, std::int64_t number) {
  put(key, one(GgufType::kUint32, static_cast<std::uint32_t>(number)));
}

void GgufMetadata::set_int32(std::string_view key, std::int64_t number) {
  put(key, one(GgufType::kInt32, static_cast<std::int32_t>(number)));
}

void GgufMetadata::set_float32(std::string_view key, double number) {
  put(key, one(GgufType::kFloat32, static_cast<float>(number)));
}

void GgufMetadata::set_bool(std::string_view key, bool flag) {
  put(key, one(GgufType::kBool, static_cast<std::uint8_t>(flag)));
}

void GgufMetadata::set_bools(std::string_view key, const std::vector<bool>& flags) {
  const std::vector<std::uint8_t> bytes(flags.begin(), flags.end());
  put(key, list(GgufType::kBool, std::span<const std::uint8_t>(bytes)));
}

void GgufMetadata::set_strings(std::string_view key, std::span<const std::string> texts) {
  std::string bytes = start_of_list(GgufType::kString, texts.size());
  for (const std::string& text : texts) append_text(bytes, text);
  put(key, std::move(bytes));
}

void GgufMetadata::set_int32s(std::string_view key, std::span<const std::int32_t> numbers) {
  put(key, list(GgufType::kInt32, numbers));
}

void GgufMetadata::set_float32s(std::string_view key, std::span<const float> numbers) {
  put(key, list(GgufType::kFloat32, numbers));
}

void GgufMetadata::set(std::string_view key, const GgufValue& value) {
  std::string bytes = value.is_list() ? start_of_list(value.type(), value.size()) : start_of(value.type());
  const std::span<const std::byte> content = value.bytes();
  bytes.append(reinterpret_cast<const char*>(content.data()), content.size());
  put(key, std::move(bytes));
}

bool GgufMetadata::has(std::string_view key) const {
  return std::ranges::find(entries_, key, &Entry::key) != entries_.end();
}

std::string GgufMetadata::bytes() const {
  std::string bytes;
  for (const Entry& entry : entries_) {
    append_text(bytes, entry.key);
    bytes += entry.value;
  }
  return bytes;
}

}  // namespace tessera
