// Records which forwards have run in an arena, in order to find stale views of outputs. A view is stale once a later
// forward may have overwritten its memory.
//
// Each forward gets a number, its generation. A forward may write the whole arena except the first bytes, which its
// executable reserves (ExecutableOptions::reserved_bytes). For example, the head's executable reserves the bytes of the
// body's output, so a view of that output stays fresh during the head's forward.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// An output of a forward, with the number of the forward that made it.
struct OutputView : TensorView {
  std::uint64_t generation = 0;  // if 0, no counted forward made it
};

class ArenaHistory {
 public:
  // The arena must outlive this object.
  explicit ArenaHistory(const Arena& arena) : arena_(&arena) {}

  // Counts a new forward, which may write the whole arena except its first `kept_bytes` bytes.
  void begin_forward(std::int64_t kept_bytes);
  std::uint64_t generation() const { return generation_; }

  // Returns kInternal if a later forward may have written `view` or a part of it. If the memory of the view lies
  // outside the arena, the view is always fresh.
  Status check_fresh(const OutputView& view) const;

 private:
  struct Forward {
    std::int64_t kept_bytes;
    std::uint64_t generation;
  };
  const Arena* arena_;
  std::uint64_t generation_ = 0;
  // The forwards that can make a view stale, sorted so that both kept_bytes and generation ascend. If an earlier
  // forward keeps at least as many bytes as a new one, begin_forward() removes the earlier forward, because the new one
  // overwrites everything that the earlier one overwrote.
  std::vector<Forward> last_;
};

}  // namespace tessera
