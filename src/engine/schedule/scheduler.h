// Decides which tokens the next forward computes, and in which pages. Pure bookkeeping: it holds no model and runs
// nothing.
//
// A step takes one token of every decoding sequence, with drafts after it (step_drafts.h). Prompts fill the step up to
// `max_tokens` tokens, so a long prompt is computed in chunks together with running decodes. Higher priorities come
// first, then older sequences. Prompts that each fill the device alone are not computed together (prompt_share.h). The
// function `fit` (FitTokens) may shorten the step's prompts, the last one first, so that the step fills a captured
// size. The shortened prompts must still make up at least half of the step, drafts not counted. Decodes are never
// postponed. A decoding sequence keeps its place in the batch as far as possible, because attention plans keep each
// place's page table on the device and write only what changes.
//
// A cache group is a set of layers whose caches keep tokens by the same rule. A sequence is admitted when every cache
// group has enough pages for its tokens so far (except those found in the prefix cache) and for what the running
// sequences are expected to take soon (cache_manager.h). It takes further pages as it grows. If no page is left, pages
// that only the prefix cache holds are evicted. If there are no such pages either, the last running sequence is
// preempted. It gives its pages back and waits in its old place in the queue. Later it is computed again, except for
// what the prefix cache still has. To be admitted, a sequence may also preempt sequences of lower priority. A sequence
// that begins like a prompt that is being computed waits for that prompt. A sequence whose adapter finds no slot waits
// too. Other sequences may pass it, but if they use adapters, only a limited number of them may. If window groups lack
// pages for a whole chunk, less of the prompt is computed.
//
// For a model with state groups (recurrent states), prompts leave checkpoints of their states (prompt_cut.h).
//
// A step may be scheduled before the previous one is done. mark_submitted() counts the step's tokens as computed, and
// appends a placeholder to the sequence of each sampled row. settle() replaces the placeholder once the token is known.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/base/step_limits.h"
#include "tessera/engine/adapters/adapter_slots.h"
#include "tessera/engine/cache/cache_manager.h"
#include "tessera/engine/images/image_rows.h"
#include "tessera/engine/images/row_ranges.h"
#include "tessera/engine/schedule/prefix_waits.h"
#include "tessera/engine/schedule/prompt_cut.h"
#include "tessera/engine/schedule/prompt_share.h"
#include "tessera/engine/schedule/scheduled_batch.h"
#include "tessera/engine/schedule/sequence.h"
#include "tessera/engine/schedule/step_drafts.h"
#include "tessera/engine/stats/engine_stats.h"

namespace tessera {

struct SchedulerOptions {
  StepLimits limits{};
  std::int64_t max_running = 256;  // requests that run at once; at most limits.max_requests, which counts drafts too
  std::int64_t vocab_size = 0;
  bool prefix_cache = true;
  // Whether a forward can store the states of a prompt among its rows (ModelRunner::takes_checkpoints). If it cannot,
  // a forward ends at each checkpoint.
  bool takes_checkpoints = true;
  // The number of pipeline steps in flight at once. If there are several, the decoding sequences take turns: they form
  // as many groups as there are steps in flight, and each step takes the next group. A sequence is scheduled again only
  // once its newest token is known, because the first stage needs this token as an input but does not sample it itself.
  int turns = 1;
  std::int64_t adapter_slots = 0;  // maximum number of adapters in one forward; 0: no adapters are served
};

// A function that is called with a step's number of tokens, prompts and decodes together. It returns how many of them
// to compute in one forward (split_tokens in runner/dispatch/dispatch.h), at least one. An empty function means all of
// them.
using FitTokens = std::function<std::int64_t(std::int64_t tokens)>;
// Returns the number of tokens above which a forward's time is proportional to its tokens (filling_tokens in
// runner/dispatch/dispatch.h). An empty function means that the number is unknown.
using FillingTokens = std::function<std::int64_t()>;

class Scheduler {
 public:
  Scheduler(SchedulerOptions options, CacheOptions cache, FitTokens fit = {}, FillingTokens filling = {},
            DraftCosts draft_costs = {})
      : options_(options),
        fit_(std::move(fit)),
        filling_(std::move(filling)),
        cache_(std::move(cache)),
        adapters_(options_.adapter_slots),
        drafts_(std::move(draft_costs)) {}
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Queues a sequence. Precondition: it needs at most cache().max_tokens() tokens in the cache.
  void add(std::unique_ptr<Sequence> sequence);
  bool idle() const { return waiting_.empty() && running_.empty(); }
  std::int64_t num_running() const { return static_cast<std::int64_t>(running_.size()); }
  std::int64_t num_waiting() const { return static_cast<std::int64_t>(waiting_.size()); }
  // Sets the number of rows that the device has for embeddings of prompts. A sequence with given embeddings waits until
  // there is room for its prompt. A sequence with images takes an image's rows when the image's tokens are computed. If
  // there is no room for these rows, the chunk of the prompt ends before the image. Precondition of add(): there are
  // rows for all of the sequence's given embeddings, and for the largest of its images.
  void grow_embeddings(std::int64_t rows) { embeddings_.grow(rows); }
  // Schedules the next forward into the batch, whose memory is reused. The batch has no entries if nothing can be
  // computed now. With `in_turns`, the batch has only the decoding sequences of one turn (SchedulerOptions::turns),
  // because other forwards may be in flight. Otherwise the batch has all decoding sequences.
  void next(ScheduledBatch& scheduled, bool in_turns = true);
  // Returns whether some sequence, waiting or running, needs its results on the host before more is scheduled.
  bool reads_at_once() const { return num_read_at_once_ > 0; }
  // Records that the forward was enqueued. It therefore runs before any later forward.
  void mark_submitted(const ScheduledBatch& scheduled);
  // Makes the next step take its ids from the host and not from what the last step left on the device. Precondition: no
  // token is pending.
  void forget_rows() {
    for (const auto& sequence : running_) sequence->last_row = -1;
  }
  // Records that a forward overwrites the rows from which a next-token layer would make drafts.
  void forget_layer_rows() {
    for (const auto& sequence : running_)
      if (sequence->drafter) sequence->drafter->set_layer_row(std::nullopt);
  }
  // Lets a running sequence decode one token at a time from now on.
  void stop_drafting(Sequence& sequence);
  // Lets all sequences that take part in trials (DraftTrials) decode one token at a time from now on. Returns whether
  // there were such sequences.
  bool stop_drafting();
  // Returns whether the wait of a step can be held against drafts: so many running sequences draft that they show what
  // drafts of all would save, and drafts are the only reason for which sequences need their results at once.
  bool waits_for_drafts_alone() const;
  // Records the token sampled from the entry's row. Precondition: a sequence's entries are settled in order.
  static void settle(const ScheduledBatch::Entry& entry, TokenId token);
  // Removes a waiting or running sequence and frees its pages. Returns null for an unknown id. The sequence's computed
  // pages stay in the prefix cache unless one of its forwards has failed (`failed`).
  std::unique_ptr<Sequence> remove(RequestId id, bool failed);
  // Records that the forward failed. Possibly the forward made no copies to and from checkpoints, and wrote no rows of
  // its images.
  void forget_results(const ScheduledBatch& scheduled);
  // Adds to `expired` the ids of sequences whose deadline has passed.
  void find_expired(Sequence::Clock::time_point now, std::vector<RequestId>& expired) const;
  // Makes all running sequences wait again. Drops everything that was computed, and the placeholders of tokens that are
  // not sampled yet. Precondition: no forward is in flight.
  void compute_again();
  // Drops everything in the prefix cache that no running sequence uses.
  void flush_prefixes() { cache_.flush_prefixes(); }
  // Ends the retention of a session's text in the prefix cache. Returns whether a text was retained.
  bool release_session(const std::string& session) { return cache_.release_session(session); }
  // Writes changes of the prefix cache into `log`; see PrefixCache::observe().
  void observe_cache(CacheEventLog* log) { cache_.observe(log); }

  const CacheManager& cache() const { return cache_; }
  AdapterSlots& adapters() { return adapters_; }
  const PrefixWaits& prefix_waits() const { return prefix_waits_; }
  // Returns the number of rows that hold images, for running sequences or for later ones.
  std::int64_t num_image_rows() const { return images_.num_rows(); }
  // Fills the scheduler's part of the statistics.
  void report(EngineStats& stats) const;

 private:
  void grow_running();
  void admit();
  PromptShare prompt_share() const;
  struct StepRows {
    std::int64_t decodes = 0;
    std::int64_t prompts = 0;
  };
  StepRows rows_of_step(PromptShare share) const;
  std::int64_t fitting_tokens(PromptShare share);
  // Adds running sequences to the batch. With `decodes`, adds decoding sequences. Otherwise adds prompts, as far as
  // `share` allows. Adds at most `most_chosen` sequences and `budget` tokens. Returns the rest of the budget.
  std::int64_t schedule(bool decodes, std::int64_t most_chosen, std::int64_t budget, PromptShare& share,
                        ScheduledBatch& scheduled);
  void keep_places();
  // Returns where a forward ends that may compute the sequence's next `count` tokens.
  PromptCut cut_of(const Sequence& sequence, std::int64_t count) const;
  bool make_room(Sequence& sequence);
  bool has_room(const Sequence& sequence) const;
  bool has_slot(Sequence& sequence, Sequence*& waits_for_slot) const;
  void find_leaders();
  bool computes_shared_pages(const Sequence& sequence) const {
    return sequence.computed < sequence.prompt_tokens() && caches(sequence);
  }
  void preempt(std::size_t index, bool keep);
  void preempt_last() { preempt(running_.size() - 1, true); }
  bool caches(const Sequence& sequence) const { return options_.prefix_cache && sequence.is_cacheable(); }
  PrefixTokens reusable_tokens(const Sequence& sequence) const;
  bool keep_computed(Sequence& sequence);
  void release_cache(Sequence& sequence, bool keep, bool ends);
  void release_embeddings(Sequence& sequence);
  // Returns how many of the next `count` tokens get room for their images' rows. The sequence then holds these rows.
  std::int64_t take_images(Sequence& sequence, std::int64_t count);
  // Releases the rows of images that end at or before `end`.
  void release_images(Sequence& sequence, std::int64_t end);
  void forget_copies(const ScheduledBatch& scheduled);
  bool waits_for_token(const Sequence& sequence) const {
    if (sequence.reasoning && sequence.reasoning->waits(sequence.pending)) return true;
    return options_.turns > 1 && sequence.pending > 0 && sequence.decodes();
  }
  bool awaits_tokens() const;
  std::int64_t decodes_of_turn() const;
  static void insert(Sequences& sequences, std::unique_ptr<Sequence> sequence);

  SchedulerOptions options_;
  FitTokens fit_;
  FillingTokens filling_;
  CacheManager cache_;
  AdapterSlots adapters_;
  PrefixWaits prefix_waits_{cache_};
  RowRanges embeddings_;
  ImageRows images_{embeddings_};
  ImageStats image_stats_;
  Sequences waiting_;  // waiting_ and running_ are sorted by priority, then by arrival
  Sequences running_;
  StepDrafts drafts_;
  std::vector<ChosenTokens> chosen_;  // sequences of the current step
  std::vector<ChosenTokens> placed_;  // [place in the batch]: the same sequences
  std::int64_t num_read_at_once_ = 0;
  std::int64_t admissions_ = 0;
  std::int64_t num_with_deadline_ = 0;
  std::int64_t prompt_tokens_ = 0;
  std::int64_t cached_tokens_ = 0;
  std::int64_t preemptions_ = 0;
  std::int64_t split_chunks_ = 0;
};

}  // namespace tessera
