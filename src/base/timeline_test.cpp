// Catches: phases that are lost, repeated or out of order, and uncovered time that is not reported.
#include "tessera/base/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using ::testing::ElementsAre;

class Phases : public ::testing::Test {
 protected:
  void record(std::string_view name, int begin_ms, int end_ms) {
    timeline_.record(name, origin_ + std::chrono::milliseconds(begin_ms), origin_ + std::chrono::milliseconds(end_ms));
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const Timeline::Phase& phase : timeline_.phases()) all.push_back(phase.name);
    return all;
  }

  Timeline::Clock::time_point origin_ = Timeline::Clock::now();
  Timeline timeline_{origin_};
};

TEST_F(Phases, AreOrderedByTheirBeginnings) {
  record("plan", 10, 20);
  record("load", 20, 80);
  record("process", 0, 8);
  record("compile", 20, 50);
  EXPECT_THAT(names(), ElementsAre("process", "plan", "load", "compile"));
  EXPECT_DOUBLE_EQ(timeline_.seconds_of("compile"), 0.03);
  EXPECT_EQ(timeline_.seconds_of("capture"), 0);
  record("process", 90, 95);
  EXPECT_THAT(names(), ElementsAre("plan", "load", "compile", "process"));
}

TEST_F(Phases, TimeBetweenThemIsUncovered) {
  EXPECT_EQ(timeline_.end_s(), 0);
  EXPECT_EQ(timeline_.uncovered_s(), 0);
  record("a", 2, 10);
  record("inside a", 3, 4);
  record("b", 8, 20);
  record("c", 25, 30);
  EXPECT_DOUBLE_EQ(timeline_.end_s(), 0.03);
  EXPECT_NEAR(timeline_.uncovered_s(), 0.007, 1e-12);
  EXPECT_EQ(timeline_.line(), "30.0 ms (a 2.0-10.0, inside a 3.0-4.0, b 8.0-20.0, c 25.0-30.0; 7.0 in none of these)");
}

TEST_F(Phases, AScopeIsRecordedAtItsEnd) {
  {
    const Timeline::Scope scope = timeline_.scope("work");
    const Timeline::Scope nowhere(nullptr, "unrecorded");
    EXPECT_TRUE(names().empty());
  }
  ASSERT_THAT(names(), ElementsAre("work"));
  EXPECT_GE(timeline_.phases()[0].seconds(), 0);
  EXPECT_LE(timeline_.end_s(), timeline_.seconds_at(Timeline::Clock::now()));
}

}  // namespace
}  // namespace tessera
