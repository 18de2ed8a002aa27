#include "tessera/ops/adapters/adapter_tokens.h"

#include <fmt/format.h>

#include "tessera/ops/contract/shape_rule.h"

namespace tessera {

Status check_adapter_tokens(const ir::OpSignature& s, std::size_t ids, const ir::Dim& rows) {
  TRY(expect_type(s, ids, "ids", {ir::DType::kInt32, {rows}}));
  TRY(expect_type(s, ids + 3, "slots", {ir::DType::kInt32, {kAdapterRowLists, rows}}));
  if (s.operands.size() > ids + 4) TRY(expect_type(s, ids + 4, "rows", s.operands[ids]));
  if (const std::int64_t first = s.node.attribute_or("first_row", std::int64_t{0}); first < 0)
    return refuse(s, fmt::format("first_row = {}; it must be 0 or more", first));
  return ok_status();
}

AdapterTokens adapter_tokens(const BindArgs& args, std::size_t ids, std::int64_t columns, std::int64_t num_slots) {
  return {.ids = args.operands[ids].as<std::int32_t>(),
          .slots = args.operands[ids + 3].as<std::int32_t>(),
          .given = args.operands.size() > ids + 4 ? args.operands[ids + 4].as<std::int32_t>() : nullptr,
          .rows = args.operands[ids].dim(0),
          .columns = columns,
          .first_row = args.node.attribute_or("first_row", std::int64_t{0}),
          .num_slots = static_cast<std::int32_t>(num_slots)};
}

}  // namespace tessera
