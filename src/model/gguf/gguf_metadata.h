// Collects the metadata of a GGUF file before the file is written.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/model/gguf/gguf_value.h"

namespace tessera {

// A list of keys with values, in the order in which the keys were first set. The value types are those that llama.cpp's
// converters write, because other readers expect them.
class GgufMetadata {
 public:
  void set_string(std::string_view key, std::string_view text);
  void set_uint32(std::string_view key, std::int64_t number);  // Precondition: `number` fits.
  void set_int32(std::string_view key, std::int64_t number);   // Precondition: `number` fits.
  void set_float32(std::string_view key, double number);
  void set_bool(std::string_view key, bool flag);
  void set_bools(std::string_view key, const std::vector<bool>& flags);
  void set_strings(std::string_view key, std::span<const std::string> texts);
  void set_int32s(std::string_view key, std::span<const std::int32_t> numbers);
  void set_float32s(std::string_view key, std::span<const float> numbers);
  // Copies a value from another file.
  void set(std::string_view key, const GgufValue& value);

  bool has(std::string_view key) const;
  std::size_t size() const { return entries_.size(); }
  // Returns the keys, types and values as a file stores them.
  std::string bytes() const;

 private:
  struct Entry {
    std::string key;
    std::string value;  // type (and element type), then the value's bytes
  };
  void put(std::string_view key, std::string value);

  std::vector<Entry> entries_;
};

}  // namespace tessera
