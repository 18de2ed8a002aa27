#include "tessera/runner/drafts/draft_hidden.h"

#include <fmt/format.h>

#include <string>

#include "tessera/model/model.h"

namespace tessera {

Result<std::int64_t> DraftHidden::bytes_needed(const ir::Graph& draft) {
  return ir::size_bytes(TRY(draft.type_of(input_names::kDraftHidden)), {});
}

Result<DraftHidden> DraftHidden::create(const ir::Graph& draft, Device& device) {
  const ir::Type type = TRY(draft.type_of(input_names::kDraftHidden));
  const std::int64_t rows = *type.shape[0].constant();
  const std::int64_t bytes = TRY(ir::size_bytes(type, {}));
  DraftHidden made(rows, static_cast<std::size_t>(bytes / rows));
  made.memory_ = TRY(device.allocate(static_cast<std::size_t>(bytes), "hidden states for drafts"));
  return made;
}

void DraftHidden::add_to(ExternalValues& externals) const {
  externals.add(std::string(input_names::kDraftHidden), memory_->data());
}

Status DraftHidden::keep(DeviceAddress from, std::int64_t count, Stream& stream) {
  if (count > rows_) return internal_error(fmt::format("{} hidden states for drafts; {} fit", count, rows_));
  return stream.copy(memory_->data(), from, static_cast<std::size_t>(count) * row_bytes_);
}

}  // namespace tessera
