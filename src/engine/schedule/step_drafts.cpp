#include "tessera/engine/schedule/step_drafts.h"

#include <algorithm>
#include <cstdint>

namespace tessera {
namespace {

// The divisor of `filling` that gives the most tokens of a cheap forward. A forward of an eighth of `filling` tokens
// takes at most one and a half times as long as a forward of few tokens.
constexpr std::int64_t kCheapShare = 8;
constexpr std::int64_t kCheapTokens = 32;   // if nothing was measured
constexpr std::int64_t kTokensRead = 8192;  // takes some two milliseconds

// Returns how many pages of every group are free and not promised to running sequences.
std::int64_t spare_pages(const Sequences& running, const CacheManager& cache) {
  std::int64_t least = INT64_MAX;
  for (std::size_t g = 0; g < cache.num_groups(); ++g)
    least = std::min(least, cache.num_free(g) - promised_pages(running, cache, g));
  return least;
}

}  // namespace

std::int64_t promised_pages(const Sequences& running, const CacheManager& cache, std::size_t g) {
  std::int64_t pages = 0;
  for (const auto& sequence : running) pages += cache.headroom(g, sequence->cache, std::ssize(sequence->tokens));
  return pages;
}

StepDrafts::StepDrafts(const Sequences& running, std::int64_t rows, std::int64_t budget, const FillingTokens& filling,
                       CacheManager& cache)
    : cache_(cache) {
  const auto drafts = [](const auto& sequence) { return sequence->drafter.has_value(); };
  const auto has_prompt = [](const auto& sequence) { return !sequence->is_done() && !sequence->decodes(); };
  if (rows == 0 || std::ranges::none_of(running, drafts)) return;
  reading_ = kTokensRead;
  if (std::ranges::any_of(running, has_prompt)) return;
  const std::int64_t cheap = filling ? filling() / kCheapShare : kCheapTokens;
  room_ = std::max<std::int64_t>(std::min({rows, cheap, budget}) - std::ssize(running), 0);
  pages_ = spare_pages(running, cache);
}

void StepDrafts::take(Sequence& sequence, std::int64_t count) {
  if (count < sequence.uncomputed()) return;
  reading_ -= sequence.drafter->read(sequence.tokens, reading_);
  const std::int64_t left = sequence.request.stop.max_new_tokens - sequence.generated() - 1;
  sequence.drafter->propose(sequence.tokens, std::min(room_, left), sequence.drafts);
  if (sequence.drafts.empty()) return;
  const std::int64_t now = std::ssize(sequence.tokens);
  const std::int64_t end = now + std::ssize(sequence.drafts);
  const std::int64_t pages = cache_.pages_for(end) - cache_.pages_for(now);
  if (pages > std::max<std::int64_t>(pages_, 0)) {
    sequence.drafts.clear();
    return;
  }
  cache_.take_pages(sequence.cache, end, end);
  pages_ -= pages;
  room_ -= std::ssize(sequence.drafts);
}

void keep_draft(ScheduledBatch::Entry& entry, bool has_states) {
  ++(has_states ? entry.sequence->replayed : entry.sequence->computed);
  entry.sequence->tokens.emplace_back(0);
  ++entry.sequence->pending;
  ++entry.row;
  ++entry.next_token;
}

}  // namespace tessera
