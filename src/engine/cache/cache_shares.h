// How many pages each cache group gets of the bytes that the KV cache has.
//
// With room for n pages of context (of all running sequences together), a group needs
//
//   paged, latent   n
//   window          min(n, R · (w + 1) + ⌈chunk / p⌉)   w pages of a window and one to grow for each running sequence,
//                                                       and the chunk that is being computed
//   state           min(2 R, 2 · ⌈n · p / 1024⌉)        a slot and a checkpoint for each sequence of 1024 tokens
//
// with p tokens in a page and R running sequences at most. n is the greatest number for which the sum of all groups'
// bytes stays within the bytes given, and at most what is useful. With one paged group that is bytes / page bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/engine/cache/cache_pool.h"

namespace tessera {

struct CacheDemand {
  std::vector<CacheGroupOptions> groups;  // num_pages is not looked at
  std::int64_t page_size = 16;
  std::int64_t chunk = 2048;       // tokens of a forward
  std::int64_t max_running = 256;  // sequences
};

// Pages of a group, without page 0, that serve so many pages of context; at least 1 for at least 1.
std::int64_t pages_of_group(const CacheDemand& demand, std::size_t group, std::int64_t context_pages);
// Bytes of all groups' pages for them, page 0 of each not counted.
std::int64_t cache_bytes(const CacheDemand& demand, std::int64_t context_pages);
// The most pages of context, up to `useful`, that fit `bytes`; 0 where not even one does.
std::int64_t fitting_context_pages(const CacheDemand& demand, std::int64_t useful, std::int64_t bytes);
// The groups with num_pages set, page 0 included.
std::vector<CacheGroupOptions> sized_groups(const CacheDemand& demand, std::int64_t context_pages);

}  // namespace tessera
