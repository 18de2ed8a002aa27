// What a model is to the runner: a list of runners. Each has a graph, the rule from a size to the numbers of the
// graph's symbols, a ladder of sizes, and where the graph is cut.
//
//   prefill   body, cut at attention (or what the options name)   sizes: tokens           captured
//   head      head and sampler, on wanted rows                    sizes: wanted rows      eager
//             (of both what prompts run: ModelGraphs::prefill)
//   decode    body, head and sampler, chained                     sizes: requests         captured
//   choose    edits of logits and the sampler                     sizes: sampled rows     eager
//   logprobs  log-probabilities of rows of logits                 sizes: wanted rows      eager
//
// All share one arena. The outputs of the prefill runner lie at the arena's start, and the head leaves them alone;
// choice_logits lie past all outputs of head and decode, and choose and logprobs leave those alone.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/ir/graph.h"
#include "tessera/model/model.h"
#include "tessera/ops/contract/forward_batch.h"
#include "tessera/runner/runner_options.h"

namespace tessera {

// Wanted rows of one run of the head: bounds the memory that logits take when every token's are wanted.
inline constexpr std::int64_t kMaxHeadRows = 256;

// What a step uses a runner for. A list of specs has one of each but the last, in this order: a vision tower is a
// runner of its own (vision_runner.h).
enum class RunnerRole : std::uint8_t { kPrefill, kHead, kDecode, kChoose, kLogprobs, kVision };
inline constexpr int kNumRunnerRoles = 5;
// Those whose sizes graphs are made for, where the options say so.
inline constexpr std::array kCapturedRoles{RunnerRole::kPrefill, RunnerRole::kDecode};
std::string_view runner_role_name(RunnerRole role);  // "prefill" "head" "decode" "choose" "logprobs" "vision"

struct RunnerSpec {
  RunnerRole role = RunnerRole::kPrefill;
  ir::Graph graph;
  BatchKind batches = BatchKind::kExtend;  // what its kernels may assume
  std::function<ir::Bucket(std::int64_t size)> bucket;
  std::int64_t largest = 0;          // size: no forward exceeds it
  std::vector<std::int64_t> ladder;  // ascending: sizes that are captured, or that forwards are rounded up to
  bool captured = false;
  bool runs_eagerly = true;            // false: forwards that have no graph take another runner
  std::vector<std::string> split_ops;  // operator names; none: one piece
  std::int64_t reserved_bytes = 0;     // the arena's first bytes, which hold what the runner reads or must keep

  std::string_view name() const { return runner_role_name(role); }
};

Result<std::vector<RunnerSpec>> make_runner_specs(const ModelGraphs& graphs, const RunnerOptions& options);

// The most rows of a forward, padding included, and the most rows of the head at once.
std::int64_t max_padded_tokens(const RunnerOptions& options);
std::int64_t max_head_rows(const RunnerOptions& options);
std::int64_t vocabulary_of(const ModelGraphs& graphs);
// An output of the prefill runner, which the head reads.
struct HandedOver {
  std::string name;
  ir::Type type;
  std::int64_t offset = 0;  // in the arena, for all sizes
};
Result<std::vector<HandedOver>> handed_over(const ModelGraphs& graphs, const RunnerOptions& options);
// Bytes of all of them at their largest.
Result<std::int64_t> handed_over_bytes(const ModelGraphs& graphs, const RunnerOptions& options);
// Where choice_logits lie in the arena.
Result<std::int64_t> choice_logits_offset(const ModelGraphs& graphs, const RunnerOptions& options);
// Every graph of the model: a planned operator may stand in any. The body twice where prompts run it too. Borrows.
std::array<const ir::Graph*, 6> all_graphs(const ModelGraphs& graphs);
// What plans and kernels must serve.
PlanLimits plan_limits(const RunnerOptions& options);

}  // namespace tessera
