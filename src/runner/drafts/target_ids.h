// Holds the input "target_ids" in device memory. The head of a next-token layer or a draft model may number tokens
// differently from the model. For each id of this head, the input gives the model's id of the same token. The graphs
// that make drafts read the input (draft_graphs.h).
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
