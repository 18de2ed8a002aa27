#include "tessera/model/weights/block_read.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tessera/base/ceil_div.h"
#include "tessera/ops/quantised/blocks/packed_layout.h"

namespace tessera {
namespace {

// Neighbouring blocks of neighbouring rows of a matrix.
struct BlockPiece {
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::int64_t first_byte = 0;  // of a row
  std::int64_t bytes = 0;
};

BlockPiece piece_of(const SliceRuns& runs, std::int64_t row_bytes) {
  return {.first_row = runs.start / row_bytes,
          .rows = runs.num_runs > 1 ? runs.num_runs : ceil_div(runs.run, row_bytes),
          .first_byte = runs.start % row_bytes,
          .bytes = runs.num_runs > 1 ? runs.run : std::min(row_bytes, runs.run)};
}

}  // namespace

Status read_blocks(const StoredTensor& stored, const BlockStorage& storage, const SliceRuns& runs,
                   std::span<std::byte> dst) {
  const BlockTypeInfo& type = block_type_info(storage.type);
  const std::int64_t row_bytes = storage.cols / type.elements * type.bytes;
  const BlockPiece piece = piece_of(runs, row_bytes);
  const bool whole = storage.cols % type.elements == 0 && piece.first_byte % type.bytes == 0 &&
                     piece.bytes % type.bytes == 0 && piece.first_byte + piece.bytes <= row_bytes &&
                     piece.rows * piece.bytes == static_cast<std::int64_t>(dst.size()) &&
                     piece.first_row + piece.rows <= storage.rows;
  const bool stored_so = stored.blocks == storage.type && stored.made != nullptr &&
                         (storage.rows == 0 || stored.made->row_blocks(0) != nullptr);
  if (!whole || !stored_so)
    return invalid_argument(
        fmt::format("tensor \"{}\": bytes {} to {} of rows {} to {}; accepted: blocks of {}, {} bytes each",
                    stored.name, piece.first_byte, piece.first_byte + piece.bytes, piece.first_row,
                    piece.first_row + piece.rows, type.name, type.bytes));
  const std::int64_t cols = piece.bytes / type.bytes * type.elements;
#pragma omp parallel
  {
    std::vector<std::uint8_t> plain(static_cast<std::size_t>(kPackedRows * piece.bytes));
#pragma omp for schedule(static)
    for (std::int64_t first = 0; first < piece.rows; first += kPackedRows) {
      const std::int64_t count = std::min(kPackedRows, piece.rows - first);
      for (std::int64_t i = 0; i < count; ++i)
        std::memcpy(plain.data() + i * piece.bytes,
                    stored.made->row_blocks(piece.first_row + first + i) + piece.first_byte,
                    static_cast<std::size_t>(piece.bytes));
      pack_rows(storage.type, plain.data(), count, cols,
                reinterpret_cast<std::uint8_t*>(dst.data() + first * piece.bytes));
    }
  }
  return ok_status();
}

}  // namespace tessera
