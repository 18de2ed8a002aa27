// Paged attention over a ragged batch, which may mix prompts (extend) and single new tokens (decode).
//
//   attention(q X[T, Hq·D], k_cache Y[P, page_size, Hkv, D], v_cache Y[…], mut out X[T, Hq·D],
//             [sinks f32[Hq]], [k_scale f32[1], v_scale f32[1]])
//     {group: int, scale: double, window: int = 0, softcap: double = 0, wanted_rows_only: bool = false}
//
// T counts tokens (rows), and P counts pages. Hq and Hkv are the numbers of query heads and KV heads, and D is the head
// size. X and Y are dtypes.
//
// Request b has the query rows query_starts[b] … query_starts[b + 1] - 1. It has kv_lens[b] tokens in the cache. These
// include the tokens of its query rows, which kv_store has already stored. Row i of a request stands at position p =
// kv_len - query_len + i and sees the positions max(0, p - window + 1) … p, or 0 … p if window is 0. With G = Hq / Hkv,
// query head h reads KV head h / G:
//
//   s_j = scale · q·k_j,  or softcap · tanh(scale · q·k_j / softcap) if softcap > 0;    out = Σ softmax(s)_j · v_j
//
// With `sinks` the softmax of head h has one more score, sinks[h], whose value vector is zero. So a sink lowers the
// weights of the keys and adds nothing to the output ("Efficient Streaming Language Models with Attention Sinks",
// arXiv:2309.17453, in the form that GPT-OSS uses):
//
//   out = Σ exp(s_j) · v_j / (exp(sinks[h]) + Σ exp(s_j))
//
// A sink is neither scaled nor capped. Every row sees it, even if the row has a window.
//
// A cache of f8e4m3 has scales (ops/cache/cache_type.h): the keys are k_j · k_scale, and the values are v_j · v_scale.
// Kernels need not scale each element. They multiply the queries or scores by k_scale, and the output by v_scale. A
// cache of u8, on the CPU, holds int8 codes with scales of their own (ops/cache/int8_cache.h).
//
// The operator's plan (AttentionPlan) writes lengths and page tables to static buffers before every forward. The kernel
// reads them when it runs, so a recorded graph works for any lengths. Rows from query_starts[num_requests] on are
// padding and are not written.
//
// With `wanted_rows_only` a kernel need not write the rows of `out` that are not in ForwardBatch::wanted_rows. The
// content of these rows is undefined. A kernel may still compute all rows.
//
// In a deterministic forward (ForwardContext) the bits of a row's result are a function of its query, its position and
// the keys and values that it sees. They do not depend on other rows or requests, on the kind or size of the forward,
// or on where the pages lie.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/ir/op_decl.h"
#include "tessera/ops/attention/attention_planner.h"
#include "tessera/ops/cache/cache_type.h"
#include "tessera/ops/contract/batch_lengths.h"
#include "tessera/ops/contract/device_page_tables.h"
#include "tessera/ops/contract/forward_batch.h"
#include "tessera/ops/contract/op.h"
#include "tessera/ops/contract/op_plan.h"

namespace tessera {

extern const ir::OpDecl kAttention;
// The name of an attribute that `attention` and other operators may have. A graph pass sets it on an operator if only
// the wanted rows (ForwardBatch::wanted_rows) of the operator's result are read (runner/wanted_rows.h).
inline constexpr std::string_view kWantedRowsOnly = "wanted_rows_only";
extern const KernelDef kAttentionCpu;
extern const KernelDef kAttentionCuda;

// Returns whether an operator with this many operands and a cache of this type has sinks.
constexpr bool has_sinks(std::size_t operands, ir::DType cache) { return operands_before_scales(operands, cache) > 4; }

// The lengths and page tables of one cache group in device memory. The addresses stay the same for the plan's life.
struct AttentionMetadata {
  // [1]: the number of requests without padding; kernels process only these requests
  const std::int32_t* num_requests = nullptr;
  // [max_requests + 1]: the first row of each request. Entry *num_requests is the number of real rows.
  const std::int32_t* query_starts = nullptr;
  const std::int32_t* kv_lens = nullptr;     // [max_requests]
  const std::int32_t* page_table = nullptr;  // [max_requests, max_pages_per_request]
  // [max_requests]: for each request, the index of its first wanted row, counted from the request's first row
  // (find_wanted_starts()). Null if no node of the group has `wanted_rows_only`.
  const std::int32_t* wanted_starts = nullptr;
  std::int64_t max_requests = 0;
  std::int64_t max_pages_per_request = 0;
};

// The plan of `attention` and `latent_attention` for one cache group, whose layers share page tables. It holds lengths
// and page tables in host memory and in device memory. It also holds the device's own planner, if the device has one.
class AttentionPlan final : public OpPlan {
 public:
  // Makes a plan. `planner` may be null. Returns kInvalidArgument if `args` does not allow at least one request, one
  // page per request, one token per page and one page.
  static Result<std::unique_ptr<AttentionPlan>> create(Device& device, const PlanArgs& args, StepBuffer& step,
                                                       std::unique_ptr<AttentionPlanner> planner);
  // Returns the bytes of device memory that create() will allocate. They do not include the planner's memory.
  static std::int64_t bytes_needed(const PlanArgs& args);

  // Writes the lengths to the step buffer, and uploads the changed entries of the page tables.
  Status plan(const ForwardBatch& batch, BatchKind kind, std::int64_t padded_requests, Stream& stream) override;
  std::int64_t bytes() const override;
  std::vector<std::string_view> kernels(BatchKind kind) const override;

  AttentionMetadata metadata() const;
  const AttentionPlanner* planner() const { return planner_.get(); }  // null: the kernels need no planner

 private:
  AttentionPlan(const PlanArgs& args, DevicePageTables page_tables, StepBuffer& step);
  Status check_sizes(const ForwardBatch& batch) const;
  std::span<const std::int32_t> write_wanted_starts(const ForwardBatch& batch);

  PlanLimits limits_;
  std::int64_t group_;
  std::string_view kernel_;             // the kernel's name if there is no planner
  std::vector<AttentionShape> shapes_;  // the shapes that the planner plans; empty without a planner
  BatchLengths lengths_;
  StepBuffer* step_;
  std::optional<std::size_t> wanted_starts_offset_;  // in the step buffer; empty if no node has `wanted_rows_only`
  DevicePageTables page_tables_;
  std::unique_ptr<AttentionPlanner> planner_;
};

// Returns the distinct shapes of the group's attention layers.
std::vector<AttentionShape> attention_shapes(const PlanArgs& args);

// Finds the plan of the node's cache group, for a kernel's bind(). Returns kFailedPrecondition if the context has no
// plan for this group.
Result<const AttentionPlan*> find_attention_plan(const BindArgs& args);

}  // namespace tessera
