// The adapter operators for embeddings read each row's id and slot. Each of them has the operands ids i32[T], then two
// other operands, then slots i32[5, T] (adapter_rows.h), and optionally rows i32[T]. Each also has the attribute
// first_row.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/ops/adapters/adapter_rows.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

struct AdapterTokens {
  const std::int32_t* ids = nullptr;    // [rows]
  const std::int32_t* slots = nullptr;  // [rows]
  const std::int32_t* given = nullptr;  // [rows], or null
  std::int64_t rows = 0;
  std::int64_t columns = 0;    // number of token ids that this tensor-parallel rank has
  std::int64_t first_row = 0;  // the first of these ids
  std::int32_t num_slots = 0;

  struct Found {
    std::int32_t slot;    // negative: the row has no adapter, is replaced, or has an id of another rank
    std::int64_t column;  // the id minus first_row
  };
  constexpr Found find(std::int64_t row) const {
    constexpr Found kNone{.slot = -1, .column = 0};
    const std::int32_t slot = slots[row];
    if (slot < 0 || slot >= num_slots) return kNone;
    if (given != nullptr && given[row] >= 0) return kNone;
    const std::int64_t column = ids[row] - first_row;
    return column < 0 || column >= columns ? kNone : Found{.slot = slot, .column = column};
  }
};

// check_adapter_tokens() checks the operands and the attribute. `ids` is the index of the operand ids.
Status check_adapter_tokens(const ir::OpSignature& s, std::size_t ids, const ir::Dim& rows);
AdapterTokens adapter_tokens(const BindArgs& args, std::size_t ids, std::int64_t columns, std::int64_t num_slots);

}  // namespace tessera
