#include "tessera/model/weights/rounded_read.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <vector>

#include "tessera/base/ceil_div.h"
#include "tessera/base/float8.h"
#include "tessera/model/rounding/search_scales.h"
#include "tessera/model/weights/matrix_read.h"

namespace tessera {
namespace {

using Content = RoundedStorage::Content;

constexpr std::int64_t kTile = 1024;  // consecutive elements of a row that are processed at a time
constexpr std::int64_t kParallelRounds = 1 << 15;

// A rectangle of elements, blocks or scales. `end_row` and `end_col` are one past the last row and column.
struct Area {
  std::int64_t first_row = 0;
  std::int64_t end_row = 0;
  std::int64_t first_col = 0;
  std::int64_t end_col = 0;
  std::int64_t cols() const { return end_col - first_col; }
  std::int64_t size() const { return (end_row - first_row) * cols(); }
};

// Returns the smallest area that contains the runs. Rows of the part have `cols` elements.
Area area_of(const SliceRuns& runs, std::int64_t cols) {
  const std::int64_t end = runs.start + (runs.num_runs - 1) * runs.stride + runs.run;
  const std::int64_t col = runs.start % cols;
  const bool within_rows = col + runs.run <= cols;
  return {.first_row = runs.start / cols,
          .end_row = ceil_div(end, cols),
          .first_col = within_rows ? col : 0,
          .end_col = within_rows ? col + runs.run : cols};
}

// Returns the area of the blocks that contain elements of `area`. A block has `rows` by `cols` elements.
Area blocks_of(const Area& area, std::int64_t rows, std::int64_t cols) {
  return {.first_row = area.first_row / rows,
          .end_row = ceil_div(area.end_row, rows),
          .first_col = area.first_col / cols,
          .end_col = ceil_div(area.end_col, cols)};
}

// The scales of all blocks in an area.
struct ScaleTable {
  Area blocks;
  std::vector<float> scales = {};
  std::size_t index(std::int64_t row, std::int64_t col) const {
    return static_cast<std::size_t>((row - blocks.first_row) * blocks.cols() + col - blocks.first_col);
  }
  float at(std::int64_t row, std::int64_t col) const { return scales[index(row, col)]; }
  // Returns the scales of block row `row`, beginning at block column `col`.
  std::span<const float> from(std::int64_t row, std::int64_t col) const {
    return std::span(scales).subspan(index(row, col), static_cast<std::size_t>(blocks.end_col - col));
  }
};

class RoundedMatrix {
 public:
  // Borrows all arguments.
  static Result<RoundedMatrix> of(const StoredTensor& stored, const RoundedStorage& storage,
                                  std::span<const float> importance = {}) {
    const StridedStorage& numbers = storage.numbers;
    return RoundedMatrix(stored, storage, importance,
                         TRY(StridedRows::of(stored, {.rows = storage.rows,
                                                      .cols = storage.cols,
                                                      .offset = numbers.offset,
                                                      .row_stride = numbers.row_stride,
                                                      .col_stride = numbers.col_stride})));
  }

  Result<float> factor() const;
  Result<ScaleTable> scales(const Area& blocks, float factor) const;
  Status write_values(const SliceRuns& runs, float factor, std::span<std::byte> dst) const;
  Status write_scales(const SliceRuns& runs, float factor, std::span<std::byte> dst) const;

 private:
  RoundedMatrix(const StoredTensor& stored, const RoundedStorage& storage, std::span<const float> importance,
                const StridedRows& rows)
      : stored_(stored), storage_(storage), rounding_(storage.rounding), importance_(importance), rows_(rows) {}

  // Raises greatest[i] to the bits of the greatest magnitude in block (row, first_col + i), if these bits are greater.
  // `row` and `first_col` count blocks. Blocks of more than kTile columns are read in pieces.
  void raise_to_blocks(std::int64_t row, std::int64_t first_col, std::span<std::uint32_t> greatest) const;
  // Replaces the scales of the blocks from (row, first_col) on by the results of search_scales(). `row` and `first_col`
  // count blocks.
  void search(std::int64_t row, std::int64_t first_col, float factor, std::span<float> scales) const;
  void write_piece(const RowPiece& piece, const ScaleTable& table, float factor, std::span<std::byte> dst) const;
  // Returns the error for the first element that is not a finite number.
  Status not_finite() const;

  const StoredTensor& stored_;
  const RoundedStorage& storage_;
  const Rounding& rounding_;
  std::span<const float> importance_;
  StridedRows rows_;
};

void RoundedMatrix::raise_to_blocks(std::int64_t row, std::int64_t first_col, std::span<std::uint32_t> greatest) const {
  const std::int64_t end_row = std::min((row + 1) * rounding_.block_rows, storage_.rows);
  const std::int64_t begin = first_col * rounding_.block_cols;
  const std::int64_t end = std::min((first_col + std::ssize(greatest)) * rounding_.block_cols, storage_.cols);
  std::array<float, kTile> floats;
  std::array<std::uint32_t, kTile> of_columns;
  for (std::int64_t tile = begin; tile < end; tile += kTile) {
    const std::int64_t tile_end = std::min(tile + kTile, end);
    const auto count = static_cast<std::size_t>(tile_end - tile);
    const std::span columns(of_columns.data(), count);
    std::ranges::fill(columns, 0u);
    for (std::int64_t r = row * rounding_.block_rows; r < end_row; ++r) {
      rows_.read(r, tile, {floats.data(), count});
      raise_to_magnitudes({floats.data(), count}, columns);
    }
    const std::int64_t block = tile / rounding_.block_cols;
    raise_to_columns(columns, tile - block * rounding_.block_cols, rounding_.block_cols,
                     greatest.subspan(static_cast<std::size_t>(block - first_col)));
  }
}

void RoundedMatrix::search(std::int64_t row, std::int64_t first_col, float factor, std::span<float> scales) const {
  const std::int64_t begin = first_col * rounding_.block_cols;
  const std::size_t count = scales.size() * static_cast<std::size_t>(rounding_.block_cols);
  std::array<float, kTile> floats;
  rows_.read(row, begin, {floats.data(), count});
  search_scales(rounding_, factor, {floats.data(), count}, importance_.subspan(static_cast<std::size_t>(begin), count),
                scales);
}

Result<ScaleTable> RoundedMatrix::scales(const Area& blocks, float factor) const {
  ScaleTable table{.blocks = blocks, .scales = std::vector<float>(static_cast<std::size_t>(blocks.size()))};
  const std::int64_t per_unit = std::max<std::int64_t>(1, kTile / rounding_.block_cols);
  const std::int64_t units_across = ceil_div(blocks.cols(), per_unit);
  const std::int64_t units = (blocks.end_row - blocks.first_row) * units_across;
  [[maybe_unused]] const std::int64_t elements = blocks.size() * rounding_.block_rows * rounding_.block_cols;
  std::atomic<bool> finite = true;
#pragma omp parallel for schedule(static) if (elements > kParallelRounds)
  for (std::int64_t unit = 0; unit < units; ++unit) {
    const std::int64_t row = blocks.first_row + unit / units_across;
    const std::int64_t col = blocks.first_col + unit % units_across * per_unit;
    const auto count = static_cast<std::size_t>(std::min(per_unit, blocks.end_col - col));
    std::array<std::uint32_t, kTile> greatest{};
    const std::span of_blocks(greatest.data(), count);
    raise_to_blocks(row, col, of_blocks);
    if (std::ranges::max(of_blocks) >= kInfiniteBits) finite = false;
    const std::span scales = std::span(table.scales).subspan(table.index(row, col), count);
    block_scales(rounding_.values, of_blocks, factor, scales);
    if (!importance_.empty() && finite) search(row, col, factor, scales);
  }
  if (!finite) return not_finite();
  return table;
}

Result<float> RoundedMatrix::factor() const {
  if (!rounding_.has_factor()) return 1.0F;
  const std::int64_t tiles = ceil_div(storage_.cols, kTile);
  std::uint32_t greatest = 0;
#pragma omp parallel for schedule(static) reduction(max : greatest) if (storage_.rows * storage_.cols > kParallelRounds)
  for (std::int64_t row = 0; row < storage_.rows; ++row) {
    std::array<float, kTile> floats;
    std::array<std::uint32_t, kTile> of_columns{};
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      const auto count = static_cast<std::size_t>(std::min(kTile, storage_.cols - tile * kTile));
      rows_.read(row, tile * kTile, {floats.data(), count});
      raise_to_magnitudes({floats.data(), count}, {of_columns.data(), count});
    }
    raise_to_columns(of_columns, 0, kTile, {&greatest, 1});
  }
  if (greatest >= kInfiniteBits) return not_finite();
  return matrix_factor(rounding_.values, std::bit_cast<float>(greatest));
}

Status RoundedMatrix::not_finite() const {
  std::array<float, kTile> floats;
  for (std::int64_t row = 0; row < storage_.rows; ++row) {
    for (std::int64_t tile = 0; tile < storage_.cols; tile += kTile) {
      const std::span numbers(floats.data(), static_cast<std::size_t>(std::min(kTile, storage_.cols - tile)));
      rows_.read(row, tile, numbers);
      const auto found = std::ranges::find_if_not(numbers, [](float x) { return std::isfinite(x); });
      if (found != numbers.end())
        return invalid_argument(
            fmt::format("tensor \"{}\": element {} is {}; accepted: finite numbers, as the matrix is quantised",
                        stored_.name, rows_.index(row, tile + (found - numbers.begin())), *found));
    }
  }
  return internal_error(fmt::format("tensor \"{}\" changed while it was read", stored_.name));
}

void RoundedMatrix::write_piece(const RowPiece& piece, const ScaleTable& table, float factor,
                                std::span<std::byte> dst) const {
  const std::int64_t per_byte = rounding_.values_of_byte();
  const std::int64_t end = (piece.col + piece.count) * per_byte;
  std::byte* to = dst.data() + piece.at;
  std::array<float, kTile> floats;
  std::array<float, kTile> divisors;
  std::array<std::uint8_t, kTile> values;
  for (std::int64_t begin = piece.col * per_byte; begin < end; begin += kTile) {
    const auto count = static_cast<std::size_t>(std::min(kTile, end - begin));
    rows_.read(piece.row, begin, {floats.data(), count});
    const std::int64_t block = begin / rounding_.block_cols;
    spread_scales(table.from(piece.row / rounding_.block_rows, block), factor, begin - block * rounding_.block_cols,
                  rounding_.block_cols, {divisors.data(), count});
    round_values(rounding_.values, {floats.data(), count}, {divisors.data(), count}, {values.data(), count});
    if (per_byte == 1) {
      std::memcpy(to, values.data(), count);
    } else {
      pack_pairs({values.data(), count}, {to, count / 2});
    }
    to += count / static_cast<std::size_t>(per_byte);
  }
}

Status RoundedMatrix::write_values(const SliceRuns& runs, float factor, std::span<std::byte> dst) const {
  const std::int64_t per_byte = rounding_.values_of_byte();
  const std::int64_t row_bytes = storage_.cols / per_byte;
  Area area = area_of(runs, row_bytes);
  area.first_col *= per_byte;
  area.end_col *= per_byte;
  const ScaleTable table = TRY(scales(blocks_of(area, rounding_.block_rows, rounding_.block_cols), factor));
  const RowPieces pieces(runs, row_bytes);
#pragma omp parallel for schedule(static) if (runs.num_elements() > kParallelRounds)
  for (std::int64_t i = 0; i < pieces.size(); ++i) write_piece(pieces[i], table, factor, dst);
  return ok_status();
}

Status RoundedMatrix::write_scales(const SliceRuns& runs, float factor, std::span<std::byte> dst) const {
  const std::int64_t across = ceil_div(storage_.cols, storage_.step_cols);
  Area area = area_of(runs, across);
  area = {.first_row = area.first_row * storage_.step_rows,
          .end_row = (area.end_row - 1) * storage_.step_rows + 1,
          .first_col = area.first_col * storage_.step_cols,
          .end_col = (area.end_col - 1) * storage_.step_cols + 1};
  const ScaleTable table = TRY(scales(blocks_of(area, rounding_.block_rows, rounding_.block_cols), factor));
  const RowPieces pieces(runs, across);
  for (std::int64_t i = 0; i < pieces.size(); ++i) {
    const RowPiece piece = pieces[i];
    for (std::int64_t j = 0; j < piece.count; ++j) {
      const float scale = table.at(piece.row * storage_.step_rows / rounding_.block_rows,
                                   (piece.col + j) * storage_.step_cols / rounding_.block_cols);
      const auto at = static_cast<std::size_t>(piece.at + j);
      if (rounding_.has_factor()) {
        dst[at] = std::byte{from_float<Float8E4M3>(scale).bits};
      } else {
        std::memcpy(dst.data() + at * sizeof scale, &scale, sizeof scale);
      }
    }
  }
  return ok_status();
}

}  // namespace

Result<float> read_factor(const StoredTensor& stored, const RoundedStorage& storage) {
  return TRY(RoundedMatrix::of(stored, storage)).factor();
}

Status read_rounded(const StoredTensor& stored, const RoundedStorage& storage, float factor, const SliceRuns& runs,
                    std::span<std::byte> dst, std::span<const float> importance) {
  const bool wide =
      storage.content == Content::kFactor || (storage.content == Content::kScales && !storage.rounding.has_factor());
  if (dst.size() != static_cast<std::size_t>(runs.num_elements()) * (wide ? sizeof(float) : 1))
    return internal_error(fmt::format("tensor \"{}\": {} elements of a quantised matrix are read to {} bytes",
                                      stored.name, runs.num_elements(), dst.size()));
  const RoundedMatrix matrix = TRY(RoundedMatrix::of(stored, storage, importance));
  switch (storage.content) {
    case Content::kValues: return matrix.write_values(runs, factor, dst);
    case Content::kScales: return matrix.write_scales(runs, factor, dst);
    case Content::kFactor: break;
  }
  for (std::size_t at = 0; at < dst.size(); at += sizeof factor) std::memcpy(dst.data() + at, &factor, sizeof factor);
  return ok_status();
}

}  // namespace tessera
