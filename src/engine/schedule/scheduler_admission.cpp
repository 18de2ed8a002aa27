// The scheduler's admission of waiting sequences.
#include <algorithm>
#include <span>
#include <utility>

#include "tessera/engine/schedule/scheduler.h"

namespace tessera {

void Scheduler::admit() {
  if (waiting_.empty()) return;
  find_leaders();
  Sequence* waits_for_slot = nullptr;  // the first sequence whose adapter finds no slot
  for (std::size_t i = 0; i < waiting_.size();) {
    Sequence& sequence = *waiting_[i];
    if (sequence.pending > 0) return;  // the sequence was preempted, and its last token is not sampled yet
    if (prefix_waits_.should_wait(sequence, reusable_tokens(sequence)) || !has_slot(sequence, waits_for_slot)) {
      ++i;
      continue;
    }
    const std::int64_t preemptions = preemptions_;
    if (!make_room(sequence)) return;  // no later sequence is admitted before this one
    // Reserves the final size once, so that decoding does not allocate.
    const std::int64_t most = sequence.prompt_tokens() + sequence.request.stop.max_new_tokens;
    sequence.tokens.reserve(static_cast<std::size_t>(most));
    cache_.admit(sequence.cache, std::ssize(sequence.tokens), most);
    if (!sequence.request.input_embeds.empty()) sequence.first_embedding = embeddings_.take(sequence.prompt_tokens());
    sequence.computed = sequence.cache.cached_pages() * cache_.page_size();
    if (!sequence.admitted_before) {
      sequence.admitted_before = true;
      sequence.result.queue_ms = sequence.elapsed_ms();
      sequence.result.cached_tokens = sequence.computed;
      prompt_tokens_ += sequence.prompt_tokens();
      cached_tokens_ += sequence.computed;
      image_stats_.images += std::ssize(sequence.images);
      for (const ImageSpan& image : sequence.images) image_stats_.image_tokens += image.count;
    }
    if (sequence.adapter != nullptr) {
      adapters_.acquire(sequence.adapter);
      if (waits_for_slot != nullptr) ++waits_for_slot->passed;
    }
    sequence.admission = ++admissions_;
    insert(running_, std::move(waiting_[i]));
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    if (preemptions_ != preemptions) {
      find_leaders();
    } else {
      prefix_waits_.forget_nodes();
      if (computes_shared_pages(sequence)) prefix_waits_.add(sequence);
    }
  }
}

// Returns whether the sequence's adapter, if it has one, finds a slot. `waits_for_slot` is the first sequence that
// found none. After kMostPasses sequences with adapters have passed that sequence, no further one may pass, so that a
// slot becomes idle.
bool Scheduler::has_slot(Sequence& sequence, Sequence*& waits_for_slot) const {
  constexpr std::int64_t kMostPasses = 32;
  if (sequence.adapter == nullptr) return true;
  if (waits_for_slot != nullptr && waits_for_slot->passed >= kMostPasses) return false;
  if (adapters_.has_room(*sequence.adapter)) return true;
  if (waits_for_slot == nullptr) waits_for_slot = &sequence;
  return false;
}

// Returns the tokens that the prefix cache may supply. The last token is always computed, because its row is wanted.
PrefixTokens Scheduler::reusable_tokens(const Sequence& sequence) const {
  if (!caches(sequence)) return {};
  const std::int64_t count = std::min(sequence.first_wanted(), std::ssize(sequence.tokens) - 1);
  return sequence.first_tokens(count);
}

// Finds the sequence's prefix in the prefix cache and makes room for the rest. If there is no room, returns false and
// leaves the sequence unchanged.
bool Scheduler::make_room(Sequence& sequence) {
  const auto may_preempt = [&] {
    return !running_.empty() && running_.back()->request.priority < sequence.request.priority;
  };
  while (std::ssize(running_) >= options_.max_running) {
    if (!may_preempt()) return false;
    preempt_last();
  }
  cache_.find(sequence.cache, reusable_tokens(sequence));
  const auto rows_for_embeddings = [&] {
    return sequence.request.input_embeds.empty() || images_.make_room(sequence.prompt_tokens());
  };
  while (!has_room(sequence) || !rows_for_embeddings()) {
    if (!may_preempt()) {
      cache_.release(sequence.cache);
      return false;
    }
    preempt_last();
  }
  return true;
}

bool Scheduler::has_room(const Sequence& sequence) const {
  for (std::size_t g = 0; g < cache_.num_groups(); ++g) {
    const std::int64_t needed = cache_.needed(g, sequence.cache, std::ssize(sequence.tokens));
    if (cache_.available(g) < needed + promised_pages(running_, cache_, g)) return false;
  }
  return true;
}

// Finds running sequences that are computing pages which waiting sequences could reuse.
void Scheduler::find_leaders() {
  prefix_waits_.begin(running_, [&](const Sequence& sequence) { return computes_shared_pages(sequence); });
}

}  // namespace tessera
