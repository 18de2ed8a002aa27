// Catches: a plugin's pass that removes inputs or outputs which the engine needs; a plugin's text that is accepted
// although it is wrong.
#include "tessera/plugin/graph_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/ir/text.h"
#include "tessera/ops/built_in_ops.h"
#include "tessera/plugin/c_values.h"

namespace tessera::plugin {
namespace {

using ::testing::HasSubstr;

constexpr const char* kGraph = "graph @g {\n  input %x: f32[T, 8]\n  %y: f32[T, 8] = silu(%x)\n  return %y\n}\n";

Result<std::optional<ir::Graph>> rewritten_as(const std::string& text) {
  const ir::OpTable ops = built_in_ops();
  return rewrite_graph(ir::parse_graph(kGraph, &ops).value(), ops,
                       [&](const char* graph, const tessera_plugin_text* out, tessera_plugin_error*) {
                         EXPECT_STREQ(graph, kGraph);
                         out->append(out, text.data(), text.size());
                         return TESSERA_PLUGIN_OK;
                       });
}

TEST(RewriteGraph, AcceptsAGraphWithTheSameInterface) {
  EXPECT_FALSE(rewritten_as("")->has_value());
  EXPECT_FALSE(rewritten_as(kGraph)->has_value());
  const auto changed =
      rewritten_as("graph @g { input %x: f32[T, 8]  %a = silu(%x)  %y = add(%a, %a)  return %y }").value();
  ASSERT_TRUE(changed.has_value());
  EXPECT_EQ(changed->nodes.size(), 2u);
}

TEST(RewriteGraph, RefusesAGraphWithAnotherInterface) {
  for (const char* text : {"graph @g { input %x: f32[T, 8]  %z = silu(%x)  return %z }",
                           "graph @g { input %u: f32[T, 8]  %y = silu(%u)  return %y }",
                           "graph @g { input %x: f32[T, 4]  %y = silu(%x)  return %y }",
                           "graph @g { input %x: f32[T, 8]  %y = silu(%x)  return %y, %y }"})
    EXPECT_THAT(rewritten_as(text).status().message(), HasSubstr("must stay as they are")) << text;
  EXPECT_THAT(rewritten_as("graph @g { %y = sillu(%x) return %y }").status().message(), HasSubstr("line 1"));
}

// Converts every form of dimension to C and back. The dimension must not change.
TEST(CValues, TypesSurviveARoundTrip) {
  for (const char* dim : {"T", "64", "0", "2*T + 8", "(T + 4)/2", "-3*T + P1 - 7", "(2*T - B + 5*P3)/6", "9/2"}) {
    const ir::Type type{ir::DType::kBFloat16, {ir::Dim::parse(dim).value(), 3}};
    EXPECT_EQ(from_c(to_c(type).value()).value(), type) << dim;
  }
  tessera_plugin_type wrong = to_c(ir::Type{ir::DType::kInt32, {ir::Symbol::kRows}}).value();
  wrong.dims[0].divisor = 0;
  EXPECT_THAT(from_c(wrong).status().message(), HasSubstr("divisor is 0"));
  wrong = {.dtype = 7, .rank = 0, .dims = {}};
  EXPECT_THAT(from_c(wrong).status().message(), HasSubstr("dtype is 7"));
  wrong = {.dtype = 0, .rank = 6, .dims = {}};
  EXPECT_THAT(from_c(wrong).status().message(), HasSubstr("rank is 6"));
}

}  // namespace
}  // namespace tessera::plugin
