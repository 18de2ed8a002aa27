// Pages of the KV cache by the tokens they hold, so that a prompt that begins like an earlier one is not computed
// again.
//
// A radix tree whose digit is a page of tokens: a node is one full page, and the path from the root to it spells all
// tokens before. A token of an image is spelt by its id, the image's content and its index within the image. A node has
// a page of every paged and latent group; of a window group as long as that page was not evicted, and of a state group
// a slot with the state after its last token (a checkpoint) where one was kept. A prefix can be reused where every
// group still has what the next token needs: all pages of paged groups, the last window of pages of window groups, the
// last node's checkpoint of state groups.
//
// A node that a running sequence uses is locked, and with it all above it. Unlocked nodes stay until a paged group
// needs their page, least recently used first and leaves before what leads to them. Pages of window groups are locked
// on their own, by the sequences whose window they are in, and evicted on their own; checkpoints are never locked.
//
//   PrefixCache::Path path = cache.find(tokens);  // locks the nodes it found
//   … compute the rest into pages from the pools …
//   cache.extend(path, tokens, held);             // the full pages now belong to the cache
//   cache.release(path);
//
// A pure bookkeeper on one thread. Whose keys and values a page holds is not looked at: what is entered must be, or
// become before any later forward reads it, the content for just these tokens.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "tessera/base/strong_id.h"
#include "tessera/engine/cache/cache_pool.h"
#include "tessera/engine/cache/prefix_tokens.h"
#include "tessera/ops/contract/page_table.h"

namespace tessera {

// What a sequence holds of one cache group.
struct GroupPages {
  // Page i has the tokens [i · page_size, (i + 1) · page_size); 0 for i < first_held, whose tokens have left the
  // window. In a state group: the one slot.
  std::vector<PageId> pages;
  std::int64_t first_held = 0;
  PageTableNumber number{};  // taken at admission, and anew where an entry is replaced

  std::int64_t size() const { return static_cast<std::int64_t>(pages.size()); }
  std::int64_t num_held() const { return size() - first_held; }
};

class PrefixCache {
 public:
  class Node;
  // From the root's child on; node i holds tokens [i · page_size, (i + 1) · page_size).
  using Path = std::vector<Node*>;

  // `pools`, one of each cache group, outlive the cache: evicted pages go back to them.
  PrefixCache(std::span<CachePool> pools, std::int64_t page_size);
  ~PrefixCache();

  // The longest prefix of `tokens` that can be reused, in full pages. Locks its nodes, but no page of a window group.
  Path find(const PrefixTokens& tokens);
  // How many full pages of `tokens` find() would find; locks nothing.
  std::int64_t count_known(const PrefixTokens& tokens) const;
  // How many full pages of `tokens` it knows, whether or not every group has what the next token needs.
  std::int64_t count_matching(const PrefixTokens& tokens) const;
  // Appends the nodes of the next full pages of `tokens`, whose first pages `path` spells; locks nothing.
  void follow(Path& path, const PrefixTokens& tokens) const;
  // Whether find() would find the pages that `first` spells, or more, of `tokens`, which begin with them.
  bool finds_all_of(std::span<Node* const> first, const PrefixTokens& tokens) const;
  // The node's page or checkpoint of a group; 0: none.
  static PageId page_of(const Node& node, std::size_t group);

  // Enters the full pages of `tokens` behind `path`, where held[group].pages[i] is the i-th page of `tokens`, and locks
  // them. Where the cache has a page of the same tokens already, that one takes the place of the held one, which goes
  // back to the pool; the table has a new number then. Checkpoints are not entered.
  void extend(Path& path, const PrefixTokens& tokens, std::span<GroupPages> held);
  // Unlocks the nodes and clears the path.
  void release(Path& path);
  // A window group's page of a locked node. Precondition for unlock_page: it was locked by lock_page or extend.
  void lock_page(Node& node, std::size_t group);
  void unlock_page(Node& node, std::size_t group);

  // Keeps a slot with the state after the node's last token. Precondition: the node is locked and has none.
  void add_checkpoint(Node& node, std::size_t group, PageId slot);
  // Makes it the last one to be evicted. Precondition: there is one.
  void use_checkpoint(Node& node, std::size_t group);

  // Pages of a group that nobody has locked.
  std::int64_t num_evictable(std::size_t group) const;
  std::int64_t num_nodes() const { return num_nodes_; }
  // Gives up to `count` unlocked pages of a group back to its pool; returns how many.
  std::int64_t evict(std::size_t group, std::int64_t count);
  // Forgets every node that nobody has locked.
  void flush();

 private:
  using Order = std::set<std::pair<std::uint64_t, Node*>>;  // by when they were used last

  Node* child(const Node& node, const PrefixTokens& tokens, std::size_t page) const;
  std::size_t match(const PrefixTokens& tokens, Path* path) const;
  bool can_end(std::span<Node* const> nodes) const;
  void lock(Node& node);
  void unlock(Node& node);
  Node* remove(Node& leaf);
  void remove_empty(Node* node);
  std::span<const TokenId> ids_of(const PrefixTokens& tokens, std::size_t page) const;
  std::vector<PageImage> images_of(const PrefixTokens& tokens, std::size_t page) const;

  std::span<CachePool> pools_;
  std::int64_t page_size_;
  std::unique_ptr<Node> root_;
  Order leaves_;                                  // unlocked nodes without children
  std::array<Order, ir::kMaxCacheGroups> loose_;  // nodes with an unlocked window page, or a checkpoint, of the group
  std::uint64_t clock_ = 0;
  std::int64_t num_nodes_ = 0;
  std::int64_t num_unlocked_ = 0;
};

}  // namespace tessera
