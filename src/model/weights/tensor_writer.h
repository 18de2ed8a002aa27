// Writes the data of a file's tensors, which need not fit in memory: threads make and write a piece at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "tessera/base/replacement_file.h"
#include "tessera/base/status.h"

namespace tessera {

// The content of a file's tensors, made while the file is written.
struct TensorContent {
  // Writes bytes of tensor `index` from `offset` on to `to`; offset and size are multiples of its unit: of its
  // element's size, and in GGUF files of its row's. Called from several threads at once; must not throw.
  std::function<Status(std::size_t index, std::int64_t offset, std::span<std::byte> to)> fill;
  // Receives the number of further bytes of data that were written; may be empty. One thread at a time calls it, and
  // its error ends the write.
  std::function<Status(std::int64_t bytes)> on_written = {};
  // Is called when all data are written; may be empty. Its error leaves no file.
  std::function<Status()> before_commit = {};
};

// Where a tensor's data lie in the file.
struct PlacedTensor {
  std::size_t index = 0;  // for TensorContent
  std::int64_t at = 0;
  std::int64_t bytes = 0;
  std::int64_t unit = 1;  // divides `bytes`
};

// Fills and writes all tensors, in their order, in pieces of at most `piece_bytes`, or of one unit if that is more.
// OpenMP's threads, if the build has it, take one piece at a time. Returns the first error.
Status write_tensor_data(std::span<const PlacedTensor> tensors, std::int64_t piece_bytes, const TensorContent& content,
                         const ReplacementFile& file);

}  // namespace tessera
