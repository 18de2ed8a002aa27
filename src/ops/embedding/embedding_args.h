// The arguments of the kernels that compute embedding, add_given and resolve_ids.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tessera/ops/embedding/embedding.h"
#include "tessera/ops/rows/gather.h"

namespace tessera {

inline RowCopy embedding_rows(const BindArgs& args) {
  const TensorView& table = args.operands[1];
  // The type and the number of columns come from the result, because a table of GGUF blocks consists of bytes, and does
  // not have the numbers' type and columns.
  const TensorView& numbers = args.results[0];
  const std::int64_t first_row = args.node.attribute_or("first_row", std::int64_t{0});
  RowCopy copy{.table = table.data.raw(),
               .rows = args.operands[0].as<std::int32_t>(),
               .out = args.results[0].data.raw(),
               .first_row = first_row,
               .table_rows = table.dim(0),
               .count = args.operands[0].dim(0),
               .row_bytes = numbers.cols() * static_cast<std::int64_t>(ir::dtype_size(numbers.dtype))};
  if (args.operands.size() > 2) {
    copy.given_rows = args.operands[2].as<std::int32_t>();
    copy.given = args.operands[3].data.raw();
    copy.num_given = first_row == 0 ? args.operands[3].dim(0) : 0;  // only the rank with the first slice uses given
                                                                    // rows
    copy.given_row_bytes = args.operands[3].cols() * static_cast<std::int64_t>(ir::dtype_size(numbers.dtype));
  }
  return copy;
}

// The arguments of add_given. The struct is trivially copyable.
template <class T>
struct GivenSum {
  const T* x;                // [count, cols]
  const std::int32_t* rows;  // [count]
  const T* given;            // [num_given, stride]; points to the part's first column
  T* y;                      // [count, cols]
  std::int64_t count;
  std::int64_t cols;
  std::int64_t num_given;
  std::int64_t stride;

  // Returns the part of a given row that is added to row t of x, or null if nothing is added.
  constexpr const T* row_of(std::int64_t t) const {
    const std::int64_t row = rows[t];
    return row >= 0 && row < num_given ? given + row * stride : nullptr;
  }
};

template <class T>
GivenSum<T> given_sum(const BindArgs& args) {
  const std::int64_t cols = args.operands[0].cols();
  return {.x = args.operands[0].as<T>(),
          .rows = args.operands[1].as<std::int32_t>(),
          .given = args.operands[2].as<T>() + args.node.attribute_or("part", std::int64_t{1}) * cols,
          .y = args.results[0].as<T>(),
          .count = args.operands[0].dim(0),
          .cols = cols,
          .num_given = args.operands[2].dim(0),
          .stride = args.operands[2].cols()};
}

struct IdResolution {
  const std::int32_t* ids;       // [count]
  const std::int32_t* rows;      // [count]
  const std::int32_t* last_ids;  // [last_rows]
  std::int32_t* out;             // [count]
  std::int64_t count;
  std::int64_t last_rows;
  std::int32_t replaced[kMaxReplacedIds];  // unused entries hold `by`, which is then replaced by itself
  std::int32_t by;
};

inline IdResolution id_resolution(const BindArgs& args) {
  IdResolution made{.ids = args.operands[0].as<std::int32_t>(),
                    .rows = args.operands[1].as<std::int32_t>(),
                    .last_ids = args.operands[2].as<std::int32_t>(),
                    .out = args.results[0].as<std::int32_t>(),
                    .count = args.operands[0].dim(0),
                    .last_rows = args.operands[2].dim(0),
                    .replaced = {},
                    .by = static_cast<std::int32_t>(args.node.attribute_or("by", std::int64_t{0}))};
  std::fill(std::begin(made.replaced), std::end(made.replaced), made.by);
  if (const ir::Attribute* replaced = args.node.find_attribute("replaced"))
    std::ranges::transform(std::get<std::vector<std::int64_t>>(*replaced), made.replaced,
                           [](std::int64_t id) { return static_cast<std::int32_t>(id); });
  return made;
}

}  // namespace tessera
