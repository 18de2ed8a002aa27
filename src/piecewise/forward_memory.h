// Places of a forward's values in the arena, bucket by bucket. They are planned from shapes; no memory is taken.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/compile/memory_plan.h"
#include "tessera/piecewise/compiled_forward.h"
#include "tessera/piecewise/liveness.h"

namespace tessera {

using Planner = std::function<Result<MemoryPlan>(std::span<const LiveRange>)>;

struct ForwardMemoryOptions {
  ir::Bucket largest;               // no bucket exceeds it in any symbol; it fixes the place of the outputs
  std::int64_t reserved_bytes = 0;  // the arena's first bytes, which hold another executable's output
  Planner planner = plan_memory;
};

// The plan of one bucket.
struct SlotPlan {
  std::vector<std::int64_t> offsets;   // [slots]: offset in the arena; -1: elsewhere, or without memory
  std::int64_t size_bytes = 0;         // the arena this plan needs
  std::int64_t lower_bound_bytes = 0;  // most bytes live at once: the need of a perfect plan
};

class ForwardMemory {
 public:
  // Places the outputs: one after another behind the reserved bytes, each as large as in the largest bucket. `forward`
  // must outlive this and must not move.
  static Result<ForwardMemory> create(const CompiledForward& forward, ForwardMemoryOptions options);

  const Liveness& liveness() const { return liveness_; }
  // Plans the bucket. kInternal if it exceeds the largest, or the planner places a value outside of its plan.
  Result<SlotPlan> plan(const ir::Bucket& bucket) const;
  // Returns the bytes of all values if none shared memory.
  Result<std::int64_t> unshared_bytes(const ir::Bucket& bucket) const;

 private:
  ForwardMemory(const CompiledForward& forward, ForwardMemoryOptions options)
      : forward_(&forward), options_(std::move(options)) {}

  const CompiledForward* forward_;
  ForwardMemoryOptions options_;
  Liveness liveness_;
  std::vector<std::int64_t> output_offsets_;  // [outputs]
};

}  // namespace tessera
