#include "tessera/engine/schedule/scheduler.h"

#include <algorithm>
#include <span>
#include <utility>

namespace tessera {
namespace {

bool comes_before(const Sequence& a, const Sequence& b) {
  return a.request.priority != b.request.priority ? a.request.priority > b.request.priority : a.order < b.order;
}

}  // namespace

void Scheduler::insert(Sequences& sequences, std::unique_ptr<Sequence> sequence) {
  const auto at =
      std::upper_bound(sequences.begin(), sequences.end(), sequence,
                       [](const auto& added, const auto& present) { return comes_before(*added, *present); });
  sequences.insert(at, std::move(sequence));
}

void Scheduler::add(std::unique_ptr<Sequence> sequence) {
  num_read_at_once_ += sequence->is_read_at_once() ? 1 : 0;
  num_with_deadline_ += sequence->deadline ? 1 : 0;
  insert(waiting_, std::move(sequence));
}

void Scheduler::next(ScheduledBatch& scheduled, bool in_turns) {
  if (cache_.retains()) cache_.end_retentions(Sequence::Clock::now());
  grow_running();
  admit();
  scheduled.clear(cache_.num_groups());
  PromptShare share = prompt_share();
  std::int64_t budget = fitting_tokens(share);
  for (const bool decodes : {true, false}) {
    const std::int64_t most = decodes && in_turns ? decodes_of_turn() : std::ssize(running_);
    budget = schedule(decodes, most, budget, share, scheduled);
  }
  if (!scheduled.entries.empty()) cache_.take_copies(scheduled.batch.slot_copies);
  scheduled.finish();
}

std::int64_t Scheduler::schedule(bool decodes, std::int64_t most_chosen, std::int64_t budget, PromptShare& share,
                                 ScheduledBatch& scheduled) {
  chosen_.clear();
  for (std::size_t i = 0; i < running_.size() && std::ssize(chosen_) < most_chosen; ++i) {
    Sequence& sequence = *running_[i];
    if (sequence.decodes() != decodes || sequence.is_done() || waits_for_token(sequence)) continue;
    const std::int64_t most = std::min(budget, decodes ? 1 : share.most(sequence.uncomputed()));
    if (most <= 0) continue;
    const PromptCut cut = cut_of(sequence, most);
    const std::int64_t wanted = cut.end - sequence.computed;
    std::int64_t count = cache_.fitting(sequence.cache, sequence.computed, wanted);
    // Preempts the sequences after this one until a page is free. Otherwise the step would have no entries and free no
    // pages, so the next step could not go on either. Does not preempt while tokens of another group of decodes
    // (SchedulerOptions::turns) are awaited, because the sequences of that group may end and free pages.
    while (count == 0 && !awaits_tokens() && chosen_.empty() && scheduled.entries.empty() && i + 1 < running_.size()) {
      preempt_last();
      count = cache_.fitting(sequence.cache, sequence.computed, wanted);
    }
    if (!decodes) count = take_images(sequence, count);
    if (count == 0) continue;
    cache_.take_pages(sequence.cache, std::ssize(sequence.tokens), sequence.computed + count);
    const bool has_checkpoint = cut.checkpoint > 0 && cut.checkpoint < sequence.computed + count;
    chosen_.push_back({.sequence = &sequence, .count = count, .checkpoint = has_checkpoint ? cut.checkpoint : 0});
    sequence.drafts.clear();
    budget -= count;
    if (!decodes) share.take(count);
  }
  if (decodes) {
    keep_places();
    scheduled.waits_for_drafts_alone = waits_for_drafts_alone();
    const StepDrafts::Drafted drafts = drafts_.choose({.running = running_,
                                                       .most_rows = options_.limits.max_requests,
                                                       .budget = budget,
                                                       .prompt_rows = rows_of_step(share).prompts,
                                                       .is_judged = scheduled.waits_for_drafts_alone},
                                                      chosen_, cache_);
    scheduled.saving = drafts.saving;
    budget -= drafts.count;
  }
  for (const ChosenTokens& chosen : chosen_) {
    const auto place = std::ssize(scheduled.entries);
    chosen.sequence->place = place;
    scheduled.append(*chosen.sequence, chosen.count, cache_, options_.vocab_size);
    if (chosen.checkpoint > 0)
      cache_.take_checkpoints(place, chosen.checkpoint - chosen.sequence->computed, scheduled.batch.checkpoints);
  }
  return budget;
}

bool Scheduler::awaits_tokens() const {
  return std::ranges::any_of(running_, [&](const auto& sequence) {
    return sequence->pending > 0 && (options_.turns > 1 || waits_for_token(*sequence));
  });
}

// Returns how many sequences decode in one turn (SchedulerOptions::turns). Each turn gets an equal part of all decoding
// sequences, including those that wait for their token.
std::int64_t Scheduler::decodes_of_turn() const {
  const std::int64_t all = std::count_if(running_.begin(), running_.end(), [](const auto& sequence) {
    return sequence->decodes() && !sequence->is_done();
  });
  return (all + options_.turns - 1) / options_.turns;
}

// Assigns places in the batch to the chosen sequences. A sequence keeps the place that it had in its last batch, if the
// new batch has this place and no sequence before it took the place. The other sequences get the free places in order.
void Scheduler::keep_places() {
  placed_.assign(chosen_.size(), {});
  for (ChosenTokens& chosen : chosen_) {
    const std::int64_t place = chosen.sequence->place;
    if (place >= 0 && place < std::ssize(placed_) && placed_[static_cast<std::size_t>(place)].sequence == nullptr)
      std::swap(placed_[static_cast<std::size_t>(place)], chosen);
  }
  auto free = placed_.begin();
  for (const ChosenTokens& chosen : chosen_) {
    if (chosen.sequence == nullptr) continue;
    free = std::find_if(free, placed_.end(), [](const ChosenTokens& at) { return at.sequence == nullptr; });
    *free = chosen;
  }
  std::swap(chosen_, placed_);
}

PromptCut Scheduler::cut_of(const Sequence& sequence, std::int64_t count) const {
  if (!cache_.has_states() || !caches(sequence) || sequence.decodes()) return {.end = sequence.computed + count};
  const PromptCut cut = cut_prompt({.page_size = cache_.page_size(),
                                    .computed = sequence.computed,
                                    .tokens = std::ssize(sequence.tokens),
                                    .branch = sequence.cache.branch_pages * cache_.page_size(),
                                    .branch_tokens = sequence.request.branch_tokens},
                                   count);
  if (cut.checkpoint > 0 && !options_.takes_checkpoints) return {.end = cut.checkpoint};
  return cut;
}

PromptShare Scheduler::prompt_share() const {
  bool decodes = false;
  std::int64_t backlog = 0;
  for (const auto& sequence : running_) {
    if (sequence->is_done()) continue;
    decodes = decodes || sequence->decodes();
    backlog += sequence->decodes() ? 0 : sequence->uncomputed();
  }
  if (!filling_ || backlog == 0) return {options_.limits.max_tokens, 0, backlog, decodes};
  for (const auto& sequence : waiting_) backlog += sequence->uncomputed();
  return {options_.limits.max_tokens, filling_(), backlog, decodes};
}

// Counts the rows of the step: one for each decoding sequence, and as many prompt rows as `share` allows.
Scheduler::StepRows Scheduler::rows_of_step(PromptShare share) const {
  StepRows rows;
  for (const auto& sequence : running_) {
    if (sequence->is_done()) continue;
    if (sequence->decodes()) {
      ++rows.decodes;
      continue;
    }
    const std::int64_t count = share.most(sequence->uncomputed());
    share.take(count);
    rows.prompts += count;
  }
  return rows;
}

// Returns the maximum number of tokens for the step: the chunk, or fewer if `fit` says so.
std::int64_t Scheduler::fitting_tokens(PromptShare share) {
  if (!fit_) return options_.limits.max_tokens;
  const auto [decodes, prompts] = rows_of_step(share);
  const std::int64_t tokens = std::min(decodes + prompts, options_.limits.max_tokens);
  if (tokens <= decodes) return options_.limits.max_tokens;
  const std::int64_t fitting = fit_(tokens);
  // Does not shorten the prompts if decodes would take more than half of the `fitting` rows. Such steps would repeat as
  // long as the requests decode, and prompts would get so few rows that they advance too slowly.
  if (fitting < 2 * decodes || fitting >= tokens) return options_.limits.max_tokens;
  ++split_chunks_;
  return fitting;
}

// Gives a page for the next token to every running sequence whose last page is full.
void Scheduler::grow_running() {
  for (std::size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[i];
    if (sequence.is_done()) continue;
    const std::int64_t tokens = std::ssize(sequence.tokens);
    const std::int64_t window_end = sequence.decodes() ? tokens : 0;
    while (!cache_.can_take(sequence.cache, tokens, window_end) && i < running_.size())
      preempt_last();  // may preempt this sequence itself
    if (i < running_.size()) cache_.take_pages(sequence.cache, tokens, window_end);
  }
}

void Scheduler::preempt(std::size_t index, bool keep) {
  std::unique_ptr<Sequence> sequence = std::move(running_[index]);
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(index));
  release_cache(*sequence, keep, /*ends=*/false);
  if (sequence->adapter != nullptr) adapters_.release(*sequence->adapter);
  sequence->computed = sequence->accepted_drafts = 0;
  sequence->last_row = -1;
  sequence->prefix.forget_leader();
  ++preemptions_;
  insert(waiting_, std::move(sequence));
}

void Scheduler::compute_again() {
  for (Sequences* sequences : {&running_, &waiting_}) {
    for (const auto& sequence : *sequences) {
      sequence->tokens.resize(sequence->tokens.size() - static_cast<std::size_t>(sequence->pending), TokenId(0));
      sequence->pending = 0;
    }
  }
  while (!running_.empty()) preempt(running_.size() - 1, /*keep=*/false);
  flush_prefixes();
}

// Enters full pages into the prefix cache, if their tokens are computed and known to the host. Returns whether the
// sequence's cached pages hold exactly the tokens that its recurrent states include.
bool Scheduler::keep_computed(Sequence& sequence) {
  if (!caches(sequence)) return false;
  const std::int64_t known = std::min(sequence.computed, std::ssize(sequence.tokens) - sequence.pending);
  cache_.keep(sequence.cache, sequence.first_tokens(known));
  return sequence.cache.cached_pages() * cache_.page_size() == sequence.computed - sequence.accepted_drafts;
}

// Gives the sequence's pages back. With `keep`, its computed pages stay in the prefix cache. If `ends`, the sequence
// has ended. Otherwise it waits again.
void Scheduler::release_cache(Sequence& sequence, bool keep, bool ends) {
  if (keep && keep_computed(sequence)) cache_.leave_checkpoint(sequence.cache);
  if (keep && ends && sequence.request.retention.any())
    cache_.retain(sequence.cache, sequence.request.retention, sequence.prompt_tokens(), Sequence::Clock::now());
  cache_.release(sequence.cache);
  release_embeddings(sequence);
  release_images(sequence, sequence.prompt_tokens());
}

// Gives the rows back, although forwards in flight may still read them. Forwards run in order, so a forward of another
// sequence overwrites the rows only after the forwards in flight have read them.
void Scheduler::release_embeddings(Sequence& sequence) {
  if (sequence.first_embedding < 0) return;
  embeddings_.give_back(sequence.first_embedding);
  sequence.first_embedding = -1;
}

std::int64_t Scheduler::take_images(Sequence& sequence, std::int64_t count) {
  for (std::size_t i = 0; i < sequence.images.size(); ++i) {
    const ImageSpan& span = sequence.images[i];
    if (span.end() <= sequence.computed || sequence.image_rows[i] != nullptr) continue;
    if (span.first_token >= sequence.computed + count) break;
    ImageRows::Image* rows = images_.take(span.content, span.count);
    if (rows == nullptr) return std::max<std::int64_t>(span.first_token - sequence.computed, 0);
    image_stats_.cache_hits += rows->is_written ? 1 : 0;
    sequence.image_rows[i] = rows;
  }
  return count;
}

void Scheduler::release_images(Sequence& sequence, std::int64_t end) {
  for (std::size_t i = 0; i < sequence.images.size() && sequence.images[i].end() <= end; ++i)
    if (ImageRows::Image* rows = std::exchange(sequence.image_rows[i], nullptr)) images_.release(*rows);
}

void Scheduler::mark_submitted(const ScheduledBatch& scheduled) {
  for (const ScheduledBatch::ImageUse& use : scheduled.images) images_.set_written(use.content, true);
  // A forward that samples overwrites last_ids, the device's list of the ids that the last step sampled. So sequences
  // that are not in the forward lose their rows of this list.
  if (!scheduled.sampling.empty()) forget_rows();
  std::span<const StateCheckpoint> checkpoints = scheduled.batch.checkpoints;
  for (std::size_t b = 0; b < scheduled.entries.size(); ++b) {
    const ScheduledBatch::Entry& entry = scheduled.entries[b];
    Sequence& sequence = *entry.sequence;
    const bool decodes = sequence.decodes();
    sequence.computed += entry.new_tokens;
    sequence.accepted_drafts = 0;
    if (sequence.computed >= sequence.prompt_tokens()) release_embeddings(sequence);
    release_images(sequence, sequence.computed);
    // Enters computed pages into the prefix cache. The pages of a decoding sequence are entered only when the sequence
    // ends or is preempted.
    const bool ends_at_page = !decodes && keep_computed(sequence);
    for (; !checkpoints.empty() && checkpoints[0].request == static_cast<std::int32_t>(b);
         checkpoints = checkpoints.subspan(1))
      cache_.enter_checkpoint(sequence.cache, entry.position + checkpoints[0].rows, checkpoints[0]);
    if (ends_at_page) cache_.add_checkpoint(sequence.cache);
    cache_.leave_window(sequence.cache, sequence.computed);
    if (entry.row < 0) continue;
    sequence.tokens.emplace_back(0);
    ++sequence.pending;
    sequence.last_row = options_.turns > 1 || sequence.drafter ? -1 : static_cast<std::int32_t>(entry.row);
  }
}

void Scheduler::stop_drafting(Sequence& sequence) {
  num_read_at_once_ -= sequence.is_read_at_once() ? 1 : 0;
  sequence.drafter.reset();
  num_read_at_once_ += sequence.is_read_at_once() ? 1 : 0;
}

bool Scheduler::stop_drafting() {
  bool any = false;
  for (const Sequences* sequences : {&running_, &waiting_})
    for (const auto& sequence : *sequences) {
      if (!sequence->drafter || !sequence->drafter->is_tried()) continue;
      sequence->drafter->dismiss();
      stop_drafting(*sequence);
      sequence->awaits_trials = true;
      any = true;
    }
  return any;
}

bool Scheduler::waits_for_drafts_alone() const {
  constexpr std::int64_t kFew = 8;     // this many sequences show how many drafts all sequences would keep
  if (!reads_at_once()) return false;  // nobody drafts, as in most steps
  const auto reads = [](const auto& sequence) { return sequence->reads_results_at_once(); };
  if (std::ranges::any_of(running_, reads) || std::ranges::any_of(waiting_, reads)) return false;
  const std::int64_t drafting =
      std::ranges::count_if(running_, [](const auto& sequence) { return sequence->tries_drafts(); });
  const bool nearly_all = 4 * (num_running() - drafting) <= num_running();
  return nearly_all || (drafting >= kFew && 8 * drafting >= num_running());
}

void Scheduler::settle(const ScheduledBatch::Entry& entry, TokenId token) {
  entry.sequence->tokens[static_cast<std::size_t>(entry.next_token)] = token;
  --entry.sequence->pending;
}

std::unique_ptr<Sequence> Scheduler::remove(RequestId id, bool failed) {
  std::unique_ptr<Sequence> found;
  for (Sequences* sequences : {&running_, &waiting_}) {
    const auto it = std::find_if(sequences->begin(), sequences->end(), [&](const auto& s) { return s->id == id; });
    if (it == sequences->end()) continue;
    found = std::move(*it);
    sequences->erase(it);
    if (sequences == &running_ && found->adapter != nullptr) adapters_.release(*found->adapter);
    break;
  }
  if (found == nullptr) return nullptr;
  release_cache(*found, !failed, /*ends=*/true);
  num_read_at_once_ -= found->is_read_at_once() ? 1 : 0;
  num_with_deadline_ -= found->deadline ? 1 : 0;
  return found;
}

void Scheduler::forget_results(const ScheduledBatch& scheduled) {
  for (const ScheduledBatch::ImageUse& use : scheduled.images)
    if (!use.is_written) images_.set_written(use.content, false);
  forget_copies(scheduled);
}

void Scheduler::forget_copies(const ScheduledBatch& scheduled) {
  if (!cache_.has_states()) return;
  cache_.forget_checkpoints();
  const std::vector<SlotCopy>& copies = scheduled.batch.slot_copies;
  const auto is_target = [&](const Sequence& sequence) {
    return std::any_of(copies.begin(), copies.end(), [&](const SlotCopy& copy) {
      const std::vector<PageId>& slots = sequence.cache.groups[copy.group].pages;
      return !slots.empty() && slots[0] == copy.to;
    });
  };
  for (std::size_t i = running_.size(); i-- > 0;)
    if (is_target(*running_[i])) preempt(i, /*keep=*/false);
}

void Scheduler::find_expired(Sequence::Clock::time_point now, std::vector<RequestId>& expired) const {
  if (num_with_deadline_ == 0) return;
  for (const Sequences* sequences : {&running_, &waiting_})
    for (const auto& sequence : *sequences)
      if (sequence->deadline && *sequence->deadline <= now) expired.push_back(sequence->id);
}

void Scheduler::report(EngineStats& stats) const {
  stats.running = std::ssize(running_);
  stats.queued = std::ssize(waiting_);
  stats.queued_tokens = 0;
  for (const auto& sequence : waiting_) stats.queued_tokens += sequence->uncomputed();
  stats.num_cache_groups = cache_.num_groups();
  for (std::size_t g = 0; g < cache_.num_groups(); ++g) stats.cache_groups[g] = cache_.stats(g);
  stats.page_size = cache_.page_size();
  stats.retention = cache_.retention_stats();
  stats.prompt_tokens = prompt_tokens_;
  stats.cached_tokens = cached_tokens_;
  stats.preemptions = preemptions_;
  stats.split_chunks = split_chunks_;
  stats.images = image_stats_;
}

}  // namespace tessera
