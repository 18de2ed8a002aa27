#include "tessera/runner/drafts/target_ids.h"

#include <string>
#include <utility>

#include "tessera/model/model.h"

namespace tessera {

Result<std::unique_ptr<TargetIds>> TargetIds::create(std::span<const TokenId> ids, Device& device, Stream& stream) {
  std::unique_ptr<Allocation> memory = TRY(device.allocate(ids.size_bytes(), "the model's ids of drafts"));
  TRY(stream.upload(memory->data(), ids.data(), ids.size_bytes()));
  TRY(stream.synchronize());
  return std::unique_ptr<TargetIds>(new TargetIds(std::move(memory)));
}

void TargetIds::add_to(ExternalValues& externals) const {
  externals.add(std::string(input_names::kTargetIds), memory_->data());
}

}  // namespace tessera
