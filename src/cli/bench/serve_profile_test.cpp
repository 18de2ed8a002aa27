// Catches: sums that include forwards or host work of another run; time without requests that is counted as time that
// the device waited for the host; times that do not add up.
#include "tessera/cli/bench/serve_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

using ::testing::DoubleNear;
using ::testing::HasSubstr;
using ::testing::SizeIs;

ProfiledForward forward(double begin, double end, std::vector<DevicePart> parts, std::int64_t padding = 0) {
  return {.decision = {.runner = RunnerKind::kPrefill, .size = 64, .padding = padding, .reason = Reason::kPaddedToSize},
          .begin_ms = begin,
          .end_ms = end,
          .parts = std::move(parts)};
}

// Returns a profile: a warm-up before 100 ms, two prefills, and a decode. The engine is idle from 150 to 160 ms.
EngineProfile example() {
  EngineProfile profile;
  profile.steps = {{.phase = ForwardPhase::kPrefill, .requests = 9, .tokens = 999},
                   {.phase = ForwardPhase::kPrefill, .requests = 2, .tokens = 60, .running = 2, .queued = 3},
                   {.phase = ForwardPhase::kPrefill, .requests = 1, .tokens = 40},
                   {.phase = ForwardPhase::kDecode, .requests = 3, .decoding = 3, .tokens = 3}};
  profile.forwards = {
      forward(10, 90, {{"attention", 80}}), forward(104, 124, {{"prefill pieces", 12}, {"attention", 8}}, 4),
      forward(130, 140, {{"prefill pieces", 7}, {"attention", 3}}, 24), forward(163, 168, {{"decode", 5}})};
  profile.host = {{HostWork::kLaunch, 0, 5, 9, 4},      {HostWork::kSchedule, 1, 100, 101, 1},
                  {HostWork::kLaunch, 1, 101, 104, 3},  {HostWork::kText, 1, 125, 126, 1},
                  {HostWork::kCollect, 1, 124, 127, 2}, {HostWork::kLaunch, 2, 127, 130, 3},
                  {HostWork::kIdle, 3, 150, 160, 10},   {HostWork::kLaunch, 3, 161, 163, 2},
                  {HostWork::kWait, 3, 163, 168, 5},    {HostWork::kDeliver, 4, 199, 203, 4}};
  return profile;
}

TEST(ServeProfile, SumsIncludeOnlyTheRun) {
  const ServeTimes times = sum_up(example(), {100, 200});
  EXPECT_EQ(times.total_ms, 100);
  EXPECT_EQ(times.device_ms, 20 + 10 + 5);
  ASSERT_THAT(times.phases, SizeIs(2));
  const PhaseTimes& prefill = times.phases[0];
  EXPECT_EQ(prefill.phase, ForwardPhase::kPrefill);
  EXPECT_EQ(prefill.forwards, 2);
  EXPECT_EQ(prefill.requests, 3);
  EXPECT_EQ(prefill.tokens, 100);
  EXPECT_EQ(prefill.padding, 28);
  EXPECT_EQ(prefill.device_ms, 30);
  EXPECT_EQ(prefill.waited_ms, 4 + 6);
  ASSERT_THAT(prefill.parts, SizeIs(2));
  EXPECT_EQ(prefill.parts[1].name, "attention");
  EXPECT_EQ(prefill.parts[1].ms, 11);
  EXPECT_EQ(prefill.host_ms[static_cast<std::size_t>(HostWork::kLaunch)], 6);
  const PhaseTimes& decode = times.phases[1];
  EXPECT_EQ(decode.decoding, 3);
  EXPECT_EQ(decode.waited_ms, 23 - 10) << "the time without requests is not the host's";
  EXPECT_EQ(times.host_ms[static_cast<std::size_t>(HostWork::kIdle)], 10);
  EXPECT_THAT(times.other_ms(), DoubleNear(100 - 1 - 3 - 1 - 2 - 3 - 10 - 2 - 5 - 1, 1e-9))
      << "a span at the end counts in part";
}

TEST(ServeProfile, IsShownAsTablesAndJson) {
  const ServeTimes times = sum_up(example(), {100, 200});
  const std::string text = serve_times_text(times);
  EXPECT_THAT(text, HasSubstr("prefill       2      1.50     0.000    50.0     14.0"));
  EXPECT_THAT(text, HasSubstr("waits for the host before"));
  EXPECT_THAT(text, HasSubstr("idle 10.0 %, other work 72.0 % of 0.100 s"));
  const Json json = to_json(times);
  EXPECT_EQ(json.find("phases")->as_array().at(0).find("device_parts_ms")->find("attention")->as_double(), 11);
  EXPECT_EQ(json.find("host_ms")->find("wait")->as_double(), 5);
}

TEST(ServeProfile, TheTimelineHasOnlyTheRun) {
  ChromeTrace trace;
  add_serve_timeline(example(), {100, 200}, "all at once", 1, trace);
  const Json made = std::move(trace).finish(Json::object());
  std::int64_t forwards = 0, host = 0;
  for (const Json& event : made.find("traceEvents")->as_array()) {
    if (event.find("ph")->as_string() != "X") continue;
    if (event.find("tid")->as_int() == 1) {
      if (forwards++ == 0) {
        EXPECT_EQ(event.find("name")->as_string(), "prefill 60");
        EXPECT_EQ(event.find("args")->find("queued")->as_int(), 3);
        EXPECT_EQ(event.find("args")->find("reason")->as_string(), "padded_to_size");
      }
    } else {
      ++host;
    }
  }
  EXPECT_EQ(forwards, 3);
  EXPECT_EQ(host, 9);
}

}  // namespace
}  // namespace tessera::cli
