// Holds the input "target_ids" in device memory. For each id that a draft's head uses, it gives the model's id of the
// same token. The draft's graphs read it (draft_graphs.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "tessera/base/status.h"
#include "tessera/base/strong_id.h"
#include "tessera/device/device.h"
#include "tessera/piecewise/external_values.h"

namespace tessera {

class TargetIds {
 public:
  static std::int64_t bytes_needed(std::span<const TokenId> ids) { return static_cast<std::int64_t>(ids.size_bytes()); }
  // Uploads the ids, and waits for the copy.
  static Result<std::unique_ptr<TargetIds>> create(std::span<const TokenId> ids, Device& device, Stream& stream);

  void add_to(ExternalValues& externals) const;
  std::int64_t bytes() const { return static_cast<std::int64_t>(memory_->size()); }

 private:
  explicit TargetIds(std::unique_ptr<Allocation> memory) : memory_(std::move(memory)) {}

  std::unique_ptr<Allocation> memory_;
};

}  // namespace tessera
