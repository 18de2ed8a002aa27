// Divides the bytes of the KV cache into pages for each cache group. A cache group is a set of layers whose caches keep
// tokens by the same rule (ir/graph.h).
//
// A page has p tokens, at most R sequences run at once, and a forward has at most `chunk` tokens. The context is the
// tokens of all running sequences together. If the context has n pages, a group needs
//
//   paged, latent   n
//   window          min(n, R · (w + 1) + ⌈chunk / p⌉)   each running sequence gets w pages, the most that a window can
//                                                       lie in, and one page to grow; the rest is for the chunk that is
//                                                       being computed
//   state           min(2 R, 2 · ⌈n · p / 1024⌉)        one slot and one checkpoint for each 1024 tokens
//
// n is the greatest number, up to a given limit (`useful`), for which all groups together fit the given bytes. With a
// single paged group, n is bytes / page bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/base/step_limits.h"
#include "tessera/engine/cache/cache_pool.h"

namespace tessera {

struct CacheDemand {
  std::vector<CacheGroupOptions> groups;  // num_pages is ignored
  StepLimits limits{};
  std::int64_t max_running = 256;  // requests that run at once; drafts take no pages and states of their own
};

// Returns how many pages, page 0 excluded, a group needs for `context_pages` pages of context. The result is at least
// 1, unless `context_pages` is 0.
std::int64_t pages_of_group(const CacheDemand& demand, std::size_t group, std::int64_t context_pages);
// Returns the bytes that `context_pages` pages of context take in all groups together.
std::int64_t cache_bytes(const CacheDemand& demand, std::int64_t context_pages);
// Returns the maximum number of pages of context, up to `useful`, that fit into `bytes`; 0 if not even one fits.
std::int64_t fitting_context_pages(const CacheDemand& demand, std::int64_t useful, std::int64_t bytes);
// Returns the groups with num_pages set, page 0 included.
std::vector<CacheGroupOptions> sized_groups(const CacheDemand& demand, std::int64_t context_pages);

}  // namespace tessera
