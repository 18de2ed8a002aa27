#include "tessera/engine/cache/prefix_cache.h"

#include <algorithm>
#include <cassert>
#include <compare>
#include <iterator>
#include <map>
#include <utility>

#include "tessera/ops/contract/forward_batch.h"

namespace tessera {
namespace {

// The ids and images of one page, by which a node finds its children.
struct PageView {
  std::span<const TokenId> ids;
  std::span<const PageImage> images;
};
struct Page {
  std::vector<TokenId> ids;
  std::vector<PageImage> images;
  operator PageView() const { return {ids, images}; }  // NOLINT(google-explicit-constructor)
};

struct SpellsBefore {
  using is_transparent = void;
  bool operator()(const PageView& a, const PageView& b) const {
    const auto by_id = std::lexicographical_compare_three_way(a.ids.begin(), a.ids.end(), b.ids.begin(), b.ids.end());
    if (by_id != 0) return by_id < 0;
    return std::ranges::lexicographical_compare(a.images, b.images);
  }
};

}  // namespace

class PrefixCache::Node {
 public:
  // A node's page or checkpoint in one cache group. `locks` and `last_used` are used only in window and state groups.
  // Paged and latent groups use the members of the same names in the Node.
  struct Kept {
    PageId page = kNoPage;
    std::int32_t locks = 0;
    std::uint64_t last_used = 0;
  };

  Node* parent = nullptr;
  Page page;
  std::array<Kept, ir::kMaxCacheGroups> groups;
  std::map<Page, std::unique_ptr<Node>, SpellsBefore> children;
  std::int64_t locks = 0;
  std::uint64_t last_used = 0;
  std::uint64_t block = 0;  // block_id(), if the cache is observed; 0 in the root

  bool has_pages() const {
    return std::any_of(groups.begin(), groups.end(), [](const Kept& kept) { return kept.page != kNoPage; });
  }
};

PrefixCache::PrefixCache(std::span<CachePool> pools, std::int64_t page_size)
    : pools_(pools),
      page_size_(page_size),
      root_(std::make_unique<Node>()),
      retentions_([this](Retentions::Place place, const std::function<void()>& change) { reorder(place, change); }) {
  root_->locks = 1;  // never 0, so that the root is never evicted
}

PrefixCache::~PrefixCache() = default;

PageId PrefixCache::page_of(const Node& node, std::size_t group) { return node.groups[group].page; }

std::span<const TokenId> PrefixCache::ids_of(const PrefixTokens& tokens, std::size_t page) const {
  const auto size = static_cast<std::size_t>(page_size_);
  return tokens.ids.subspan(page * size, size);
}

std::vector<PageImage> PrefixCache::images_of(const PrefixTokens& tokens, std::size_t page) const {
  std::vector<PageImage> parts = images_within(tokens.images, static_cast<std::int64_t>(page) * page_size_, page_size_);
  // An adapter changes the keys and values of every token. The adapter's number is part of the first page's key, so
  // prompts with different adapters share no nodes.
  if (page == 0 && tokens.adapter != 0) parts.push_back({.at = page_size_, .index = tokens.adapter});
  return parts;
}

PrefixCache::Node* PrefixCache::child(const Node& node, const PrefixTokens& tokens, std::size_t page) const {
  const std::vector<PageImage> images = images_of(tokens, page);
  const auto it = node.children.find(PageView{ids_of(tokens, page), images});
  return it == node.children.end() ? nullptr : it->second.get();
}

PrefixCache::Key PrefixCache::key_of(Node& node) const {
  return {.level = retentions_.level({.node = &node}), .last_used = node.last_used, .node = &node};
}

PrefixCache::Key PrefixCache::key_of(Node& node, std::size_t group) const {
  return {.level = retentions_.level({.node = &node, .group = group}),
          .last_used = node.groups[group].last_used,
          .node = &node};
}

// Calls `change`, which changes the level of `place`. If `place` is in an eviction order, also moves it there to the
// position of its new level.
void PrefixCache::reorder(Retentions::Place place, const std::function<void()>& change) {
  Node& node = *static_cast<Node*>(place.node);
  const bool whole = place.group == Retentions::kWhole;
  Order& order = whole ? leaves_ : loose_[place.group];
  const auto key = [&] { return whole ? key_of(node) : key_of(node, place.group); };
  const bool is_sorted = order.erase(key()) > 0;
  change();
  if (is_sorted) order.insert(key());
}

// Sets the levels in the keys of `order` to 0 and sorts `order` again. Precondition: Retentions has set all levels to
// 0.
void PrefixCache::forget_levels(Order& order) {
  while (!order.empty() && order.rbegin()->level > 0) {
    auto last = order.extract(std::prev(order.end()));
    last.value().level = 0;
    order.insert(std::move(last));
  }
}

void PrefixCache::lock(Node& node) {
  if (node.locks++ > 0) return;
  --num_unlocked_;
  if (node.children.empty()) leaves_.erase(key_of(node));
}

void PrefixCache::unlock(Node& node) {
  if (--node.locks > 0) return;
  ++num_unlocked_;
  node.last_used = ++clock_;
  if (node.children.empty()) leaves_.insert(key_of(node));
}

void PrefixCache::lock_page(Node& node, std::size_t group) {
  Node::Kept& kept = node.groups[group];
  if (kept.locks++ == 0) loose_[group].erase(key_of(node, group));
}

void PrefixCache::unlock_page(Node& node, std::size_t group) {
  Node::Kept& kept = node.groups[group];
  if (--kept.locks > 0) return;
  kept.last_used = ++clock_;
  loose_[group].insert(key_of(node, group));
}

void PrefixCache::add_checkpoint(Node& node, std::size_t group, PageId slot) {
  assert(node.groups[group].page == kNoPage);
  node.groups[group] = {.page = slot, .locks = 0, .last_used = ++clock_};
  loose_[group].insert(key_of(node, group));
}

void PrefixCache::use_checkpoint(Node& node, std::size_t group) {
  lock_page(node, group);
  unlock_page(node, group);
}

// Returns how many pages of `tokens` can be reused. Fills `path`, if given, with all nodes along `tokens`.
std::size_t PrefixCache::match(const PrefixTokens& tokens, Path* path) const {
  const std::size_t full = tokens.size() / static_cast<std::size_t>(page_size_);
  // For each window group: the page index at which the unbroken run of cached pages up to the current page begins.
  std::array<std::int64_t, ir::kMaxCacheGroups> kept_from{};
  std::size_t usable = 0;
  Node* at = root_.get();
  for (std::size_t i = 0; i < full; ++i) {
    at = child(*at, tokens, i);
    if (at == nullptr) break;
    if (path != nullptr) path->push_back(at);
    const auto next = static_cast<std::int64_t>(i) + 1;
    bool can_end = true;
    for (std::size_t g = 0; g < pools_.size(); ++g) {
      const CacheGroupOptions& group = pools_[g].options();
      const bool missing = at->groups[g].page == kNoPage;
      if (group.is_window()) {
        if (missing) kept_from[g] = next;
        can_end = can_end && kept_from[g] <= first_page_seen(next * page_size_, group.window, page_size_);
      } else if (group.is_state()) {
        can_end = can_end && !missing;
      }
    }
    if (can_end) usable = i + 1;
  }
  return usable;
}

std::int64_t PrefixCache::count_known(const PrefixTokens& tokens) const {
  return static_cast<std::int64_t>(match(tokens, nullptr));
}

std::int64_t PrefixCache::count_matching(const PrefixTokens& tokens) const {
  Path path;
  match(tokens, &path);
  return static_cast<std::int64_t>(path.size());
}

void PrefixCache::follow(Path& path, const PrefixTokens& tokens) const {
  const std::size_t full = tokens.size() / static_cast<std::size_t>(page_size_);
  const Node* at = path.empty() ? root_.get() : path.back();
  while (path.size() < full) {
    Node* const next = child(*at, tokens, path.size());
    if (next == nullptr) return;
    path.push_back(next);
    at = next;
  }
}

// Returns whether every group still has the pages or the checkpoint that the token after the last node needs.
bool PrefixCache::can_end(std::span<Node* const> nodes) const {
  const std::int64_t tokens = std::ssize(nodes) * page_size_;
  for (std::size_t g = 0; g < pools_.size(); ++g) {
    const CacheGroupOptions& group = pools_[g].options();
    const auto is_missing = [g](const Node* node) { return node->groups[g].page == kNoPage; };
    if (group.is_state() && is_missing(nodes.back())) return false;
    if (!group.is_window()) continue;
    const auto first = static_cast<std::size_t>(first_page_seen(tokens, group.window, page_size_));
    if (std::ranges::any_of(nodes.subspan(std::min(first, nodes.size())), is_missing)) return false;
  }
  return true;
}

bool PrefixCache::finds_all_of(std::span<Node* const> first, const PrefixTokens& tokens) const {
  if (first.empty() || can_end(first)) return true;
  const std::size_t full = tokens.size() / static_cast<std::size_t>(page_size_);
  if (first.size() >= full || child(*first.back(), tokens, first.size()) == nullptr) return false;
  return match(tokens, nullptr) >= first.size();
}

PrefixCache::Path PrefixCache::find(const PrefixTokens& tokens) {
  Path path;
  path.resize(match(tokens, &path));
  for (Node* node : path) lock(*node);
  return path;
}

void PrefixCache::extend(Path& path, const PrefixTokens& tokens, std::span<GroupPages> held) {
  const std::size_t full = tokens.size() / static_cast<std::size_t>(page_size_);
  Node* at = path.empty() ? root_.get() : path.back();
  for (std::size_t i = path.size(); i < full; ++i) {
    Node* next = child(*at, tokens, i);
    if (next == nullptr) {
      auto made = std::make_unique<Node>();
      made->parent = at;
      const std::span<const TokenId> ids = ids_of(tokens, i);
      made->page = {.ids = {ids.begin(), ids.end()}, .images = images_of(tokens, i)};
      made->locks = 1;
      next = made.get();
      at->children.emplace(made->page, std::move(made));
      ++num_nodes_;
      if (log_ != nullptr) note_added(*next, tokens);
    } else {
      lock(*next);
    }
    for (std::size_t g = 0; g < pools_.size(); ++g) {
      if (pools_[g].options().is_state()) continue;
      PageId& own = held[g].pages[i];
      Node::Kept& kept = next->groups[g];
      if (own == kNoPage) continue;  // the window has left the page
      if (kept.page == kNoPage) {
        kept.page = own;
        kept.locks = pools_[g].options().is_window() ? 1 : 0;
        continue;
      }
      if (pools_[g].options().is_window()) lock_page(*next, g);
      pools_[g].give_back(own);
      own = kept.page;
      held[g].number = new_page_table_number();
    }
    path.push_back(next);
    at = next;
  }
}

void PrefixCache::note_added(Node& node, const PrefixTokens& tokens) {
  // Drops the entry that images_of() adds for the adapter. The entry has no tokens and belongs to no image.
  std::vector<PageImage> images = node.page.images;
  std::erase_if(images, [](const PageImage& image) { return image.count == 0; });
  const std::uint64_t parent = node.parent->block;
  node.block = block_id(parent, tokens, node.page.ids, images);
  log_->stored(parent, node.block, tokens, node.page.ids, std::move(images));
}

void PrefixCache::release(Path& path) {
  // Unlocks from the last node to the first, so that each node counts as used later than its descendants. The
  // descendants are then evicted before the node.
  for (auto node = path.rbegin(); node != path.rend(); ++node) {
    unlock(**node);
    remove_empty(*node);
  }
  path.clear();
}

void PrefixCache::retain(const RetentionHint& hint, std::span<Node* const> path, std::size_t end,
                         Retentions::Time now) {
  std::vector<Retentions::Place> places;
  if (!path.empty()) places.push_back({.node = path.back()});
  mark_end(path, places);
  if (end < path.size()) mark_end(path.first(end), places);
  retentions_.retain(hint, places, now);
}

// Adds to `places` the window pages and checkpoints that a text needs if it continues after the last node of `path`.
// Whole nodes need no mark here: retain() marks the last node of the whole text, and a node is evicted only after its
// descendants.
void PrefixCache::mark_end(std::span<Node* const> path, std::vector<Retentions::Place>& places) const {
  if (path.empty()) return;
  const std::int64_t tokens = std::ssize(path) * page_size_;
  for (std::size_t g = 0; g < pools_.size(); ++g) {
    const CacheGroupOptions& group = pools_[g].options();
    if (group.keeps_all()) continue;
    const auto first = group.is_state() ? path.size() - 1
                                        : static_cast<std::size_t>(first_page_seen(tokens, group.window, page_size_));
    for (Node* const node : path.subspan(std::min(first, path.size())))
      if (node->groups[g].page != kNoPage) places.push_back({.node = node, .group = g});
  }
}

std::int64_t PrefixCache::num_evictable(std::size_t group) const {
  return pools_[group].options().keeps_all() ? num_unlocked_ : static_cast<std::int64_t>(loose_[group].size());
}

// Removes an unlocked leaf, and gives its pages back to their pools. Returns the leaf's parent.
PrefixCache::Node* PrefixCache::remove(Node& leaf) {
  leaves_.erase(key_of(leaf));
  for (std::size_t g = 0; g < pools_.size(); ++g) {
    const Node::Kept& kept = leaf.groups[g];
    if (kept.page == kNoPage) continue;
    if (!pools_[g].options().keeps_all()) {
      loose_[g].erase(key_of(leaf, g));
      retentions_.forget({.node = &leaf, .group = g});
    }
    pools_[g].give_back(kept.page);
  }
  if (log_ != nullptr) log_->removed(leaf.block);
  --num_nodes_;
  --num_unlocked_;
  Node* parent = leaf.parent;
  // A retained text that ended at the leaf now ends at the leaf's parent, so the rest of the text stays retained.
  if (parent != root_.get()) retentions_.move({.node = &leaf}, {.node = parent});
  retentions_.forget({.node = &leaf});
  parent->children.erase(parent->children.find(PageView(leaf.page)));
  if (parent->children.empty() && parent->locks == 0) leaves_.insert(key_of(*parent));
  return parent;
}

// Removes the node if it is an unlocked leaf without pages, and then does the same with its parent, and so on. If the
// cache has a paged or latent group, every node has a page, so this function removes nothing.
void PrefixCache::remove_empty(Node* node) {
  while (node->locks == 0 && node->children.empty() && !node->has_pages()) node = remove(*node);
}

std::int64_t PrefixCache::evict(std::size_t group, std::int64_t count) {
  std::int64_t evicted = 0;
  if (pools_[group].options().keeps_all()) {
    for (; evicted < count && !leaves_.empty(); ++evicted) {
      retained_evicted_ += leaves_.begin()->level > 0 ? 1 : 0;
      remove(*leaves_.begin()->node);
    }
    return evicted;
  }
  for (; evicted < count && !loose_[group].empty(); ++evicted) {
    Node* node = loose_[group].begin()->node;
    retained_evicted_ += loose_[group].begin()->level > 0 ? 1 : 0;
    loose_[group].erase(loose_[group].begin());
    retentions_.forget({.node = node, .group = group});
    pools_[group].give_back(std::exchange(node->groups[group].page, kNoPage));
    remove_empty(node);
  }
  return evicted;
}

void PrefixCache::flush() {
  retentions_.clear();
  forget_levels(leaves_);
  for (Order& order : loose_) forget_levels(order);
  while (!leaves_.empty()) remove(*leaves_.begin()->node);
  // Nodes that a sequence has locked stay. Drops their checkpoints, and their window pages that are not locked.
  for (std::size_t g = 0; g < pools_.size(); ++g)
    if (!pools_[g].options().keeps_all()) evict(g, num_evictable(g));
  if (log_ != nullptr && num_nodes_ == 0) log_->cleared();
}

}  // namespace tessera
