#include "tessera/engine/ranks/replica_choice.h"

#include <algorithm>
#include <limits>

#include "tessera/base/hash.h"

namespace tessera {

ReplicaChoice::ReplicaChoice(int replicas, std::int64_t cached_tokens)
    : loads_(static_cast<std::size_t>(replicas)),
      most_blocks_(static_cast<std::size_t>(std::max<std::int64_t>(cached_tokens / kBlockTokens, 1) * replicas)) {}

std::vector<std::int64_t> ReplicaChoice::known_blocks(std::span<const TokenId> prompt, std::string_view adapter,
                                                      std::vector<std::uint64_t>& blocks) const {
  std::vector<std::int64_t> known(loads_.size());
  std::uint64_t owners = ~std::uint64_t{0};
  Hasher hasher;
  if (!adapter.empty()) hasher.add(adapter);
  for (std::size_t end = kBlockTokens; end <= prompt.size(); end += kBlockTokens) {
    for (const TokenId id : prompt.subspan(end - kBlockTokens, kBlockTokens)) hasher.add(id.value());
    blocks.push_back(hasher.finish().low);
    const auto found = owners_.find(blocks.back());
    owners &= found == owners_.end() ? 0 : found->second;
    for (std::size_t r = 0; r < known.size(); ++r) known[r] += static_cast<std::int64_t>(owners >> r & 1);
  }
  return known;
}

void ReplicaChoice::remember(std::span<const std::uint64_t> blocks, int replica) {
  for (const std::uint64_t block : blocks) {
    const auto [at, is_new] = owners_.try_emplace(block, 0);
    at->second |= std::uint64_t{1} << replica;
    if (is_new) order_.push_back(block);
  }
  while (order_.size() > most_blocks_) {
    owners_.erase(order_.front());
    order_.pop_front();
  }
}

int ReplicaChoice::choose(Ticket ticket, std::span<const TokenId> prompt, std::string_view adapter) {
  std::vector<std::uint64_t> blocks;
  const std::vector<std::int64_t> known = known_blocks(prompt, adapter, blocks);
  int best = 0;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  std::int64_t tokens = 0;
  for (std::size_t r = 0; r < loads_.size(); ++r) {
    const Load& load = loads_[r];
    if (!load.serves) continue;
    const std::int64_t lacking = std::ssize(prompt) - known[r] * kBlockTokens;
    const std::int64_t wait = load.prompt_tokens + lacking + kRunningTokens * load.requests;
    if (wait >= least) continue;
    least = wait;
    best = static_cast<int>(r);
    tokens = lacking;
  }
  Load& load = loads_[static_cast<std::size_t>(best)];
  load.prompt_tokens += tokens;
  ++load.requests;
  places_[ticket] = {.replica = best, .prompt_tokens = tokens};
  remember(blocks, best);
  return best;
}

void ReplicaChoice::prompt_done(Ticket ticket) {
  const auto at = places_.find(ticket);
  if (at == places_.end()) return;
  loads_[static_cast<std::size_t>(at->second.replica)].prompt_tokens -= at->second.prompt_tokens;
  at->second.prompt_tokens = 0;
}

void ReplicaChoice::ended(Ticket ticket) {
  prompt_done(ticket);
  const auto at = places_.find(ticket);
  if (at == places_.end()) return;
  --loads_[static_cast<std::size_t>(at->second.replica)].requests;
  places_.erase(at);
}

int ReplicaChoice::replica_of(Ticket ticket) const {
  const auto at = places_.find(ticket);
  return at == places_.end() ? -1 : at->second.replica;
}

void ReplicaChoice::leave_out(int replica) { loads_[static_cast<std::size_t>(replica)].serves = false; }

int ReplicaChoice::serving() const { return static_cast<int>(std::ranges::count(loads_, true, &Load::serves)); }

void ReplicaChoice::forget_prefixes() {
  owners_.clear();
  order_.clear();
}

}  // namespace tessera
