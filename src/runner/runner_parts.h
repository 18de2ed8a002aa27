// RunnerParts holds everything that the forwards of one model use: the fixed RunnerModel, the stream, the memory, and
// the compiled runners. The object is made once, and the addresses of its memory never change. Launcher uses it to
// stage and enqueue forwards, and SizeCapture captures its runners as graphs.
//
// Threads: one thread owns a RunnerParts object and everything that it points to.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/model/model.h"
#include "tessera/ops/contract/forward_states.h"
#include "tessera/piecewise/external_values.h"
#include "tessera/runner/graphs/graph_runner.h"
#include "tessera/runner/memory/memory_report.h"
#include "tessera/runner/runner_model.h"
#include "tessera/runner/step_memory.h"
#include "tessera/runner/verify/debug_mode.h"

namespace tessera {

class Adapter;
class VisionRunner;
struct RankOrder;

class RunnerParts {
 public:
  // `device` must outlive the parts.
  static Result<std::unique_ptr<RunnerParts>> create(ModelGraphs graphs, Weights weights, Device& device,
                                                     RunnerOptions options);
  // Waits for all enqueued work, because the work still uses the memory of the parts.
  ~RunnerParts();

  const RunnerModel model;
  Stream& stream() const { return *stream_; }
  StepMemory& memory() { return *memory_; }
  const StepMemory& memory() const { return *memory_; }
  Arena& arena() { return *arena_; }
  const Arena& arena() const { return *arena_; }
  Arena& workspace() { return *workspace_; }
  const Arena& workspace() const { return *workspace_; }
  // Return the compiled runners.
  GraphRunner& runner(RunnerRole role) { return *find_runner(role); }
  const GraphRunner& runner(RunnerRole role) const { return *find_runner(role); }
  // Return null if the model has no runner of the role.
  GraphRunner* find_runner(RunnerRole role);
  const GraphRunner* find_runner(RunnerRole role) const;
  // Return null if the model has no vision tower.
  VisionRunner* vision() { return vision_.get(); }
  const VisionRunner* vision() const { return vision_.get(); }
  // Makes a tower that shares the memory and the weights of vision(). Precondition: the model has a tower.
  Result<std::unique_ptr<VisionRunner>> make_vision(VisionOptions options);
  DebugMode* debug() { return debug_.get(); }                   // null without options.debug
  const MemoryReport& predicted() const { return predicted_; }  // predicted before anything was captured

  // Returns the device, stream, context, arenas and everything else that executables for batches of this kind need. The
  // result refers to this object and must not outlive it.
  ExecutionEnvironment environment(BatchKind batches);
  ExternalValues& externals() { return externals_; }
  KernelVariants& warm() { return warm_; }  // kernel variants that have run on the stream

  // Returns the free bytes of device memory. If this is rank 0 of several ranks, returns the minimum over all ranks, or
  // 0 if a rank does not know its free memory.
  std::int64_t available_bytes() const;
  // Runs `local`. If this is rank 0 of several ranks, the other ranks carry out `order` at the same time
  // (RankGroup::together).
  Status together(const RankOrder& order, const std::function<Status()>& local);
  // Implements ModelRunner::write_adapter().
  Status write_adapter(std::int64_t slot, const std::shared_ptr<const Adapter>& adapter);

 private:
  explicit RunnerParts(RunnerModel made);
  Status allocate();
  Status reserve_arenas();
  Status name_externals();
  Status build_runners();

  // The members are in order of creation and are destroyed in reverse: graphs first, then buffers, then the stream.
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<StepMemory> memory_;
  ForwardStates states_;  // used by the contexts
  ForwardContext extend_context_;
  ForwardContext decode_context_;  // for batches with one row in each request
  ExternalValues externals_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<Arena> workspace_;
  KernelVariants warm_;
  std::unique_ptr<DebugMode> debug_;
  std::vector<GraphRunner> runners_;  // in the order of RunnerRole
  std::unique_ptr<VisionRunner> vision_;
  MemoryReport predicted_;
};

}  // namespace tessera
