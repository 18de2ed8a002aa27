// The description of one forward. A ForwardBatch has the requests and tokens of the forward, on the host. A
// ForwardContext has what operators need when they are bound. Kernels find everything that varies from step to step in
// device memory at fixed addresses, because recorded graphs contain these addresses.
#pragma once

#include <algorithm>
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

// Returns the number of pages that hold `tokens` tokens.
constexpr std::int64_t pages_for(std::int64_t tokens, std::int64_t page_size) {
  return (tokens + page_size - 1) / page_size;
}

// Returns the index, in the request's page table, of the first page that the row at `position` sees. This row and all
// later rows of the request read no earlier page.
constexpr std::int64_t first_page_seen(std::int64_t position, std::int64_t window, std::int64_t page_size) {
  return window > 0 && position >= window ? (position - window + 1) / page_size : 0;
}

// The slots and pages of one cache group (ir::CacheGroup), for the T tokens and B requests of a batch. A state group is
// a cache group whose layers keep one state for each request.
struct CacheGroupBatch {
  std::vector<SlotId> slots;  // [T]: slot for each token's keys and values; in a state group, the request's slot
  // [B]: the page table of each request. In a state group a table has one entry, which is the request's slot.
  std::vector<PageTable> page_tables;
  std::shared_ptr<const std::vector<std::vector<PageId>>> owned = nullptr;  // the tables that own() took

  // Points page_tables at `tables`, which this batch and its copies keep alive. Use it for a batch whose tables nobody
  // else owns.
  void own(std::vector<std::vector<PageId>> tables);
};

// A copy of one slot of a state group to another slot of the group. Copies run after the EmbeddingWrites and before the
// forward's kernels.
struct SlotCopy {
  std::size_t group = 0;
  PageId from;
  PageId to;
  friend bool operator==(const SlotCopy&, const SlotCopy&) = default;
};

// A slot in which the forward stores the state that a request has after its first `rows` rows, besides the state after
// its last row. No request of the forward reads the slot. The request has more than `rows` rows, and no drafts.
struct StateCheckpoint {
  std::size_t group = 0;
  std::int32_t request = 0;
  std::int32_t rows = 0;
  PageId slot;
  friend bool operator==(const StateCheckpoint&, const StateCheckpoint&) = default;
};

// Embeddings from the host. They are written to consecutive embedding rows, which tokens of this forward or of later
// forwards use.
struct EmbeddingWrite {
  std::int64_t first_row = 0;
  std::span<const float> values;  // [rows × hidden size]; valid until the forward has been submitted
};

// A ragged batch of B requests with T tokens in all. R is the number of rows whose logits are wanted. A batch may
// contain both extend and decode rows. The tokens of a request are contiguous.
struct ForwardBatch {
  std::vector<TokenId> input_ids;         // [T]; used if input_rows and embedding_rows are -1 for the token
  std::vector<std::int32_t> input_rows;   // [T]: r ≥ 0: the token that row r of the last step sampled; -1: input_ids
  std::vector<std::int32_t> positions;    // [T]: position of each token in its request, from 0
  std::vector<std::int32_t> query_lens;   // [B]: tokens of each request in this forward, at least 1; sum = T
  std::vector<std::int32_t> kv_lens;      // [B]: tokens of each request in the cache after this forward
  std::vector<std::int32_t> wanted_rows;  // [R]: the tokens whose logits are wanted
  std::vector<CacheGroupBatch> groups;    // one for each cache group of the graph
  // [T], or empty if all entries are -1. An entry that is not -1 is the embedding row (EmbeddingWrite) that the token
  // uses in place of its id's embedding.
  std::vector<std::int32_t> embedding_rows = {};
  // [B], or empty if all entries are 0: how many of each request's last tokens are drafts. The forward does not advance
  // a recurrent state over the drafts. Instead, the state's slot holds the rows of the drafts until the request's next
  // forward.
  std::vector<std::int32_t> draft_lens = {};
  // [B], or empty if all entries are 0: how many of the drafts in each request's previous forward were accepted. A
  // recurrent state is first advanced over these drafts, with the rows that its slot holds.
  std::vector<std::int32_t> accepted_drafts = {};
  // [T], or empty if all entries are -1. An entry is the slot of the low-rank adapter that the token's request uses.
  std::vector<std::int32_t> adapter_slots = {};
  std::vector<EmbeddingWrite> embedding_writes = {};  // these run before anything else in the forward
  std::vector<SlotCopy> slot_copies = {};             // copies, which run in this order
  std::vector<StateCheckpoint> checkpoints = {};      // ascending by request; at most one for each request and group

  std::int64_t num_tokens() const { return static_cast<std::int64_t>(input_ids.size()); }
  std::int64_t num_requests() const { return static_cast<std::int64_t>(query_lens.size()); }
  std::int64_t num_wanted_rows() const { return static_cast<std::int64_t>(wanted_rows.size()); }
  // Returns whether every request adds exactly one token.
  bool is_decode() const { return num_tokens() == num_requests(); }
  // Returns whether every request adds one token and its drafts, if it has any.
  bool is_decode_with_drafts() const;
  // Returns whether some request has drafts.
  bool has_drafts() const {
    return std::ranges::any_of(draft_lens, [](std::int32_t drafts) { return drafts > 0; });
  }
  // Returns whether some token uses an adapter.
  bool has_adapters() const {
    return std::ranges::any_of(adapter_slots, [](std::int32_t slot) { return slot >= 0; });
  }
  // Checks that the lengths agree, and that rows and lengths are in range. An error means that the engine has a defect.
  Status check() const;
};

// The properties of a batch that an executable's kernels may rely on. In batches of both kinds, plans that need whole
// requests (OpPlan::plans_requests) get all rows of a request together. Other plans get each row of a request with
// drafts as a separate request of one row.
enum class BatchKind : std::uint8_t {
  kExtend,  // any number of requests with any query lengths
  kDecode,  // each request has one row, and perhaps drafts after it; rows past the real rows are padding
};

class OpPlan;

// The largest forwards that plans and kernels must support.
struct PlanLimits {
  std::int64_t max_requests = 0;
  std::int64_t max_tokens = 0;             // maximum number of query rows of a forward, with padding
  std::int64_t max_pages_per_request = 0;  // in the cache group that needs the most pages
  std::int64_t page_size = 16;             // tokens in a page
  // If true, a row's bits do not depend on three things: the other rows of a forward, their number, and how a request
  // is divided into forwards.
  bool deterministic = false;
  // If true, a forward may have several rows of a decoding request: its token and drafts. A layer stores the keys of
  // these rows during the forward, so a kernel must not read the keys of earlier rows before its layer has stored them.
  bool drafts = false;
  // The attention kernel to use for all shapes that it supports; empty: the fastest known.
  std::string attention_kernel = {};
  // If true, every entry of every page table is checked before every forward, not only the new entries. This is slow,
  // and meant for debug mode.
  bool check_page_tables = false;
};

// The plan of one operator for one cache group (ops/contract/op_plan.h).
struct PlanOfOp {
  std::string op;
  std::int64_t group = 0;
  const OpPlan* plan = nullptr;  // lives longer than the kernels
};

// See ops/contract/forward_states.h.
class ForwardStates;

// See comm/communicator.h.
class Communicator;

// Holds what operators read besides their operands. A runner sets it up once, so that addresses stay the same.
struct ForwardContext {
  PlanLimits limits;
  std::vector<PlanOfOp> plans;  // empty if the caller only asks for sizes
  BatchKind batch_kind = BatchKind::kExtend;
  Communicator* communicator = nullptr;  // null if there is only one rank
  std::vector<LayerInfo> layers = {};    // [layers]; empty if the model family does not describe them
  ForwardStates* states = nullptr;       // states of the runner, for in_state(); null: no state is ever open
};

}  // namespace tessera
