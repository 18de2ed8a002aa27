#include "tessera/runner/ranks/rank_drafts.h"

namespace tessera {

void DraftPacker::pack(const DraftInputs& inputs, MessageWriter& to) {
  batch_.pack(inputs.batch, to);
  for (const std::vector<std::int32_t>& axis : inputs.rope_positions) to.list(axis);
  to.list(inputs.rows);
  to.word(inputs.first_id ? *inputs.first_id + 1 : 0);  // 0 means that no drafts are made
}

Status ReceivedDraftInputs::unpack(MessageReader& from) {
  TRY(batch_.unpack(from));
  for (std::vector<std::int32_t>& axis : rope_positions_) TRY(from.list("rope_positions", axis));
  TRY(from.list("rows", rows_));
  const std::int64_t first = TRY(from.choice("first_id", INT32_MAX));
  first_id_ = first == 0 ? std::nullopt : std::optional(first - 1);
  return from.finish();
}

void pack_draft_rows(const DraftRows& rows, MessageWriter& to) {
  to.word(rows.first_id);
  to.list(rows.rows);
}

Result<DraftRows> unpack_draft_rows(MessageReader& from) {
  const std::int64_t first_id = TRY(from.choice("first_id", INT32_MAX));
  const std::span<const std::int32_t> rows = TRY(from.list<std::int32_t>("rows"));
  TRY(from.finish());
  return DraftRows{.rows = rows, .first_id = first_id};
}

}  // namespace tessera
