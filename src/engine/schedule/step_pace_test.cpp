// Catches: a forward that is scheduled too early for requests to join it, or so late that the device idles; an estimate
// that follows one delayed forward; and estimates that mix kinds of forwards.
#include "tessera/engine/schedule/step_pace.h"

#include <gtest/gtest.h>

#include <random>

namespace tessera {
namespace {

using namespace std::chrono_literals;
using Clock = StepPace::Clock;
using Step = StepPace::Step;

// The pace starts a step this many ms before the estimated end of the running forward: a fixed 0.7 ms, and twice the
// host's time of 0.1 ms.
constexpr double kLead = 0.7 + 2 * 0.1;

class StepPaceTest : public ::testing::Test {
 protected:
  static Clock::duration of_ms(double ms) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(ms));
  }
  // Runs a forward of `ms` milliseconds and waits for its end.
  void forward(Step step, double ms) {
    pace_.submitted(step, now_ - 100us, now_);
    now_ += of_ms(ms);
    pace_.collected(now_ - of_ms(ms), now_);
  }
  // Returns how many ms pass until the next forward is due, if a forward of `step` begins now.
  double wait_of(Step step) const {
    StepPace pace = pace_;
    pace.submitted(step, now_ - 100us, now_);
    return std::chrono::duration<double, std::milli>(pace.due() - now_).count();
  }
  void forwards_of_prompts() {
    for (int i = 0; i < 60; ++i) {
      const std::int64_t rows = 100 + i * 37 % 2600;
      forward({.decodes = false, .rows = rows}, 1 + 0.02 * static_cast<double>(rows));
    }
  }

  StepPace pace_;
  Clock::time_point now_ = Clock::time_point(1h);
};

TEST_F(StepPaceTest, NothingKnownIsDueAtOnce) {
  EXPECT_LE(pace_.due(), now_) << "nothing is in flight";
  EXPECT_LE(wait_of({.decodes = false, .rows = 1000}), 0) << "no forward of this kind was seen";
}

TEST_F(StepPaceTest, IsDueShortlyBeforeTheForwardEnds) {
  forwards_of_prompts();
  for (const std::int64_t rows : {200, 900, 2000, 4000})
    EXPECT_NEAR(wait_of({.decodes = false, .rows = rows}), 1 + 0.02 * static_cast<double>(rows) - kLead, 0.1) << rows;
  EXPECT_LE(wait_of({.decodes = true, .rows = 1000}), 0) << "another kind";
}

TEST_F(StepPaceTest, TimesThatScatterAreReliedOnLess) {
  std::mt19937 random(7);
  for (int i = 0; i < 100; ++i) {
    const auto rows = static_cast<std::int64_t>(200 + random() % 2000);
    forward({.decodes = false, .rows = rows}, 5 + 0.02 * static_cast<double>(rows) + static_cast<double>(random() % 9));
  }
  const double wait = wait_of({.decodes = false, .rows = 1500});
  EXPECT_LT(wait, 5 + 30 + 1 - kLead) << "the mean is 4 ms above the least";
  EXPECT_GT(wait, 5 + 30 - 4 - kLead);
}

TEST_F(StepPaceTest, ScalesDownForFewerRowsThanEverSeen) {
  for (int i = 0; i < 8; ++i) forward({.decodes = false, .rows = 1000}, 20);
  EXPECT_NEAR(wait_of({.decodes = false, .rows = 1000}), 20 - kLead, 0.05);
  EXPECT_NEAR(wait_of({.decodes = false, .rows = 3000}), 20 - kLead, 0.05);
  EXPECT_NEAR(wait_of({.decodes = false, .rows = 500}), 10 - kLead, 0.05);
}

TEST_F(StepPaceTest, OneDelayedForwardHardlyChangesTheEstimate) {
  forwards_of_prompts();
  const double before = wait_of({.decodes = false, .rows = 1500});
  forward({.decodes = false, .rows = 1500}, 900);
  EXPECT_LE(wait_of({.decodes = false, .rows = 1500}), before + 1);
}

TEST_F(StepPaceTest, AFinishedForwardCutsTheNextEstimates) {
  forwards_of_prompts();
  pace_.submitted({.decodes = false, .rows = 1500}, now_ - 100us, now_);
  now_ += 40ms;
  pace_.collected(now_ - 20us, now_);
  EXPECT_NEAR(wait_of({.decodes = false, .rows = 1500}), 31.0 / 2 - kLead, 0.1);
  for (int i = 0; i < 5; ++i) forward({.decodes = false, .rows = 1500}, 31);
  EXPECT_NEAR(wait_of({.decodes = false, .rows = 1500}), 31 - kLead, 0.1);
}

TEST_F(StepPaceTest, DecodesAreScheduledLateWhileRequestsArrive) {
  for (int i = 0; i < 8; ++i) forward({.decodes = true, .rows = 8}, 5);
  EXPECT_LE(wait_of({.decodes = true, .rows = 8}), 0) << "none arrived";
  pace_.arrived(now_ - 900ms);
  EXPECT_NEAR(wait_of({.decodes = true, .rows = 8}), 5 - kLead, 0.05);
  pace_.arrived(now_ - 1100ms);
  EXPECT_LE(wait_of({.decodes = true, .rows = 8}), 0);
}

TEST_F(StepPaceTest, AForwardBeginsWhenTheOneBeforeItEnds) {
  for (int i = 0; i < 8; ++i) forward({.decodes = false, .rows = 8}, 5);
  const Clock::time_point begin = now_;
  for (const Clock::duration after : {0ms, 1ms})
    pace_.submitted({.decodes = false, .rows = 8}, begin + after - 100us, begin + after);
  pace_.collected(begin + 2ms, begin + 5ms);
  EXPECT_NEAR(std::chrono::duration<double>(pace_.due() - begin).count(), 1e-3 * (5 + 5 - kLead), 1e-4);
}

}  // namespace
}  // namespace tessera
