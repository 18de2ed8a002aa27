#include "tessera/engine/schedule/prompt_cut.h"

#include <algorithm>

#include "tessera/engine/cache/cache_manager.h"

namespace tessera {
namespace {

// Returns the next place after `from` and up to `end` where a checkpoint is wanted, or 0 if there is none. A later text
// needs a token of its own after the checkpoint, so the last token is behind all places. If `from` is a branch token
// near the prompt's end, there is no other place behind it.
std::int64_t next_place(const PromptPlaces& prompt, std::int64_t from, std::int64_t end) {
  constexpr std::int64_t kLeast = CacheManager::kLeastBranchTokens;
  const std::int64_t last = prompt.tokens - 1;
  const auto page_before = [&](std::int64_t token) { return token / prompt.page_size * prompt.page_size; };
  std::int64_t place = page_before(std::min(end, last));
  if (prompt.branch > from) place = std::min(place, prompt.branch);
  for (const std::int64_t token : prompt.branch_tokens) {
    const std::int64_t branch = page_before(token);
    if (branch == from && branch > 0 && last - branch < kLeast) return 0;
    if (branch - from >= kLeast) place = std::min(place, branch);
  }
  return place > from ? place : 0;
}

}  // namespace

PromptCut cut_prompt(const PromptPlaces& prompt, std::int64_t count) {
  const std::int64_t end = prompt.computed + count;
  const std::int64_t first = next_place(prompt, prompt.computed, end);
  if (first == 0 || first == end) return {.end = end};
  if (const std::int64_t second = next_place(prompt, first, end); second > 0)
    return {.end = second, .checkpoint = first};
  // A forward within a prompt ends at a page's end, so that the next forward begins there.
  if (end < prompt.tokens) return {.end = first};
  return {.end = end, .checkpoint = first};
}

}  // namespace tessera
