// Computes percentiles over the last minutes. Durations are counted in narrow buckets, separately for each slice of
// time. The oldest slices expire.
//
// A percentile is within 5 % of the true one and never above the greatest duration seen. Adding takes some tens of
// nanoseconds and allocates nothing. Threads: one thread at a time may use an object.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <vector>

namespace tessera {

struct LatencyPercentiles {
  std::int64_t count = 0;  // if 0, the other fields are meaningless
  double p50 = 0;          // seconds
  double p90 = 0;
  double p99 = 0;
  double max = 0;
};

// Latencies of generations as clients experience them.
struct ServerLatencies {
  LatencyPercentiles first_token{};  // time from the request to its first token
  LatencyPercentiles next_token{};   // time from one token to the next
  LatencyPercentiles request{};      // time from the request to its end
};

class LatencyWindow {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kSlice{10};
  static constexpr std::size_t kSlices = 30;
  static constexpr std::chrono::seconds kWindow = kSlice * std::int64_t{kSlices};

  LatencyWindow() : slices_(kSlices) {}

  // Adds a duration. `now` must never go back.
  void add(double seconds, Clock::time_point now = Clock::now());
  LatencyPercentiles percentiles(Clock::time_point now = Clock::now()) const;

 private:
  // Bucket i begins at kShortest · 2^(i / kPerOctave) seconds: from 10 µs to about 12 hours.
  static constexpr double kShortest = 1e-5;
  static constexpr int kPerOctave = 8;
  static constexpr std::size_t kBuckets = 256;
  using Counts = std::array<std::uint32_t, kBuckets>;

  struct Slice {
    std::int64_t number = -1;  // time from the clock's epoch to the slice's beginning, divided by kSlice
    double max = 0;
    Counts counts{};
  };
  static std::size_t bucket_of(double seconds);
  static double percentile(const std::array<std::int64_t, kBuckets>& counts, std::int64_t count, double share);

  std::vector<Slice> slices_;  // kSlices slices, indexed by the slice's number modulo kSlices
};

}  // namespace tessera
