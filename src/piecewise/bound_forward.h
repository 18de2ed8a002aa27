// A forward that is bound for one bucket (a number for each symbolic size of the graph, ir/type.h), so all its
// addresses and kernels are chosen. It is one flat list of steps. Each step enqueues a kernel or launches a captured
// graph. A replay goes through the list and allocates nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/compile/isolated_memory.h"
#include "tessera/compile/program.h"
#include "tessera/device/device.h"
#include "tessera/piecewise/backend.h"
#include "tessera/piecewise/compiled_forward.h"

namespace tessera {

// The addresses of a forward's values and of its workspace, for one bucket.
struct ForwardAddresses {
  std::vector<DeviceAddress> slots{};          // the address of each slot, or null if no instruction uses it
  std::vector<std::int64_t> arena_offsets{};   // the offset of each slot; -1 if it has none in the arena
  DeviceAddress workspace{};                   // scratch memory of the kernels
  std::unique_ptr<IsolatedMemory> isolated{};  // holds the results; if null, the arena holds them
};

class BoundForward {
 public:
  // Binds the forward. `forward`, `device` and `context` must outlive the result. An error names the part and the
  // bucket.
  static Result<std::unique_ptr<BoundForward>> bind(const CompiledForward& forward, const ir::Bucket& bucket,
                                                    ForwardAddresses addresses, Device& device,
                                                    const ForwardContext& context);

  const ForwardAddresses& addresses() const { return addresses_; }
  std::span<const TensorView> outputs() const { return outputs_; }  // in the order of the source graph

  // Enqueues every kernel. An error names the part, the bucket and the operator.
  Status run(Stream& stream);
  // Returns whether the forward has a kernel variant that is not in `warm`, the set of variants that have run.
  bool has_cold_kernels(const KernelVariants& warm) const;
  // Enqueues, in order, one kernel of each variant that is not in `warm`, and adds the variant to `warm`. The kernels
  // read the data that earlier forwards left in memory.
  Status warm_up(KernelVariants& warm, Stream& stream) const;
  void add_variants(KernelVariants& variants) const;
  // Makes a graph of each piece that has kernels. After a failure no piece has a graph, and run() still works.
  Status capture(const PiecewiseBackend& backend, Stream& stream);
  bool captured() const { return replay_steps_.has_value(); }
  // Launches the graphs and enqueues the operators between them. If nothing was captured, enqueues every kernel.
  Status replay(Stream& stream);

  // Makes one graph of the whole forward, including split operators, in addition to the graphs of the pieces. The graph
  // can only run batches in which every request has several rows. After a failure there is no such graph. Precondition:
  // has_cold_kernels() is false.
  Status capture_full(const PiecewiseBackend& backend, Stream& stream);
  bool has_full_graph() const { return full_graph_ != nullptr; }
  void drop_full_graph() { full_graph_ = nullptr; }
  // Launches the graph of the whole forward. Precondition: has_full_graph().
  Status replay_full(Stream& stream) const;

  // Does the work of replay() if `graphs` is true, and otherwise that of run(). Calls `passed` after each part that
  // enqueues anything, so that the caller can time the parts of the forward.
  using PartPassed = std::function<Status(std::size_t part)>;
  Status run_in_parts(bool graphs, Stream& stream, const PartPassed& passed);
  // Returns how many times run() or run_in_parts() enqueued all kernels before capture() succeeded.
  std::int64_t num_warm_ups() const { return num_warm_ups_; }

  // The next three functions access a single part. The part runs in the same way as in the whole forward.
  const BoundProgram& program(std::size_t part) const { return programs_[part]; }
  bool has_graph(std::size_t part) const { return captured() && graphs_[part] != nullptr; }
  Status replay_part(std::size_t part, Stream& stream) const;
  GraphStats graph_stats() const;  // sum over the graphs of the parts and the full graph
  std::int64_t num_graphs() const;

  // The number (generation) that this forward's newest run has in the arena's history, or 0 if no run was counted.
  std::uint64_t generation() const { return generation_; }
  void set_generation(std::uint64_t generation) { generation_ = generation; }

 private:
  // A step launches a graph or enqueues a kernel.
  struct Step {
    RecordedGraph* graph;  // null if the step enqueues a kernel
    const BoundOp* op;     // null if the step launches a graph
    std::int32_t part;
    std::int32_t instruction;  // the kernel's instruction in the part's program
  };

  BoundForward(const CompiledForward& forward, const ir::Bucket& bucket, ForwardAddresses addresses)
      : forward_(forward), bucket_(bucket), addresses_(std::move(addresses)) {}
  void add_kernels(std::size_t part, std::vector<Step>& steps) const;
  std::string place(std::size_t part) const;  // for example "piece 0 at T=16"
  Status walk(std::span<const Step> steps, Stream& stream) const;
  Status failed(Status status, const Step& step) const;

  const CompiledForward& forward_;
  ir::Bucket bucket_;
  ForwardAddresses addresses_;
  std::vector<TensorView> outputs_;
  std::vector<BoundProgram> programs_;                  // one for each part
  std::vector<std::unique_ptr<RecordedGraph>> graphs_;  // one for each part after a capture; null if the part has none
  std::vector<Step> steps_;                             // the steps of run(), which enqueue every kernel
  std::optional<std::vector<Step>> replay_steps_;       // the steps of replay(); present only if the bucket is captured
  std::unique_ptr<RecordedGraph> full_graph_;           // the graph of the whole forward, or null
  std::int64_t num_warm_ups_ = 0;
  std::uint64_t generation_ = 0;
};

}  // namespace tessera
