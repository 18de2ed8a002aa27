// Tests the entries with which users inspect the parts of a forward. Catches: an entry that gives a wrong state of its
// part (such as compiled or captured), or a wrong address of an input or output.
#include "tessera/piecewise/part_entry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/piecewise/executable_test_util.h"

namespace tessera {
namespace {

using testing::bench_ops;
using testing::ExecutableBench;
using ::testing::HasSubstr;
using testing::kCuts;
using testing::tokens;
using testing::two_cuts;

using Runnable = PartEntry::Runnable;

TEST(PartEntries, FollowAPartFromPlanToGraph) {
  ExecutableBench bench = two_cuts();
  const std::unique_ptr<Executable> executable = *bench.create(kCuts);
  const auto entries = [&] { return *executable->entries(tokens(9)); };

  std::vector<PartEntry> now = entries();
  ASSERT_EQ(now.size(), 5u);
  EXPECT_EQ(now[0].part, "piece 0");
  EXPECT_EQ(now[0].runtime_shape, tokens(9));
  EXPECT_TRUE(now[0].need_to_compile);
  EXPECT_TRUE(now[0].use_graph);
  EXPECT_FALSE(now[1].use_graph) << "a split op";
  for (const PartEntry& entry : now) {
    EXPECT_FALSE(entry.compiled);
    EXPECT_EQ(entry.runnable, Runnable::kNothing);
  }

  ASSERT_TRUE(executable->bind(tokens(9)).ok());
  bench.load(1);
  ASSERT_TRUE(executable->run(tokens(9)).ok());
  ASSERT_TRUE(executable->run(tokens(9)).ok());
  now = entries();
  for (const PartEntry& entry : now) {
    EXPECT_TRUE(entry.compiled);
    EXPECT_EQ(entry.runnable, Runnable::kKernels);
    EXPECT_EQ(entry.num_finished_warmup, 2);
  }

  ASSERT_TRUE(executable->capture(tokens(9)).ok());
  ASSERT_TRUE(executable->replay(tokens(9)).ok());
  now = entries();
  EXPECT_EQ(now[0].runnable, Runnable::kGraph);
  EXPECT_EQ(now[1].runnable, Runnable::kKernels);
  EXPECT_EQ(now[0].num_finished_warmup, 2) << "a replay is no warm-up";
}

TEST(PartEntries, ValuesAreWhereTheyAreBound) {
  ExecutableBench bench = two_cuts();
  const std::unique_ptr<Executable> executable = *bench.create(kCuts);
  const std::vector<PartEntry> planned = *executable->entries(tokens(9));
  ASSERT_TRUE(executable->bind(tokens(9)).ok());
  const std::vector<PartEntry> bound = *executable->entries(tokens(9));
  for (std::size_t p = 0; p < bound.size(); ++p) {
    ASSERT_EQ(bound[p].outputs.size(), planned[p].outputs.size());
    for (std::size_t i = 0; i < bound[p].outputs.size(); ++i) {
      const EntryValue& output = bound[p].outputs[i];
      EXPECT_EQ(output.arena_offset, planned[p].outputs[i].arena_offset) << output.name;
      EXPECT_EQ(output.address, bench.arena().base() + output.arena_offset) << output.name;
      EXPECT_FALSE(planned[p].outputs[i].address);
    }
  }
  const EntryValue& x = bound[0].inputs[0];
  EXPECT_EQ(x.name, "x");
  EXPECT_EQ(x.arena_offset, -1);
  EXPECT_EQ(x.address, bench.external("x"));
  const EntryValue& e = bound[4].outputs.back();
  EXPECT_EQ(e.name, "e");
  EXPECT_EQ(e.address, executable->output(tokens(9), 0)->data);
}

TEST(PartEntries, TextIsStable) {
  ExecutableBench bench(testing::parse(R"(graph @g {
    input %x: f32[T, 8]
    %a: f32[T, 8] = scale(%x) {factor = 2.0}
    %room: f32[T, 8] = empty_like(%a)
    store(%a, mut %room)
    %flat: f32[8*T] = reshape(%room) {shape = "8*T"}
    return %flat })",
                                       bench_ops()),
                        16);
  const std::unique_ptr<Executable> executable = *bench.create(kCuts);
  EXPECT_EQ(to_text(*executable->entries(tokens(4))), R"(piece 0 at T=4
  need to compile: yes, use graph: yes, compiled: no, runnable: nothing, warm-ups: 0
  inputs:  %x 128 bytes
  outputs: %a 128 bytes at arena+256, %room 128 bytes at arena+0
split op 1: store at T=4
  need to compile: yes, use graph: no, compiled: no, runnable: nothing, warm-ups: 0
  inputs:  %a 128 bytes at arena+256, %room 128 bytes at arena+0
  outputs: -
piece 2 at T=4
  need to compile: no, use graph: no, compiled: no, runnable: nothing, warm-ups: 0
  inputs:  %room 128 bytes at arena+0
  outputs: %flat 128 bytes at arena+0
)");
  ASSERT_TRUE(executable->bind(tokens(4)).ok());
  EXPECT_THAT(to_text(*executable->entries(tokens(4))), HasSubstr("%x 128 bytes at 0x"));
  ASSERT_TRUE(executable->capture(tokens(4)).ok());
  EXPECT_THAT(to_text(*executable->entries(tokens(4))), HasSubstr("runnable: graph"));
}

TEST(PartEntries, ASizeAboveTheLargestIsAnError) {
  ExecutableBench bench = two_cuts();
  EXPECT_FALSE((*bench.create(kCuts))->entries(tokens(25)).ok());
}

}  // namespace
}  // namespace tessera
