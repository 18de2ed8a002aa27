// Catches: sizes that are never captured or are captured too early; a forward that is padded to a size that is not
// captured; costs that are not measured; a measurement or capture that disturbs requests; and idle work that never
// ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tessera/runner/runner_test_util.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::greatest_difference;
using ::testing::HasSubstr;
using testing::ids;
using ::testing::IsEmpty;
using testing::make_batch;
using testing::make_bench;
using testing::make_captured;
using testing::Rows;
using testing::RunnerBench;
using ::testing::SizeIs;
using testing::small_options;
using testing::TestRequest;

RunnerOptions with(CaptureMode mode) {
  RunnerOptions options = small_options();
  options.prefill_sizes = {4, 12, 16, 40};
  options.capture = mode;
  return options;
}

// Calls idle_work() until no work is left. Returns the number of calls that did work.
int work_until_done(ModelRunner& runner) {
  for (int n = 0; n < 100; ++n) {
    const Result<bool> left = runner.idle_work();
    EXPECT_TRUE(left.ok()) << left.status().to_string();
    if (!left.ok() || !*left) return n;
  }
  ADD_FAILURE() << "idle work does not end";
  return -1;
}

TEST(CaptureModes, LazySizesAreCapturedWhenFirstWanted) {
  RunnerBench all = make_captured("llama", with(CaptureMode::kEager));
  RunnerBench bench = make_captured("llama", with(CaptureMode::kLazy));
  EXPECT_THAT(bench.runner->prefill().report().captured, IsEmpty());
  EXPECT_THAT(bench.runner->decode().report().captured, IsEmpty());
  EXPECT_THAT(bench.runner->dispatch_table().waiting, IsEmpty()) << "a forward captures its size";
  const auto same = [&](const std::vector<TestRequest>& requests, RunnerKind runner, std::int64_t size) {
    Decision decision;
    EXPECT_EQ(bench.logits(requests, Rows::kAll, false, &decision), all.logits(requests));
    EXPECT_EQ(decision.runner, runner);
    EXPECT_EQ(decision.size, size);
  };
  same({{ids(13)}}, RunnerKind::kPrefill, 16);
  EXPECT_THAT(bench.runner->prefill().report().captured, ElementsAre(16));
  same({{ids(14), 13}}, RunnerKind::kDecode, 1);
  // The next two forwards capture sizes 4 and 40, which lie below and above 16, the first captured size.
  same({{ids(3)}}, RunnerKind::kPrefill, 4);
  same({{ids(33)}}, RunnerKind::kPrefill, 40);
  same({{ids(13)}}, RunnerKind::kPrefill, 16);
  EXPECT_THAT(bench.runner->prefill().report().captured, ElementsAre(4, 16, 40));
  EXPECT_THAT(bench.runner->decode().report().captured, ElementsAre(1));
}

TEST(CaptureModes, ALazySizeThatCannotBeCapturedIsSkipped) {
  RunnerBench bench = make_captured("llama", with(CaptureMode::kLazy));
  bench.device->set_plan({.end_recording_fails_at = 1});
  Decision decision;
  bench.logits({{ids(11)}}, Rows::kAll, false, &decision);
  EXPECT_EQ(decision.size, 16) << "12 has failed, and 16 was tried next";
  ASSERT_THAT(bench.runner->prefill().report().dropped, SizeIs(1));
  EXPECT_EQ(bench.runner->prefill().report().dropped[0].first, 12);
  EXPECT_THAT(bench.runner->dispatch_table().prefill_sizes, ElementsAre(4, 16, 40));
}

RunnerOptions core_options() {
  RunnerOptions options = with(CaptureMode::kCore);
  options.prefill_sizes = {8, 10, 12, 40};
  options.decode_sizes = {1, 2, 3, 4};
  options.measure_costs = false;
  return options;
}

TEST(CaptureModes, CapturesCoreSizesFirstAndOthersWhenIdle) {
  RunnerBench all = make_captured("llama", with(CaptureMode::kEager));
  RunnerBench bench = make_captured("llama", core_options());
  EXPECT_THAT(bench.runner->prefill().report().captured, ElementsAre(8, 40));
  EXPECT_THAT(bench.runner->decode().report().captured, ElementsAre(1, 2, 4));
  EXPECT_THAT(bench.runner->dispatch_table().waiting, ElementsAre(10, 12));
  EXPECT_TRUE(bench.runner->captures_when_idle());
  EXPECT_EQ(work_until_done(*bench.runner), 3);
  EXPECT_FALSE(bench.runner->captures_when_idle());
  EXPECT_THAT(bench.runner->dispatch_table().waiting, IsEmpty());
  EXPECT_THAT(bench.runner->prefill().report().captured, ElementsAre(8, 10, 12, 40));
  EXPECT_THAT(bench.runner->decode().report().captured, ElementsAre(1, 2, 3, 4));
  Decision decision;
  const std::vector<float> logits = bench.logits({{ids(11)}}, Rows::kAll, false, &decision);
  EXPECT_EQ(decision.size, 12);
  EXPECT_LE(greatest_difference(logits, all.logits({{ids(11)}})), 1e-5);
}

// A server that is never idle also captures deferred sizes. If a size has no graph, the first few forwards of this size
// are padded, and then the size is captured.
TEST(CaptureModes, CapturesADeferredSizeThatIsWantedOften) {
  RunnerBench bench = make_captured("llama", core_options());
  std::vector<std::int64_t> sizes;
  for (int i = 0; i < 10; ++i) {
    Decision decision;
    bench.logits({{ids(9)}}, Rows::kAll, false, &decision);
    EXPECT_EQ(decision.reason, Reason::kPaddedToSize);
    sizes.push_back(decision.size);
  }
  EXPECT_THAT(sizes, ElementsAre(40, 40, 40, 40, 40, 40, 40, 40, 10, 10));
  EXPECT_THAT(bench.runner->prefill().report().captured, ElementsAre(8, 10, 40));
}

// If padding would cost more than a capture, or if no larger size is captured, the first forward that needs a deferred
// size captures it.
TEST(CaptureModes, CapturesADeferredSizeWherePaddingIsExpensive) {
  RunnerOptions options = core_options();
  options.max_tokens = 300;
  options.prefill_sizes = {8, 10, 12, 300};
  RunnerBench bench = make_captured("llama", options);
  Decision decision;
  bench.logits({{ids(9)}}, Rows::kAll, false, &decision);
  EXPECT_EQ(decision.size, 10);
  EXPECT_THAT(bench.runner->prefill().report().captured, ElementsAre(8, 10, 300));
}

// Returns the tokens of three decoding requests. Submits each step before it collects the previous step's tokens, as an
// engine does on a GPU. Before step kCaptured, marks all kernels as cold and sets the device's fault plan to `faults`.
constexpr int kCaptured = 8;
std::vector<TokenId> decode_ahead(RunnerBench& bench, const FaultPlan& faults = {}) {
  ModelRunner& runner = *bench.runner;
  KernelVariants& warm = runner.parts().warm();
  std::vector<TestRequest> requests = {{ids(5)}, {ids(9, 2)}, {ids(3, 3)}};
  const std::vector<SampleRow> greedy(requests.size());
  std::vector<TokenId> tokens;
  const auto collect = [&] {
    const Result<StepOutputs> step = runner.collect();
    EXPECT_TRUE(step.ok()) << step.status().to_string();
    if (step.ok()) tokens.insert(tokens.end(), step->sampled.begin(), step->sampled.end());
  };
  EXPECT_TRUE(runner.submit({.batch = make_batch(requests, Rows::kLast), .sampling = greedy}).ok());
  for (int step = 0; step < 12; ++step) {
    for (TestRequest& request : requests) {
      request.computed = std::ssize(request.ids);
      request.ids.push_back(0);
    }
    ForwardBatch batch = make_batch(requests, Rows::kAll);
    std::iota(batch.input_rows.begin(), batch.input_rows.end(), 0);
    if (step == kCaptured) {
      warm.clear();
      bench.device->set_plan(faults);
    }
    EXPECT_EQ(runner.in_flight(), 1);
    const Result<Decision> decision = runner.submit({.batch = batch, .sampling = greedy});
    EXPECT_TRUE(decision.ok() && decision->runner == RunnerKind::kDecode) << decision.status().to_string();
    collect();
  }
  collect();
  return tokens;
}

// On a GPU, an engine usually submits a step while the previous step still runs. In this test, the submitted step has a
// size without a graph.
TEST(CaptureModes, CapturesASizeBesideAForwardInFlight) {
  RunnerOptions options = core_options();
  options.capture = CaptureMode::kEager;
  RunnerBench all = make_captured("llama", options);
  const std::vector<TokenId> want = decode_ahead(all);
  ASSERT_THAT(want, SizeIs(3 + 12 * 3));

  RunnerBench bench = make_captured("llama", core_options());
  EXPECT_EQ(decode_ahead(bench), want);
  EXPECT_THAT(bench.runner->decode().report().captured, ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(bench.runner->counters().of_size(RunnerKind::kDecode, 4).forwards, kCaptured);
  EXPECT_EQ(bench.runner->counters().of_size(RunnerKind::kDecode, 3).forwards, 12 - kCaptured);
  EXPECT_FALSE(bench.runner->parts().warm().empty()) << "its kernels were run between the two forwards";

  RunnerBench failing = make_captured("llama", core_options());
  EXPECT_EQ(decode_ahead(failing, {.end_recording_fails_at = 1}), want);
  EXPECT_THAT(failing.runner->decode().report().captured, ElementsAre(1, 2, 4));
  ASSERT_THAT(failing.runner->decode().report().dropped, SizeIs(1));
  EXPECT_EQ(failing.runner->counters().of_size(RunnerKind::kDecode, 4).forwards, 12);
}

TEST(CaptureModes, LogsThatSizesAreDeferred) {
  const auto log_of = [](const RunnerOptions& options) {
    RunnerBench bench = make_bench("llama", options);
    ::testing::internal::CaptureStderr();
    EXPECT_TRUE(bench.runner->capture().ok());
    return ::testing::internal::GetCapturedStderr();
  };
  RunnerOptions options = core_options();
  EXPECT_THAT(log_of(options), AllOf(HasSubstr("end. 2 sizes now, the others in idle moments, "),
                                     HasSubstr("decode graphs for 3 batch sizes now, the others in idle moments, ")));
  options.decode_sizes = {1, 2, 4};
  EXPECT_THAT(log_of(options), HasSubstr("decode graphs for 3 batch sizes, ")) << "there are no others";
}

// capture() also captures deferred sizes, one by one, as long as `more` returns true. The engine does this at its
// start, while other start-up work is still running.
TEST(CaptureModes, TheStartCapturesMoreWhileItWaits) {
  RunnerBench bench = make_bench("llama", core_options());
  int asked = 0;
  ASSERT_TRUE(bench.runner->capture([&] { return ++asked <= 2; }).ok());
  EXPECT_EQ(asked, 3);
  EXPECT_THAT(bench.runner->decode().report().captured, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(bench.runner->prefill().report().captured, ElementsAre(8, 10, 40));
  EXPECT_EQ(work_until_done(*bench.runner), 1);
}

TEST(CaptureModes, EveryCapturedSizeIsMeasuredInIdleMoments) {
  RunnerBench bench = make_captured("llama", with(CaptureMode::kEager));
  EXPECT_TRUE(bench.runner->costs().empty()) << "the start measures nothing";
  bench.logits({{ids(30)}}, Rows::kLast);  // leaves a prefix in the KV cache, which idle work must not change
  const std::vector<TestRequest> next = {{ids(31), 30}};
  const std::vector<float> want = bench.logits(next);
  EXPECT_EQ(work_until_done(*bench.runner), 4 + 2 + 3);  // prefill sizes, eager samples and decode sizes
  for (const std::int64_t size : {4, 12, 16, 40})
    EXPECT_TRUE(bench.runner->costs().measured(RunnerKind::kPrefill, size));
  for (const std::int64_t size : {3, 39}) EXPECT_TRUE(bench.runner->costs().measured(RunnerKind::kEager, size));
  for (const std::int64_t size : {1, 2, 4}) EXPECT_TRUE(bench.runner->costs().measured(RunnerKind::kDecode, size));
  EXPECT_EQ(bench.logits(next), want) << "measuring has written to a request's pages";
  EXPECT_EQ(work_until_done(*bench.runner), 0);
}

TEST(CaptureModes, NothingIsMeasuredWhereMeasuringIsOff) {
  RunnerOptions options = with(CaptureMode::kEager);
  options.measure_costs = false;
  RunnerBench bench = make_captured("llama", options);
  EXPECT_EQ(work_until_done(*bench.runner), 0);
  EXPECT_TRUE(bench.runner->costs().empty());
  EXPECT_EQ(bench.runner->dispatch_table().costs, nullptr);
}

// Destroying a runner frees all device memory in every capture mode, also after a failed capture or replay.
TEST(CaptureModes, DestroyingARunnerFreesEverything) {
  for (const CaptureMode mode : {CaptureMode::kEager, CaptureMode::kLazy, CaptureMode::kCore}) {
    for (const FaultPlan& faults :
         {FaultPlan{}, FaultPlan{.end_recording_fails_at = 3}, FaultPlan{.replay_fails_at = 2}}) {
      RunnerBench bench = make_bench("llama", with(mode));
      bench.device->set_plan(faults);
      ASSERT_TRUE(bench.runner->capture().ok());
      bench.logits({{ids(13)}});
      work_until_done(*bench.runner);
      bench.logits({{ids(13)}});
      EXPECT_GT(bench.device->bytes_in_use(), 0);
      bench.runner = nullptr;
      EXPECT_EQ(bench.device->bytes_in_use(), 0);
    }
  }
}

TEST(CaptureModes, AMeasurementThatFailsIsLeftOut) {
  RunnerBench bench = make_captured("llama", with(CaptureMode::kEager));
  bench.device->set_plan({.replay_fails_at = 1});
  work_until_done(*bench.runner);
  bench.device->set_plan({});
  EXPECT_LT(bench.runner->costs().size(), 9u);
  Decision decision;
  bench.logits({{ids(16)}}, Rows::kAll, false, &decision);
  EXPECT_EQ(decision.reason, Reason::kExactSize);
}

}  // namespace
}  // namespace tessera
