#include "tessera/ops/embedding/block_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "tessera/ops/contract/shape_rule.h"
#include "tessera/ops/cpu/cpu_math.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/ops/cpu/row_loop.h"
#include "tessera/ops/embedding/embedding_args.h"
#include "tessera/ops/quantised/blocks/packed_rows.h"
#include "tessera/ops/quantised/quantised_matrix.h"

namespace tessera {
namespace {

template <class T>
void write_row(const BlockMatrix& table, const RowCopy& copy, std::int64_t t, float scale) {
  const std::int64_t n = table.cols;
  T* const to = reinterpret_cast<T*>(copy.out) + t * n;
  const std::int64_t given = copy.given_rows != nullptr ? copy.given_rows[t] : -1;
  const std::int64_t id = copy.rows[t] - copy.first_row;
  if (given >= 0 && given < copy.num_given) {
    std::copy_n(reinterpret_cast<const T*>(copy.given + given * copy.given_row_bytes), n, to);
  } else if (given < 0 && id >= 0 && id < table.rows) {
    block_rows(table, id, 1, to);
    if (scale != 1.0F)
      for (std::int64_t i = 0; i < n; ++i) to[i] = from_float<T>(to_float(to[i]) * scale);
  } else {
    std::fill_n(to, n, from_float<T>(0.0F));
  }
}

}  // namespace

bool is_block_table(const ir::Node& node) { return node.find_attribute("values") != nullptr; }

Result<ir::Type> numbers_of_table(const ir::OpSignature& s, std::size_t index) {
  TRY(expect_rank(s, index, "table", 2));
  if (!is_block_table(s.node)) {
    TRY(expect_floating(s, index, "table"));
    TRY(constant_cols(s, index, "table"));
    return s.operands[index];
  }
  const std::string values = string_attribute(s.node, "values", "");
  const std::string dtype = string_attribute(s.node, "dtype", "f32");
  const BlockTypeInfo* type = block_values(values);
  const std::optional<ir::DType> numbers = ir::parse_dtype(dtype);
  if (type == nullptr || !numbers || !ir::is_floating_point(*numbers))
    return refuse(s, fmt::format("values = \"{}\" and dtype = \"{}\"; it takes a type of blocks, \"q4_k\" for one, and "
                                 "f32, bf16 or f16",
                                 values, dtype));
  const QuantisedFormat format{.values = QuantisedFormat::Values::kBlocks, .blocks = type->type};
  const MatrixSize size = TRY(expect_quantised(s, index, format));
  return ir::Type{*numbers, {size.rows, size.cols}};
}

Result<std::unique_ptr<BoundOp>> bind_block_embedding(const BindArgs& args) {
  const QuantisedFormat format = TRY(QuantisedFormat::of(args.node));
  const BlockMatrix table = make_quantised_matrix(format, args.operands.subspan(1)).blocks();
  const RowCopy copy = embedding_rows(args);
  const double scale = args.node.attribute_or("scale", 1.0);
  return dispatch_dtype(args.results[0].dtype, "embedding", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    const float factor = to_float(from_float<T>(static_cast<float>(scale)));
    return make_cpu_op("embedding", [=] {
      parallel_rows(copy.count, 16 * copy.row_bytes, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t t = begin; t < end; ++t) write_row<T>(table, copy, t, factor);
      });
    });
  });
}

}  // namespace tessera
