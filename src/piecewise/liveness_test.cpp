// Catches: memory that is reused while a later step still reads it under another name, through a view or in another
// part; and outputs that are overwritten before the forward ends.
#include "tessera/piecewise/liveness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tessera/compile/eager.h"
#include "tessera/compile/value_memory_test_util.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tessera/ops/built_in_ops.h"
#include "tessera/piecewise/splitter.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::tokens;

// Compiles the forward eagerly.
CompiledForward forward_of(std::string_view text, const std::vector<std::string>& split_ops = {}) {
  static const std::unique_ptr<CpuDevice> device = CpuDevice::create({.threads = 1}).value();
  const StitchingGraph graph = *split_graph(testing::parse(text, built_in_ops()), built_in_ops(), split_ops);
  return *compile_forward(graph,
                          *make_eager_compiler({.device = *device, .ops = built_in_ops(), .kernels = cpu_kernels()}));
}

// Returns the live ranges as text, such as "q 0-3, out 2-5". A range has the name of the slot that owns the memory.
std::string ranges_of(const CompiledForward& forward) {
  const Result<Liveness> live = analyze_liveness(forward);
  if (!live.ok()) return live.status().message();
  std::ostringstream text;
  for (const Liveness::Range& r : live->ranges) {
    text << (text.tellp() > 0 ? ", " : "") << forward.slots[static_cast<std::size_t>(r.slot)].name << " " << r.first
         << "-" << r.last;
  }
  return text.str();
}

TEST(Liveness, FromItsMakerToItsLastReader) {
  EXPECT_EQ(ranges_of(forward_of(R"(graph @g {
    input %x: f32[T, 4] weight %w: f32[4, 4]
    %a = linear(%x, %w)
    %b = linear(%a, %w)
    %unused = linear(%a, %w)
    %c = add(%b, %a)
    return %c })")),
            "a 0-3, b 1-3, unused 2-2, c 3-4");
}

TEST(Liveness, OutputsLastToTheEndWhereverTheyAreMade) {
  EXPECT_EQ(ranges_of(forward_of(R"(graph @g {
    input %x: f32[T, 4] weight %w: f32[4, 4]
    %early = linear(%x, %w)
    %b = linear(%x, %w)
    %c = linear(%b, %w)
    return %c, %early })")),
            "early 0-3, b 1-2, c 2-3");
}

TEST(Liveness, AViewKeepsItsBaseAlive) {
  EXPECT_EQ(ranges_of(forward_of(R"(graph @g {
    input %x: f32[T, 4] weight %w: f32[4, 4] weight %w2: f32[2, 2]
    %a = linear(%x, %w)
    %v: f32[2*T, 2] = reshape(%a) {shape = "2*T, 2"}
    %b = linear(%x, %w)
    %vv: f32[T, 4] = reshape(%v) {shape = "T, 4"}
    %c = add(%b, %vv)
    return %c })")),
            "a 0-2, b 1-2, c 2-3");
}

TEST(Liveness, AnOutputViewKeepsItsBaseAlive) {
  EXPECT_EQ(ranges_of(forward_of(R"(graph @g {
    input %x: f32[T, 4] weight %w: f32[4, 4]
    %a = linear(%x, %w)
    %v: f32[2*T, 2] = reshape(%a) {shape = "2*T, 2"}
    %b = linear(%x, %w)
    return %v, %b })")),
            "a 0-2, b 1-2");
}

TEST(Liveness, AllocatedMemoryLivesFromItsFirstWrite) {
  constexpr const char* kText = R"(graph @g {
    input %x: f32[T, 8] weight %w: f32[8, 8]
    state %k: f32[P, 16, 1, 8] state %v: f32[P, 16, 1, 8] group "full" paged layers [0]
    %out: f32[T, 8] = empty_like(%x)
    %q = linear(%x, %w)
    attention(%q, %k, %v, mut %out) {group = 0, scale = 1.0}
    %y = linear(%out, %w)
    return %y })";
  EXPECT_EQ(ranges_of(forward_of(kText)), "q 0-1, out 1-2, y 2-3");
  EXPECT_EQ(ranges_of(forward_of(kText, {"attention"})), "q 0-1, out 1-2, y 2-3") << "steps count through all parts";
}

TEST(Liveness, CutsChangeNothing) {
  constexpr const char* kText = R"(graph @g {
    input %x: f32[T, 4] weight %w: f32[4, 4]
    %a = linear(%x, %w)
    %v: f32[2*T, 2] = reshape(%a) {shape = "2*T, 2"}
    %b = scale(%x) {factor = 2.0}
    %c = linear(%b, %w)
    %vv: f32[T, 4] = reshape(%v) {shape = "T, 4"}
    %d = add(%c, %vv)
    return %d })";
  const std::string whole = ranges_of(forward_of(kText));
  for (const std::vector<std::string>& cuts :
       {std::vector<std::string>{"scale"}, {"linear"}, {"reshape"}, {"scale", "add", "reshape", "linear"}})
    EXPECT_EQ(ranges_of(forward_of(kText, cuts)), whole);
}

TEST(Liveness, AViewOfAnInputNeedsNoMemory) {
  EXPECT_EQ(ranges_of(forward_of(R"(graph @g { input %x: f32[T, 4]
    %v: f32[2*T, 2] = reshape(%x) {shape = "2*T, 2"} %y = add(%v, %v) return %y })")),
            "y 0-1");
}

TEST(Liveness, AnOutputThatIsAnInputIsRefused) {
  for (const char* text : {"graph @g { input %x: f32[T] return %x }",
                           "graph @g { input %y: f32[T] %x: f32[T] = reshape(%y) {shape = \"T\"} return %x }"})
    EXPECT_THAT(ranges_of(forward_of(text)), AllOf(HasSubstr("%x"), HasSubstr("not made by the forward")));
}

TEST(LiveRanges, HaveTheBucketsBytesAndFixedOutputPlaces) {
  const CompiledForward forward = forward_of(R"(graph @g {
    input %x: f32[T, 4] weight %w: f32[8, 4] weight %w2: f32[4, 8]
    %a = linear(%x, %w)
    %b = linear(%a, %w2)
    %v: f32[4*T] = reshape(%b) {shape = "4*T"}
    return %v })");
  const Liveness live = *analyze_liveness(forward);
  const std::vector<LiveRange> free = *live_ranges(forward, live, tokens(3), {});
  ASSERT_EQ(free.size(), 2u);
  EXPECT_EQ(free[0].bytes, 96);
  EXPECT_EQ(free[1].bytes, 48);
  EXPECT_EQ(free[0].fixed_offset, -1);
  EXPECT_EQ(free[1].fixed_offset, -1);

  const std::vector<LiveRange> fixed = *live_ranges(forward, live, tokens(5), std::vector<std::int64_t>{1024});
  EXPECT_EQ(fixed[0].bytes, 160);
  EXPECT_EQ(fixed[0].fixed_offset, -1);
  EXPECT_EQ(fixed[1].fixed_offset, 1024);
  EXPECT_EQ(fixed[1].first, 0) << "an output's place is free from the start";
  EXPECT_EQ(fixed[1].last, live.ranges[1].last);
}

// A joined kernel that computes %a and %b together still reads %y when it writes %b, so %b must not share %y's memory.
TEST(LiveRanges, ValuesOfAJoinedKernelLastUntilItsEnd) {
  CompiledForward forward = forward_of(R"(graph @g {
    input %x: f32[T, 4] weight %w: f32[4, 4]
    %y = linear(%x, %w)
    %a = linear(%y, %w)
    %b = linear(%a, %w)
    return %b })");
  EXPECT_EQ(ranges_of(forward), "y 0-1, a 1-2, b 2-3");
  Program& program = const_cast<Program&>(*forward.parts[0].program);
  program.instructions[1].joins.push_back({.name = "both", .instructions = 2, .most_rows = 2, .bind = {}});
  const Liveness live = *analyze_liveness(forward);
  const std::vector<LiveRange> joined = *live_ranges(forward, live, tokens(2), {});
  EXPECT_EQ(joined[0].last, 2);
  EXPECT_EQ(joined[1].last, 2);
  EXPECT_EQ(joined[2].last, 3);
  EXPECT_EQ((*live_ranges(forward, live, tokens(3), {}))[0].last, 1) << "it serves two rows at most";
}

// When instructions run in halves, the first half of a later value is written before the second half of an earlier
// value is read, so the two must not share memory.
TEST(LiveRanges, ValuesOfHalvesLastUntilTheirEnd) {
  CompiledForward forward = forward_of(R"(graph @g {
    input %x: f32[T, 4] weight %w: f32[4, 4]
    %y = linear(%x, %w)
    %a = linear(%y, %w)
    all_reduce(mut %a)
    %b = linear(%a, %w)
    %c = linear(%b, %w)
    %d = linear(%c, %w)
    return %d })");
  EXPECT_EQ(ranges_of(forward), "y 0-1, a 1-3, b 3-4, c 4-5, d 5-6");
  Program& program = const_cast<Program&>(*forward.parts[0].program);
  program.halves.push_back({.first = 1, .end = 5, .least_tokens = 8});
  const Liveness live = *analyze_liveness(forward);
  const std::vector<LiveRange> ranges = *live_ranges(forward, live, tokens(8), {});
  std::vector<std::int32_t> last;
  for (const LiveRange& range : ranges) last.push_back(range.last);
  EXPECT_THAT(last, ::testing::ElementsAre(4, 4, 4, 5, 6));
  EXPECT_EQ((*live_ranges(forward, live, tokens(7), {}))[0].last, 1) << "fewer tokens run whole";
}

TEST(LiveRanges, SizesThatDoNotDivideAreAnError) {
  const CompiledForward forward =
      forward_of("graph @g { input %x: f32[T/2, 4] %y = scale(%x) {factor = 2.0} return %y }");
  const Liveness live = *analyze_liveness(forward);
  EXPECT_TRUE(live_ranges(forward, live, tokens(4), {}).ok());
  EXPECT_FALSE(live_ranges(forward, live, tokens(5), {}).ok());
}

}  // namespace
}  // namespace tessera
