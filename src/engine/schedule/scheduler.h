// Decides which tokens the next forward computes, and in which pages. A pure bookkeeper: it holds no model and runs
// nothing.
//
// A step takes one decode token of every running sequence, then fills up to `chunk` tokens with prompts, so that a long
// prompt is computed in chunks beside running decodes. Higher priorities come first, then older ones. Prompts that fill
// the device one by one are not computed together (prompt_share.h). `fit` may make
// the step's prompts shorter, from the last one on, so that it fills a captured size, where they still are half of it
// or more; decodes are never left for later. A sequence that decodes keeps its place in the batch as far as that is
// possible, so that plans that remember what stands in a place have little to do.
//
// A sequence is admitted when every cache group has pages for its tokens so far, less what the prefix cache has, and
// for what the running sequences are about to take (cache_manager.h). It takes further pages as it grows. Where none is
// left, pages that only the prefix cache holds are evicted; then the last sequence in order is preempted: it gives its
// pages back, waits in its old place and is computed again, from the prefix cache as far as that still goes. Room for a
// sequence is also made at the cost of those of lower priority. A sequence that begins like one whose prompt is being
// computed waits for that. Where window groups run short of pages for a whole chunk, less of the prompt is computed.
//
// Where a model has state groups, a prompt's forwards end at a page's end, and the state there is kept as a checkpoint.
//
// Steps may be scheduled before the one before them is done: mark_submitted() counts its tokens as computed, and
// gives each row that is to be sampled a place in its sequence, which settle() fills when the token is known.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "tessera/engine/cache/cache_manager.h"
#include "tessera/engine/cache/prefix_waits.h"
#include "tessera/engine/images/image_rows.h"
#include "tessera/engine/report/engine_stats.h"
#include "tessera/engine/schedule/prompt_share.h"
#include "tessera/engine/schedule/row_ranges.h"
#include "tessera/engine/schedule/scheduled_batch.h"
#include "tessera/engine/schedule/sequence.h"

namespace tessera {

struct SchedulerOptions {
  std::int64_t chunk = 2048;  // tokens of a forward
  std::int64_t max_running = 256;
  std::int64_t vocab_size = 0;
  bool prefix_cache = true;
  // Steps of a pipeline that are in flight at once. Of several, the sequences that decode take turns in as many groups,
  // one in each step, and none is scheduled before its last token is known: the first stage learns it with the next
  // step.
  int turns = 1;
};

// How many of a step's tokens, of prompts and decodes together, to compute at once (runner/dispatch/dispatch.h,
// split_tokens); 1 … tokens. Empty: all.
using FitTokens = std::function<std::int64_t(std::int64_t tokens)>;
// From how many tokens on a forward's time is in proportion to them (runner/dispatch/dispatch.h, filling_tokens).
// Empty: unknown.
using FillingTokens = std::function<std::int64_t()>;

class Scheduler {
 public:
  Scheduler(SchedulerOptions options, CacheOptions cache, FitTokens fit = {}, FillingTokens filling = {})
      : options_(options), fit_(std::move(fit)), filling_(std::move(filling)), cache_(std::move(cache)) {}
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Precondition: the sequence comes to at most cache().max_tokens() tokens in the cache.
  void add(std::unique_ptr<Sequence> sequence);
  bool idle() const { return waiting_.empty() && running_.empty(); }
  std::int64_t num_running() const { return static_cast<std::int64_t>(running_.size()); }
  std::int64_t num_waiting() const { return static_cast<std::int64_t>(waiting_.size()); }
  // The device has so many rows for embeddings of prompts; a sequence with embeddings waits until there is room for its
  // prompt. One with images takes rows for each when its tokens are computed, and its prompt is cut before an image
  // that finds no room. Precondition of add(): rows for all of the sequence's embeddings, and for the largest of its
  // images.
  void grow_embeddings(std::int64_t rows) { embeddings_.grow(rows); }
  // The next forward; without entries where nothing can be computed now. Reuses the batch's memory. `in_turns`: whether
  // others may be in flight beside it; else all that decode are in it.
  void next(ScheduledBatch& scheduled, bool in_turns = true);
  // Whether a sequence waits or runs whose forwards must be read before more is scheduled.
  bool reads_at_once() const { return num_read_at_once_ > 0; }
  // The forward was enqueued: it runs before any later one.
  void mark_submitted(const ScheduledBatch& scheduled);
  // The ids that the last step left on the device must not be read. Precondition: no token is pending.
  void forget_rows();
  // The token sampled from the entry's row. Precondition: entries of a sequence are settled in their order.
  static void settle(const ScheduledBatch::Entry& entry, TokenId token);
  // Takes a sequence out, wherever it is, and frees its pages; null where it is unknown. What it computed stays in the
  // prefix cache unless a forward of it has failed.
  std::unique_ptr<Sequence> remove(RequestId id, bool failed);
  // The forward failed: what it was to copy to checkpoints, or from them to sequences, may not be there, nor may rows
  // of its images.
  void forget_results(const ScheduledBatch& scheduled);
  // Ids of the sequences whose deadline has passed.
  void find_expired(Sequence::Clock::time_point now, std::vector<RequestId>& expired) const;
  // All that run wait again, and nothing that was computed is kept, nor a token that was to be sampled. Precondition:
  // no forward is in flight.
  void compute_again();
  // Forgets what no running sequence uses of the prefix cache.
  void flush_prefixes() { cache_.flush_prefixes(); }

  const CacheManager& cache() const { return cache_; }
  const PrefixWaits& prefix_waits() const { return prefix_waits_; }
  // That hold images, of running sequences or for later ones.
  std::int64_t num_image_rows() const { return images_.num_rows(); }
  // Fills the scheduler's part.
  void report(EngineStats& stats) const;

 private:
  using Sequences = std::deque<std::unique_ptr<Sequence>>;  // in order of priority, then arrival

  void grow_running();
  void admit();
  PromptShare prompt_share() const;
  std::int64_t fitting_tokens(PromptShare share);
  // Adds the running sequences that decode, or of those that do not what `share` takes, as far as the budget goes
  // and no more than `most_chosen`; returns what is left.
  std::int64_t schedule(bool decodes, std::int64_t most_chosen, std::int64_t budget, PromptShare& share,
                        ScheduledBatch& scheduled);
  void keep_places();
  std::int64_t cut_at_page(const Sequence& sequence, std::int64_t count) const;
  bool make_room(Sequence& sequence);
  bool has_room(const Sequence& sequence) const;
  void find_leaders();
  bool computes_shared_pages(const Sequence& sequence) const {
    return sequence.computed < sequence.prompt_tokens() && caches(sequence);
  }
  void preempt(std::size_t index, bool keep);
  void preempt_last() { preempt(running_.size() - 1, true); }
  bool caches(const Sequence& sequence) const { return options_.prefix_cache && sequence.is_cacheable(); }
  PrefixTokens reusable_tokens(const Sequence& sequence) const;
  bool keep_computed(Sequence& sequence);
  void release_cache(Sequence& sequence, bool keep);
  void release_embeddings(Sequence& sequence);
  // How many of the next `count` tokens find room for their images' rows, which the sequence then holds.
  std::int64_t take_images(Sequence& sequence, std::int64_t count);
  // Those of images that end at or before `end`.
  void release_images(Sequence& sequence, std::int64_t end);
  void forget_copies(const ScheduledBatch& scheduled);
  bool waits_for_token(const Sequence& sequence) const {
    return options_.turns > 1 && sequence.pending > 0 && sequence.decodes();
  }
  bool awaits_tokens() const;
  std::int64_t decodes_of_turn() const;
  static void insert(Sequences& sequences, std::unique_ptr<Sequence> sequence);

  struct Chosen {
    Sequence* sequence = nullptr;
    std::int64_t count = 0;  // tokens of it
  };

  SchedulerOptions options_;
  FitTokens fit_;
  FillingTokens filling_;
  CacheManager cache_;
  PrefixWaits prefix_waits_{cache_};
  RowRanges embeddings_;
  ImageRows images_{embeddings_};
  ImageStats image_stats_;
  Sequences waiting_;
  Sequences running_;
  std::vector<Chosen> chosen_;  // of the step that is scheduled
  std::vector<Chosen> placed_;  // the same in their places
  std::int64_t num_read_at_once_ = 0;
  std::int64_t admissions_ = 0;
  std::int64_t num_with_deadline_ = 0;
  std::int64_t prompt_tokens_ = 0;
  std::int64_t cached_tokens_ = 0;
  std::int64_t preemptions_ = 0;
  std::int64_t split_chunks_ = 0;
};

}  // namespace tessera
