// The operands of embedding as its kernels take them.
#pragma once

#include <cstdint>

#include "tessera/ops/gather.h"

namespace tessera {

inline RowCopy embedding_rows(const BindArgs& args) {
  const TensorView& table = args.operands[1];
  RowCopy copy{.table = table.data.raw(),
               .rows = args.operands[0].as<std::int32_t>(),
               .out = args.results[0].data.raw(),
               .table_rows = table.dim(0),
               .count = args.operands[0].dim(0),
               .row_bytes = table.cols() * static_cast<std::int64_t>(ir::dtype_size(table.dtype))};
  if (args.operands.size() > 2) {
    copy.given_rows = args.operands[2].as<std::int32_t>();
    copy.given = args.operands[3].data.raw();
    copy.num_given = args.operands[3].dim(0);
  }
  return copy;
}

}  // namespace tessera
