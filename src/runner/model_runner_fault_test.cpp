// Catches: a start that fails because one size cannot be captured; dispatch to a size without a graph; wrong results
// after a fault; a lost device that is treated like a fault of one forward; and crashes when memory runs out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/comm/communicator.h"
#include "tessera/runner/runner_test_util.h"

namespace tessera {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using testing::greatest_difference;
using ::testing::HasSubstr;
using testing::ids;
using testing::make_bench;
using testing::make_captured;
using ::testing::Not;
using testing::Rows;
using testing::RunnerBench;
using ::testing::SizeIs;
using testing::small_options;
using testing::TestRequest;
using testing::try_make_bench;

const std::vector<TestRequest> kPrompt = {{ids(16, 2)}};
const std::vector<TestRequest> kNext = {{ids(17, 2), 16}};

// The attention operators of the 3 layers cut a prefill into 4 pieces. A prefill size is therefore recorded in 4
// pieces. A decode size is recorded in one piece. Prefill sizes 40, 16 and 4 are recorded first, and then decode sizes
// 4, 2 and 1.
constexpr int kRecordings = 3 * 4 + 3;

TEST(ModelRunnerFaults, ASizeWithAFailedCaptureRunsEagerly) {
  RunnerBench sound = make_captured("llama", small_options());
  const std::vector<float> want = sound.logits(kPrompt);
  const std::vector<float> want_next = sound.logits(kNext);
  for (int k = 1; k <= kRecordings + 1; ++k) {
    RunnerBench bench = make_bench("llama", small_options());
    bench.device->set_plan({.end_recording_fails_at = k});
    const Status captured = bench.runner->capture();
    ASSERT_TRUE(captured.ok()) << captured.to_string();
    const auto& prefill = bench.runner->prefill().report();
    const auto& decode = bench.runner->decode().report();
    ASSERT_EQ(prefill.dropped.size() + decode.dropped.size(), k <= kRecordings ? 1u : 0u) << k;
    EXPECT_EQ(prefill.captured.size() + decode.captured.size() + (k <= kRecordings ? 1 : 0), 6u);
    EXPECT_EQ(bench.runner->dispatch_table().prefill_sizes, prefill.captured);
    EXPECT_EQ(bench.runner->dispatch_table().decode_sizes, decode.captured);
    if (k <= 12) {
      EXPECT_EQ(prefill.dropped[0].first, k <= 4 ? 40 : k <= 8 ? 16 : 4);
      EXPECT_THAT(prefill.dropped[0].second.message(), HasSubstr("injected"));
    } else if (k <= kRecordings) {
      EXPECT_EQ(decode.dropped[0].first, k == 13 ? 4 : k == 14 ? 2 : 1);
    }
    bench.device->set_plan({});
    EXPECT_LE(greatest_difference(bench.logits(kPrompt), want), 1e-4) << k;
    EXPECT_LE(greatest_difference(bench.logits(kNext), want_next), 1e-4) << k;
  }
}

TEST(ModelRunnerFaults, DispatchSkipsDroppedSizes) {
  RunnerBench bench = make_bench("llama", small_options());
  bench.device->set_plan({.begin_recording_fails_at = 1});
  ASSERT_TRUE(bench.runner->capture().ok());
  EXPECT_THAT(bench.runner->dispatch_table().prefill_sizes, ElementsAre(4, 16));
  Decision decision;
  bench.logits({{ids(40)}}, Rows::kLast, false, &decision);
  EXPECT_EQ(decision.reason, Reason::kAboveLargestSize);
  bench.logits({{ids(16)}}, Rows::kLast, false, &decision);
  EXPECT_EQ(decision.reason, Reason::kExactSize);
}

// Forwards of the largest size must be able to run, with graphs or without.
TEST(ModelRunnerFaults, TheStartFailsWithoutMemoryForTheLargestForward) {
  RunnerBench bench = make_bench("llama", small_options());
  bench.device->set_plan({.out_of_memory_at = 1});
  const Status captured = bench.runner->capture();
  EXPECT_EQ(captured.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(captured.message(), HasSubstr("forwards of up to 48 tokens need an arena of"));
  EXPECT_THAT(captured.message(), HasSubstr("lower chunked_prefill_size"));
}

TEST(ModelRunnerFaults, OutOfMemoryAnywhereIsAnError) {
  RunnerOptions options = small_options();
  options.prefill_sizes = {4};
  options.decode_sizes = {1};
  for (int n = 1;; ++n) {
    ASSERT_LT(n, 100);
    Result<RunnerBench> bench = try_make_bench("llama", options, ir::DType::kFloat32, {.out_of_memory_at = n});
    if (!bench.ok()) {
      EXPECT_EQ(bench.status().code(), StatusCode::kResourceExhausted) << bench.status().to_string();
      EXPECT_THAT(bench.status().message(), HasSubstr("injected"));
      continue;
    }
    const Status captured = bench->runner->capture();
    if (bench->device->counts().faults == 0) break;
    EXPECT_TRUE(captured.ok() || captured.code() == StatusCode::kResourceExhausted) << captured.to_string();
    bench->device->set_plan({});
    EXPECT_FALSE(bench->logits(kPrompt).empty());
  }
}

TEST(ModelRunnerFaults, TheForwardAfterAFailedOneIsRight) {
  RunnerBench bench = make_captured("llama", small_options());
  const std::vector<float> want = bench.logits(kPrompt);
  const std::vector<float> want_eager = bench.logits(kPrompt, Rows::kAll, true);
  for (int n = 1; n <= 20; n += 4) {
    bench.device->set_plan({.launch_fails_at = n});
    std::vector<float> logits;
    EXPECT_FALSE(bench.forward(make_batch(kPrompt, Rows::kAll), logits, true).ok()) << n;
    EXPECT_EQ(bench.device->counts().faults, 1);
    bench.device->set_plan({});
    EXPECT_EQ(bench.logits(kPrompt), want);
    EXPECT_EQ(bench.logits(kPrompt, Rows::kAll, true), want_eager);
  }
  EXPECT_EQ(bench.runner->counters().forwards(Reason::kExactSize), 1 + 5) << "forwards that failed do not count";
}

TEST(ModelRunnerFaults, AForwardWhoseReplayFailsRunsWithoutIt) {
  RunnerBench bench = make_captured("llama", small_options());
  const std::vector<float> want_eager = bench.logits(kPrompt, Rows::kAll, true);
  Decision decision;
  for (int n = 1; n <= 4; ++n) {  // makes each of the forward's four graphs fail once
    bench.device->set_plan({.replay_fails_at = n});
    EXPECT_EQ(bench.logits(kPrompt, Rows::kAll, false, &decision), want_eager);
    EXPECT_EQ(bench.device->counts().faults, 1);
    EXPECT_EQ(decision.runner, RunnerKind::kEager);
    EXPECT_EQ(decision.reason, Reason::kReplayFailed);
    bench.device->set_plan({});
    bench.logits(kPrompt, Rows::kAll, false, &decision);
    EXPECT_EQ(decision.reason, Reason::kExactSize) << "one failure does not end a size";
  }
  EXPECT_EQ(bench.runner->counters().forwards(Reason::kReplayFailed), 4);
}

// One rank cannot repeat a forward alone after the other ranks have exchanged data with it.
TEST(ModelRunnerFaults, OneRanksFailedReplayFailsTheForward) {
  for (const int ranks : {1, 2}) {
    const std::vector<std::unique_ptr<Communicator>> group = Communicator::create_group(ranks);
    RunnerOptions options = small_options();
    options.communicator = group.front().get();
    RunnerBench bench = make_captured("llama", options);
    bench.device->set_plan({.replay_fails_at = 2});
    std::vector<float> logits;
    const Result<ForwardOutputs> outputs = bench.forward(make_batch(kPrompt, Rows::kAll), logits);
    EXPECT_EQ(outputs.ok(), ranks == 1);
    EXPECT_EQ(group.back()->status().ok(), ranks == 1);
  }
}

TEST(ModelRunnerFaults, ASizeWhoseReplaysKeepFailingIsDropped) {
  RunnerBench bench = make_captured("llama", small_options());
  const std::vector<float> want_eager = bench.logits(kPrompt, Rows::kAll, true);
  const std::vector<std::int64_t> sizes = bench.runner->dispatch_table().prefill_sizes;
  Decision decision;
  bench.logits(kPrompt, Rows::kAll, false, &decision);
  const std::int64_t size = decision.size;
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(bench.runner->dispatch_table().prefill_sizes, Contains(size));
    bench.device->set_plan({.replay_fails_at = 1});
    EXPECT_EQ(bench.logits(kPrompt, Rows::kAll, false, &decision), want_eager);
  }
  bench.device->set_plan({});
  EXPECT_THAT(bench.runner->dispatch_table().prefill_sizes, Not(Contains(size)));
  ASSERT_THAT(bench.runner->prefill().report().dropped, SizeIs(1));
  EXPECT_EQ(bench.runner->prefill().report().dropped[0].first, size);
  bench.logits(kPrompt, Rows::kAll, false, &decision);
  EXPECT_NE(decision.size, size);
}

TEST(ModelRunnerFaults, OutOfMemoryEagerlyFailsThatForwardAlone) {
  RunnerOptions options = small_options();
  options.prefill_sizes = {4};
  for (int n = 1; n <= 3; ++n) {
    RunnerBench bench = make_captured("llama", options);
    bench.device->set_plan({.out_of_memory_at = n});
    std::vector<float> logits;
    const Result<ForwardOutputs> outputs = bench.forward(make_batch(kPrompt, Rows::kAll), logits);
    EXPECT_EQ(outputs.status().code(), StatusCode::kResourceExhausted) << n;
    bench.device->set_plan({});
    EXPECT_EQ(bench.logits(kPrompt), make_captured("llama", options).logits(kPrompt));
  }
}

TEST(ModelRunnerFaults, ALostDeviceEndsCaptureAndForward) {
  RunnerBench bench = make_bench("llama", small_options());
  bench.device->set_plan({});
  ASSERT_TRUE(bench.runner->capture().ok());
  const std::int64_t calls = bench.device->counts().calls;
  for (const std::int64_t call : {std::int64_t{1}, calls / 2, calls}) {
    bench = make_bench("llama", small_options());
    bench.device->set_plan({.lost_from = call});
    EXPECT_EQ(bench.runner->capture().code(), StatusCode::kDeviceLost) << call;
  }
  bench = make_captured("llama", small_options());
  bench.device->set_plan({.lost_from = 10});
  std::vector<float> logits;
  EXPECT_EQ(bench.forward(make_batch(kPrompt, Rows::kAll), logits).status().code(), StatusCode::kDeviceLost);
}

// A user may set options that leave no size to capture. The test runs in its own process, because a crash would end the
// other tests too.
TEST(ModelRunnerFaults, WithoutSizesEverythingIsEager) {
  const auto serve = [] {
    RunnerOptions options = small_options();
    options.prefill_sizes.clear();
    options.decode_sizes.clear();
    RunnerBench bench = make_captured("llama", options);
    Decision decision;
    bench.logits(kPrompt, Rows::kAll, false, &decision);
    std::exit(decision.reason == Reason::kNothingCaptured ? 0 : 1);
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(serve(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tessera
