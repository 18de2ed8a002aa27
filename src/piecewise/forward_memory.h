// Where the values of a forward lie in the arena, bucket by bucket. Planned from shapes: nothing is taken.
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
  ir::Bucket largest;               // no bucket exceeds it in any symbol; fixes the place of the outputs
  std::int64_t reserved_bytes = 0;  // the arena's first bytes, which another executable's output occupies
  Planner planner = plan_memory;
};

// Of one bucket.
struct SlotPlan {
  std::vector<std::int64_t> offsets;   // [slots]: in the arena; -1: elsewhere, or without memory
  std::int64_t size_bytes = 0;         // the arena this plan needs
  std::int64_t lower_bound_bytes = 0;  // the most alive at once: what a perfect plan would take
};

class ForwardMemory {
 public:
  // `forward` outlives this and stays where it is. Outputs lie one after another behind the reserved bytes, each as
  // large as the largest bucket makes it.
  static Result<ForwardMemory> create(const CompiledForward& forward, ForwardMemoryOptions options);

  const Liveness& liveness() const { return liveness_; }
  // kInternal where the bucket exceeds the largest, or the planner's plan places a value outside of itself.
  Result<SlotPlan> plan(const ir::Bucket& bucket) const;
  // Bytes of all values if none shared memory.
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
