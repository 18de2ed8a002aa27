#include "tessera/engine/cache/cache_shares.h"

#include <algorithm>

#include "tessera/ops/contract/forward_batch.h"

namespace tessera {
namespace {

// The assumed length of a sequence in tokens. For each sequence of this length that the pages of context could hold, a
// state group gets a slot for the sequence and a slot for a checkpoint.
constexpr std::int64_t kTokensOfSequence = 1024;

}  // namespace

std::int64_t pages_of_group(const CacheDemand& demand, std::size_t group, std::int64_t context_pages) {
  const CacheGroupOptions& options = demand.groups[group];
  if (options.keeps_all()) return context_pages;
  if (options.is_state()) {
    const std::int64_t sequences = pages_for(context_pages * demand.limits.page_size, kTokensOfSequence);
    return 2 * std::min(demand.max_running, sequences);
  }
  const std::int64_t running = demand.max_running * (window_pages(options.window, demand.limits.page_size) + 1);
  return std::min(context_pages, running + pages_for(demand.limits.max_tokens, demand.limits.page_size));
}

std::int64_t cache_bytes(const CacheDemand& demand, std::int64_t context_pages) {
  std::int64_t bytes = 0;
  for (std::size_t g = 0; g < demand.groups.size(); ++g)
    bytes += pages_of_group(demand, g, context_pages) * demand.groups[g].page_bytes;
  return bytes;
}

std::int64_t fitting_context_pages(const CacheDemand& demand, std::int64_t useful, std::int64_t bytes) {
  std::int64_t fits = 0;
  std::int64_t too_many = useful + 1;
  while (too_many - fits > 1) {
    const std::int64_t middle = fits + (too_many - fits) / 2;
    (cache_bytes(demand, middle) <= bytes ? fits : too_many) = middle;
  }
  return fits;
}

std::vector<CacheGroupOptions> sized_groups(const CacheDemand& demand, std::int64_t context_pages) {
  std::vector<CacheGroupOptions> groups = demand.groups;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    // The token slots of all pages are numbered consecutively (page · page_size + index in the page), with 32-bit
    // numbers. This limits the number of pages.
    groups[g].num_pages = std::min(pages_of_group(demand, g, context_pages) + 1, INT32_MAX / demand.limits.page_size);
  }
  return groups;
}

}  // namespace tessera
