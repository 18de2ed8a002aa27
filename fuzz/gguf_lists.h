// A GGUF file as lists of metadata and tensors, which can be changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/model/gguf/gguf_file.h"

namespace tessera::fuzz {

struct GgufLists {
  struct Pair {
    std::string key;
    GgufType type;
    bool is_list;
    std::vector<std::string> elements;  // texts without their length
  };
  struct Tensor {
    std::string name;
    BlockType type;
    std::vector<std::int64_t> shape;
    std::string data;
  };

  // Returns nothing if the bytes are not a valid file. The result owns its bytes.
  static std::optional<GgufLists> read(std::span<const std::byte> bytes);
  // Returns a file whose lengths, counts and offsets fit.
  std::string write() const;
  // Returns the pair with this key, or null.
  Pair* find(std::string_view key);

  std::vector<Pair> pairs;
  std::vector<Tensor> tensors;
};

}  // namespace tessera::fuzz
