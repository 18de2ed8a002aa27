// Counts the forwards since the start: all forwards by runner, size and reason, and prefills by their number of tokens.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <utility>
#include <vector>

#include "tessera/runner/dispatch/dispatch.h"

namespace tessera {

struct ForwardKey {
  RunnerKind runner = RunnerKind::kEager;
  std::int64_t size = 0;  // captured size; eager forwards have size 0
  Reason reason = Reason::kGraphsDisabled;
  static ForwardKey of(const Decision& decision) {
    return {decision.runner, decision.runner == RunnerKind::kEager ? 0 : decision.size, decision.reason};
  }
  friend auto operator<=>(const ForwardKey&, const ForwardKey&) = default;
};

struct ForwardCount {
  std::int64_t forwards = 0;
  std::int64_t tokens = 0;
  std::int64_t padding = 0;  // rows of padding
};

// A histogram that counts forwards by their number of tokens. Each number up to 8 has a bucket of its own. Above 8,
// each doubling of the number has eight buckets, so the width of a bucket is between 1/16 and 1/8 of the numbers in it.
class TokenHistogram {
 public:
  static constexpr int kBuckets = 8 + 8 * 17;  // up to 2^20 tokens
  // limit() returns the largest number of tokens in a bucket. bucket_of() returns the bucket of a number of tokens.
  static std::int64_t limit(int bucket);
  static int bucket_of(std::int64_t tokens);

  void add(std::int64_t tokens) {
    ++counts_[static_cast<std::size_t>(bucket_of(tokens))];
    sum_ += tokens;
  }
  void add(const TokenHistogram& more);
  std::int64_t count(int bucket) const { return counts_[static_cast<std::size_t>(bucket)]; }
  std::int64_t sum() const { return sum_; }  // number of tokens of all forwards

 private:
  std::array<std::int64_t, kBuckets> counts_{};
  std::int64_t sum_ = 0;
};

struct ForwardCounters {
  // The counts, in ascending order of their keys. The list is a flat vector, so copying it to a snapshot that already
  // has as many keys allocates nothing.
  std::vector<std::pair<ForwardKey, ForwardCount>> by_key;
  TokenHistogram prefill_tokens;  // forwards with at least one prefill token, also those that decode too
  std::int64_t tokens = 0;
  std::int64_t padded_tokens = 0;

  // Counts one forward. Allocates nothing if its key was counted before.
  void add(const Decision& decision, std::int64_t num_tokens, bool is_decode);
  void add(const ForwardCounters& more);
  // Returns the counts of a key, or null if no forward had this key.
  const ForwardCount* find(const ForwardKey& key) const;
  // forwards() and of_size() return sums over all keys with the given reason, or with the given runner and size.
  std::int64_t forwards(Reason reason) const;
  ForwardCount of_size(RunnerKind runner, std::int64_t size) const;
};

}  // namespace tessera
