// A stitching graph made runnable: every part compiled, and for each bucket bound to addresses of
// one memory plan. run() enqueues all parts; capture() records the pieces; replay() launches them
// and runs the split operators between.
//
// Several executables (prefill, decode, head) share one arena and one workspace: forwards are
// ordered on one stream, and what outlives a forward is copied out of the arena by the runner.
// Not thread-safe: one thread owns the executables of an arena.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/compile/compiler.h"
#include "tessera/compile/isolated_memory.h"
#include "tessera/compile/memory_plan.h"
#include "tessera/device/device.h"
#include "tessera/ir/op_decl.h"
#include "tessera/piecewise/arena_history.h"
#include "tessera/piecewise/backend.h"
#include "tessera/piecewise/external_values.h"
#include "tessera/piecewise/liveness.h"
#include "tessera/piecewise/stitching.h"

namespace tessera {

enum class MemoryPlanKind : std::uint8_t { kPlanned, kIsolated };
std::string_view memory_plan_kind_name(MemoryPlanKind kind);  // "planned" "isolated"

using Planner = std::function<Result<MemoryPlan>(std::span<const LiveRange>)>;

// What an executable runs on; everything outlives it.
struct ExecutionEnvironment {
  Device& device;
  Stream& stream;  // the one stream of the arena
  const ForwardContext& context;
  const ExternalValues& externals;  // of inputs, weights and states
  Arena& arena;                     // values
  Arena& workspace;                 // kernels' scratch
  ArenaHistory* history = nullptr;  // of the arena's forwards; null: they are not counted
};

struct ExecutableOptions {
  ir::Bucket largest;  // no bucket exceeds it in any symbol; fixes the place of the outputs
  MemoryPlanKind memory = MemoryPlanKind::kPlanned;
  std::int64_t reserved_bytes = 0;  // the arena's first bytes, which another executable's output occupies
  Planner planner = plan_memory;
};

struct MemoryNeed {
  std::int64_t arena_bytes = 0;
  std::int64_t lower_bound_bytes = 0;  // the most alive at once: what a perfect plan would take
  std::int64_t unshared_bytes = 0;     // if nothing shared memory
  std::int64_t workspace_bytes = 0;
};

// What captures of one size make.
struct GraphNeed {
  std::int64_t graphs = 0;
  std::int64_t operators = 0;  // recorded in them; on a GPU some make more than one node
};

class Executable {
 public:
  static Result<std::unique_ptr<Executable>> create(StitchingGraph graph, const Compiler& compiler,
                                                    const ir::OpTable& ops, const ExecutionEnvironment& environment,
                                                    ExecutableOptions options);

  const StitchingGraph& graph() const { return graph_; }
  const ir::Bucket& largest() const { return options_.largest; }

  // From shapes alone; nothing is taken.
  Result<MemoryNeed> memory_need(const ir::Bucket& bucket) const;
  GraphNeed graph_need() const;  // of any bucket

  // Plans the bucket, grows arena and workspace where they are too small, and decides every kernel.
  Status bind(const ir::Bucket& bucket);
  bool bound(const ir::Bucket& bucket) const { return bound_.contains(bucket); }
  // Forgets the bucket's kernels and graphs.
  void drop(const ir::Bucket& bucket);

  // Precondition of all: bound(bucket).
  Status run(const ir::Bucket& bucket) const;
  // On failure the bucket keeps no graph, and run() still works.
  Status capture(const ir::Bucket& bucket);
  Status replay(const ir::Bucket& bucket) const;
  bool captured(const ir::Bucket& bucket) const;
  // Output i, in the order of the source graph. Valid until the next forward in this arena.
  Result<OutputView> output(const ir::Bucket& bucket, std::size_t index) const;

  // To look into a forward, or to time it: the parts one by one, and where their values lie. Precondition:
  // bound(bucket).
  std::span<const PartBackend> parts() const { return parts_; }
  Result<TensorView> value(const ir::Bucket& bucket, std::size_t part, ir::ValueId id) const;
  // Every address that the bucket's kernels and graphs hold is the one that they would be bound to now; kInternal names
  // part, bucket and value.
  Status check_addresses(const ir::Bucket& bucket) const;

  // The values of the next forward are NaN until they are made: the arena but its reserved bytes, or isolated memory.
  Status poison(const ir::Bucket& bucket);
  // Isolated memory only: finds writes outside of values.
  Status check_guards(const ir::Bucket& bucket) const;

  GraphStats graph_stats() const;                          // of all buckets
  GraphStats graph_stats(const ir::Bucket& bucket) const;  // of one
  std::int64_t num_captured() const { return num_captured_; }
  // Recorded graphs: a captured bucket has one of each piece with kernels.
  std::int64_t num_graphs() const;
  // Buckets that were bound since the start, those dropped again too.
  std::int64_t num_binds() const { return num_binds_; }

 private:
  struct BoundBucket {
    std::vector<std::byte*> slot_addresses;  // [slots]
    std::vector<std::int64_t> slot_offsets;  // [slots]: in the arena; -1: elsewhere
    std::byte* workspace = nullptr;
    mutable std::uint64_t generation = 0;      // of its last forward
    std::vector<TensorView> outputs;           // in the order of the source graph
    std::unique_ptr<IsolatedMemory> isolated;  // null for the planned memory
    bool captured = false;
  };

  Executable(StitchingGraph graph, const ExecutionEnvironment& environment, ExecutableOptions options)
      : graph_(std::move(graph)), env_(environment), options_(std::move(options)) {}

  Status place_outputs();
  Status bind_parts(const ir::Bucket& bucket);
  Result<MemoryPlan> plan(const ir::Bucket& bucket) const;
  Result<std::vector<std::byte*>> planned_addresses(const ir::Bucket& bucket);
  std::byte* address_now(const ir::Bucket& bucket, const BoundBucket& entry, std::size_t slot) const;
  void begin_forward(const ir::Bucket& bucket) const;
  Result<std::vector<std::byte*>> isolated_addresses(const ir::Bucket& bucket, IsolatedMemory& memory);
  Status resolve_externals(const ir::Bucket& bucket, std::vector<std::byte*>& addresses) const;
  Result<std::int64_t> workspace_bytes(const ir::Bucket& bucket) const;

  StitchingGraph graph_;
  ExecutionEnvironment env_;
  ExecutableOptions options_;
  Liveness liveness_;
  std::vector<std::int64_t> output_offsets_;  // [outputs]
  std::vector<PartBackend> parts_;            // [graph_.parts]
  std::map<ir::Bucket, BoundBucket> bound_;
  std::int64_t num_captured_ = 0;
  std::int64_t num_binds_ = 0;
};

}  // namespace tessera
