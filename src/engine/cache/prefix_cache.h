// Finds pages of the KV cache by the tokens that they hold, so that a prompt that begins like an earlier one is not
// computed again.
//
// The cache is a radix tree. Each node has one full page of tokens. The path from the root to a node spells all tokens
// up to that node. An image's token is spelt by the token's id, the image's content and the token's index within the
// image. The model's layers form cache groups: paged and latent groups keep all tokens, window groups keep those of a
// sliding window, and state groups keep one recurrent state for each sequence. A node has a page of every paged and
// latent group. It has a page of a window group until that page is evicted. It may have a checkpoint, which is a slot
// of a state group with the state after the node's last token. A prefix can be reused if every group still has what the
// next token needs. A paged or latent group needs all pages of the prefix, a window group needs the pages that the next
// token's window reaches, and a state group needs the checkpoint of the prefix's last node.
//
// A node that a running sequence uses is locked, as are all its ancestors. Unlocked nodes stay until a paged group
// needs their page. They are evicted least recently used first, and leaves before their ancestors. The pages of window
// groups are locked and evicted independently of their nodes: a sequence locks the pages that its window reaches.
// Checkpoints are never locked. Texts that clients want to continue (retain()) are evicted after all others, lower
// priorities first.
//
//   PrefixCache::Path path = cache.find(tokens);  // locks the nodes it found
//   … compute the rest into pages from the pools …
//   cache.extend(path, tokens, held);             // the full pages now belong to the cache
//   cache.release(path);
//
// Pure bookkeeping; used by one thread. The cache does not check the contents of pages. When a later forward reads a
// page, the page must hold the keys and values of the tokens under which it was entered. These keys and values may be
// written after the page is entered.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/strong_id.h"
#include "tessera/engine/cache/cache_events.h"
#include "tessera/engine/cache/cache_pool.h"
#include "tessera/engine/cache/prefix_tokens.h"
#include "tessera/engine/cache/retentions.h"
#include "tessera/ops/contract/page_table.h"

namespace tessera {

// The pages of one sequence in one cache group.
struct GroupPages {
  // pages[i] is the page of the tokens [i · page_size, (i + 1) · page_size). It is 0 for i < first_held, because the
  // window has left these tokens. In a state group, `pages` has one entry, the sequence's slot.
  std::vector<PageId> pages;
  std::int64_t first_held = 0;
  PageTableNumber number{};  // set at admission; changes when an entry of `pages` is replaced

  std::int64_t size() const { return static_cast<std::int64_t>(pages.size()); }
  std::int64_t num_held() const { return size() - first_held; }
};

class PrefixCache {
 public:
  class Node;
  // A path starts at a child of the root. Its node i holds the tokens [i · page_size, (i + 1) · page_size).
  using Path = std::vector<Node*>;

  // `pools` has one pool for each cache group and must outlive the cache. Evicted pages return to these pools.
  PrefixCache(std::span<CachePool> pools, std::int64_t page_size);
  ~PrefixCache();

  // Returns the longest reusable prefix of `tokens` in full pages. Locks the prefix's nodes, but not their pages in
  // window groups.
  Path find(const PrefixTokens& tokens);
  // Returns how many full pages of `tokens` find() would find; locks nothing.
  std::int64_t count_known(const PrefixTokens& tokens) const;
  // Returns how many full pages of `tokens` the tree has, even if a group has lost pages or the checkpoint that the
  // next token needs.
  std::int64_t count_matching(const PrefixTokens& tokens) const;
  // Extends `path`, which spells the first pages of `tokens`, by the nodes of the next full pages. Locks nothing.
  void follow(Path& path, const PrefixTokens& tokens) const;
  // Returns whether find(tokens) would find at least the pages that `first` spells. Precondition: `tokens` begins with
  // those pages.
  bool finds_all_of(std::span<Node* const> first, const PrefixTokens& tokens) const;
  // Returns the node's page or checkpoint of a group, or 0 if it has none.
  static PageId page_of(const Node& node, std::size_t group);

  // Enters the full pages of `tokens` after `path` and locks them. held[group].pages[i] is the i-th page of `tokens`.
  // If the cache already has a page of the same tokens, that page replaces the held one. The held page then returns to
  // its pool, and the sequence's page table gets a new number. Checkpoints are not entered.
  void extend(Path& path, const PrefixTokens& tokens, std::span<GroupPages> held);
  // Unlocks the nodes and clears the path.
  void release(Path& path);
  // Lock or unlock a window group's page of a locked node. Precondition of unlock_page(): the page was locked by
  // lock_page() or extend().
  void lock_page(Node& node, std::size_t group);
  void unlock_page(Node& node, std::size_t group);

  // Keeps `slot`, which has the state after the node's last token, as the node's checkpoint. Precondition: the node is
  // locked and has no checkpoint.
  void add_checkpoint(Node& node, std::size_t group, PageId slot);
  // Makes the node's checkpoint the most recently used one. Precondition: the node has one.
  void use_checkpoint(Node& node, std::size_t group);

  // Retains the text of a path for the time and with the priority that the hint says. The function retains what two
  // kinds of later texts need: those that continue the whole path, and those that continue its first `end` pages. `end`
  // is at most the path's size. Precondition: the path is locked.
  void retain(const RetentionHint& hint, std::span<Node* const> path, std::size_t end, Retentions::Time now);
  // These functions call functions of Retentions: release(), end(), empty() and count().
  bool release_session(const std::string& session) { return retentions_.release(session); }
  void end_retentions(Retentions::Time now) { retentions_.end(now); }
  bool retains() const { return !retentions_.empty(); }
  RetentionStats retention_stats() const { return {.texts = retentions_.count(), .evicted = retained_evicted_}; }

  // Returns the number of a group's pages that no sequence has locked.
  std::int64_t num_evictable(std::size_t group) const;
  std::int64_t num_nodes() const { return num_nodes_; }
  // Gives up to `count` unlocked pages of a group back to its pool. Returns the number of these pages.
  std::int64_t evict(std::size_t group, std::int64_t count);
  // Removes every node that no sequence has locked, all checkpoints, and all window pages that no sequence has locked.
  // Ends all retentions.
  void flush();

  // Records in `log` every node that is added to the cache or removed from it. `log` must outlive the cache or be
  // replaced by another call. If `log` is null, nothing is recorded. Precondition: the cache has no nodes, or `log` is
  // null.
  void observe(CacheEventLog* log) { log_ = log; }

 private:
  // The order of eviction. Entries with lower levels are evicted first. The level is 0 for entries that are not
  // retained, and otherwise the retention's priority. Within a level, the least recently used entry is evicted first.
  struct Key {
    std::int64_t level = 0;  // Retentions::level()
    std::uint64_t last_used = 0;
    Node* node = nullptr;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  using Order = std::set<Key>;

  Key key_of(Node& node) const;
  Key key_of(Node& node, std::size_t group) const;
  void reorder(Retentions::Place place, const std::function<void()>& change);
  static void forget_levels(Order& order);
  void mark_end(std::span<Node* const> path, std::vector<Retentions::Place>& places) const;
  Node* child(const Node& node, const PrefixTokens& tokens, std::size_t page) const;
  std::size_t match(const PrefixTokens& tokens, Path* path) const;
  bool can_end(std::span<Node* const> nodes) const;
  void lock(Node& node);
  void unlock(Node& node);
  void note_added(Node& node, const PrefixTokens& tokens);
  Node* remove(Node& leaf);
  void remove_empty(Node* node);
  std::span<const TokenId> ids_of(const PrefixTokens& tokens, std::size_t page) const;
  std::vector<PageImage> images_of(const PrefixTokens& tokens, std::size_t page) const;

  std::span<CachePool> pools_;
  std::int64_t page_size_;
  std::unique_ptr<Node> root_;
  Order leaves_;  // unlocked nodes without children
  // For each group: nodes with an unlocked window page or with a checkpoint.
  std::array<Order, ir::kMaxCacheGroups> loose_;
  std::uint64_t clock_ = 0;
  std::int64_t num_nodes_ = 0;
  std::int64_t num_unlocked_ = 0;
  std::int64_t retained_evicted_ = 0;
  Retentions retentions_;
  CacheEventLog* log_ = nullptr;
};

}  // namespace tessera
