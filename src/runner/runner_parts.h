// What the forwards of one model run on: stream, memory, plans, and its runners, compiled and unbound. Made once; the
// addresses in it are fixed for its life. The step, the capture at the start, the oracle and debug mode all work on it.
//
// Threads: one thread owns it with all it points to.
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

// How a size's forward is enqueued: its operators one by one, the replay of its graphs, or of its full graph.
enum class Execution : std::uint8_t { kOperators, kGraphs, kFullGraph };

class VisionRunner;
struct RankOrder;

class RunnerParts {
 public:
  // `device` outlives the parts.
  static Result<std::unique_ptr<RunnerParts>> create(ModelGraphs graphs, Weights weights, Device& device,
                                                     RunnerOptions options);
  // Waits for what was enqueued: it uses the memory that goes now.
  ~RunnerParts();

  GraphRunner& runner(RunnerRole role) { return runners[static_cast<std::size_t>(role)]; }
  const GraphRunner& runner(RunnerRole role) const { return runners[static_cast<std::size_t>(role)]; }
  std::size_t num_cache_groups() const { return graphs.body.cache_groups.size(); }
  int ranks() const;  // that run each forward together

  // What executables of such batches are made with.
  ExecutionEnvironment environment(BatchKind batches);
  // Plans and static inputs of the tokens, into the step buffer. Padding fills rows up to `padded_tokens`.
  Status stage(const StagedTokens& tokens, BatchKind kind, std::int64_t padded_tokens);
  // Plans and inputs of a batch that no request asked for, on the reserved page, and their upload: what the captured
  // sizes of `runner`, prefill or decode, are warmed up and measured with. As large as `size`, or as batches may be.
  Status stage_dummy(const GraphRunner& runner, std::int64_t size);
  // The same of a batch whose every row is defined (page_batch). Precondition: there is one of the size.
  Status stage_pages(std::int64_t size);
  // GraphRunner::capture_one, with a dummy batch for kernels that have not run. Of several ranks, on all or on none.
  Status capture(GraphRunner& runner, std::int64_t size);
  // GraphRunner::drop, on all ranks.
  Status drop(GraphRunner& runner, std::int64_t size, const Status& why);
  // Where this is rank 0 of several, the others carry the order out meanwhile (RankGroup::together).
  Status together(const RankOrder& order, const std::function<Status()>& local);
  // Uploads what was staged.
  Status upload();
  // Uploads, then one forward of `runner` at a size that is bound. In debug mode with that mode's checks.
  // `replay_failed`, where given, becomes true where the error is a replay's own.
  Status launch(GraphRunner& runner, std::int64_t size, std::int64_t real_rows, Execution how,
                bool* replay_failed = nullptr);
  // Debug mode only: the view still is what its forward made.
  Status check_fresh(const OutputView& view) const;

  // In order of creation; destroyed in reverse: graphs first, then buffers, then the stream.
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
  ForwardStates states;  // of the contexts
  ForwardContext extend_context;
  ForwardContext decode_context;  // the same, of batches with one row a request
  ExternalValues externals;
  std::unique_ptr<Arena> arena;
  std::unique_ptr<Arena> workspace;
  KernelVariants warm;                    // of kernels that have run on the stream
  std::vector<HandedOver> handed_over;    // of the prefill runner, at the arena's start
  std::int64_t handed_over_bytes = 0;     // at their largest
  std::int64_t choice_logits_offset = 0;  // in the arena
  std::unique_ptr<DebugMode> debug;       // null without options.debug
  std::vector<GraphRunner> runners;       // [RunnerRole]
  std::unique_ptr<VisionRunner> vision;   // null without a tower
  MemoryReport predicted;                 // before anything was captured
  StepProfiler* profiler = nullptr;       // of whoever profiles; null: nobody does

 private:
  RunnerParts(ModelGraphs graphs, Weights weights, Device& device, RunnerOptions options);
  Status allocate();
  Status build_runners();
  Status build_vision();
  Status enqueue(GraphRunner& runner, std::int64_t size, Execution how);
};

}  // namespace tessera
