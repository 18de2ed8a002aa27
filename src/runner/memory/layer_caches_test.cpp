// Catches: piecewise graphs that stay enabled although a layer has no token-mixing operator that graphs can run, or has
// no operator that uses its cache.
#include "tessera/runner/memory/layer_caches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/ir/text.h"
#include "tessera/runner/dispatch/rules.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Makes a graph of two layers. The first layer has attention, and `rest` is the text of the second layer.
ir::Graph model(const std::string& groups, const std::string& rest) {
  Result<ir::Graph> graph = ir::parse_graph("graph @body { " + groups + R"(
    input %q: f32[T, 16]
    state %k.0: f32[P, 16, 1, 8] state %v.0: f32[P, 16, 1, 8]
    %a.0: f32[T, 16] = empty_like(%q)
    attention(%q, %k.0, %v.0, mut %a.0) {group = 0, scale = 0.5}
    )" + rest + " return %a.0 }",
                                            nullptr);
  EXPECT_TRUE(graph.ok()) << graph.status().message();
  return graph.ok() ? *std::move(graph) : ir::Graph{};
}

std::vector<std::string> messages(const LayerCaches& caches) {
  return apply_rules({.standard_gqa = caches.standard_gqa, .undeclared_layers = caches.undeclared}).messages;
}

constexpr const char* kGqaNote = "Disable piecewise CUDA graph because some layers do not apply Standard GQA";
constexpr const char* kLayoutNote =
    "Disable piecewise CUDA graph because the operators do not declare the cache layout of some layers: 1";

TEST(LayerCaches, AttentionOverPagesInEveryLayerIsStandard) {
  const LayerCaches caches =
      layer_caches(model("group \"full\" paged layers [0] group \"near\" window 4 layers [1]", R"(
    state %k.1: f32[P1, 16, 1, 8]
    %a.1: f32[T, 16] = empty_like(%q)
    attention(%q, %k.1, %k.1, mut %a.1) {group = 1, scale = 0.5, window = 4})"),
                   {0, 2});
  EXPECT_TRUE(caches.standard_gqa);
  EXPECT_THAT(caches.undeclared, IsEmpty());
  EXPECT_THAT(messages(caches), IsEmpty());
}

TEST(LayerCaches, LatentAttentionInEveryLayerIsStandard) {
  const std::string groups = R"(group "full" paged layers [0] group "latent" latent layers [1])";
  const std::string state = "state %c.1: f32[P1, 16, 8] %a.1: f32[T, 8] = empty() {dtype = \"f32\", shape = \"T, 8\"} ";
  EXPECT_THAT(messages(layer_caches(
                  model(groups, state + "latent_attention(%q, %c.1, mut %a.1) {group = 1, scale = 0.5}"), {0, 2})),
              IsEmpty());
  EXPECT_THAT(messages(layer_caches(model(groups, state + "other(%q, %c.1, mut %a.1) {group = 1}"), {0, 2})),
              ElementsAre(kGqaNote));
}

TEST(LayerCaches, ALayerWithoutACacheTurnsOnBothRules) {
  const LayerCaches caches = layer_caches(model("group \"full\" paged layers [0]", ""), {0, 2});
  EXPECT_THAT(messages(caches), ElementsAre(kGqaNote, kLayoutNote));
}

TEST(LayerCaches, AStateWithoutAnOperatorIsNotDeclared) {
  const LayerCaches caches = layer_caches(
      model("group \"full\" paged layers [0] group \"memory\" state layers [1]", "state %s.1: f32[P1, 8]"), {0, 2});
  EXPECT_THAT(caches.undeclared, ElementsAre(1));
}

TEST(LayerCaches, AnotherMixingOperatorIsDeclaredButNotGqa) {
  const LayerCaches caches = layer_caches(model("group \"full\" paged layers [0] group \"memory\" state layers [1]",
                                                "state %s.1: f32[P1, 8] other_net(%q, mut %s.1) {group = 1}"),
                                          {0, 2});
  EXPECT_THAT(messages(caches), ElementsAre(kGqaNote));
}

// The second layer also has a convolution, which has its own state.
TEST(LayerCaches, AGatedDeltaNetIsHeldByGraphs) {
  const LayerCaches caches = layer_caches(model("group \"full\" paged layers [0] group \"memory\" state layers [1]", R"(
    state %c.1: f32[P1, 8] causal_conv(%q, mut %c.1) {group = 1}
    state %s.1: f32[P1, 8] gated_delta_net(%q, mut %s.1) {group = 1})"),
                                          {0, 2});
  EXPECT_THAT(messages(caches), IsEmpty());
}

TEST(LayerCaches, TwoLayersThatShareOneAttentionAreNotGqa) {
  const LayerCaches caches = layer_caches(model("group \"full\" paged layers [0, 1]", ""), {0, 2});
  EXPECT_FALSE(caches.standard_gqa);
}

}  // namespace
}  // namespace tessera
