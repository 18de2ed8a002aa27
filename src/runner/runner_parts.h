// Everything that one model's forwards run on: stream, memory, plans, and the compiled runners. It is made once, and
// its addresses are fixed for its life. Steps, captures, the oracle and debug mode all work on it.
//
// Threads: one thread owns it and everything that it points to.
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
#include "tessera/runner/capture/graph_runner.h"
#include "tessera/runner/embedding_rows.h"
#include "tessera/runner/memory/edit_buffers.h"
#include "tessera/runner/memory/input_buffers.h"
#include "tessera/runner/memory/kv_storage.h"
#include "tessera/runner/memory/memory_report.h"
#include "tessera/runner/op_plans.h"
#include "tessera/runner/runner_options.h"
#include "tessera/runner/step_profiler.h"
#include "tessera/runner/verify/debug_mode.h"

namespace tessera {

// How a size's forward is enqueued: operator by operator, as a replay of its graphs, or as a replay of its full graph.
enum class Execution : std::uint8_t { kOperators, kGraphs, kFullGraph };

class VisionRunner;
struct RankOrder;

class RunnerParts {
 public:
  // `device` must outlive the parts.
  static Result<std::unique_ptr<RunnerParts>> create(ModelGraphs graphs, Weights weights, Device& device,
                                                     RunnerOptions options);
  // Waits for all enqueued work, which uses the memory that is freed here.
  ~RunnerParts();

  GraphRunner& runner(RunnerRole role) { return runners[static_cast<std::size_t>(role)]; }
  const GraphRunner& runner(RunnerRole role) const { return runners[static_cast<std::size_t>(role)]; }
  std::size_t num_cache_groups() const { return graphs.body.cache_groups.size(); }
  int ranks() const;  // number of ranks that run each forward together

  // Returns the environment in which executables of such batches are made.
  ExecutionEnvironment environment(BatchKind batches);
  // Stages plans and static inputs of the tokens in the step buffer. The rows up to `padded_tokens` are padding.
  Status stage(const StagedTokens& tokens, BatchKind kind, std::int64_t padded_tokens);
  // Stages and uploads the plans and inputs of a dummy batch on the reserved page. Captured sizes of `runner` (prefill
  // or decode) are warmed up and measured with it. Its size is `size`, or the largest that a batch may have.
  Status stage_dummy(const GraphRunner& runner, std::int64_t size);
  // Does the same with a batch that defines every row (page_batch). Precondition: such a batch of the size exists.
  Status stage_pages(std::int64_t size);
  // Calls GraphRunner::capture_one with a dummy batch for kernels that have not run. With several ranks, captures on
  // all or on none.
  Status capture(GraphRunner& runner, std::int64_t size);
  // Calls GraphRunner::drop on all ranks.
  Status drop(GraphRunner& runner, std::int64_t size, const Status& why);
  // On rank 0 of several, makes the other ranks carry the order out at the same time (RankGroup::together).
  Status together(const RankOrder& order, const std::function<Status()>& local);
  // Uploads the staged inputs.
  Status upload();
  // Uploads and enqueues one forward of `runner` at a bound size, with debug mode's checks where it is on. Sets
  // `replay_failed`, where given, to true where the error comes from the replay itself.
  Status launch(GraphRunner& runner, std::int64_t size, std::int64_t real_rows, Execution how,
                bool* replay_failed = nullptr);
  // In debug mode, checks that the view still holds what its forward wrote.
  Status check_fresh(const OutputView& view) const;

  // Members are in order of creation and are destroyed in reverse: graphs first, then buffers, then the stream.
  Device& device;
  const RunnerOptions options;
  const ModelGraphs graphs;
  const Weights weights;
  const std::int64_t vocab_size;
  const std::int64_t hidden_size;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<KvStorage> kv;
  std::unique_ptr<StepBuffer> step;
  std::unique_ptr<InputBuffers> inputs;
  std::unique_ptr<EditBuffers> edits;
  std::unique_ptr<EmbeddingRows> embeddings;
  std::unique_ptr<OpPlans> plans;
  ForwardStates states;  // used by the contexts
  ForwardContext extend_context;
  ForwardContext decode_context;  // the same, for batches with one row a request
  ExternalValues externals;
  std::unique_ptr<Arena> arena;
  std::unique_ptr<Arena> workspace;
  KernelVariants warm;                    // variants of kernels that have run on the stream
  std::vector<HandedOver> handed_over;    // outputs of the prefill runner, at the arena's start
  std::int64_t handed_over_bytes = 0;     // their bytes at the largest size
  std::int64_t choice_logits_offset = 0;  // in the arena
  std::unique_ptr<DebugMode> debug;       // null without options.debug
  std::vector<GraphRunner> runners;       // [RunnerRole]
  std::unique_ptr<VisionRunner> vision;   // null where the model has no tower
  MemoryReport predicted;                 // made before anything was captured
  StepProfiler* profiler = nullptr;       // owned by the profiling caller; null: no profile is taken

 private:
  RunnerParts(ModelGraphs graphs, Weights weights, Device& device, RunnerOptions options);
  Status allocate();
  Status build_runners();
  Status build_vision();
  Status enqueue(GraphRunner& runner, std::int64_t size, Execution how);
};

}  // namespace tessera
