// Holds a stitching graph (stitching.h) in runnable form. Its parts are compiled to programs. The memory plan of each
// bucket (a number for each symbolic size of the graph, ir/type.h) follows from a liveness analysis of the programs. A
// bucket is bound to the plan's addresses once, and then run, captured and replayed.
//
//   create:   StitchingGraph ─▶ CompiledForward ─▶ Liveness
//   bind:     Liveness + sizes ─▶ memory plan ─▶ BoundForward: one flat list of kernels
//   capture:  BoundForward gets a second list, in which each piece is one graph to launch
//
// Several executables (prefill, decode, head) share one arena and one workspace. Sharing is safe for two reasons. All
// forwards run on one stream, and the runner copies everything that must outlive a forward out of the arena.
// Executables are not thread-safe: one thread owns all executables of an arena.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/compile/compiler.h"
#include "tessera/device/device.h"
#include "tessera/piecewise/arena_history.h"
#include "tessera/piecewise/backend.h"
#include "tessera/piecewise/bound_forward.h"
#include "tessera/piecewise/compiled_forward.h"
#include "tessera/piecewise/external_values.h"
#include "tessera/piecewise/forward_memory.h"
#include "tessera/piecewise/part_entry.h"
#include "tessera/piecewise/stitching.h"

namespace tessera {

enum class MemoryPlanKind : std::uint8_t { kPlanned, kIsolated };
std::string_view memory_plan_kind_name(MemoryPlanKind kind);  // "planned" "isolated"

// The objects that an executable runs on. All of them must outlive the executable.
struct ExecutionEnvironment {
  Device& device;
  Stream& stream;  // the one stream of the arena
  const ForwardContext& context;
  const ExternalValues& externals;  // addresses of inputs, weights and states
  Arena& arena;                     // holds the values
  Arena& workspace;                 // holds the kernels' scratch
  KernelVariants& warm;             // variants of kernels that have run on the stream
  ArenaHistory* history = nullptr;  // history of the arena's forwards; if null, they are not counted
  const PiecewiseBackend& backend = recording_backend();  // how a part is captured
};

struct ExecutableOptions {
  ir::Bucket largest;  // the maximum value of each symbol in any bucket; it fixes the addresses of outputs
  MemoryPlanKind memory = MemoryPlanKind::kPlanned;
  std::int64_t reserved_bytes = 0;  // size of the arena's first part, which holds another executable's output
  Planner planner = plan_memory;
};

struct MemoryNeed {
  std::int64_t arena_bytes = 0;
  // The maximum total size of values that are live at the same time. No memory plan can need less.
  std::int64_t lower_bound_bytes = 0;
  std::int64_t unshared_bytes = 0;  // the need if every value had its own memory
  std::int64_t workspace_bytes = 0;
};

// How many graphs the capture of one size makes, and how many operators these graphs contain.
struct GraphNeed {
  std::int64_t graphs = 0;
  std::int64_t operators = 0;  // operators in the graphs; on a GPU some operators become several nodes
};

// A second compiler, which is used only for some of the buckets.
struct CompilerForSome {
  const Compiler& compiler;
  std::function<bool(const ir::Bucket& bucket)> serves;  // pure; whether `compiler` runs the bucket
};

class Executable {
 public:
  // Compiles the graph. If `for_some` is given, also compiles the graph with for_some->compiler. This second program
  // runs the buckets for which for_some->serves() is true. The results of both compilers must be equal up to rounding.
  // All buckets have their outputs at the same addresses. The compilers may be destroyed afterwards, but the kernels in
  // their CompilerContext must outlive the executable. An error names the part of the graph that failed.
  static Result<std::unique_ptr<Executable>> create(StitchingGraph graph, const Compiler& compiler,
                                                    const ExecutionEnvironment& environment, ExecutableOptions options,
                                                    std::optional<CompilerForSome> for_some = std::nullopt);

  const StitchingGraph& graph() const { return graph_; }
  // Returns the bucket's compiled forward. The overload without a bucket returns the forward of the first compiler,
  // which runs all buckets for which `for_some` is not used.
  const CompiledForward& compiled(const ir::Bucket& bucket) const { return variant(bucket).forward; }
  const CompiledForward& compiled() const { return variants_[0]->forward; }
  std::span<const CompiledPart> parts(const ir::Bucket& bucket) const { return compiled(bucket).parts; }
  std::span<const CompiledPart> parts() const { return compiled().parts; }
  CompileCounts compile_counts() const;  // sum over all compilers
  const ir::Bucket& largest() const { return options_.largest; }

  // These two functions compute the needs from shapes, without allocating memory.
  Result<MemoryNeed> memory_need(const ir::Bucket& bucket) const;
  GraphNeed graph_need(const ir::Bucket& bucket) const;

  // Plans the bucket's memory, grows the arena and the workspace if they are too small, and chooses every kernel. If
  // the bucket is already bound, drops it first.
  Status bind(const ir::Bucket& bucket);
  bool bound(const ir::Bucket& bucket) const { return bound_.contains(bucket); }
  // Releases the bucket's kernels and graphs.
  void drop(const ir::Bucket& bucket) { bound_.erase(bucket); }

  // Enqueues every kernel. All functions from here to output(), except captured(), has_full_graph() and
  // drop_full_graph(), have the precondition bound(bucket). Running and replaying cost one look-up of the bucket in
  // addition to the kernels.
  Status run(const ir::Bucket& bucket) const;
  // Returns whether the bucket has a kernel variant that has not yet run on the stream. The first run may load code and
  // initialise libraries. Both are forbidden during a stream capture.
  Result<bool> has_cold_kernels(const ir::Bucket& bucket) const;
  // Runs one kernel of each cold variant (a variant that has not run on the stream), in the forward's order, so that
  // capture() records no cold kernels. Precondition: inputs and plans of a forward of this bucket are staged. The
  // kernels read these, and also the data that earlier forwards left in the arena. Afterwards the outputs and the arena
  // contain meaningless data. The kernels also write to states, at the slots in the staged inputs.
  Status warm_up(const ir::Bucket& bucket) const;
  // Captures the bucket. If a capture fails, the bucket has no graphs, and run() still works.
  Status capture(const ir::Bucket& bucket);
  // Replays the graphs of the bucket. If it is not captured, does the work of run().
  Status replay(const ir::Bucket& bucket) const;
  // Does the work of replay() if `graphs` is true, and otherwise that of run(). Calls `passed` after each part that
  // enqueues anything.
  Status run_in_parts(const ir::Bucket& bucket, bool graphs, const BoundForward::PartPassed& passed) const;
  bool captured(const ir::Bucket& bucket) const;
  // The functions below make and launch one graph of a whole forward, split operators included. The graph can only run
  // batches in which every request has several rows. It exists in addition to the pieces' graphs, and runs the same
  // kernels on the same memory. capture_full() has the precondition captured(bucket), and returns kFailedPrecondition
  // if can_be_full() is false.
  bool can_be_full() const { return graph_.parts.size() > 1 && graph_.capturable; }
  Status capture_full(const ir::Bucket& bucket);
  bool has_full_graph(const ir::Bucket& bucket) const;
  void drop_full_graph(const ir::Bucket& bucket);
  Status replay_full(const ir::Bucket& bucket) const;  // precondition: has_full_graph(bucket)
  // Returns the output with this index among the outputs of the source graph. The view is valid until the next forward
  // in this arena.
  Result<OutputView> output(const ir::Bucket& bucket, std::size_t index) const;

  // The functions below are for inspecting or timing the parts of a forward, their single instructions, and the
  // addresses of their values. Precondition of all these functions except entries(): bound(bucket).
  Status run_instruction(const ir::Bucket& bucket, std::size_t part, std::size_t instruction) const;
  // Returns whether run_instruction() does nothing for this instruction, because the operator of a later instruction
  // also does its work. The later operator is a joined kernel (ops/contract/op.h) or runs a range in halves
  // (compile/halves.h).
  Result<bool> runs_later(const ir::Bucket& bucket, std::size_t part, std::size_t instruction) const;
  Status replay_part(const ir::Bucket& bucket, std::size_t part) const;
  Result<TensorView> value(const ir::Bucket& bucket, std::size_t part, ir::ValueId id) const;
  // Checks that the addresses in the bucket's kernels and graphs are still those that binding would give now. If not,
  // returns kInternal with a message that names the part, the bucket and the value.
  Status check_addresses(const ir::Bucket& bucket) const;
  // Returns one entry for each part. The bucket does not have to be bound.
  Result<std::vector<PartEntry>> entries(const ir::Bucket& bucket) const;

  // Fills the memory of the bucket's values with NaN: the isolated memory, or the arena except its reserved bytes.
  Status poison(const ir::Bucket& bucket);
  // Returns an error if a kernel wrote outside the memory of its values. Use it only for isolated memory.
  Status check_guards(const ir::Bucket& bucket) const;

  GraphStats graph_stats() const;                          // sum over all buckets
  GraphStats graph_stats(const ir::Bucket& bucket) const;  // sum for this bucket
  std::int64_t num_captured() const;
  // Returns the number of recorded graphs. A captured bucket has one graph for each piece with kernels, and perhaps one
  // of the whole forward.
  std::int64_t num_graphs() const;
  // Returns the number of successful calls of bind(), including those for buckets that were dropped later.
  std::int64_t num_binds() const { return num_binds_; }

 private:
  // The result of one compiler. It must not move, because bound forwards refer to it.
  struct Variant {
    CompiledForward forward;
    std::optional<ForwardMemory> memory;  // set after compiling
  };

  Executable(StitchingGraph graph, const ExecutionEnvironment& environment, ExecutableOptions options)
      : graph_(std::move(graph)), env_(environment), options_(std::move(options)) {}

  Status compile(const Compiler& compiler);
  const Variant& variant(const ir::Bucket& bucket) const { return *variants_[serves_ && serves_(bucket) ? 1 : 0]; }

  Result<BoundForward*> find(const ir::Bucket& bucket) const;
  void begin_forward(BoundForward& forward) const;
  Result<ForwardAddresses> planned_addresses(const ir::Bucket& bucket);
  Result<ForwardAddresses> isolated_addresses(const ir::Bucket& bucket);
  Status resolve_externals(const ir::Bucket& bucket, std::vector<DeviceAddress>& addresses) const;
  // Returns the context's states if the forward has split operators, otherwise null.
  ForwardStates* piecewise_states() const { return graph_.parts.size() > 1 ? env_.context.states : nullptr; }
  DeviceAddress address_now(const ir::Bucket& bucket, const ForwardAddresses& bound, std::size_t slot) const;
  Result<std::int64_t> workspace_bytes(const ir::Bucket& bucket) const;

  StitchingGraph graph_;
  ExecutionEnvironment env_;
  ExecutableOptions options_;
  std::vector<std::unique_ptr<Variant>> variants_;  // the variant of the first compiler, then that of CompilerForSome
  std::function<bool(const ir::Bucket&)> serves_;   // whether the second variant is used for the bucket
  std::map<ir::Bucket, std::unique_ptr<BoundForward>> bound_;
  std::int64_t num_binds_ = 0;
};

}  // namespace tessera
