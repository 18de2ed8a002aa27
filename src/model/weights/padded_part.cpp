#include "tessera/model/weights/padded_part.h"

#include <fmt/format.h>

#include <cstring>

#include "tessera/model/weights/safetensors.h"

namespace tessera {

Result<PartExtent> part_extent(const WeightPart& part) {
  const std::int64_t elements = TRY(slice_runs(part.shape, part.slice)).num_elements();
  const bool cuts_rows = part.slice.size >= 0 && part.slice.dim + 1 == std::ssize(part.shape);
  const std::int64_t cols = part.shape.empty() ? 1 : cuts_rows ? part.slice.size : part.shape.back();
  PartExtent extent{.rows = cols > 0 ? elements / cols : 0, .cols = cols};
  extent.padded_rows = extent.rows;
  extent.padded_cols = extent.cols;
  if (part.padded.empty()) return extent;
  if (part.padded.size() != part.shape.size() || part.padded.size() > 2)
    return invalid_argument(fmt::format("{} padded to {}; accepted: vectors and matrices, padded to as many dimensions",
                                        shape_text(part.shape), shape_text(part.padded)));
  if (part.padded.size() == 2) extent.padded_rows = part.padded.front();
  extent.padded_cols = part.padded.back();
  if (extent.padded_rows < extent.rows || extent.padded_cols < extent.cols)
    return invalid_argument(fmt::format("[{}, {}] padded to {}; accepted: sizes that are no smaller", extent.rows,
                                        extent.cols, shape_text(part.padded)));
  return extent;
}

void pad_rows(std::span<std::byte> to, std::int64_t rows, std::size_t row_bytes, std::size_t padded_row_bytes) {
  const auto count = static_cast<std::size_t>(rows);
  // Rows are moved from the last to the first. In this order no row overwrites a row that is not yet moved.
  for (std::size_t row = count; row-- > 0;) {
    std::byte* const padded = to.data() + row * padded_row_bytes;
    std::memmove(padded, to.data() + row * row_bytes, row_bytes);
    std::memset(padded + row_bytes, 0, padded_row_bytes - row_bytes);
  }
  std::memset(to.data() + count * padded_row_bytes, 0, to.size() - count * padded_row_bytes);
}

}  // namespace tessera
