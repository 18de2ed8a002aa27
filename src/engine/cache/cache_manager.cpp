#include "tessera/engine/cache/cache_manager.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace tessera {
namespace {

std::vector<CachePool> make_pools(std::vector<CacheGroupOptions> groups) {
  assert(groups.size() <= ir::kMaxCacheGroups);
  std::vector<CachePool> pools;
  pools.reserve(groups.size());
  for (CacheGroupOptions& group : groups) pools.emplace_back(std::move(group));
  return pools;
}

}  // namespace

CacheOptions paged_cache(std::int64_t num_pages, std::int64_t page_size) {
  return {.groups = {{.num_pages = num_pages}}, .page_size = page_size};
}

CacheManager::CacheManager(CacheOptions options)
    : page_size_(options.page_size), pools_(make_pools(std::move(options.groups))), prefixes_(pools_, page_size_) {
  for (const CachePool& pool : pools_) {
    has_states_ = has_states_ || pool.options().is_state();
    has_windows_ = has_windows_ || pool.options().is_window();
  }
}

std::int64_t CacheManager::max_tokens() const {
  std::int64_t most = kUnbounded;
  for (const CachePool& pool : pools_) {
    const std::int64_t usable = pool.num_usable();
    if (pool.options().is_state()) {
      if (usable == 0) most = 0;
    } else if (pool.options().keeps_all() || usable < window_pages(pool.options().window, page_size_)) {
      most = std::min(most, usable * page_size_);
    }
  }
  return most;
}

CacheGroupStats CacheManager::stats(std::size_t g) const {
  const CachePool& pool = pools_[g];
  CacheGroupStats stats{.cached_pages = prefixes_.num_evictable(g),
                        .usable_pages = pool.num_usable(),
                        .page_bytes = pool.options().page_bytes};
  stats.used_pages = pool.num_usable() - pool.num_free() - stats.cached_pages;
  return stats;
}

std::int64_t CacheManager::needed(std::size_t g, const SequenceCache& own, std::int64_t tokens) const {
  const CacheGroupOptions& group = pools_[g].options();
  if (group.is_state()) return 1;
  if (group.keeps_all()) return pages_for(tokens) - own.groups[g].size();
  return std::max<std::int64_t>(
      std::min(pages_for(tokens), window_pages(group.window, page_size_)) - own.groups[g].num_held(), 0);
}

std::int64_t CacheManager::headroom(std::size_t g, const SequenceCache& own, std::int64_t tokens) const {
  const CacheGroupOptions& group = pools_[g].options();
  if (group.is_state()) return 0;
  if (group.keeps_all()) return 1;
  return std::max<std::int64_t>(
      std::min(pages_for(tokens) + 1, window_pages(group.window, page_size_)) - own.groups[g].num_held(), 0);
}

void CacheManager::find(SequenceCache& own, const PrefixTokens& tokens) {
  own.path = prefixes_.find(tokens);
  const std::int64_t known = has_states_ ? prefixes_.count_matching(tokens) : 0;
  own.branch_pages = (known - own.cached_pages()) * page_size_ >= kLeastBranchTokens ? known : 0;
  for (std::size_t g = 0; g < pools_.size(); ++g) {
    const CacheGroupOptions& group = pools_[g].options();
    if (group.is_state()) continue;
    GroupPages& held = own.groups[g];
    held.first_held = first_page_seen(own.cached_pages() * page_size_, group.window, page_size_);
    for (std::int64_t i = 0; i < own.cached_pages(); ++i) {
      PrefixCache::Node& node = *own.path[static_cast<std::size_t>(i)];
      if (i >= held.first_held && group.is_window()) prefixes_.lock_page(node, g);
      held.pages.push_back(i >= held.first_held ? PrefixCache::page_of(node, g) : kNoPage);
    }
  }
}

PageId CacheManager::take(std::size_t g) {
  if (pools_[g].num_free() == 0) prefixes_.evict(g, 1);
  return pools_[g].take();
}

void CacheManager::admit(SequenceCache& own, std::int64_t tokens, std::int64_t most) {
  for (std::size_t g = 0; g < pools_.size(); ++g) {
    own.groups[g].number = new_page_table_number();
    if (!pools_[g].options().is_state()) {
      own.groups[g].pages.reserve(static_cast<std::size_t>(pages_for(most)));
      continue;
    }
    const PageId from = own.path.empty() ? kNoPage : PrefixCache::page_of(*own.path.back(), g);
    if (from != kNoPage) prefixes_.use_checkpoint(*own.path.back(), g);
    const PageId slot = take(g);
    own.groups[g].pages.push_back(slot);
    // take() may have evicted the very checkpoint that the sequence continues from. In that case the new slot is the
    // checkpoint's slot, which already holds the state.
    if (from != kNoPage && from != slot) copies_.push_back({.group = g, .from = from, .to = slot});
  }
  take_pages(own, tokens, 0);
}

std::int64_t CacheManager::missing(std::size_t g, const SequenceCache& own, std::int64_t tokens,
                                   std::int64_t window_end) const {
  const CacheGroupOptions& group = pools_[g].options();
  if (group.is_state()) return 0;
  return pages_for(group.keeps_all() ? tokens : window_end) - own.groups[g].size();
}

bool CacheManager::can_take(const SequenceCache& own, std::int64_t tokens, std::int64_t window_end) const {
  for (std::size_t g = 0; g < pools_.size(); ++g) {
    const std::int64_t count = missing(g, own, tokens, window_end);
    if (count > 0 && available(g) < count) return false;
  }
  return true;
}

void CacheManager::take_pages(SequenceCache& own, std::int64_t tokens, std::int64_t window_end) {
  for (std::size_t g = 0; g < pools_.size(); ++g) {
    const std::int64_t count = missing(g, own, tokens, window_end);
    if (const std::int64_t short_of = count - pools_[g].num_free(); short_of > 0) prefixes_.evict(g, short_of);
    for (std::int64_t i = 0; i < count; ++i) own.groups[g].pages.push_back(pools_[g].take());
  }
}

std::int64_t CacheManager::fitting(const SequenceCache& own, std::int64_t computed, std::int64_t count) const {
  if (!has_windows_) return count;
  for (std::size_t g = 0; g < pools_.size(); ++g) {
    if (!pools_[g].options().is_window()) continue;
    count = std::min(count, (own.groups[g].size() + available(g)) * page_size_ - computed);
  }
  return std::max<std::int64_t>(count, 0);
}

void CacheManager::leave_window(SequenceCache& own, std::int64_t computed) {
  if (!has_windows_) return;
  for (std::size_t g = 0; g < pools_.size(); ++g) {
    if (!pools_[g].options().is_window()) continue;
    GroupPages& held = own.groups[g];
    const std::int64_t first = first_page_seen(computed, pools_[g].options().window, page_size_);
    for (; held.first_held < std::min(first, held.size()); ++held.first_held) {
      PageId& page = held.pages[static_cast<std::size_t>(held.first_held)];
      if (held.first_held < own.cached_pages()) {
        prefixes_.unlock_page(*own.path[static_cast<std::size_t>(held.first_held)], g);
      } else {
        pools_[g].give_back(page);
      }
      page = kNoPage;
    }
  }
}

void CacheManager::keep(SequenceCache& own, const PrefixTokens& tokens) {
  prefixes_.extend(own.path, tokens, own.groups);
}

void CacheManager::add_checkpoint(const SequenceCache& own) {
  if (own.path.empty()) return;
  for (std::size_t g = 0; g < pools_.size(); ++g) {
    if (!pools_[g].options().is_state() || available(g) == 0) continue;
    if (PrefixCache::page_of(*own.path.back(), g) != kNoPage) continue;
    const PageId slot = take(g);
    copies_.push_back({.group = g, .from = own.groups[g].pages[0], .to = slot});
    prefixes_.add_checkpoint(*own.path.back(), g, slot);
  }
}

void CacheManager::take_checkpoints(std::int64_t request, std::int64_t rows, std::vector<StateCheckpoint>& to) {
  for (std::size_t g = 0; g < pools_.size(); ++g) {
    if (!pools_[g].options().is_state() || available(g) == 0) continue;
    taken_.push_back({.group = g,
                      .request = static_cast<std::int32_t>(request),
                      .rows = static_cast<std::int32_t>(rows),
                      .slot = take(g)});
    to.push_back(taken_.back());
  }
}

void CacheManager::enter_checkpoint(const SequenceCache& own, std::int64_t tokens, const StateCheckpoint& checkpoint) {
  const std::size_t g = checkpoint.group;
  std::erase(taken_, checkpoint);
  PrefixCache::Node& node = *own.path[static_cast<std::size_t>(tokens / page_size_ - 1)];
  if (PrefixCache::page_of(node, g) == kNoPage)
    prefixes_.add_checkpoint(node, g, checkpoint.slot);
  else
    pools_[g].give_back(checkpoint.slot);
}

void CacheManager::leave_checkpoint(SequenceCache& own) {
  if (own.path.empty()) return;
  for (std::size_t g = 0; g < pools_.size(); ++g) {
    std::vector<PageId>& slots = own.groups[g].pages;
    if (!pools_[g].options().is_state() || slots.empty()) continue;
    if (PrefixCache::page_of(*own.path.back(), g) != kNoPage) continue;
    prefixes_.add_checkpoint(*own.path.back(), g, slots[0]);
    slots.clear();
  }
}

void CacheManager::release(SequenceCache& own) {
  for (std::size_t g = 0; g < pools_.size(); ++g) {
    const CacheGroupOptions& group = pools_[g].options();
    GroupPages& held = own.groups[g];
    for (std::int64_t i = held.first_held; i < held.size(); ++i) {
      if (group.is_state() || i >= own.cached_pages()) {
        pools_[g].give_back(held.pages[static_cast<std::size_t>(i)]);
      } else if (group.is_window()) {
        prefixes_.unlock_page(*own.path[static_cast<std::size_t>(i)], g);
      }
    }
    held.pages.clear();
    held.first_held = 0;
  }
  prefixes_.release(own.path);
}

// The next text of a conversation continues the sequence's whole text or, if the client leaves a part of the answer
// out, only the prompt. The end of the text and the end of the prompt are therefore both retained.
void CacheManager::retain(const SequenceCache& own, const RetentionHint& hint, std::int64_t prompt_tokens,
                          Retentions::Time now) {
  const std::int64_t prompt_pages = std::max<std::int64_t>(prompt_tokens - 1, 0) / page_size_;
  prefixes_.retain(hint, own.path, static_cast<std::size_t>(std::min(prompt_pages, own.cached_pages())), now);
}

void CacheManager::take_copies(std::vector<SlotCopy>& copies) {
  copies.insert(copies.end(), copies_.begin(), copies_.end());
  copies_.clear();
}

void CacheManager::forget_checkpoints() {
  for (const StateCheckpoint& taken : taken_) pools_[taken.group].give_back(taken.slot);
  taken_.clear();
  for (std::size_t g = 0; g < pools_.size(); ++g)
    if (pools_[g].options().is_state()) prefixes_.evict(g, prefixes_.num_evictable(g));
}

}  // namespace tessera
