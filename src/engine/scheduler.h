// Sequences to batches: which tokens the next forward computes. A pure bookkeeper: it holds no model
// and runs nothing.
//
// A step takes one decode token of every running sequence, then fills up to `chunk` tokens with
// prompts, oldest first, so that a long prompt is computed in chunks beside running decodes.
// Scored sequences want more rows than can be sampled: they and generating ones take turns.
// A sequence is admitted when pages for its prompt and all of its new tokens are free, so it can
// always finish.
//
// Steps may be scheduled before the one before them is done: mark_submitted() counts its tokens as computed, and
// gives each row that is to be sampled a place in its sequence, which settle() fills when the token is known.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/engine/page_pool.h"
#include "tessera/engine/request.h"
#include "tessera/ops/forward_batch.h"
#include "tessera/runner/input_buffers.h"

namespace tessera {

// A request while it is in the engine.
struct Sequence {
  RequestId id;
  Request request;
  std::vector<TokenId> tokens;  // prompt and output
  std::int64_t pending = 0;     // the last so many tokens are still to be sampled by forwards in flight
  std::int64_t computed = 0;    // tokens whose keys and values are in the cache, or will be after those forwards
  std::vector<PageId> pages;
  std::int64_t seed = 0;
  std::int32_t last_row = -1;  // row of the last step that sampled its newest token; -1: none
  std::vector<float> logits;   // scored: rows so far
  std::chrono::steady_clock::time_point arrived;
  double first_token_ms = 0;

  std::int64_t prompt_tokens() const { return static_cast<std::int64_t>(request.prompt.size()); }
  // Pending ones included.
  std::int64_t generated() const { return static_cast<std::int64_t>(tokens.size()) - prompt_tokens(); }
};

// A forward, and whose rows it has.
struct ScheduledBatch {
  struct Entry {
    Sequence* sequence;       // null once the sequence has left
    std::int64_t new_tokens;  // of it in this forward
    std::int64_t first_row;   // of its wanted rows; rows follow each other
    std::int64_t num_rows;
    std::int64_t next_token;  // index in the sequence of the token that is sampled
  };
  ForwardBatch batch;
  std::vector<SampleRow> sampling;  // [wanted rows]; scored rows are greedy and ignored
  std::vector<Entry> entries;
  bool wants_logits = false;

  void clear(std::size_t num_cache_groups);
};

struct SchedulerOptions {
  std::int64_t chunk = 2048;  // tokens of a forward
  std::int64_t max_running = 256;
  std::int64_t num_cache_groups = 1;
};

class Scheduler {
 public:
  Scheduler(SchedulerOptions options, PagePool pages) : options_(options), pages_(std::move(pages)) {}

  void add(std::unique_ptr<Sequence> sequence) { waiting_.push_back(std::move(sequence)); }
  bool idle() const { return waiting_.empty() && running_.empty(); }
  // The next forward; no entries where there is nothing to do now. Reuses the batch's memory.
  void next(ScheduledBatch& scheduled);
  // Whether a sequence whose logits are wanted waits or runs: its forwards cannot be scheduled ahead.
  bool has_scored() const;
  // The forward was enqueued: it will have happened before any other.
  void mark_submitted(const ScheduledBatch& scheduled);
  // The ids that the last step left on the device are not to be read. Precondition: no token is pending.
  void forget_rows();
  // The token that the entry's row came to. Precondition: entries of a sequence are settled in their order.
  static void settle(const ScheduledBatch::Entry& entry, TokenId token);
  // Takes a sequence out, wherever it is, and frees its pages; null where it is unknown.
  std::unique_ptr<Sequence> remove(RequestId id);
  const PagePool& pages() const { return pages_; }

 private:
  void admit();
  bool scores_next() const;
  void append(Sequence& sequence, std::int64_t count, ScheduledBatch& scheduled) const;
  static bool is_done(const Sequence& sequence);

  SchedulerOptions options_;
  PagePool pages_;
  std::deque<std::unique_ptr<Sequence>> waiting_;
  std::vector<std::unique_ptr<Sequence>> running_;  // oldest first
  bool scored_last_ = false;                        // what the last forward did
};

}  // namespace tessera
