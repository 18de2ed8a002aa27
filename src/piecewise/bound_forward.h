// A forward bound for one bucket: every address and kernel decided. It runs as one flat list of steps, each a kernel to
// enqueue or a captured graph to launch; a replay walks the list and allocates nothing.
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

// Where a bucket's values lie.
struct ForwardAddresses {
  std::vector<DeviceAddress> slots{};          // [slots]; none: no instruction uses it
  std::vector<std::int64_t> arena_offsets{};   // [slots]: -1: not in the arena
  DeviceAddress workspace{};                   // kernels' scratch
  std::unique_ptr<IsolatedMemory> isolated{};  // the results', where the arena is not; null: they are in the arena
};

class BoundForward {
 public:
  // `forward`, device and context outlive this. The error names part and bucket.
  static Result<std::unique_ptr<BoundForward>> bind(const CompiledForward& forward, const ir::Bucket& bucket,
                                                    ForwardAddresses addresses, Device& device,
                                                    const ForwardContext& context);

  const ForwardAddresses& addresses() const { return addresses_; }
  std::span<const TensorView> outputs() const { return outputs_; }  // in the order of the source graph

  // Enqueues every kernel. An error names part, bucket and operator.
  Status run(Stream& stream);
  // Whether a kernel is of a variant that is not in `warm`.
  bool has_cold_kernels(const KernelVariants& warm) const;
  // Enqueues, in order, one kernel of each variant that is not in `warm`, and adds it. What they compute from is left
  // of earlier forwards.
  Status warm_up(KernelVariants& warm, Stream& stream) const;
  void add_variants(KernelVariants& variants) const;
  // Makes a graph of each piece that runs something. On failure there is none, and run() still works.
  Status capture(const PiecewiseBackend& backend, Stream& stream);
  bool captured() const { return replay_steps_.has_value(); }
  // Launches the graphs and enqueues what is between them; everything where nothing was captured.
  Status replay(Stream& stream);

  // One graph of the whole forward, split operators included, beside those of the pieces. It serves batches whose
  // requests have several rows each. On failure there is none. Precondition: no kernel is cold.
  Status capture_full(const PiecewiseBackend& backend, Stream& stream);
  bool has_full_graph() const { return full_graph_ != nullptr; }
  void drop_full_graph() { full_graph_ = nullptr; }
  // Precondition: has_full_graph().
  Status replay_full(Stream& stream) const;

  // replay() (`graphs`) or run(), with `passed` called after each part that was enqueued: to time parts where they run.
  using PartPassed = std::function<Status(std::size_t part)>;
  Status run_in_parts(bool graphs, Stream& stream, const PartPassed& passed);
  // Times that run() has gone through since bind() without a graph.
  std::int64_t num_warm_ups() const { return num_warm_ups_; }

  // One part alone, as the whole forward would do it.
  const BoundProgram& program(std::size_t part) const { return programs_[part]; }
  bool has_graph(std::size_t part) const { return captured() && graphs_[part] != nullptr; }
  Status replay_part(std::size_t part, Stream& stream) const;
  GraphStats graph_stats() const;  // of all parts, and of the whole forward
  std::int64_t num_graphs() const;

  // Of its last forward in the arena's history; 0: none that was counted.
  std::uint64_t generation() const { return generation_; }
  void set_generation(std::uint64_t generation) { generation_ = generation; }

 private:
  // A graph to launch, or a kernel to enqueue.
  struct Step {
    RecordedGraph* graph;  // null: a kernel
    const BoundOp* op;     // null: a graph
    std::int32_t part;
    std::int32_t instruction;  // of the part's program; of a kernel
  };

  BoundForward(const CompiledForward& forward, const ir::Bucket& bucket, ForwardAddresses addresses)
      : forward_(forward), bucket_(bucket), addresses_(std::move(addresses)) {}
  void add_kernels(std::size_t part, std::vector<Step>& steps) const;
  std::string place(std::size_t part) const;  // "piece 0 at T=16"
  Status walk(std::span<const Step> steps, Stream& stream) const;
  Status failed(Status status, const Step& step) const;

  const CompiledForward& forward_;
  ir::Bucket bucket_;
  ForwardAddresses addresses_;
  std::vector<TensorView> outputs_;
  std::vector<BoundProgram> programs_;                  // [parts]
  std::vector<std::unique_ptr<RecordedGraph>> graphs_;  // [parts], once captured; null: the part has none
  std::vector<Step> steps_;                             // every kernel
  std::optional<std::vector<Step>> replay_steps_;       // there exactly when the bucket is captured
  std::unique_ptr<RecordedGraph> full_graph_;           // of all programs; null: there is none
  std::int64_t num_warm_ups_ = 0;
  std::uint64_t generation_ = 0;
};

}  // namespace tessera
