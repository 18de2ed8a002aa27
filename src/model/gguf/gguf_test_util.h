// Writes small GGUF files. For tests only.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/model/gguf/gguf_value.h"
#include "tessera/ops/quantised/block_types.h"

namespace tessera::test {

// Builds the bytes of a file piece by piece. Checks nothing, so that tests can build invalid files.
class GgufBytes {
 public:
  template <class T>
  GgufBytes& put(T value) {
    const auto* const begin = reinterpret_cast<const char*>(&value);
    bytes_.append(begin, sizeof value);
    return *this;
  }
  GgufBytes& text(std::string_view text) {
    put<std::uint64_t>(text.size());
    bytes_ += text;
    return *this;
  }
  GgufBytes& raw(std::string_view bytes) {
    bytes_ += bytes;
    return *this;
  }
  GgufBytes& start(std::uint64_t tensors, std::uint64_t pairs, std::uint32_t version = 3) {
    return raw("GGUF").put(version).put(tensors).put(pairs);
  }
  GgufBytes& key(std::string_view key, GgufType type) { return text(key).put(static_cast<std::uint32_t>(type)); }
  GgufBytes& list(std::string_view key, GgufType type, std::uint64_t count) {
    return this->key(key, GgufType::kArray).put(static_cast<std::uint32_t>(type)).put(count);
  }
  GgufBytes& pair(std::string_view key, std::uint32_t value) { return this->key(key, GgufType::kUint32).put(value); }
  GgufBytes& pair(std::string_view key, std::string_view value) {
    return this->key(key, GgufType::kString).text(value);
  }
  // `sizes` are in the order of the file, which has the length of a row first.
  GgufBytes& tensor(std::string_view name, const std::vector<std::uint64_t>& sizes, BlockType type,
                    std::uint64_t offset) {
    text(name).put(static_cast<std::uint32_t>(sizes.size()));
    for (const std::uint64_t size : sizes) put(size);
    return put(static_cast<std::uint32_t>(type)).put(offset);
  }
  GgufBytes& pad(std::size_t alignment = 32) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment);
    return *this;
  }
  GgufBytes& zeros(std::size_t count) {
    bytes_.resize(bytes_.size() + count);
    return *this;
  }

  const std::string& string() const { return bytes_; }
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(bytes_)); }

 private:
  std::string bytes_;
};

}  // namespace tessera::test
