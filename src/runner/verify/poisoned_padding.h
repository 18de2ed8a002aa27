// Gives padding rows a token id whose embedding is NaN, so that the oracle (verify.h) notices a padding row that
// influences a real row.
#pragma once

#include <cstddef>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/base/strong_id.h"
#include "tessera/device/device.h"
#include "tessera/runner/runner_parts.h"

namespace tessera {

class PoisonedPadding {
 public:
  // `parts` must outlive this object.
  explicit PoisonedPadding(RunnerParts& parts) : parts_(parts) {}

  // Fills the embedding of the vocabulary's last id with NaN, on the rank that holds it, and returns this id. Waits for
  // the stream.
  Result<TokenId> poison();
  // Restores the id's embedding, and waits for the stream.
  Status restore();

 private:
  RunnerParts& parts_;
  DeviceAddress row_;
  std::vector<std::byte> saved_;  // empty if this rank does not have the embedding
};

}  // namespace tessera
