// Catches: rows that are gathered from all ranks in halves but read as if they were gathered at once, or the other way
// round; and a two-batch overlap that was requested but is left out without a note.
#include "tessera/piecewise/halved_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/compile/eager.h"
#include "tessera/compile/value_memory_test_util.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tessera/ops/built_in_ops.h"
#include "tessera/piecewise/splitter.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

CompiledForward forward_of(std::string_view text, const std::vector<std::string>& split_ops) {
  static const std::unique_ptr<CpuDevice> device = CpuDevice::create({.threads = 1}).value();
  const StitchingGraph graph = *split_graph(testing::parse(text, built_in_ops()), built_in_ops(), split_ops);
  return *compile_forward(
      graph, *make_eager_compiler(
                 {.device = *device, .ops = built_in_ops(), .kernels = cpu_kernels(), .options = {.halves_from = 2}}));
}

std::size_t runs(const CompiledForward& forward) {
  std::size_t count = 0;
  for (const CompiledPart& part : forward.parts) count += part.program->halves.size();
  return count;
}

// %marks is gathered once and read in two layers. A model reads its cache slots in the same way.
constexpr const char* kTwoLayers = R"(graph @g {
  input %x: f32[T, 4] input %marks: f32[T, 4] weight %w: f32[4, 4]
  state %k: f32[P, 16, 1, 4] state %v: f32[P, 16, 1, 4] group "full" paged layers [0]
  %m: f32[2*T, 4] = all_gather_rows(%marks) {ranks = 2}
  %a: f32[2*T, 4] = all_gather_rows(%x) {ranks = 2}
  %b: f32[2*T, 4] = mul(%a, %m)
  %own: f32[T, 4] = reduce_scatter(%b) {ranks = 2}
  %q: f32[T, 4] = linear(%own, %w)
  %out: f32[T, 4] = empty_like(%q)
  attention(%q, %k, %v, mut %out) {group = 0, scale = 1.0}
  %c: f32[2*T, 4] = all_gather_rows(%out) {ranks = 2}
  %d: f32[2*T, 4] = mul(%c, %m)
  %y: f32[T, 4] = reduce_scatter(%d) {ranks = 2}
  return %y
})";

TEST(HalvedRows, GatheredInHalvesMayBeReadInHalves) {
  const CompiledForward forward = forward_of(kTwoLayers, {"attention"});
  EXPECT_EQ(runs(forward), 2U);
  EXPECT_THAT(forward.notes, IsEmpty());
}

TEST(HalvedRows, AreDroppedIfARunReadsThemWhole) {
  for (const char* split : {"all_gather_rows", "reduce_scatter", "mul"}) {
    const CompiledForward forward = forward_of(kTwoLayers, {"attention", split});
    EXPECT_EQ(runs(forward), 0U) << split;
    EXPECT_THAT(forward.notes, ElementsAre(HasSubstr("two-batch overlap is left out: "))) << split;
  }
  EXPECT_THAT(forward_of(kTwoLayers, {"attention", "reduce_scatter"}).notes,
              ElementsAre(HasSubstr("operator reduce_scatter in ")));
}

constexpr const char* kOneLayer = R"(graph @g {
  input %x: f32[T, 4] weight %w: f32[4, 4]
  %a = linear(%x, %w)
  all_reduce(mut %a)
  %b = scale(%a) {factor = 2.0}
  return %b
})";

TEST(HalvedRows, OwnRowsMayBeReadWhole) {
  const CompiledForward forward = forward_of(kOneLayer, {"scale"});
  EXPECT_EQ(runs(forward), 1U);
  EXPECT_THAT(forward.notes, IsEmpty());
}

TEST(HalvedRows, AForwardWithoutAnExchangeIsNoted) {
  const CompiledForward forward = forward_of(kOneLayer, {"all_reduce"});
  EXPECT_EQ(runs(forward), 0U);
  EXPECT_THAT(forward.notes, ElementsAre(HasSubstr("no piece has an exchange between ranks")));
}

}  // namespace
}  // namespace tessera
