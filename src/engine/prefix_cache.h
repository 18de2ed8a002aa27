// Pages of the KV cache by the tokens they hold, so that a prompt that begins like an earlier one is not computed
// again.
//
// A radix tree whose digit is a page of tokens: a node is one full page, and the way from the root to it spells all
// tokens before. A node that a running sequence uses is locked, and with it all above it; what nobody uses stays until
// its page is wanted, the longest unused first and leaves before what leads to them.
//
//   PrefixCache::Path path = cache.find(tokens);  // locks what it found
//   … compute the rest into pages from the pool …
//   cache.extend(path, tokens, pages);            // the full pages now belong to the cache
//   cache.release(path);
//
// A pure bookkeeper on one thread. Whose keys and values a page holds is not looked at: what is entered must be, or
// come to be before any later forward reads it, the content for just these tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "tessera/base/strong_id.h"
#include "tessera/engine/page_pool.h"

namespace tessera {

class PrefixCache {
 public:
  class Node;
  // From the root's child on; node i holds tokens [i × page_size, (i + 1) × page_size).
  using Path = std::vector<Node*>;

  // `pages` outlives the cache: evicted pages go back to it.
  explicit PrefixCache(PagePool& pages);
  ~PrefixCache();

  // The longest known prefix of `tokens` in full pages. Locks it.
  Path find(std::span<const TokenId> tokens);
  // How many full pages of `tokens` are known; locks nothing.
  std::int64_t count_known(std::span<const TokenId> tokens) const;
  static PageId page_of(const Node& node);

  // Enters the full pages of `tokens` behind `path`, where `pages` holds them (pages[i] is the i-th page of `tokens`),
  // and locks them. Where the cache has a page of the same tokens already, that one takes the place of pages[i], which
  // goes back to the pool.
  void extend(Path& path, std::span<const TokenId> tokens, std::span<PageId> pages);
  // Unlocks, and clears the path.
  void release(Path& path);

  // Pages that nobody has locked.
  std::int64_t num_evictable() const { return num_evictable_; }
  std::int64_t num_pages() const { return num_pages_; }
  // Gives up to `count` unlocked pages back to the pool; returns how many.
  std::int64_t evict(std::int64_t count);

 private:
  Node* child(const Node& node, std::span<const TokenId> page) const;
  void lock(Node& node);
  void unlock(Node& node);
  std::span<const TokenId> page(std::span<const TokenId> tokens, std::size_t index) const;

  PagePool& pages_;
  std::unique_ptr<Node> root_;
  // Unlocked nodes without children, by when they were used last.
  std::set<std::pair<std::uint64_t, Node*>> leaves_;
  std::uint64_t clock_ = 0;
  std::int64_t num_pages_ = 0;
  std::int64_t num_evictable_ = 0;
};

}  // namespace tessera
