// Safetensors files: 8 bytes header length (little-endian), a JSON header {name: {dtype, shape, data_offsets}}, data.
// https://github.com/huggingface/safetensors#format
//
// The reader trusts nothing. Before it returns a view, it has checked three things: the view's range lies in the file,
// the range is as long as dtype and shape say, and all ranges together tile the data without overlap or hole, as the
// format demands.
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

  // Maps the file read-only and checks its header; pages of data are read when they are first touched. Bytes of a file
  // that is truncated afterwards read as zeros, which mapping()->check_whole() reports. not_found; data_loss if the
  // content is no valid file. The message names file, tensor, field, value and what is accepted.
  static Result<SafetensorsFile> open(const std::string& path);
  // Like open(), over bytes that the caller keeps alive. `path` is for messages.
  static Result<SafetensorsFile> parse(std::span<const std::byte> bytes, const std::string& path);

  SafetensorsFile(SafetensorsFile&&) noexcept = default;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept = default;

  const std::string& path() const { return path_; }
  // Returns the tensors in the order of their data. Views and pointers to them live as long as this object, even after
  // a move.
  std::span<const StoredTensor> tensors() const { return tensors_; }
  const StoredTensor* find(std::string_view name) const;  // null if there is none
  // Gives the tensors away. Their data lives as long as mapping().
  std::vector<StoredTensor> take_tensors() && { return std::move(tensors_); }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // Null for borrowed bytes.
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
// whole new one. Data is ordered by element size, so that all of it is aligned. invalid_argument for a name given twice
// or data whose size is not dtype × shape; if writing fails, the errors of ReplacementFile.
Status write_safetensors(const std::string& path, std::span<const StoredTensor> tensors,
                         const std::map<std::string, std::string>& metadata = {});

// A tensor of a file whose content is made while the file is written.
struct TensorLayout {
  std::string name;
  StoredDtype dtype = StoredDtype::kF32;
  std::vector<std::int64_t> shape;
};

// Like write_safetensors() above, for tensors that need not fit in memory. OpenMP's threads, if the build has it, each
// fill and write kWriteBytes at a time. An error of `content` is returned as it is.
inline constexpr std::int64_t kWriteBytes = std::int64_t{8} << 20;
Status write_safetensors(const std::string& path, std::span<const TensorLayout> tensors, const TensorContent& content,
                         const std::map<std::string, std::string>& metadata = {});

}  // namespace tessera
