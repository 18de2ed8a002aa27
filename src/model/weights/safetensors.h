// Reads and writes safetensors files. A file has the header's length in 8 bytes (little-endian), a JSON header {name:
// {dtype, shape, data_offsets}}, and the data. https://github.com/huggingface/safetensors#format
//
// The file is untrusted. The reader checks three things before it returns any view. Each view's range lies in the file.
// The range has the size that dtype and shape require. All ranges together cover the data without overlaps or gaps, as
// the format demands.
//
//   SafetensorsFile file = TRY(SafetensorsFile::open("model.safetensors"));
//   if (const StoredTensor* w = file.find("lm_head.weight")) …
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tessera/base/mapped_file.h"
#include "tessera/base/status.h"
#include "tessera/model/weights/stored_tensor.h"
#include "tessera/model/weights/tensor_writer.h"

namespace tessera {

class SafetensorsFile {
 public:
  static constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the reference implementation's limit
  static constexpr std::size_t kMaxRank = 8;

  // Maps the file read-only and checks its header. Pages of data are read when they are first touched. If the file is
  // truncated later, its missing bytes appear as zeros, and mapping()->check_whole() reports the truncation. Returns
  // not_found if the file does not exist; data_loss if its content is not a valid safetensors file. The message names
  // file, tensor, field, value and what is accepted.
  static Result<SafetensorsFile> open(const std::string& path);
  // Like open(), for bytes in memory that must outlive the result. `path` is for messages.
  static Result<SafetensorsFile> parse(std::span<const std::byte> bytes, const std::string& path);

  SafetensorsFile(SafetensorsFile&&) noexcept = default;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept = default;

  const std::string& path() const { return path_; }
  // Returns the tensors in the order of their data. Views and pointers to them are valid as long as this object lives,
  // even after a move.
  std::span<const StoredTensor> tensors() const { return tensors_; }
  const StoredTensor* find(std::string_view name) const;  // null if there is no tensor of this name
  // Moves the tensors out. Their data live as long as the mapped file.
  std::vector<StoredTensor> take_tensors() && { return std::move(tensors_); }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // Returns the mapped file; null if the bytes are borrowed.
  const std::shared_ptr<const MappedFile>& mapping() const { return mapping_; }

 private:
  SafetensorsFile() = default;
  std::string path_;
  std::shared_ptr<const MappedFile> mapping_;
  std::vector<StoredTensor> tensors_;
  std::unordered_map<std::string_view, std::size_t> by_name_;  // keys point into tensors_
  std::map<std::string, std::string> metadata_;
};

// Writes the tensors to a temporary file beside `path` and renames it, so that a reader sees either the old file or the
// complete new file. Tensors are ordered by element size, so that the data of each tensor are aligned. Returns
// invalid_argument for a name that occurs twice or data whose size is not dtype × shape. Errors of writing are those of
// ReplacementFile.
Status write_safetensors(const std::string& path, std::span<const StoredTensor> tensors,
                         const std::map<std::string, std::string>& metadata = {});

// A tensor whose content is computed while the file is written.
struct TensorLayout {
  std::string name;
  StoredDtype dtype = StoredDtype::kF32;
  std::vector<std::int64_t> shape;
};

// The number of bytes that a thread fills and writes at a time.
inline constexpr std::int64_t kWriteBytes = std::int64_t{8} << 20;
// Like write_safetensors() above, for tensors that need not fit in memory. Each OpenMP thread fills and writes
// kWriteBytes at a time. Returns an error of `content` unchanged.
Status write_safetensors(const std::string& path, std::span<const TensorLayout> tensors, const TensorContent& content,
                         const std::map<std::string, std::string>& metadata = {});

}  // namespace tessera
