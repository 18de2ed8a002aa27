#include "tessera/engine/schedule/step_drafts.h"

#include <algorithm>
#include <cstdint>

namespace tessera {
namespace {

constexpr std::int64_t kPromptsShare = 4;   // if prompts fill the step, drafts take at most one row in this many
constexpr std::int64_t kTokensRead = 8192;  // maximum number of tokens that drafters read in a step, in about 2 ms

// Counts the pages of each group that are free and not promised to running sequences. Returns the smallest count.
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

// Replaces the saving of this step's drafts by what they would save if all requests that await trials drafted. Each of
// them is imagined to offer what one of the requests that try drafts offers. Without this, a trial of a few requests
// among many could not show that drafting costs more time than it saves, because the wait of a step does not depend on
// their number.
void StepDrafts::imagine_all(std::span<const ChosenTokens> decoding, const DraftCounts::Step& step,
                             DraftSaving& saving) {
  const auto tries = [](const ChosenTokens& each) { return each.sequence->tries_drafts(); };
  const auto awaits = [](const ChosenTokens& each) { return each.sequence->awaits_trials; };
  if (std::ranges::none_of(decoding, awaits) || std::ranges::none_of(decoding, tries)) return;
  std::size_t from = 0;
  for (std::size_t i = 0; i < decoding.size(); ++i) {
    if (!awaits(decoding[i])) continue;
    while (!tries(decoding[from])) from = (from + 1) % decoding.size();
    offers_[i] = offers_[from];
    from = (from + 1) % decoding.size();
  }
  counts_.choose(offers_, step, costs_);
  const std::optional<DraftSaving>& of_all = counts_.saving();
  if (!of_all) return;
  saving.gained_ms = of_all->gained_ms;
  saving.taken_ms = of_all->taken_ms;
}

StepDrafts::Drafted StepDrafts::choose(const Step& step, std::span<const ChosenTokens> decoding, CacheManager& cache) {
  const auto drafts = [](const ChosenTokens& each) { return each.sequence->drafter.has_value(); };
  if (std::ranges::none_of(decoding, drafts)) return {};
  std::int64_t reading = kTokensRead;
  offers_.clear();
  for (const ChosenTokens& chosen : decoding) {
    Sequence* const sequence = chosen.sequence;
    DraftOffer offer;
    if (sequence->drafter) {
      reading -= sequence->drafter->read(sequence->tokens, reading);
      offer = sequence->drafter->offer(sequence->tokens);
      std::int64_t left = sequence->request.stop.max_new_tokens - sequence->generated();
      if (sequence->reasoning) left = std::min(left, sequence->reasoning->left());
      offer.most = std::min(offer.most, std::max<std::int64_t>(left - 1, 0));
    }
    offers_.push_back(offer);
  }

  const bool is_full = step.prompt_rows > step.budget;
  const std::int64_t spare_rows = is_full ? step.budget / kPromptsShare : step.budget - step.prompt_rows;
  const std::int64_t room = std::min(step.most_rows - std::ssize(step.running), spare_rows);
  const DraftCounts::Step without_drafts{.requests = std::ssize(decoding),
                                         .room = std::max<std::int64_t>(room, 0),
                                         .prompt_rows = std::min(step.prompt_rows, step.budget),
                                         .is_full = is_full};
  const std::span<const std::int64_t> counts = counts_.choose(offers_, without_drafts, costs_);
  Drafted drafted{.saving = counts_.saving()};
  const bool nobody = std::ranges::all_of(counts, [](std::int64_t count) { return count == 0; });
  std::int64_t spare = spare_pages(step.running, cache);
  for (std::size_t i = 0; i < decoding.size(); ++i) {
    Sequence& sequence = *decoding[i].sequence;
    if (nobody && sequence.drafter) sequence.drafter->rest();
    if (counts[i] == 0) continue;
    const std::int64_t now = std::ssize(sequence.tokens);
    const std::int64_t end = now + counts[i];
    const std::int64_t pages = cache.pages_for(end) - cache.pages_for(now);
    if (pages > std::max<std::int64_t>(spare, 0)) {
      drafted.saving.reset();  // it includes this sequence's drafts, but they get no pages
      continue;
    }
    sequence.drafter->propose(sequence.tokens, counts[i], sequence.drafts);
    cache.take_pages(sequence.cache, end, end);
    spare -= pages;
    drafted.count += counts[i];
  }
  if (drafted.saving && step.is_judged) imagine_all(decoding, without_drafts, *drafted.saving);
  return drafted;
}

std::int64_t kept_drafts(const ScheduledBatch& batch, const ScheduledBatch::Entry& entry,
                         std::span<const TokenId> sampled) {
  std::int64_t kept = 0;
  while (kept < entry.drafts && sampled[static_cast<std::size_t>(entry.row + kept)] == batch.draft_of(entry, kept))
    ++kept;
  return kept;
}

void keep_draft(ScheduledBatch::Entry& entry, bool has_states) {
  ++entry.sequence->computed;
  if (has_states) ++entry.sequence->accepted_drafts;
  entry.sequence->tokens.emplace_back(0);
  ++entry.sequence->pending;
  ++entry.row;
  ++entry.next_token;
}

}  // namespace tessera
