// Helpers for tests of the prefix cache and of code that reads PrefixTokens. They make token ids and run sequences.
#pragma once

#include <initializer_list>
#include <vector>

#include "tessera/engine/cache/prefix_cache.h"

namespace tessera::test {

inline std::vector<TokenId> token_ids(std::initializer_list<int> values) {
  std::vector<TokenId> made;
  for (const int value : values) made.emplace_back(value);
  return made;
}

// Returns the pages of a path in group 0.
inline std::vector<PageId> pages_of(const PrefixCache::Path& path) {
  std::vector<PageId> pages;
  for (const PrefixCache::Node* node : path) pages.push_back(PrefixCache::page_of(*node, 0));
  return pages;
}

// Acts as a sequence: computes the tokens that are not cached, and ends. Evicts a page if no page is free. Returns the
// pages of the tokens. Precondition: `pools` has one pool.
inline std::vector<PageId> compute_sequence(PrefixCache& cache, std::vector<CachePool>& pools,
                                            const PrefixTokens& tokens, std::int64_t page_size) {
  PrefixCache::Path path = cache.find(tokens);
  std::vector<GroupPages> held{{.pages = pages_of(path)}};
  while (held[0].pages.size() < tokens.size() / page_size) {
    if (pools[0].num_free() == 0) cache.evict(0, 1);
    held[0].pages.push_back(pools[0].take());
  }
  cache.extend(path, tokens, held);
  cache.release(path);
  return held[0].pages;
}

}  // namespace tessera::test
