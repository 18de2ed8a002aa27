// Safetensors files: 8 bytes header length (little-endian), a JSON header {name: {dtype, shape, data_offsets}}, data.
// https://github.com/huggingface/safetensors#format
//
// The reader trusts nothing: before a view is given out its range is known to lie in the file and to be as long as
// dtype and shape say, and all ranges together tile the data without overlap or hole, as the format demands.
//
//   SafetensorsFile file = TRY(SafetensorsFile::open("model.safetensors"));
//   if (const StoredTensor* w = file.find("lm_head.weight")) …
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/model/weights/stored_dtype.h"

namespace tessera {

// A tensor in memory that someone else owns: row-major, dense, little-endian. `data` may have any alignment (a header
// of odd length shifts all of it).
struct StoredTensor {
  std::string name;
  StoredDtype dtype = StoredDtype::kF32;
  std::vector<std::int64_t> shape;  // {} for a scalar
  std::span<const std::byte> data;  // borrowed: lives as long as the file or buffer it came from

  std::int64_t num_elements() const { return static_cast<std::int64_t>(data.size()) / stored_dtype_bytes(dtype); }
};

// "[2, 3]"
std::string shape_text(std::span<const std::int64_t> shape);
// Product × element size; none on a negative dimension or overflow of 63 bits.
std::optional<std::int64_t> tensor_bytes(std::span<const std::int64_t> shape, StoredDtype dtype);

class SafetensorsFile {
 public:
  static constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the reference implementation's limit
  static constexpr std::size_t kMaxRank = 8;

  // Maps the file read-only and checks its header; pages of data are read when first touched. A file that is
  // truncated while mapped raises SIGBUS on access, as any mapping does: checkpoints are not to be edited in place
  // while they load (replacing one by rename is safe).
  // not_found, data_loss (the content is no valid file); the message names file, tensor, field, value, accepted.
  static Result<SafetensorsFile> open(const std::string& path);
  // The same over bytes the caller keeps alive. `path` is for messages.
  static Result<SafetensorsFile> parse(std::span<const std::byte> bytes, const std::string& path);

  SafetensorsFile(SafetensorsFile&&) noexcept = default;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept = default;

  const std::string& path() const { return path_; }
  // In the order of their data. Views and pointers to them live as long as this object, moves included.
  std::span<const StoredTensor> tensors() const { return tensors_; }
  const StoredTensor* find(std::string_view name) const;  // null where there is none
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  SafetensorsFile() = default;
  std::string path_;
  std::shared_ptr<const void> mapping_;  // unmaps with the last owner; empty for borrowed bytes
  std::vector<StoredTensor> tensors_;
  std::unordered_map<std::string_view, std::size_t> by_name_;  // keys point into tensors_
  std::map<std::string, std::string> metadata_;
};

// Writes the tensors (data ordered by element size, so that all are aligned) to a temporary file beside `path` and
// renames it: a reader sees the old file or the whole new one. invalid_argument on a name given twice or data whose
// size is not dtype × shape; data_loss with the system's reason where writing fails.
Status write_safetensors(const std::string& path, std::span<const StoredTensor> tensors,
                         const std::map<std::string, std::string>& metadata = {});

// A tensor of a file whose content is made while it is written.
struct TensorLayout {
  std::string name;
  StoredDtype dtype = StoredDtype::kF32;
  std::vector<std::int64_t> shape;
};

struct TensorContent {
  // Writes the bytes of tensor `index` from `offset` on, both multiples of its element's size, to `to`. Called from
  // several threads at once; must not throw.
  std::function<Status(std::size_t index, std::int64_t offset, std::span<std::byte> to)> fill;
  // Told how many more bytes of data are written; may be empty. Called by one thread at a time; its error ends the
  // write.
  std::function<Status(std::int64_t bytes)> on_written = {};
};

// The same for tensors that need not fit in memory: OpenMP's threads, where the build has it, each fill and write
// kWriteBytes at a time. An error of `content` is returned as it is.
inline constexpr std::int64_t kWriteBytes = std::int64_t{8} << 20;
Status write_safetensors(const std::string& path, std::span<const TensorLayout> tensors, const TensorContent& content,
                         const std::map<std::string, std::string>& metadata = {});

}  // namespace tessera
