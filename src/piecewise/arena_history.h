// The forwards that an arena has seen, so that a view of an output that a later one has overwritten is found.
//
// Each forward has a generation. It may write the whole arena but the first bytes, which its executable leaves as they
// are (ExecutableOptions::reserved_bytes): the head leaves the body's output, and that stays fresh.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// An output of a forward, and which one made it.
struct OutputView : TensorView {
  std::uint64_t generation = 0;  // 0: of no forward that was counted
};

class ArenaHistory {
 public:
  // Borrowed, and outlives this.
  explicit ArenaHistory(const Arena& arena) : arena_(&arena) {}

  void begin_forward(std::int64_t kept_bytes);
  std::uint64_t generation() const { return generation_; }

  // kInternal where a later forward may have written `view`, or part of it. What lies outside the arena stays fresh.
  Status check_fresh(const OutputView& view) const;

 private:
  struct Forward {
    std::int64_t kept_bytes;
    std::uint64_t generation;
  };
  const Arena* arena_;
  std::uint64_t generation_ = 0;
  std::vector<Forward> last_;  // the last of each kept_bytes, where no later one keeps less; ascending in both
};

}  // namespace tessera
