// Writes the data of tensors that need not fit in memory. Each thread computes and writes one piece at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "tessera/base/replacement_file.h"
#include "tessera/base/status.h"

namespace tessera {

// The content of a file's tensors, which is computed while the file is written.
struct TensorContent {
  // Fills `to` with the bytes of tensor `index` that begin at `offset`. The offset and the size of `to` are multiples
  // of the tensor's unit, which is the size of an element or, in GGUF files, of a row. Called from several threads at
  // once. Must not throw.
  std::function<Status(std::size_t index, std::int64_t offset, std::span<std::byte> to)> fill;
  // Called after each piece with the number of data bytes in it. May be empty. Called from one thread at a time. An
  // error that this function returns ends the write.
  std::function<Status(std::int64_t bytes)> on_written = {};
  // Called after all data are written. May be empty. If it returns an error, the file is removed.
  std::function<Status()> before_commit = {};
};

// The position of a tensor's data in the file.
struct PlacedTensor {
  std::size_t index = 0;  // the index that TensorContent::fill receives
  std::int64_t at = 0;
  std::int64_t bytes = 0;
  std::int64_t unit = 1;  // divides `bytes`
};

// Fills and writes all tensors in order, in pieces of at most `piece_bytes`. If a tensor's unit is larger than
// `piece_bytes`, each piece of this tensor is one unit. If the build has OpenMP, each of its threads processes one
// piece at a time. Returns the first error.
Status write_tensor_data(std::span<const PlacedTensor> tensors, std::int64_t piece_bytes, const TensorContent& content,
                         ReplacementFile& file);

}  // namespace tessera
