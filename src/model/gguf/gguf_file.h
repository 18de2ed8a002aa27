// Reads one GGUF file. It has a header with metadata and tensor entries, then the tensors' data.
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
//
// Supports versions 2 and 3, little-endian. The file is untrusted. Before the reader returns a view, it has checked
// that the view lies within the file and that no two tensors share bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tessera/base/mapped_file.h"
#include "tessera/base/status.h"
#include "tessera/model/gguf/gguf_value.h"
#include "tessera/ops/quantised/block_types.h"

namespace tessera {

struct GgufTensor {
  std::string name;
  BlockType type = BlockType::kF32;
  std::vector<std::int64_t> shape;  // rows first, as everywhere in this engine; files store the reverse order
  std::span<const std::byte> data;  // rows without gaps; borrowed from the file
  float factor = 1;                 // multiplies all numbers; the header has none, so readers of models set it
};

class GgufFile {
 public:
  static constexpr std::uint32_t kMaxRank = 4;
  static constexpr std::size_t kMaxNameBytes = 65535;  // the format's limit for keys
  // The reader's own limits, far above what models have. Such numbers become lists in memory, and a file with holes,
  // which takes no space on a disk, can be large enough for any number.
  static constexpr std::uint64_t kMaxPairs = std::uint64_t{1} << 20;
  static constexpr std::uint64_t kMaxTensors = std::uint64_t{1} << 20;
  static constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 24;   // elements in a list
  static constexpr std::uint64_t kMaxTextBytes = std::uint64_t{1} << 26;  // bytes of a text in the metadata

  // Maps the file and checks its header. If the file is truncated later, the missing bytes read as zeros, and
  // mapping()->check_whole() reports it. Returns not_found if the file does not exist, and data_loss if its content is
  // not a valid GGUF file. Returns unimplemented for another version or byte order and for unknown types. The message
  // names the file, the key or tensor, the value and what is accepted.
  static Result<GgufFile> open(const std::string& path);
  // Like open(), for bytes in memory that must outlive the result. `path` is for messages.
  static Result<GgufFile> parse(std::span<const std::byte> bytes, const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }  // in the order of the header
  // Returns the tensor of this name; null if there is none. Takes a logarithmic time.
  const GgufTensor* find_tensor(std::string_view name) const;
  // Returns the metadata's value for a key; null if the key is absent.
  const GgufValue* find(std::string_view key) const;
  // Returns the keys in the order of the file.
  const std::vector<std::string_view>& keys() const { return keys_; }
  // Returns the mapped file; null if the bytes are borrowed.
  const std::shared_ptr<const MappedFile>& mapping() const { return mapping_; }

 private:
  friend class GgufParser;
  GgufFile() = default;
  std::string path_;
  std::shared_ptr<const MappedFile> mapping_;
  std::vector<GgufTensor> tensors_;
  std::vector<std::size_t> by_name_;    // indices of `tensors_`, sorted by name
  std::vector<std::string_view> keys_;  // views into the file
  std::unordered_map<std::string_view, GgufValue> values_;
};

}  // namespace tessera
