#include "tessera/engine/prefix_cache.h"

#include <algorithm>
#include <cassert>
#include <map>

namespace tessera {
namespace {

struct SpellsBefore {
  using is_transparent = void;
  bool operator()(std::span<const TokenId> a, std::span<const TokenId> b) const {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
  }
};

}  // namespace

class PrefixCache::Node {
 public:
  Node* parent = nullptr;
  std::vector<TokenId> tokens;
  PageId page;
  std::map<std::vector<TokenId>, std::unique_ptr<Node>, SpellsBefore> children;
  std::int64_t locks = 0;
  std::uint64_t last_used = 0;
};

PrefixCache::PrefixCache(PagePool& pages) : pages_(pages), root_(std::make_unique<Node>()) {
  root_->locks = 1;  // never a leaf to evict
}

PrefixCache::~PrefixCache() = default;

PageId PrefixCache::page_of(const Node& node) { return node.page; }

std::span<const TokenId> PrefixCache::page(std::span<const TokenId> tokens, std::size_t index) const {
  const auto size = static_cast<std::size_t>(pages_.page_size());
  return tokens.subspan(index * size, size);
}

PrefixCache::Node* PrefixCache::child(const Node& node, std::span<const TokenId> page) const {
  const auto it = node.children.find(page);
  return it == node.children.end() ? nullptr : it->second.get();
}

void PrefixCache::lock(Node& node) {
  if (node.locks++ > 0) return;
  --num_evictable_;
  leaves_.erase({node.last_used, &node});
}

void PrefixCache::unlock(Node& node) {
  if (--node.locks > 0) return;
  ++num_evictable_;
  node.last_used = ++clock_;
  if (node.children.empty()) leaves_.insert({node.last_used, &node});
}

std::int64_t PrefixCache::count_known(std::span<const TokenId> tokens) const {
  const std::size_t full = tokens.size() / static_cast<std::size_t>(pages_.page_size());
  const Node* at = root_.get();
  std::size_t known = 0;
  for (; known < full; ++known) {
    at = child(*at, page(tokens, known));
    if (at == nullptr) break;
  }
  return static_cast<std::int64_t>(known);
}

PrefixCache::Path PrefixCache::find(std::span<const TokenId> tokens) {
  const std::size_t full = tokens.size() / static_cast<std::size_t>(pages_.page_size());
  Path path;
  Node* at = root_.get();
  for (std::size_t i = 0; i < full; ++i) {
    at = child(*at, page(tokens, i));
    if (at == nullptr) break;
    lock(*at);
    path.push_back(at);
  }
  return path;
}

void PrefixCache::extend(Path& path, std::span<const TokenId> tokens, std::span<PageId> pages) {
  const std::size_t full = tokens.size() / static_cast<std::size_t>(pages_.page_size());
  assert(full <= pages.size());
  Node* at = path.empty() ? root_.get() : path.back();
  for (std::size_t i = path.size(); i < full; ++i) {
    Node* next = child(*at, page(tokens, i));
    if (next == nullptr) {
      auto made = std::make_unique<Node>();
      made->parent = at;
      made->tokens.assign(page(tokens, i).begin(), page(tokens, i).end());
      made->page = pages[i];
      made->locks = 1;
      next = made.get();
      at->children.emplace(made->tokens, std::move(made));
      ++num_pages_;
    } else {
      lock(*next);
      pages_.give_back(pages[i]);
      pages[i] = next->page;
    }
    path.push_back(next);
    at = next;
  }
}

void PrefixCache::release(Path& path) {
  // From the end, so that what leads to a page counts as used after it.
  for (auto node = path.rbegin(); node != path.rend(); ++node) unlock(**node);
  path.clear();
}

std::int64_t PrefixCache::evict(std::int64_t count) {
  std::int64_t evicted = 0;
  while (evicted < count && !leaves_.empty()) {
    Node* node = leaves_.begin()->second;
    leaves_.erase(leaves_.begin());
    pages_.give_back(node->page);
    --num_pages_;
    --num_evictable_;
    ++evicted;
    Node* parent = node->parent;
    parent->children.erase(parent->children.find(std::span<const TokenId>(node->tokens)));
    if (parent->children.empty() && parent->locks == 0) leaves_.insert({parent->last_used, parent});
  }
  return evicted;
}

}  // namespace tessera
