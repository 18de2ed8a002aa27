#include "tessera/server/metrics/latency_window.h"

#include <algorithm>
#include <cmath>

namespace tessera {
namespace {

std::int64_t slice_number(LatencyWindow::Clock::time_point now) {
  return std::chrono::floor<std::chrono::seconds>(now.time_since_epoch()) / LatencyWindow::kSlice;
}

}  // namespace

std::size_t LatencyWindow::bucket_of(double seconds) {
  if (!(seconds > kShortest)) return 0;
  const double bucket = std::log2(seconds / kShortest) * kPerOctave;
  return static_cast<std::size_t>(std::min(bucket, static_cast<double>(kBuckets - 1)));
}

void LatencyWindow::add(double seconds, Clock::time_point now) {
  const std::int64_t number = slice_number(now);
  Slice& slice = slices_[static_cast<std::size_t>(number) % kSlices];
  if (slice.number != number) slice = {.number = number};
  ++slice.counts[bucket_of(seconds)];
  slice.max = std::max(slice.max, seconds);
}

LatencyPercentiles LatencyWindow::percentiles(Clock::time_point now) const {
  const std::int64_t oldest = slice_number(now) - static_cast<std::int64_t>(kSlices) + 1;
  std::array<std::int64_t, kBuckets> counts{};
  LatencyPercentiles result;
  for (const Slice& slice : slices_) {
    if (slice.number < oldest) continue;
    result.max = std::max(result.max, slice.max);
    for (std::size_t i = 0; i < kBuckets; ++i) counts[i] += slice.counts[i];
  }
  for (const std::int64_t count : counts) result.count += count;
  if (result.count == 0) return result;
  result.p50 = std::min(result.max, percentile(counts, result.count, 0.5));
  result.p90 = std::min(result.max, percentile(counts, result.count, 0.9));
  result.p99 = std::min(result.max, percentile(counts, result.count, 0.99));
  return result;
}

// Returns the geometric middle of the bucket that contains the percentile.
double LatencyWindow::percentile(const std::array<std::int64_t, kBuckets>& counts, std::int64_t count, double share) {
  const auto rank = static_cast<std::int64_t>(std::ceil(share * static_cast<double>(count)));
  std::int64_t passed = 0;
  std::size_t i = 0;
  while (i + 1 < kBuckets && (passed += counts[i]) < rank) ++i;
  return kShortest * std::exp2((static_cast<double>(i) + 0.5) / kPerOctave);
}

}  // namespace tessera
