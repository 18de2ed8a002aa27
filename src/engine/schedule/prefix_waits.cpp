#include "tessera/engine/schedule/prefix_waits.h"

#include <algorithm>
#include <functional>
#include <string_view>

#include "tessera/engine/cache/cache_manager.h"
#include "tessera/engine/schedule/sequence.h"

namespace tessera {
namespace {

// Mixes a value into a hash with the finaliser of splitmix64 (Steele et al., 2014).
std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) {
  std::uint64_t z = (hash ^ value) + 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

std::int64_t admission_of(const Sequence* sequence) { return sequence->admission; }

}  // namespace

void PrefixWaits::sort() {
  std::ranges::sort(leaders_, {}, [](const Leader& leader) { return admission_of(leader.sequence); });
}

PrefixWaits::Leader* PrefixWaits::find(std::int64_t admission) {
  const auto at =
      std::ranges::lower_bound(leaders_, admission, {}, [](const Leader& l) { return admission_of(l.sequence); });
  return at != leaders_.end() && admission_of(at->sequence) == admission ? &*at : nullptr;
}

void PrefixWaits::forget_nodes() {
  for (Leader& leader : leaders_) leader.nodes.reset();
}

// Adds the missing hashes of all full pages.
void PrefixWaits::hash_pages(PrefixStanding& standing, const PrefixTokens& tokens) {
  const auto page_size = static_cast<std::size_t>(cache_.page_size());
  const std::size_t pages = tokens.size() / page_size;
  standing.hashes.reserve(pages);
  for (std::size_t page = standing.hashes.size(); page < pages; ++page, ++pages_looked_at_) {
    std::uint64_t hash = page == 0 ? static_cast<std::uint64_t>(tokens.adapter) : standing.hashes.back();
    const std::span<const TokenId> ids = tokens.ids.subspan(page * page_size, page_size);
    hash = mixed(hash, std::hash<std::string_view>{}({reinterpret_cast<const char*>(ids.data()), ids.size_bytes()}));
    const auto first = static_cast<std::int64_t>(page * page_size);
    auto image = std::ranges::upper_bound(tokens.images, first, {}, &ImageSpan::end);
    for (; image != tokens.images.end() && image->first_token < first + cache_.page_size(); ++image) {
      for (const std::uint64_t part :
           {static_cast<std::uint64_t>(image->first_token), static_cast<std::uint64_t>(image->count),
            image->content.high, image->content.low})
        hash = mixed(hash, part);
    }
    standing.hashes.push_back(hash);
  }
}

// Returns how many of the sequence's first `pages` pages the leader's prompt shares.
std::int64_t PrefixWaits::shared_pages(const PrefixStanding& standing, std::int64_t pages, Leader& leader) {
  Sequence& other = *leader.sequence;
  hash_pages(other.prefix, {other.request.prompt, other.images, other.adapter_number()});
  const auto both = static_cast<std::size_t>(std::min(pages, other.prompt_tokens() / cache_.page_size()));
  // Finds the first page with a different hash by bisection. This works because the hashes of all later pages differ
  // too.
  std::size_t low = 0;
  std::size_t high = both;
  while (low < high) {
    // Page 0 is tried first, because most prompts differ there.
    const std::size_t middle = low == 0 ? 0 : low + (high - low) / 2;
    ++pages_looked_at_;
    if (standing.hashes[middle] == other.prefix.hashes[middle]) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return static_cast<std::int64_t>(low);
}

bool PrefixWaits::should_wait(Sequence& sequence, const PrefixTokens& reusable) {
  if (leaders_.empty() || reusable.size() < static_cast<std::size_t>(cache_.page_size())) return false;
  PrefixStanding& standing = sequence.prefix;
  hash_pages(standing, reusable);
  const std::int64_t pages = static_cast<std::int64_t>(reusable.size()) / cache_.page_size();
  Leader* leader = find(standing.leader);
  if (leader == nullptr && standing.leader != 0) standing.forget_leader();
  for (std::size_t i = leaders_.size(); i-- > 0 && leaders_[i].sequence->admission > standing.compared;) {
    // Skips leaders of lower priority, because they may themselves wait for a long time.
    if (leaders_[i].sequence->request.priority < sequence.request.priority) continue;
    const std::int64_t shared = shared_pages(standing, pages, leaders_[i]);
    if (shared <= standing.shared) continue;
    leader = &leaders_[i];
    standing.leader = leader->sequence->admission;
    standing.shared = shared;
  }
  standing.compared = leaders_.back().sequence->admission;
  return leader != nullptr && !is_known(*leader, standing.shared, reusable);
}

// Returns whether the prefix cache already has the `pages` pages that `tokens` share with the leader's prompt.
bool PrefixWaits::is_known(Leader& leader, std::int64_t pages, const PrefixTokens& tokens) const {
  if (!leader.nodes) {
    leader.nodes = leader.sequence->cache.path;
    cache_.follow(*leader.nodes,
                  {leader.sequence->request.prompt, leader.sequence->images, leader.sequence->adapter_number()});
  }
  const std::span<PrefixCache::Node* const> nodes = *leader.nodes;
  return std::ssize(nodes) >= pages && cache_.finds_all_of(nodes.first(static_cast<std::size_t>(pages)), tokens);
}

}  // namespace tessera
