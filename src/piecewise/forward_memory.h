// Plans where the values of a forward lie in the arena, for each bucket (a number for each symbolic size of the graph,
// ir/type.h). The plan depends only on shapes. Planning allocates no device memory.
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
  ir::Bucket largest;               // the maximum value of each symbol in any bucket; it fixes the output offsets
  std::int64_t reserved_bytes = 0;  // size of the arena's first part, which holds another executable's output
  Planner planner = plan_memory;
};

// The plan of one bucket.
struct SlotPlan {
  std::vector<std::int64_t> offsets;   // for each slot, its offset in the arena; -1 if it has none
  std::int64_t size_bytes = 0;         // the arena size that the plan needs
  std::int64_t lower_bound_bytes = 0;  // maximum number of bytes that are live at the same time; no plan needs less
};

class ForwardMemory {
 public:
  // Places the outputs one after another, beginning after the reserved bytes. Each output gets as much room as it needs
  // in the largest bucket. `forward` must outlive this object and must not move.
  static Result<ForwardMemory> create(const CompiledForward& forward, ForwardMemoryOptions options);

  const Liveness& liveness() const { return liveness_; }
  // Plans the bucket. Returns kInternal if the bucket exceeds the largest one, or if the planner places a value beyond
  // the arena size that its plan states.
  Result<SlotPlan> plan(const ir::Bucket& bucket) const;
  // Returns the bytes that all values would take together if no two of them shared memory.
  Result<std::int64_t> unshared_bytes(const ir::Bucket& bucket) const;

 private:
  ForwardMemory(const CompiledForward& forward, ForwardMemoryOptions options)
      : forward_(&forward), options_(std::move(options)) {}

  const CompiledForward* forward_;
  ForwardMemoryOptions options_;
  Liveness liveness_;
  std::vector<std::int64_t> output_offsets_;  // one for each output
};

}  // namespace tessera
