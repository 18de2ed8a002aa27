#include "tessera/model/weights/block_read.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "tessera/base/ceil_div.h"
#include "tessera/base/float16.h"
#include "tessera/model/rounding/quantise_values.h"
#include "tessera/ops/quantised/blocks/block_codes.h"
#include "tessera/ops/quantised/blocks/packed_layout.h"

namespace tessera {

std::int64_t BlockStorage::per_block() const {
  const BlockTypeInfo& info = block_type_info(type);
  if (content == Content::kBlocks) return info.bytes;
  const QuantisedFormat& format = *block_codes_format(type);
  if (content == Content::kCodes) return info.elements / format.values_of_byte();
  return info.elements / format.group_cols * (format.scales == QuantisedFormat::Scales::kPairs ? 2 : 1);
}

namespace {

// A rectangle of a matrix: the same columns of consecutive rows, and the blocks that contain these columns. An element
// is a byte of a block, a byte of codes, or a scale, as BlockStorage::content says.
struct BlockPiece {
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::int64_t first_block = 0;  // index of the first block within a row
  std::int64_t blocks = 0;
  std::int64_t skipped = 0;   // elements of a row's first block that precede the rectangle
  std::int64_t elements = 0;  // elements in a row of the rectangle
};

// Returns the number of elements that must be read together. These are the elements of a block or, if codes or scales
// are read, the elements of a group.
std::int64_t indivisible(const BlockStorage& storage) {
  if (storage.content == BlockStorage::Content::kBlocks) return storage.per_block();
  const std::int64_t groups = block_type_info(storage.type).elements / block_codes_format(storage.type)->group_cols;
  return storage.per_block() / groups;
}

// Returns the rectangle that the runs cover. Returns nothing if a run begins or ends within elements that must be read
// together, or if the runs exceed the matrix. `size` is the number of elements in the runs.
std::optional<BlockPiece> piece_of(const SliceRuns& runs, const BlockStorage& storage, std::int64_t size) {
  const BlockTypeInfo& type = block_type_info(storage.type);
  const std::int64_t per_block = storage.per_block();
  const std::int64_t row = storage.cols / type.elements * per_block;
  const std::int64_t first = runs.start % row;
  const std::int64_t count = runs.num_runs > 1 ? runs.run : std::min(row, runs.run);
  const BlockPiece piece{.first_row = runs.start / row,
                         .rows = runs.num_runs > 1 ? runs.num_runs : ceil_div(runs.run, row),
                         .first_block = first / per_block,
                         .blocks = ceil_div(first % per_block + count, per_block),
                         .skipped = first % per_block,
                         .elements = count};
  const std::int64_t least = indivisible(storage);
  const bool whole = storage.cols % type.elements == 0 && first % least == 0 && count % least == 0 &&
                     first + count <= row && piece.rows * count == size && piece.first_row + piece.rows <= storage.rows;
  return whole ? std::optional(piece) : std::nullopt;
}

// Splits the piece into groups of sixteen rows. The last group may have fewer rows. Calls fn(first, rows, blocks) for
// each group, which begins at row `first` of the piece and has `rows` rows. `blocks` points to a copy of the group's
// blocks, one row after another. Uses OpenMP threads.
template <class Fn>
void for_each_sixteen(const StoredTensor& stored, const BlockTypeInfo& type, const BlockPiece& piece, const Fn& fn) {
  const std::int64_t bytes = piece.blocks * type.bytes;
#pragma omp parallel
  {
    std::vector<std::uint8_t> rows(static_cast<std::size_t>(kPackedRows * bytes));
#pragma omp for schedule(static)
    for (std::int64_t first = 0; first < piece.rows; first += kPackedRows) {
      const std::int64_t count = std::min(kPackedRows, piece.rows - first);
      for (std::int64_t i = 0; i < count; ++i)
        stored.made->copy_blocks(piece.first_row + first + i, piece.first_block, piece.blocks,
                                 reinterpret_cast<std::byte*>(rows.data() + i * bytes));
      fn(first, count, rows.data());
    }
  }
}

// Copies the rows `first` … `first` + `rows` - 1 of the piece from `made` to their place in `dst`. `made` contains all
// blocks of these rows, so it also contains elements outside of the piece.
template <class T>
void copy_rows(const BlockPiece& piece, std::int64_t first, std::int64_t rows, std::span<const T> made,
               std::byte* dst) {
  const auto of_row = static_cast<std::size_t>(std::ssize(made) / rows);
  for (std::int64_t r = 0; r < rows; ++r)
    std::memcpy(dst + static_cast<std::size_t>((first + r) * piece.elements) * sizeof(T),
                made.data() + static_cast<std::size_t>(r) * of_row + piece.skipped,
                static_cast<std::size_t>(piece.elements) * sizeof(T));
}

// Writes the codes or the scales, as storage.content says. In a format with offsets (kPairs), each scale is followed by
// its offset. Returns whether all scales and offsets fit in float16.
bool write_codes(const StoredTensor& stored, const BlockStorage& storage, const BlockPiece& piece, std::byte* dst) {
  const BlockTypeInfo& type = block_type_info(storage.type);
  const QuantisedFormat& format = *block_codes_format(storage.type);
  const bool pairs = format.scales == QuantisedFormat::Scales::kPairs;
  std::atomic<bool> finite = true;
  for_each_sixteen(stored, type, piece, [&](std::int64_t first, std::int64_t rows, const std::uint8_t* blocks) {
    const std::int64_t count = rows * piece.blocks;
    const auto numbers = static_cast<std::size_t>(count * type.elements);
    const std::size_t groups = numbers / static_cast<std::size_t>(format.group_cols);
    std::vector<std::uint8_t> codes(numbers);
    std::vector<float> scales(groups);
    std::vector<float> offsets(pairs ? groups : 0);
    split_blocks(storage.type, blocks, count,
                 {.codes = codes.data(), .scales = scales.data(), .offsets = offsets.data()});
    if (storage.content == BlockStorage::Content::kCodes) {
      if (format.values_of_byte() == 1) return copy_rows(piece, first, rows, std::span<const std::uint8_t>(codes), dst);
      std::vector<std::byte> packed(numbers / 2);
      pack_pairs(codes, packed);
      return copy_rows(piece, first, rows, std::span<const std::byte>(packed), dst);
    }
    std::vector<Float16> made;
    made.reserve(groups * (pairs ? 2 : 1));
    for (std::size_t i = 0; i < groups; ++i) {
      made.push_back(from_float<Float16>(scales[i]));
      if (pairs) made.push_back(from_float<Float16>(offsets[i]));
    }
    if (!std::ranges::all_of(made, [](Float16 x) { return std::isfinite(to_float(x)); })) finite = false;
    copy_rows(piece, first, rows, std::span<const Float16>(made), dst);
  });
  return finite;
}

}  // namespace

Status read_blocks(const StoredTensor& stored, const BlockStorage& storage, const SliceRuns& runs,
                   std::span<std::byte> dst) {
  using Content = BlockStorage::Content;
  const BlockTypeInfo& type = block_type_info(storage.type);
  const std::int64_t element = storage.content == Content::kScales ? 2 : 1;
  const std::optional<BlockPiece> piece = piece_of(runs, storage, std::ssize(dst) / element);
  const bool stored_so = stored.blocks == storage.type && stored.made != nullptr && stored.made->has_blocks();
  if (!piece || !stored_so) {
    const std::int64_t row = std::max<std::int64_t>(1, storage.cols / type.elements * storage.per_block());
    const std::int64_t first = runs.start % row;
    return invalid_argument(fmt::format(
        "tensor \"{}\": {} elements from element {} of row {} on, in {} runs; accepted: blocks of {}, {} elements each",
        stored.name, runs.run, first, runs.start / row, runs.num_runs, type.name, indivisible(storage)));
  }
  if (storage.content != Content::kBlocks) {
    if (write_codes(stored, storage, *piece, dst.data())) return ok_status();
    return invalid_argument(
        fmt::format("tensor \"{}\": a scale or minimum of its blocks of {} is above 65504 or no number; "
                    "accepted: finite numbers of float16",
                    stored.name, type.name));
  }
  for_each_sixteen(stored, type, *piece, [&](std::int64_t first, std::int64_t rows, const std::uint8_t* blocks) {
    pack_rows(storage.type, blocks, rows, piece->blocks * type.elements,
              reinterpret_cast<std::uint8_t*>(dst.data()) + first * piece->blocks * type.bytes);
  });
  return ok_status();
}

}  // namespace tessera
