// The history of forwards in an arena. It finds views of outputs that a later forward has overwritten.
//
// Each forward has a generation. It may write the whole arena except the first bytes, which its executable leaves alone
// (ExecutableOptions::reserved_bytes). The head's executable, for example, leaves the body's output alone, so that
// output stays fresh.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// An output of a forward, and the forward that made it.
struct OutputView : TensorView {
  std::uint64_t generation = 0;  // 0: made by no counted forward
};

class ArenaHistory {
 public:
  // The arena is borrowed and outlives this.
  explicit ArenaHistory(const Arena& arena) : arena_(&arena) {}

  void begin_forward(std::int64_t kept_bytes);
  std::uint64_t generation() const { return generation_; }

  // Returns kInternal if a later forward may have written `view` or a part of it. Memory outside of the arena stays
  // fresh.
  Status check_fresh(const OutputView& view) const;

 private:
  struct Forward {
    std::int64_t kept_bytes;
    std::uint64_t generation;
  };
  const Arena* arena_;
  std::uint64_t generation_ = 0;
  std::vector<Forward> last_;  // ascending by both members; a forward removes those that keep no less
};

}  // namespace tessera
