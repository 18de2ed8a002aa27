// Chooses the drafts of a step (engine/drafts), and records which are kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "tessera/engine/cache/cache_manager.h"
#include "tessera/engine/schedule/scheduled_batch.h"
#include "tessera/engine/schedule/sequence.h"

namespace tessera {

// Returns the number of tokens above which a forward's time is proportional to them (filling_tokens in
// runner/dispatch/dispatch.h). Empty: unknown.
using FillingTokens = std::function<std::int64_t()>;

using Sequences = std::deque<std::unique_ptr<Sequence>>;

// Returns how many pages of cache group `g` running sequences are about to take.
std::int64_t promised_pages(const Sequences& running, const CacheManager& cache, std::size_t g);

// Chooses the drafts of a step. Only steps without prompts have drafts: a prompt fills a forward by itself, and would
// wait longer. Drafts never postpone a decode, and never evict a page.
class StepDrafts {
 public:
  // Plans a step in which at most `rows` rows are sampled and at most `budget` tokens are computed beside the decodes.
  // Every running sequence may need a row and its next page. `cache` must outlive this object.
  StepDrafts(const Sequences& running, std::int64_t rows, std::int64_t budget, const FillingTokens& filling,
             CacheManager& cache);

  // Sets the drafts of a sequence that decodes in this step, possibly none, and takes pages for them. Sets none if
  // `count`, the tokens that the step computes, are only a part of the sequence's uncomputed tokens.
  void take(Sequence& sequence, std::int64_t count);

 private:
  CacheManager& cache_;
  std::int64_t room_ = 0;     // in tokens
  std::int64_t pages_ = 0;    // pages that drafts may take from every cache group
  std::int64_t reading_ = 0;  // tokens of texts that drafters may still read in this step
};

// Records that the entry's next draft equals the token that was sampled before it. Moves the entry to the row of the
// token behind the draft. With `has_states` the next forward computes the draft again, as the model's states leave it
// out. Precondition: the sampled token was settled.
void keep_draft(ScheduledBatch::Entry& entry, bool has_states);

}  // namespace tessera
