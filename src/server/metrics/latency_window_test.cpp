// A LatencyWindow counts recent durations in buckets, separately for each slice of time. Catches: percentiles that are
// off by one bucket, or by one position in the sorted durations; durations beyond the outermost buckets that are not
// counted; and slices that are reused wrongly, so that old durations stay or new ones are dropped.
#include "tessera/server/metrics/latency_window.h"

#include <gtest/gtest.h>

#include <limits>

namespace tessera {
namespace {

using std::chrono::seconds;
using Time = LatencyWindow::Clock::time_point;

constexpr double kError = 0.05;  // relative error
const Time kStart{seconds(1'000'003)};

TEST(LatencyWindow, AnEmptyWindowCountsNothing) { EXPECT_EQ(LatencyWindow().percentiles(kStart).count, 0); }

TEST(LatencyWindow, PercentilesOfAnEvenSpreadAreAccurate) {
  LatencyWindow window;
  for (int i = 1; i <= 1000; ++i) window.add(i * 1e-3, kStart);
  const LatencyPercentiles p = window.percentiles(kStart);
  EXPECT_EQ(p.count, 1000);
  EXPECT_NEAR(p.p50, 0.5, 0.5 * kError);
  EXPECT_NEAR(p.p90, 0.9, 0.9 * kError);
  EXPECT_NEAR(p.p99, 0.99, 0.99 * kError);
  EXPECT_EQ(p.max, 1.0);
}

TEST(LatencyWindow, OneDurationIsAllPercentiles) {
  for (const double duration : {2e-5, 0.0123, 7.0, 3600.0}) {
    LatencyWindow window;
    window.add(duration, kStart);
    const LatencyPercentiles p = window.percentiles(kStart);
    EXPECT_NEAR(p.p50, duration, duration * kError);
    EXPECT_LE(p.p99, p.max);
    EXPECT_EQ(p.max, duration);
  }
}

TEST(LatencyWindow, ARareSlowDurationRaisesOnlyTheHighPercentile) {
  LatencyWindow window;
  for (int i = 0; i < 98; ++i) window.add(0.01, kStart);
  for (int i = 0; i < 2; ++i) window.add(5, kStart);
  const LatencyPercentiles p = window.percentiles(kStart);
  EXPECT_NEAR(p.p90, 0.01, 0.01 * kError);
  EXPECT_NEAR(p.p99, 5, 5 * kError);
}

TEST(LatencyWindow, OutliersFallIntoTheOutermostBuckets) {
  LatencyWindow window;
  for (const double duration : {0.0, -1.0, 1e-9, 1e12, std::numeric_limits<double>::infinity()}) {
    window.add(duration, kStart);
  }
  EXPECT_EQ(window.percentiles(kStart).count, 5);
}

TEST(LatencyWindow, OldDurationsAreForgotten) {
  LatencyWindow window;
  window.add(3, kStart);
  const Time late = kStart + LatencyWindow::kWindow - LatencyWindow::kSlice;
  window.add(1, late);
  EXPECT_EQ(window.percentiles(late).count, 2);
  EXPECT_EQ(window.percentiles(late).max, 3);
  EXPECT_EQ(window.percentiles(late + LatencyWindow::kSlice).count, 1);
  EXPECT_EQ(window.percentiles(late + LatencyWindow::kSlice).max, 1);
  window.add(2, kStart + LatencyWindow::kWindow);  // reuses the first slice
  EXPECT_EQ(window.percentiles(kStart + LatencyWindow::kWindow).count, 2);
  EXPECT_EQ(window.percentiles(late + 10 * LatencyWindow::kWindow).count, 0);
}

}  // namespace
}  // namespace tessera
