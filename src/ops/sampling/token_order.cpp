#include "tessera/ops/sampling/token_order.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "tessera/ops/cpu/cpu_math.h"

namespace tessera {

// A token of the bin that is examined. Tokens with ascending keys are in the order of the draw (token_order.h).
struct TokenOrder::Candidate {
  std::uint64_t key;
  std::uint64_t weight;
  std::int32_t id() const { return static_cast<std::int32_t>(key & 0xffffffffu); }
};

namespace {

constexpr std::int64_t kBlock = 64;
constexpr int kBinsPerNat = 16;

std::uint64_t order_key(float logit, std::int64_t id) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(logit + 0.0f);  // -0 becomes 0
  const std::uint32_t ascending = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return std::uint64_t{~ascending} << 32 | static_cast<std::uint64_t>(id);
}

TESSERA_INLINE float nats(float logit, float greatest, float temperature) { return (logit - greatest) / temperature; }

// Returns the bin of a token. Precondition: -kReach < nats <= 0.
TESSERA_INLINE std::int32_t bin_of(float nats) {
  return static_cast<std::int32_t>(-nats * static_cast<float>(kBinsPerNat));
}

// Converts a probability to a weight, which counts units of 2^-42. To round, the function adds 2^52, which leaves the
// weight in the low bits of the sum. The addition vectorises, but a conversion to 64-bit integers does not.
TESSERA_INLINE std::uint64_t to_units(float probability) {
  constexpr double kUnits = static_cast<double>(std::uint64_t{1} << kWeightBits);
  constexpr double kMagic = static_cast<double>(std::uint64_t{1} << 52);
  const double shifted = static_cast<double>(probability) * kUnits + kMagic;
  return std::bit_cast<std::uint64_t>(shifted) & ((std::uint64_t{1} << 52) - 1);
}

// Computes weights and bins of up to kBlock neighbouring tokens, and returns how many are within reach
// (nats > -kReach). The constructor and collect() need the same bits, so both call this function, which is not inlined.
template <int kBins>
[[gnu::noinline]] TESSERA_CPU_CLONES std::int32_t weigh_block(const float* logits, std::int64_t n, float greatest,
                                                              float temperature, std::uint64_t* weights,
                                                              std::uint16_t* token_bin) {
  float probability[kBlock];
  std::int32_t within = 0;
#pragma omp simd reduction(+ : within)
  for (std::int64_t j = 0; j < n; ++j) {
    const float z = nats(logits[j], greatest, temperature);
    const bool reached = z > -kReach;  // false for NaN
    probability[j] = reached ? fast_exp(z) : 0.0f;
    const std::int32_t bin = bin_of(reached ? z : 0.0f);
    token_bin[j] = static_cast<std::uint16_t>(reached ? bin : kBins);
    within += reached ? 1 : 0;
  }
#pragma omp simd
  for (std::int64_t j = 0; j < n; ++j) weights[j] = to_units(probability[j]);
  return within;
}

TESSERA_CPU_CLONES bool contains(const std::uint16_t* token_bin, std::int64_t n, std::uint16_t bin) {
  std::uint16_t found = 0;
#pragma omp simd reduction(| : found)
  for (std::int64_t j = 0; j < n; ++j) found |= static_cast<std::uint16_t>(token_bin[j] == bin ? 1 : 0);
  return found != 0;
}

}  // namespace

std::size_t TokenOrder::scratch_bytes(std::int64_t vocab) {
  const std::size_t n = static_cast<std::size_t>((vocab + kBlock - 1) / kBlock * kBlock);
  return n * (sizeof(Candidate) + sizeof(std::uint16_t));
}

TokenOrder::TokenOrder(const LogitRow& row, std::byte* scratch)
    : row_(row),
      candidates_(reinterpret_cast<Candidate*>(scratch)),
      token_bin_(reinterpret_cast<std::uint16_t*>(candidates_ + row.vocab)) {
  static_assert(kBins == kReach * kBinsPerNat);
  std::uint64_t weights[kBlock];
  for (std::int64_t i = 0; i < row.vocab; i += kBlock) {
    const std::int64_t n = std::min(kBlock, row.vocab - i);
    if (weigh_block<kBins>(row.logits + i, n, row.greatest, row.temperature, weights, token_bin_ + i) == 0) continue;
    for (std::int64_t j = 0; j < n; ++j) {
      Bin& bin = bins_[token_bin_[i + j]];
      bin.count += 1;
      bin.weight += weights[j];
    }
  }
  for (int b = 0; b < kBins; ++b) {
    count_ += bins_[b].count;
    weight_ += bins_[b].weight;
  }
}

// Collects the tokens of bin `bin` in candidates_ and returns their number.
std::int64_t TokenOrder::collect(int bin) const {
  std::int64_t count = 0;
  std::uint64_t weights[kBlock];
  std::uint16_t same_bins[kBlock];
  for (std::int64_t i = 0; i < row_.vocab; i += kBlock) {
    const std::int64_t n = std::min(kBlock, row_.vocab - i);
    if (!contains(token_bin_ + i, n, static_cast<std::uint16_t>(bin))) continue;
    weigh_block<kBins>(row_.logits + i, n, row_.greatest, row_.temperature, weights, same_bins);
    for (std::int64_t j = 0; j < n; ++j)
      if (token_bin_[i + j] == bin) candidates_[count++] = {order_key(row_.logits[i + j], i + j), weights[j]};
  }
  return count;
}

template <TokenOrder::Measure kMeasure>
std::uint64_t TokenOrder::measure(const Candidate& c) {
  return kMeasure == Measure::kCount ? 1 : c.weight;
}

// Returns the shortest prefix of the n candidates, in the order of their keys, whose number or total weight (as
// kMeasure says) is at least `need`. It uses quickselect and not a sort, so the expected time is linear in n. Reorders
// `c`. Precondition: the number or total weight of all n candidates is at least `need`.
template <TokenOrder::Measure kMeasure>
TokenPrefix TokenOrder::select_candidate(Candidate* c, std::int64_t n, std::uint64_t need) {
  constexpr std::int64_t kSortAtMost = 24;
  const auto by_key = [](const Candidate& a, const Candidate& b) { return a.key < b.key; };
  std::int64_t begin = 0;
  std::int64_t end = n;
  std::uint64_t weight = 0;  // the weight of [0, begin), whose candidates come before all others
  std::uint32_t random = 1;
  while (end - begin > kSortAtMost) {
    // Chooses the median of three pseudo-random places as the pivot, so that no order of logits is a bad case, and
    // moves the pivot to the end.
    for (std::int64_t i = 1; i <= 3; ++i) {
      random = random * 1664525u + 1013904223u;
      const std::uint64_t place = (std::uint64_t{random} * static_cast<std::uint64_t>(end - begin - i)) >> 32;
      std::swap(c[begin + static_cast<std::int64_t>(place)], c[end - i]);
    }
    std::sort(c + end - 3, c + end, by_key);
    std::swap(c[end - 2], c[end - 1]);

    const std::uint64_t pivot = c[end - 1].key;
    std::int64_t middle = begin;
    std::uint64_t left = 0;
    std::uint64_t left_weight = 0;
    // Partitions without a branch, because no predictor can guess the result of the comparison.
    for (std::int64_t i = begin; i < end - 1; ++i) {
      const Candidate here = c[i];
      const bool before = here.key < pivot;
      const std::uint64_t mask = before ? ~std::uint64_t{0} : 0;
      c[i] = c[middle];
      c[middle] = here;
      middle += before ? 1 : 0;
      left += measure<kMeasure>(here) & mask;
      left_weight += here.weight & mask;
    }
    std::swap(c[middle], c[end - 1]);

    if (left >= need) {
      end = middle;
      continue;
    }
    need -= left;
    weight += left_weight;
    if (measure<kMeasure>(c[middle]) >= need)
      return {static_cast<std::uint64_t>(middle + 1), weight + c[middle].weight, c[middle].id()};
    need -= measure<kMeasure>(c[middle]);
    weight += c[middle].weight;
    begin = middle + 1;
  }
  std::sort(c + begin, c + end, by_key);
  std::int64_t i = begin;
  for (; i + 1 < end && measure<kMeasure>(c[i]) < need; ++i) {
    need -= measure<kMeasure>(c[i]);
    weight += c[i].weight;
  }
  return {static_cast<std::uint64_t>(i + 1), weight + c[i].weight, c[i].id()};
}

template <TokenOrder::Measure kMeasure>
TokenPrefix TokenOrder::select(std::uint64_t need) const {
  const auto measure_of = [](const Bin& bin) { return kMeasure == Measure::kCount ? bin.count : bin.weight; };
  TokenPrefix before;
  int b = 0;
  for (; b + 1 < kBins && measure_of(bins_[b]) < need; ++b) {
    need -= measure_of(bins_[b]);
    before.count += bins_[b].count;
    before.weight += bins_[b].weight;
  }
  const TokenPrefix in_bin = select_candidate<kMeasure>(candidates_, collect(b), need);
  return {before.count + in_bin.count, before.weight + in_bin.weight, in_bin.last};
}

TokenPrefix TokenOrder::first(std::uint64_t n) const { return select<Measure::kCount>(n); }
TokenPrefix TokenOrder::lightest(std::uint64_t weight) const { return select<Measure::kWeight>(weight); }

std::uint64_t TokenOrder::weight_from(float least) const {
  const int edge = bin_of(least);
  std::uint64_t weight = 0;
  for (int b = 0; b < edge; ++b) weight += bins_[b].weight;
  const std::int64_t count = collect(edge);
  for (std::int64_t i = 0; i < count; ++i) {
    if (nats(row_.logits[candidates_[i].id()], row_.greatest, row_.temperature) >= least)
      weight += candidates_[i].weight;
  }
  return weight;
}

}  // namespace tessera
