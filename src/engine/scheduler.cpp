#include "tessera/engine/scheduler.h"

#include <algorithm>
#include <span>

namespace tessera {
namespace {

bool comes_before(const Sequence& a, const Sequence& b) {
  return a.request.priority != b.request.priority ? a.request.priority > b.request.priority : a.order < b.order;
}

std::int64_t size_of(const auto& container) { return static_cast<std::int64_t>(container.size()); }

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

void Scheduler::next(ScheduledBatch& scheduled) {
  grow_running();
  admit();
  scheduled.clear(static_cast<std::size_t>(options_.num_cache_groups));
  std::int64_t budget = fitting_tokens();
  for (const bool decodes : {true, false}) {
    for (const auto& sequence : running_) {
      if (sequence->decodes() != decodes || sequence->is_done()) continue;
      const std::int64_t count = std::min(budget, sequence->uncomputed());
      if (count > 0) scheduled.append(*sequence, count, pages_.page_size(), options_.vocab_size);
      budget -= count;
    }
  }
  scheduled.finish();
}

// The chunk, or what `fit` makes of the step's tokens.
std::int64_t Scheduler::fitting_tokens() {
  if (!fit_) return options_.chunk;
  std::int64_t decodes = 0;
  std::int64_t tokens = 0;
  for (const auto& sequence : running_) {
    if (sequence->is_done()) continue;
    decodes += sequence->decodes() ? 1 : 0;
    tokens += sequence->uncomputed();
  }
  tokens = std::min(tokens, options_.chunk);
  if (tokens <= decodes) return options_.chunk;
  const std::int64_t fitting = fit_(tokens);
  // Decodes come again in every step: where they take most of what fits, prompts would go on by a few tokens at a time.
  if (fitting < 2 * decodes || fitting >= tokens) return options_.chunk;
  ++split_chunks_;
  return fitting;
}

// A page for the next token of every running sequence whose last one is full.
void Scheduler::grow_running() {
  for (std::size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[i];
    const std::int64_t missing = pages_.pages_for(size_of(sequence.tokens)) - size_of(sequence.pages);
    if (missing <= 0 || sequence.is_done()) continue;
    while (available_pages() < missing && i < running_.size()) preempt_last();  // it may be the sequence itself
    if (i < running_.size()) take_pages(sequence, missing);
  }
}

void Scheduler::admit() {
  for (std::size_t i = 0; i < waiting_.size();) {
    Sequence& sequence = *waiting_[i];
    if (sequence.pending > 0) return;  // preempted, and its last token is still on its way
    if (waits_for_prefix(sequence)) {
      ++i;
      continue;
    }
    if (!make_room(sequence)) return;  // nobody overtakes
    take_pages(sequence, pages_.pages_for(size_of(sequence.tokens)) - size_of(sequence.pages));
    sequence.computed = size_of(sequence.cached) * pages_.page_size();
    if (!sequence.admitted_before) {
      sequence.admitted_before = true;
      sequence.result.queue_ms =
          std::chrono::duration<double, std::milli>(Sequence::Clock::now() - sequence.arrived).count();
      sequence.result.cached_tokens = sequence.computed;
      prompt_tokens_ += sequence.prompt_tokens();
      cached_tokens_ += sequence.computed;
    }
    insert(running_, std::move(waiting_[i]));
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

// The last token is computed in any case: its row is wanted.
std::span<const TokenId> Scheduler::reusable_tokens(const Sequence& sequence) const {
  if (!caches(sequence)) return {};
  const std::int64_t count = std::min(sequence.first_wanted(), size_of(sequence.tokens) - 1);
  return std::span(sequence.tokens).first(static_cast<std::size_t>(count));
}

// Finds the sequence's prefix and sees to it that pages for the rest are available. Where it cannot, nothing changes
// for the sequence.
bool Scheduler::make_room(Sequence& sequence) {
  const auto may_preempt = [&] {
    return !running_.empty() && running_.back()->request.priority < sequence.request.priority;
  };
  while (size_of(running_) >= options_.max_running) {
    if (!may_preempt()) return false;
    preempt_last();
  }
  sequence.cached = prefixes_.find(reusable_tokens(sequence));
  const std::int64_t needed = pages_.pages_for(size_of(sequence.tokens)) - size_of(sequence.cached);
  while (available_pages() < needed + size_of(running_)) {
    if (!may_preempt()) {
      prefixes_.release(sequence.cached);
      return false;
    }
    preempt_last();
  }
  for (const PrefixCache::Node* node : sequence.cached) sequence.pages.push_back(PrefixCache::page_of(*node));
  return true;
}

// Whether a running sequence is computing pages that this one could soon take from the cache.
bool Scheduler::waits_for_prefix(const Sequence& sequence) const {
  const std::span<const TokenId> tokens = reusable_tokens(sequence);
  if (tokens.empty()) return false;
  const auto in_progress = [&](const std::unique_ptr<Sequence>& other) {
    // One of lower priority may itself wait for long.
    if (other->request.priority < sequence.request.priority) return 0L;
    if (other->computed >= other->prompt_tokens() || !caches(*other)) return 0L;
    const std::size_t common = std::min(tokens.size(), other->request.prompt.size());
    const auto differs = std::mismatch(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(common),
                                       other->request.prompt.begin());
    return static_cast<long>((differs.first - tokens.begin()) / pages_.page_size());
  };
  long shared = 0;
  for (const auto& other : running_) shared = std::max(shared, in_progress(other));
  return shared > 0 && shared > prefixes_.count_known(tokens);
}

void Scheduler::preempt_last() {
  std::unique_ptr<Sequence> sequence = std::move(running_.back());
  running_.pop_back();
  release_pages(*sequence, true);
  sequence->computed = 0;
  sequence->last_row = -1;
  ++preemptions_;
  insert(waiting_, std::move(sequence));
}

void Scheduler::take_pages(Sequence& sequence, std::int64_t count) {
  // It grows up to here, and not by a reallocation at a time.
  const std::int64_t most = sequence.prompt_tokens() + sequence.request.stop.max_new_tokens;
  sequence.tokens.reserve(static_cast<std::size_t>(most));
  sequence.pages.reserve(static_cast<std::size_t>(pages_.pages_for(most)));
  prefixes_.evict(count - pages_.num_free());
  for (std::int64_t i = 0; i < count; ++i) sequence.pages.push_back(pages_.take());
}

// Enters what is computed and known into the prefix cache.
void Scheduler::keep_computed(Sequence& sequence) {
  if (!caches(sequence)) return;
  const std::int64_t known = std::min(sequence.computed, size_of(sequence.tokens) - sequence.pending);
  prefixes_.extend(sequence.cached, std::span(sequence.tokens).first(static_cast<std::size_t>(known)), sequence.pages);
}

void Scheduler::release_pages(Sequence& sequence, bool keep) {
  if (keep) keep_computed(sequence);
  for (std::size_t i = sequence.cached.size(); i < sequence.pages.size(); ++i) pages_.give_back(sequence.pages[i]);
  prefixes_.release(sequence.cached);
  sequence.pages.clear();
}

void Scheduler::mark_submitted(const ScheduledBatch& scheduled) {
  // A forward that samples writes last_ids anew: rows of sequences that are not in it are gone.
  if (!scheduled.sampling.empty()) forget_rows();
  for (const ScheduledBatch::Entry& entry : scheduled.entries) {
    Sequence& sequence = *entry.sequence;
    sequence.computed += entry.new_tokens;
    // A decoding sequence enters its pages when it ends.
    if (entry.new_tokens > 1 || entry.position < sequence.prompt_tokens()) keep_computed(sequence);
    if (entry.row < 0) continue;
    sequence.tokens.emplace_back(0);
    ++sequence.pending;
    sequence.last_row = static_cast<std::int32_t>(entry.row);
  }
}

void Scheduler::forget_rows() {
  for (const auto& sequence : running_) sequence->last_row = -1;
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
    break;
  }
  if (found == nullptr) return nullptr;
  release_pages(*found, !failed);
  num_read_at_once_ -= found->is_read_at_once() ? 1 : 0;
  num_with_deadline_ -= found->deadline ? 1 : 0;
  return found;
}

void Scheduler::find_expired(Sequence::Clock::time_point now, std::vector<RequestId>& expired) const {
  if (num_with_deadline_ == 0) return;
  for (const Sequences* sequences : {&running_, &waiting_})
    for (const auto& sequence : *sequences)
      if (sequence->deadline && *sequence->deadline <= now) expired.push_back(sequence->id);
}

void Scheduler::report(EngineStats& stats) const {
  stats.running = size_of(running_);
  stats.queued = size_of(waiting_);
  stats.cached_pages = prefixes_.num_evictable();
  stats.used_pages = pages_.num_usable() - pages_.num_free() - stats.cached_pages;
  stats.usable_pages = pages_.num_usable();
  stats.page_size = pages_.page_size();
  stats.prompt_tokens = prompt_tokens_;
  stats.cached_tokens = cached_tokens_;
  stats.preemptions = preemptions_;
  stats.split_chunks = split_chunks_;
}

}  // namespace tessera
