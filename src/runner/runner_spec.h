// Lists the runners of a model. A RunnerSpec has the runner's graph, a function that gives the values of the graph's
// symbols for a size, the sizes that forwards are rounded up to, and the operators at which the graph is cut.
//
// The table gives for each role what its runner computes, what the runner's sizes count, and whether device graphs are
// captured for these sizes ("captured") or not ("eager"). Prompts may have a separate body and head
// (ModelGraphs::prefill).
//
//   role          computes                                               sizes count        graphs
//   prefill       body, cut at attention (or where the options say)      tokens             captured
//   head          head and sampler, on wanted rows                       wanted rows        eager
//   decode        body, head and sampler, chained                        rows and drafts    captured
//   choose        edits of logits, and the sampler                       sampled rows       eager
//   logprobs      log-probabilities of rows of logits                    wanted rows        eager
//   draft         body of a next-token layer or draft model              tokens             eager
//   draft head    head and sampler, on the wanted rows of draft          wanted rows        eager
//   draft decode  draft and draft head, chained, and the hidden states   rows and drafts    captured
//                 of the wanted rows
//
// A wanted row is a row whose logits are wanted. "Rows and drafts" means one row for each request and one row for each
// draft. The roles adapter prefill, adapter head and adapter decode are like prefill, head and decode, but for forwards
// in which some row has a low-rank adapter (adapters/adapted_graphs.h). They are absent if the model's graphs have no
// adapters. The three draft roles (drafts/draft_step.h, drafts/draft_graphs.h) are absent without ModelGraphs::draft.
// Draft decode is also absent if decodes are not captured.
//
// All runners share one arena. The outputs of the prefill runner lie at the arena's start, and the head does not
// overwrite them. The runners of the roles choose and logprobs read their logits from the graph input choice_logits,
// which lies after all outputs of head and decode. These two runners do not overwrite anything before choice_logits.
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

// In one run the head computes at most max_head_rows() wanted rows. This limits the memory of logits when the logits of
// all tokens are wanted. max_head_rows() returns at least kMaxHeadRows.
inline constexpr std::int64_t kMaxHeadRows = 256;

// The role of a runner in a step. A list of specs has one spec for each role, in this order. The roles of drafts and of
// adapters may be missing. kVision is never in the list, because a vision tower has a separate runner
// (vision_runner.h).
enum class RunnerRole : std::uint8_t {
  kPrefill,
  kHead,
  kDecode,
  kChoose,
  kLogprobs,
  kAdapterPrefill,
  kAdapterHead,
  kAdapterDecode,
  kDraft,
  kDraftHead,
  kDraftDecode,
  kVision
};
// Roles whose forwards are captured as device graphs if RunnerOptions::graphs enables this. The adapter roles exist
// only if the model serves adapters.
inline constexpr std::array kCapturedRoles{RunnerRole::kPrefill, RunnerRole::kDecode, RunnerRole::kAdapterPrefill,
                                           RunnerRole::kAdapterDecode, RunnerRole::kDraftDecode};
// Returns whether the role is a decode role. The sizes of decode roles count rows: one for each request and one for
// each draft.
constexpr bool is_decode_role(RunnerRole role) {
  return role == RunnerRole::kDecode || role == RunnerRole::kAdapterDecode || role == RunnerRole::kDraftDecode;
}
// Returns whether the role runs the body of a next-token layer or a draft model.
constexpr bool has_draft_body(RunnerRole role) {
  return role == RunnerRole::kDraft || role == RunnerRole::kDraftDecode;
}
constexpr bool has_adapters(RunnerRole role) {
  return role == RunnerRole::kAdapterPrefill || role == RunnerRole::kAdapterHead || role == RunnerRole::kAdapterDecode;
}
// Returns the adapter role that corresponds to `role` if `adapters` is true, and otherwise `role`. `adapters` says
// whether some row of the forward has an adapter. Precondition: `role` is kPrefill, kHead or kDecode, or `adapters` is
// false.
constexpr RunnerRole with_adapters(RunnerRole role, bool adapters) {
  if (!adapters) return role;
  if (role == RunnerRole::kDecode) return RunnerRole::kAdapterDecode;
  return role == RunnerRole::kHead ? RunnerRole::kAdapterHead : RunnerRole::kAdapterPrefill;
}
// Returns "prefill", "head", "decode", "choose", "logprobs", "draft", "draft head", "draft decode", "adapter prefill",
// "adapter head", "adapter decode" or "vision".
std::string_view runner_role_name(RunnerRole role);

struct RunnerSpec {
  RunnerRole role = RunnerRole::kPrefill;
  ir::Graph graph;
  BatchKind batches = BatchKind::kExtend;  // what the runner's kernels may assume about its batches
  std::function<ir::Bucket(std::int64_t size)> bucket;
  std::int64_t largest = 0;          // maximum size of any forward
  std::vector<std::int64_t> ladder;  // sizes that are captured or that forwards are rounded up to, ascending
  bool captured = false;
  bool runs_eagerly = true;            // if false, forwards without a graph use another runner
  std::vector<std::string> split_ops;  // names of the operators at which the graph is cut; empty: one piece
  std::int64_t reserved_bytes = 0;     // size of the arena's first part, which the runner reads or must keep

  std::string_view name() const { return runner_role_name(role); }
};

Result<std::vector<RunnerSpec>> make_runner_specs(const ModelGraphs& graphs, const RunnerOptions& options);

// Return the maximum number of rows in a forward, padding included, and the maximum number of rows in one run of the
// head.
std::int64_t max_padded_tokens(const RunnerOptions& options);
std::int64_t max_head_rows(const RunnerOptions& options);
std::int64_t vocabulary_of(const ModelGraphs& graphs);
// An output of the prefill runner that the head reads at a fixed place.
struct HandedOver {
  std::string name;
  ir::Type type;
  std::int64_t offset = 0;  // offset in the arena, the same for all sizes
};
Result<std::vector<HandedOver>> handed_over(const ModelGraphs& graphs, const RunnerOptions& options);
// Returns the number of bytes at the start of the arena that a head must not overwrite. All outputs of handed_over()
// fit there at the largest size, and so do the hidden states that a draft passes to its head.
Result<std::int64_t> handed_over_bytes(const ModelGraphs& graphs, const RunnerOptions& options);
// Returns the offset of choice_logits in the arena.
Result<std::int64_t> choice_logits_offset(const ModelGraphs& graphs, const RunnerOptions& options);
// Returns all graphs of the model that may contain planned operators. If prefill has no separate graphs, the body is
// listed twice. The result points to `graphs`.
std::vector<const ir::Graph*> all_graphs(const ModelGraphs& graphs);
// Returns the limits that plans and kernels must support.
PlanLimits plan_limits(const RunnerOptions& options);

}  // namespace tessera
