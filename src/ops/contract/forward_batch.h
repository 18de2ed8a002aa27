// What one forward computes: the host's description (ForwardBatch), and the device-side view of it
// that captured kernels read (ForwardContext). Everything that varies from step to step travels in
// device memory at fixed addresses; graphs hold those addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/base/strong_id.h"
#include "tessera/ir/type.h"
#include "tessera/ops/contract/layer_info.h"
#include "tessera/ops/contract/page_table.h"

namespace tessera {

// The number of pages that hold `tokens` tokens.
constexpr std::int64_t pages_for(std::int64_t tokens, std::int64_t page_size) {
  return (tokens + page_size - 1) / page_size;
}

// Index of the first page of a request that a row at `position` sees: this row and those after it read no page before
// that one.
constexpr std::int64_t first_page_seen(std::int64_t position, std::int64_t window, std::int64_t page_size) {
  return window > 0 && position >= window ? (position - window + 1) / page_size : 0;
}

// The pages of one cache group.
struct CacheGroupBatch {
  std::vector<SlotId> slots;  // [T]: where each token's keys and values go; in a state group, the request's slot
  // [B]: of each request. In a state group the one page is the request's slot.
  std::vector<PageTable> page_tables;
  std::shared_ptr<const std::vector<std::vector<PageId>>> owned = nullptr;  // what own() was given

  // Makes page_tables show `tables`, which this batch and its copies keep: for batches whose tables nobody else owns.
  void own(std::vector<std::vector<PageId>> tables);
};

// A copy of one slot of a state group to another, made before anything else in the forward.
struct SlotCopy {
  std::size_t group = 0;
  PageId from;
  PageId to;
  friend bool operator==(const SlotCopy&, const SlotCopy&) = default;
};

// Embeddings from a host, written to the rows that tokens of this forward or of later ones name.
struct EmbeddingWrite {
  std::int64_t first_row = 0;
  std::span<const float> values;  // [rows × hidden size]; valid until the forward was submitted
};

// A ragged batch of requests, extend and decode rows alike; tokens of a request are neighbours.
struct ForwardBatch {
  std::vector<TokenId> input_ids;         // [T]; not looked at where the next names a row, or embedding_rows does
  std::vector<std::int32_t> input_rows;   // [T]: the id is what row r of the last step sampled; -1: input_ids
  std::vector<std::int32_t> positions;    // [T]: of each token in its request, from 0
  std::vector<std::int32_t> query_lens;   // [B]: tokens of each request in this forward, at least 1; sum = T
  std::vector<std::int32_t> kv_lens;      // [B]: tokens of each request in the cache after this forward
  std::vector<std::int32_t> wanted_rows;  // [R]: tokens whose logits are wanted
  std::vector<CacheGroupBatch> groups;    // one for each cache group of the graph
  // [T], or empty where all are -1: the token's embedding is this row of those written; -1: that of its id.
  std::vector<std::int32_t> embedding_rows = {};
  std::vector<EmbeddingWrite> embedding_writes = {};  // before anything else of the forward
  std::vector<SlotCopy> slot_copies = {};             // in this order

  std::int64_t num_tokens() const { return static_cast<std::int64_t>(input_ids.size()); }
  std::int64_t num_requests() const { return static_cast<std::int64_t>(query_lens.size()); }
  std::int64_t num_wanted_rows() const { return static_cast<std::int64_t>(wanted_rows.size()); }
  // Every request adds one token.
  bool is_decode() const { return num_tokens() == num_requests(); }
  // Lengths agree, rows and lengths are in range. An error here is a defect of the engine.
  Status check() const;
};

// What the kernels of an executable may assume of its batches.
enum class BatchKind : std::uint8_t {
  kExtend,  // nothing: any number of requests with any query lengths
  kDecode,  // row t is the only one of request t; rows past the real requests are padding
};

class OpPlan;

// The largest forwards that plans and kernels must serve.
struct PlanLimits {
  std::int64_t max_requests = 0;
  std::int64_t max_tokens = 0;             // query rows, padding included
  std::int64_t max_pages_per_request = 0;  // of any cache group
  std::int64_t page_size = 16;             // tokens of a page
  // A row's bits must not depend on the other rows of a forward, their number or how a request is cut into forwards.
  bool deterministic = false;
  // The attention kernel to use wherever it serves; empty: the fastest known.
  std::string attention_kernel = {};
  // Every entry of every page table is checked before every forward, not the new ones alone. Slow; for debug mode.
  bool check_page_tables = false;
};

// The plan of one operator for one cache group; ops/contract/op_plan.h.
struct PlanOfOp {
  std::string op;
  std::int64_t group = 0;
  const OpPlan* plan = nullptr;  // outlives the kernels
};

// Scopes around operators; ops/contract/forward_states.h.
class ForwardStates;

// In-process ranks of one tensor-parallel group meet here; ops/comm/collective.h.
class Communicator;

// What operators read beyond their operands: set up once per runner, so that addresses stay.
struct ForwardContext {
  PlanLimits limits;
  std::vector<PlanOfOp> plans;  // empty where only sizes are computed
  BatchKind batch_kind = BatchKind::kExtend;
  Communicator* communicator = nullptr;  // null: one rank
  std::vector<LayerInfo> layers = {};    // [layers]; none where the family says nothing of them
  ForwardStates* states = nullptr;       // of the runner, read with in_state(); null: none is ever open
};

}  // namespace tessera
