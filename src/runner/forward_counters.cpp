#include "tessera/runner/forward_counters.h"

#include <algorithm>
#include <bit>

namespace tessera {

int TokenHistogram::bucket_of(std::int64_t tokens) {
  if (tokens <= 8) return static_cast<int>(std::max<std::int64_t>(tokens, 1)) - 1;
  const auto above = static_cast<std::uint64_t>(tokens - 1);
  const int octave = static_cast<int>(std::bit_width(above)) - 4;  // octave 0 is 9 to 16
  const int step = static_cast<int>(above >> octave) & 7;
  return std::min(8 + octave * 8 + step, kBuckets - 1);
}

std::int64_t TokenHistogram::limit(int bucket) {
  if (bucket < 8) return bucket + 1;
  const int octave = (bucket - 8) / 8;
  return std::int64_t{8 + (bucket - 8) % 8 + 1} << octave;
}

void TokenHistogram::add(const TokenHistogram& more) {
  for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += more.counts_[i];
  sum_ += more.sum_;
}

namespace {

template <class Entries>
auto position_of(Entries& by_key, const ForwardKey& key) {
  return std::lower_bound(by_key.begin(), by_key.end(), key,
                          [](const auto& entry, const ForwardKey& wanted) { return entry.first < wanted; });
}

}  // namespace

const ForwardCount* ForwardCounters::find(const ForwardKey& key) const {
  const auto it = position_of(by_key, key);
  return it != by_key.end() && it->first == key ? &it->second : nullptr;
}

void ForwardCounters::add(const Decision& decision, std::int64_t num_tokens, bool is_decode) {
  const ForwardKey forward_key = ForwardKey::of(decision);
  auto it = position_of(by_key, forward_key);
  if (it == by_key.end() || it->first != forward_key) it = by_key.insert(it, {forward_key, {}});
  ForwardCount& count = it->second;
  ++count.forwards;
  count.tokens += num_tokens;
  count.padding += decision.padding;
  tokens += num_tokens;
  padded_tokens += decision.padding;
  if (!is_decode) prefill_tokens.add(num_tokens);
}

void ForwardCounters::add(const ForwardCounters& more) {
  for (const auto& [key, count] : more.by_key) {
    auto it = position_of(by_key, key);
    if (it == by_key.end() || it->first != key) it = by_key.insert(it, {key, {}});
    it->second.forwards += count.forwards;
    it->second.tokens += count.tokens;
    it->second.padding += count.padding;
  }
  prefill_tokens.add(more.prefill_tokens);
  tokens += more.tokens;
  padded_tokens += more.padded_tokens;
}

std::int64_t ForwardCounters::forwards(Reason reason) const {
  std::int64_t sum = 0;
  for (const auto& [key, count] : by_key)
    if (key.reason == reason) sum += count.forwards;
  return sum;
}

ForwardCount ForwardCounters::of_size(RunnerKind runner, std::int64_t size) const {
  ForwardCount sum;
  for (const auto& [key, count] : by_key) {
    if (key.runner != runner || key.size != size) continue;
    sum.forwards += count.forwards;
    sum.tokens += count.tokens;
    sum.padding += count.padding;
  }
  return sum;
}

}  // namespace tessera
