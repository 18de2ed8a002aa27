// The executables of a model: body for prefill, cut at attention; head and sampler on wanted rows; decode, which is all
// of them in one piece; and choose and logprobs, for what the sampler alone does not do.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/model/model.h"
#include "tessera/piecewise/executable.h"
#include "tessera/runner/input_buffers.h"
#include "tessera/runner/runner_options.h"

namespace tessera {

// Wanted rows of one run of the head: bounds the memory that logits take when every token's are wanted.
inline constexpr std::int64_t kMaxHeadRows = 256;

struct RunnerExecutables {
  std::unique_ptr<Executable> prefill;   // outputs: hidden
  std::unique_ptr<Executable> head;      // outputs: logits, sampled_ids
  std::unique_ptr<Executable> decode;    // outputs: hidden, logits, sampled_ids
  std::unique_ptr<Executable> choose;    // outputs: sampled_ids; on choice_logits, as is logprobs
  std::unique_ptr<Executable> logprobs;  // outputs: logprobs, top_ids, top_logprobs
};

// `environment.context` is that of prefill and head; `decode_context` the same with BatchKind::kDecode, and outlives
// the executables. `memory` is options.memory_plan, or isolated for the oracle. In the planned memory the body's
// output lies at the arena's start, and the head leaves it alone; choice_logits lie at choice_logits_offset(), past all
// outputs of head and decode, and choose and logprobs leave those alone. `log`: what was made.
Result<RunnerExecutables> make_executables(const ModelGraphs& graphs, const RunnerOptions& options,
                                           const ExecutionEnvironment& environment,
                                           const ForwardContext& decode_context, MemoryPlanKind memory,
                                           bool log = true);

// What each size means for the graphs' symbols.
ir::Bucket prefill_bucket(const RunnerOptions& options, std::int64_t tokens);
ir::Bucket decode_bucket(const RunnerOptions& options, std::int64_t requests);
ir::Bucket head_bucket(const RunnerOptions& options, std::int64_t rows);
ir::Bucket choice_bucket(std::int64_t rows);

// The most rows of a forward, padding included, and the most rows of the head at once.
std::int64_t max_padded_tokens(const RunnerOptions& options);
std::int64_t max_head_rows(const RunnerOptions& options);
std::int64_t vocabulary_of(const ModelGraphs& graphs);
// Bytes of the body's output at its largest.
Result<std::int64_t> hidden_bytes(const ModelGraphs& graphs, const RunnerOptions& options);
// In the arena.
Result<std::int64_t> choice_logits_offset(const ModelGraphs& graphs, const RunnerOptions& options);

InputLimits input_limits(const ModelGraphs& graphs, const RunnerOptions& options);
// What plans and kernels must serve.
PlanLimits plan_limits(const RunnerOptions& options);
// The kernels that operators run on: the options' where given, else the device's.
Result<const KernelTable*> kernels_of(const RunnerOptions& options, const Device& device);
// Of the buffers that stay where they are for the runner's life: inputs, edits.
std::int64_t static_input_bytes(const ModelGraphs& graphs, const RunnerOptions& options);

}  // namespace tessera
