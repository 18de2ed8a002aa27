// Holds a stitching graph in runnable form. Its parts are compiled to programs. A liveness analysis of the programs
// gives the memory plan of each bucket. A bucket is bound to the plan's addresses once, and then run, captured and
// replayed.
//
//   create:   StitchingGraph ─▶ CompiledForward ─▶ Liveness
//   bind:     Liveness + sizes ─▶ memory plan ─▶ BoundForward: one flat list of kernels
//   capture:  BoundForward gets a second list, in which each piece is one graph to launch
//
// Several executables (prefill, decode, head) share one arena and one workspace. That is safe for two reasons: all
// forwards run on one stream, and the runner copies everything that must outlive a forward out of the arena. Not
// thread-safe: one thread owns all executables of an arena.
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

// The objects that an executable runs on. All of them outlive the executable.
struct ExecutionEnvironment {
  Device& device;
  Stream& stream;  // the one stream of the arena
  const ForwardContext& context;
  const ExternalValues& externals;                        // addresses of inputs, weights and states
  Arena& arena;                                           // holds the values
  Arena& workspace;                                       // holds the kernels' scratch
  KernelVariants& warm;                                   // variants of kernels that have run on the stream
  ArenaHistory* history = nullptr;                        // history of the arena's forwards; null: they are not counted
  const PiecewiseBackend& backend = recording_backend();  // how a part is captured
};

struct ExecutableOptions {
  ir::Bucket largest;  // the greatest value of each symbol in any bucket; it fixes the addresses of outputs
  MemoryPlanKind memory = MemoryPlanKind::kPlanned;
  std::int64_t reserved_bytes = 0;  // the arena's first bytes, which hold another executable's output
  Planner planner = plan_memory;
};

struct MemoryNeed {
  std::int64_t arena_bytes = 0;
  std::int64_t lower_bound_bytes = 0;  // the largest total size of values that are live at one time; no plan needs less
  std::int64_t unshared_bytes = 0;     // the need if every value had memory of its own
  std::int64_t workspace_bytes = 0;
};

// How many graphs the capture of one size makes, and how many operators these graphs contain.
struct GraphNeed {
  std::int64_t graphs = 0;
  std::int64_t operators = 0;  // operators recorded in the graphs; on a GPU some operators make several nodes
};

// A second compiler, which serves only some of the buckets.
struct CompilerForSome {
  const Compiler& compiler;
  std::function<bool(const ir::Bucket& bucket)> serves;  // whether the compiler serves the bucket; a pure function
};

class Executable {
 public:
  // Compiles the graph. If `for_some` is given, compiles the graph a second time with that compiler. All buckets have
  // their outputs at the same addresses, and both compilers give the same results up to rounding. The compilers are not
  // needed afterwards, but the kernels of their contexts must outlive the executable. The error names the part.
  static Result<std::unique_ptr<Executable>> create(StitchingGraph graph, const Compiler& compiler,
                                                    const ExecutionEnvironment& environment, ExecutableOptions options,
                                                    std::optional<CompilerForSome> for_some = std::nullopt);

  const StitchingGraph& graph() const { return graph_; }
  // Returns the bucket's compiled forward. The overload without a bucket returns the first compiler's forward. It is
  // the forward of all buckets that `for_some` does not serve.
  const CompiledForward& compiled(const ir::Bucket& bucket) const { return variant(bucket).forward; }
  const CompiledForward& compiled() const { return variants_[0]->forward; }
  std::span<const CompiledPart> parts(const ir::Bucket& bucket) const { return compiled(bucket).parts; }
  std::span<const CompiledPart> parts() const { return compiled().parts; }
  CompileCounts compile_counts() const;  // sum over all compilers
  const ir::Bucket& largest() const { return options_.largest; }

  // Computes the need from shapes, without allocating memory.
  Result<MemoryNeed> memory_need(const ir::Bucket& bucket) const;
  GraphNeed graph_need(const ir::Bucket& bucket) const;

  // Plans the bucket's memory, grows arena and workspace if they are too small, and chooses every kernel. Drops the
  // bucket first if it is already bound.
  Status bind(const ir::Bucket& bucket);
  bool bound(const ir::Bucket& bucket) const { return bound_.contains(bucket); }
  // Forgets the bucket's kernels and graphs.
  void drop(const ir::Bucket& bucket) { bound_.erase(bucket); }

  // Enqueues every kernel. Precondition of this function and of the functions below, up to output(): bound(bucket).
  // Only captured(), has_full_graph() and drop_full_graph() also take a bucket that is not bound. Running and replaying
  // cost one look-up of the bucket in addition to the kernels.
  Status run(const ir::Bucket& bucket) const;
  // Returns whether the bucket has a kernel variant that has not yet run on the stream. The first run may load code and
  // initialise libraries, which is not allowed during a stream capture.
  Result<bool> has_cold_kernels(const ir::Bucket& bucket) const;
  // Runs one kernel of each cold variant, in the forward's order, so that capture() records only warm kernels.
  // Precondition: inputs and plans of a forward of this bucket are staged. The kernels read these, and also the data
  // that earlier forwards left in the arena. Afterwards the outputs and the arena hold meaningless data; the kernels
  // write states at the places that the staged inputs name.
  Status warm_up(const ir::Bucket& bucket) const;
  // Captures the bucket. If it fails the bucket keeps no graph, and run() still works.
  Status capture(const ir::Bucket& bucket);
  // Replays the bucket; does what run() does if it is not captured.
  Status replay(const ir::Bucket& bucket) const;
  // Runs replay() if `graphs` is true, otherwise run(). Calls `passed` after each part that enqueues anything.
  Status run_in_parts(const ir::Bucket& bucket, bool graphs, const BoundForward::PartPassed& passed) const;
  bool captured(const ir::Bucket& bucket) const;
  // The functions below make and launch one graph of a whole forward, split operators included. The graph is only for
  // batches in which every request has several rows. It exists in addition to the pieces' graphs, and runs the same
  // kernels on the same memory. capture_full() has the precondition captured(bucket), and returns kFailedPrecondition
  // if can_be_full() is false.
  bool can_be_full() const { return graph_.parts.size() > 1 && graph_.capturable; }
  Status capture_full(const ir::Bucket& bucket);
  bool has_full_graph(const ir::Bucket& bucket) const;
  void drop_full_graph(const ir::Bucket& bucket);
  Status replay_full(const ir::Bucket& bucket) const;  // precondition: has_full_graph(bucket)
  // Returns the output with this index in the order of the source graph. Valid until the next forward in this arena.
  Result<OutputView> output(const ir::Bucket& bucket, std::size_t index) const;

  // Functions to inspect a forward or to time it: its parts, their single instructions, and the addresses of a part's
  // values. Precondition of all these functions except entries(): bound(bucket).
  Status run_instruction(const ir::Bucket& bucket, std::size_t part, std::size_t instruction) const;
  // Returns whether running the instruction alone does nothing, because a later instruction's operator also does the
  // work of this instruction. Such an operator is a joined kernel (ops/contract/op.h) or runs a range in halves
  // (compile/halves.h).
  Result<bool> runs_later(const ir::Bucket& bucket, std::size_t part, std::size_t instruction) const;
  Status replay_part(const ir::Bucket& bucket, std::size_t part) const;
  Result<TensorView> value(const ir::Bucket& bucket, std::size_t part, ir::ValueId id) const;
  // Checks that the addresses in the bucket's kernels and graphs are still those that binding would give now. If not,
  // returns kInternal, which names part, bucket and value.
  Status check_addresses(const ir::Bucket& bucket) const;
  // Returns one entry for each part, whether the bucket is bound or not.
  Result<std::vector<PartEntry>> entries(const ir::Bucket& bucket) const;

  // Fills the memory of the bucket's values with NaN: the isolated memory, or the arena except its reserved bytes.
  Status poison(const ir::Bucket& bucket);
  // Returns an error if a kernel wrote outside the memory of its values. Only for isolated memory.
  Status check_guards(const ir::Bucket& bucket) const;

  GraphStats graph_stats() const;                          // sum over all buckets
  GraphStats graph_stats(const ir::Bucket& bucket) const;  // sum for this bucket
  std::int64_t num_captured() const;
  // Returns the number of recorded graphs: a captured bucket has one for each piece with kernels, and perhaps one of
  // the whole forward.
  std::int64_t num_graphs() const;
  // Returns the number of buckets bound since the start, including those dropped again.
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
  std::vector<std::unique_ptr<Variant>> variants_;  // the first compiler's variant; then that of CompilerForSome
  std::function<bool(const ir::Bucket&)> serves_;   // whether the second variant takes the bucket
  std::map<ir::Bucket, std::unique_ptr<BoundForward>> bound_;
  std::int64_t num_binds_ = 0;
};

}  // namespace tessera
