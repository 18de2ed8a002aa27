// Unified paged attention over a ragged batch: extend and decode rows alike.
//
//   attention(q X[T, Hq·D], k_cache Y[P, page_size, Hkv, D], v_cache Y[…], mut out X[T, Hq·D])
//     {group: int, scale: double, window: int = 0, softcap: double = 0}
//
// Request b has the query rows query_starts[b] … query_starts[b + 1] - 1 and kv_lens[b] tokens in the cache, the
// rows' own included (kv_store ran before). Its row i stands at position p = kv_len - query_len + i and sees the
// positions max(0, p - window + 1) … p, or 0 … p where window is 0. With G = Hq / Hkv, query head h reads head h / G:
//
//   s_j = scale · q·k_j,  or softcap · tanh(s_j / softcap) where softcap > 0;    out = Σ softmax(s)_j · v_j
//
// The operator's first half, plan_attention, runs on the host before every forward and writes lengths and page
// tables to static buffers; the kernel reads them when it runs, so a recorded graph serves any lengths. Rows past
// query_starts[num_requests] are not written.
//
// In a deterministic forward (ForwardContext) a row's bits are a function of its query, its position and the keys and
// values that it sees: not of the forward's other rows and requests, its kind or size, nor of where pages lie.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/ir/op_decl.h"
#include "tessera/ops/attention_planner.h"
#include "tessera/ops/forward_batch.h"
#include "tessera/ops/op.h"

namespace tessera {

extern const ir::OpDecl kAttention;
extern const KernelDef kAttentionCpu;
extern const KernelDef kAttentionCuda;

// For kernels' bind(): the metadata of the node's cache group. kFailedPrecondition where the context has none.
Result<const AttentionMetadata*> find_attention_metadata(const BindArgs& args);

// One cache group's attention metadata: a device allocation at fixed addresses and its mirror on the host, and the
// device's own planner where it has one and shapes are given.
//
//   AttentionBuffers buffers = TRY(AttentionBuffers::create(device, {.max_requests = 64, .max_pages_per_request = 256,
//                                                                    .page_size = 16, .num_pages = 4096}));
//   context.attention.push_back(buffers.metadata());
//   every step: TRY(plan_attention(batch, /*group=*/0, buffers, stream));
class AttentionBuffers {
 public:
  struct Options {
    std::int64_t max_requests = 0;
    std::int64_t max_pages_per_request = 0;
    std::int64_t page_size = 16;  // tokens
    std::int64_t num_pages = 0;   // of the cache: page ids are below it
    std::int64_t max_tokens = 0;  // query rows of a forward, padding included
    // The group's layers, for the device's own plan; none: kernels that need no plan run.
    std::vector<AttentionShape> shapes = {};
    std::string kernel = {};     // AttentionPlannerOptions::kernel
    bool deterministic = false;  // ForwardContext::deterministic of the forwards
  };
  static Result<AttentionBuffers> create(Device& device, const Options& options);

  // What create() will take of the device's memory.
  static Result<std::int64_t> bytes_needed(Device& device, const Options& options);
  std::int64_t bytes() const;

  const Options& options() const { return options_; }
  // Device addresses, valid as long as this object or what it was moved to.
  AttentionMetadata metadata() const;

 private:
  friend Status plan_attention(const ForwardBatch& batch, int group, AttentionBuffers& buffers, Stream& stream,
                               BatchKind kind, std::int64_t padded_requests);
  AttentionBuffers() = default;
  static std::int64_t header_size(const Options& options) { return 2 * options.max_requests + 2; }
  // Of the mirror.
  static std::int64_t num_entries(const Options& options) {
    return header_size(options) + options.max_requests * options.max_pages_per_request;
  }

  Options options_;
  std::unique_ptr<Allocation> memory_;
  // i32: num_requests, query_starts [max_requests + 1], kv_lens [max_requests], page_table [max_requests, max_pages].
  std::vector<std::int32_t> mirror_;
  bool uploaded_ = false;  // the device has the mirror's page table
  std::unique_ptr<AttentionPlanner> planner_;
};

// Writes the batch's real requests to `buffers` and what changed of them to the device, then lets the device's own
// planner decide. `kind` and `padded_requests` as in AttentionPlanner::plan. kResourceExhausted where requests or
// pages pass what the buffers were made for, kInternal where the batch contradicts itself. Allocates nothing; cost:
// one upload of the lengths, and one of the page table's changed range where pages changed.
Status plan_attention(const ForwardBatch& batch, int group, AttentionBuffers& buffers, Stream& stream,
                      BatchKind kind = BatchKind::kExtend, std::int64_t padded_requests = 0);

}  // namespace tessera
