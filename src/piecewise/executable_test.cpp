// Catches: a replay whose results differ from an eager run or from the unsplit graph; a graph that keeps old input data
// or another bucket's addresses; outputs whose addresses change; and a value that overwrites another one.
#include "tessera/piecewise/executable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tessera/piecewise/executable_test_util.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using testing::Bytes;
using testing::ExecutableBench;
using ::testing::HasSubstr;
using testing::kCuts;
using testing::Outcome;
using testing::tokens;
using testing::two_cuts;

const std::vector<std::int64_t> kSizes = {24, 16, 9, 4, 1};  // in the order of capture, largest first

std::unique_ptr<Executable> captured(ExecutableBench& bench, const std::vector<std::string>& split_ops,
                                     ExecutableOptions options = {}) {
  Result<std::unique_ptr<Executable>> made = bench.create(split_ops, std::move(options));
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  for (const std::int64_t size : kSizes) {
    Status status = (*made)->bind(tokens(size));
    if (status.ok()) status = (*made)->capture(tokens(size));
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  return *std::move(made);
}

TEST(Executable, ReplayEqualsRunAndTheUnsplitGraph) {
  ExecutableBench bench = two_cuts();
  for (const std::vector<std::string>& split_ops :
       {kCuts, {}, {"store", "linear"}, {"store", "accumulate", "add", "empty_like"}}) {
    const std::unique_ptr<Executable> executable = captured(bench, split_ops);
    EXPECT_EQ(executable->num_captured(), static_cast<std::int64_t>(kSizes.size()));
    for (const std::int64_t size : kSizes) {
      for (const std::uint64_t seed : {1, 2}) {  // seeds differ from the seed of the input data during the capture
        const Outcome want = bench.reference(size, seed);
        EXPECT_EQ(bench.replay(*executable, size, seed), want) << size << " replayed";
        EXPECT_EQ(bench.run(*executable, size, seed), want) << size << " eager";
      }
    }
  }
}

TEST(Executable, AFullGraphIsSingleAndEqualsThePieces) {
  ExecutableBench bench = two_cuts();
  const std::unique_ptr<Executable> executable = captured(bench, kCuts);
  const std::int64_t graphs = executable->num_graphs();
  const std::int64_t nodes = executable->graph_stats(tokens(9)).nodes;
  bench.device().set_plan({});
  ASSERT_TRUE(executable->capture_full(tokens(9)).ok());
  EXPECT_EQ(bench.device().counts().begun_recordings, 1);
  EXPECT_TRUE(executable->has_full_graph(tokens(9)));
  EXPECT_FALSE(executable->has_full_graph(tokens(16)));
  EXPECT_EQ(executable->num_graphs(), graphs + 1);
  EXPECT_GT(executable->graph_stats(tokens(9)).nodes, 2 * nodes) << "all of the pieces' nodes, and the cuts'";
  for (const std::uint64_t seed : {1, 2}) {
    const auto full = [&](const ir::Bucket& bucket) { return executable->replay_full(bucket); };
    EXPECT_EQ(bench.outcome(*executable, 9, seed, full), bench.reference(9, seed));
    EXPECT_EQ(bench.replay(*executable, 9, seed), bench.reference(9, seed));
  }
  executable->drop_full_graph(tokens(9));
  EXPECT_FALSE(executable->has_full_graph(tokens(9)));
  EXPECT_EQ(executable->num_graphs(), graphs);
  EXPECT_EQ(bench.replay(*executable, 9, 1), bench.reference(9, 1)) << "the pieces stay";
}

TEST(Executable, AnUncutForwardHasNoFullGraph) {
  ExecutableBench bench = two_cuts();
  const std::unique_ptr<Executable> executable = captured(bench, {});
  EXPECT_FALSE(executable->can_be_full());
  EXPECT_EQ(executable->capture_full(tokens(9)).code(), StatusCode::kFailedPrecondition);
}

TEST(Executable, OutputsHaveOneAddressForAllBuckets) {
  ExecutableBench bench = two_cuts();
  const std::unique_ptr<Executable> executable = captured(bench, kCuts);
  for (std::size_t i = 0; i < 2; ++i) {
    const DeviceAddress address = executable->output(tokens(kSizes[0]), i)->data;
    for (const std::int64_t size : kSizes) {
      EXPECT_EQ(executable->output(tokens(size), i)->data, address) << size;
      EXPECT_EQ(executable->output(tokens(size), i)->dim(0), size);
    }
  }
  EXPECT_EQ(executable->output(tokens(24), 0)->data, bench.arena().base());
}

TEST(Executable, IsolatedMemoryGivesTheSameBits) {
  ExecutableBench bench = two_cuts();
  const std::unique_ptr<Executable> planned = captured(bench, kCuts);
  const std::unique_ptr<Executable> isolated =
      captured(bench, kCuts, {.largest = {}, .memory = MemoryPlanKind::kIsolated});
  for (const std::int64_t size : kSizes) {
    ASSERT_TRUE(isolated->poison(tokens(size)).ok());
    EXPECT_EQ(bench.run(*isolated, size, 3), bench.replay(*planned, size, 3)) << size;
    ASSERT_TRUE(isolated->poison(tokens(size)).ok());
    EXPECT_EQ(bench.replay(*isolated, size, 3), bench.replay(*planned, size, 3)) << size;
    const Status guards = isolated->check_guards(tokens(size));
    EXPECT_TRUE(guards.ok()) << guards.to_string();
  }
}

TEST(Executable, RecordsPiecesAndNothingElse) {
  ExecutableBench bench = two_cuts();
  const auto recordings = [&](const std::vector<std::string>& split_ops) {
    const std::unique_ptr<Executable> executable = *bench.create(split_ops);
    EXPECT_TRUE(executable->bind(tokens(4)).ok());
    bench.device().set_plan({});
    EXPECT_TRUE(executable->capture(tokens(4)).ok());
    return bench.device().counts().begun_recordings;
  };
  EXPECT_EQ(recordings({}), 1);
  EXPECT_EQ(recordings(kCuts), 3);
  // Here the only pieces are the empty_like operators before each store, which run no kernel, so nothing is recorded.
  EXPECT_EQ(recordings({"store", "linear", "matmul", "add", "scale", "accumulate"}), 0);
}

TEST(Executable, CountsGraphsAndTheirNodes) {
  ExecutableBench bench = two_cuts();
  const std::unique_ptr<Executable> executable = *bench.create(kCuts);
  ASSERT_TRUE(executable->bind(tokens(4)).ok());
  EXPECT_EQ(executable->graph_stats().nodes, 0);
  EXPECT_FALSE(executable->captured(tokens(4)));
  ASSERT_TRUE(executable->capture(tokens(4)).ok());
  EXPECT_TRUE(executable->captured(tokens(4)));
  EXPECT_EQ(executable->graph_stats().nodes, 8);
  EXPECT_GT(executable->graph_stats().bytes, 0);
  ASSERT_TRUE(executable->capture(tokens(4)).ok());
  EXPECT_EQ(executable->num_captured(), 1) << "the same bucket once more";
  executable->drop(tokens(4));
  EXPECT_EQ(executable->num_captured(), 0);
  EXPECT_EQ(executable->graph_stats().nodes, 0);
}

TEST(Executable, ADroppedBucketLeavesOthersAndCanComeBack) {
  ExecutableBench bench = two_cuts();
  const std::unique_ptr<Executable> executable = captured(bench, kCuts);
  executable->drop(tokens(9));
  EXPECT_FALSE(executable->bound(tokens(9)));
  EXPECT_FALSE(executable->captured(tokens(9)));
  EXPECT_EQ(executable->num_captured(), 4);
  EXPECT_FALSE(executable->run(tokens(9)).ok());
  executable->drop(tokens(9));
  EXPECT_EQ(executable->num_captured(), 4);
  EXPECT_EQ(bench.replay(*executable, 16, 4), bench.reference(16, 4));
  ASSERT_TRUE(executable->bind(tokens(9)).ok());
  EXPECT_EQ(bench.run(*executable, 9, 4), bench.reference(9, 4));
  ASSERT_TRUE(executable->capture(tokens(9)).ok());
  EXPECT_EQ(bench.replay(*executable, 9, 4), bench.reference(9, 4));
  EXPECT_EQ(executable->num_captured(), 5);
}

TEST(Executable, BindingAgainForgetsTheGraph) {
  ExecutableBench bench = two_cuts();
  const std::unique_ptr<Executable> executable = captured(bench, kCuts);
  ASSERT_TRUE(executable->bind(tokens(16)).ok());
  EXPECT_FALSE(executable->captured(tokens(16)));
  EXPECT_EQ(executable->num_captured(), 4);
  EXPECT_EQ(bench.replay(*executable, 16, 5), bench.reference(16, 5)) << "eager where there is no graph";
}

TEST(Executable, ReservedBytesAreLeftAlone) {
  ExecutableBench bench = two_cuts();
  const auto reserved_survives = [&](Planner planner) {
    const std::unique_ptr<Executable> executable =
        captured(bench, kCuts, {.largest = {}, .reserved_bytes = 1000, .planner = std::move(planner)});
    EXPECT_EQ(executable->output(tokens(24), 0)->data, bench.arena().base() + 1024);
    EXPECT_TRUE(bench.stream().fill(bench.arena().base(), 0x5a, 1000).ok());
    for (const std::int64_t size : kSizes) EXPECT_FALSE(bench.replay(*executable, size, 6).empty());
    return bench.download(bench.arena().base(), 1000) == Bytes(1000, std::byte{0x5a});
  };
  EXPECT_TRUE(reserved_survives(plan_memory));
  // The last live range stands for the reserved bytes. This planner ignores it, so values overwrite the reserved bytes.
  EXPECT_FALSE(reserved_survives([](std::span<const LiveRange> ranges) -> Result<MemoryPlan> {
    MemoryPlan plan = TRY(plan_memory(ranges.first(ranges.size() - 1)));
    plan.offsets.push_back(0);
    return plan;
  }));
}

TEST(Executable, MemoryNeedEqualsTheMemoryThatBindingTakes) {
  ExecutableBench bench = two_cuts();
  const std::unique_ptr<Executable> executable = *bench.create(kCuts);
  const MemoryNeed need = *executable->memory_need(tokens(24));
  EXPECT_EQ(bench.arena().size(), 0u) << "asking takes nothing";
  ASSERT_TRUE(executable->bind(tokens(24)).ok());
  const auto taken = static_cast<std::int64_t>(bench.arena().size());
  EXPECT_GE(taken, need.arena_bytes);
  EXPECT_LT(taken, need.arena_bytes + 4096) << "a page of rounding at most";
  EXPECT_LE(need.lower_bound_bytes, need.arena_bytes);
  EXPECT_LT(need.arena_bytes, need.unshared_bytes) << "values share memory";
  // There are nine results. For T = 24, seven are f32[T, 8] of 768 bytes and two are f32[T, 16] of 1536 bytes.
  EXPECT_EQ(need.unshared_bytes, 7 * 768 + 2 * 1536);
  ASSERT_TRUE(executable->bind(tokens(1)).ok());
  EXPECT_EQ(static_cast<std::int64_t>(bench.arena().size()), taken) << "smaller buckets fit in";
}

TEST(Executable, ErrorsSayWhatIsMissing) {
  ExecutableBench bench = two_cuts();
  const std::unique_ptr<Executable> executable = *bench.create(kCuts);
  EXPECT_THAT(executable->bind(tokens(25)).message(),
              AllOf(HasSubstr("two_cuts"), HasSubstr("T=25"), HasSubstr("T=24")));
  EXPECT_THAT(executable->run(tokens(4)).message(), AllOf(HasSubstr("two_cuts is not bound"), HasSubstr("T=4")));
  EXPECT_THAT(executable->replay(tokens(4)).message(), HasSubstr("not bound"));
  EXPECT_THAT(executable->capture(tokens(4)).message(), HasSubstr("not bound"));
  EXPECT_THAT(executable->output(tokens(4), 0).status().message(), HasSubstr("not bound"));
  ASSERT_TRUE(executable->bind(tokens(4)).ok());
  EXPECT_THAT(executable->check_guards(tokens(4)).message(), HasSubstr("no isolated memory"));
  bench.externals() = ExternalValues();
  EXPECT_THAT(executable->bind(tokens(4)).message(), HasSubstr("no address is known for input %x"));
}

TEST(Executable, CreateNamesThePartThatDoesNotCompile) {
  ExecutableBench bench = two_cuts();
  const KernelTable none({});
  const std::unique_ptr<Compiler> compiler =
      make_eager_compiler({.device = bench.device(), .ops = testing::bench_ops(), .kernels = none});
  const ForwardContext context;
  KernelVariants warm;
  const ExecutionEnvironment environment{.device = bench.device(),
                                         .stream = bench.stream(),
                                         .context = context,
                                         .externals = bench.externals(),
                                         .arena = bench.arena(),
                                         .workspace = bench.arena(),
                                         .warm = warm};
  const auto made = Executable::create(*split_graph(bench.graph(), testing::bench_ops(), kCuts), *compiler, environment,
                                       {.largest = tokens(24)});
  EXPECT_THAT(made.status().message(), AllOf(HasSubstr("piece 0"), HasSubstr("'linear'")));
}

TEST(Executable, PlanKindsHaveTheNamesOfTheFlag) {
  EXPECT_EQ(memory_plan_kind_name(MemoryPlanKind::kPlanned), "planned");
  EXPECT_EQ(memory_plan_kind_name(MemoryPlanKind::kIsolated), "isolated");
}

}  // namespace
}  // namespace tessera
