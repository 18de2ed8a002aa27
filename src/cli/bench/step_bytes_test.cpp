// Catches: a wrong count of the bytes that a decode step moves, because one head size is used for all layers, because
// an attention window or a cache that several layers share is overlooked, or because more or fewer bytes of a recurrent
// state or a lookup table are counted than the step moves.
#include "tessera/cli/bench/step_bytes.h"

#include <gtest/gtest.h>

#include "tessera/ir/text.h"

namespace tessera::cli {
namespace {

constexpr std::int64_t kPage = 16;

// Two layers attend to the cache of layer 1. The state of layer 3 has 5 · 7 floats.
constexpr const char* kBody = R"(graph @body {
  group "window.100" window 100 layers [0]
  group "full" paged layers [1]
  group "state" state layers [3]
  input %ids: i32[T]
  input %slots: i32[T]
  weight %table: bf16[300, 8]
  weight %layer_table: bf16[300, 24]
  weight %w: bf16[8, 8]
  state %k_cache.0: bf16[P, 16, 2, 4]
  state %v_cache.0: bf16[P, 16, 2, 4]
  state %k_cache.1: bf16[P1, 16, 1, 32]
  state %v_cache.1: bf16[P1, 16, 1, 32]
  state %delta.3: f32[P2, 5, 7]
  %h: bf16[T, 8] = embedding(%ids, %table)
  %own: bf16[T, 24] = embedding(%ids, %layer_table)
  kv_store(%h, %h, %slots, mut %k_cache.0, mut %v_cache.0)
  attention(%h, %k_cache.0, %v_cache.0, mut %h) {group = 0}
  kv_store(%h, %h, %slots, mut %k_cache.1, mut %v_cache.1)
  attention(%h, %k_cache.1, %v_cache.1, mut %h) {group = 1}
  attention(%h, %k_cache.1, %v_cache.1, mut %h) {group = 1}
  %y: bf16[T, 8] = gated_delta_net(%h, mut %delta.3) {group = 2}
  return %y
})";

ir::Graph graph(const char* text) {
  Result<ir::Graph> parsed = ir::parse_graph(text, nullptr);
  EXPECT_TRUE(parsed.ok()) << parsed.status().to_string();
  return parsed.ok() ? *std::move(parsed) : ir::Graph{};
}

TEST(StepBytes, CacheBytesFollowEachLayersHeadsAndWindow) {
  const ir::Graph body = graph(kBody);
  constexpr std::int64_t kWindowToken = 2 * 2 * 4 * 2;  // keys and values, heads, head size, bytes of an element
  constexpr std::int64_t kFullToken = 2 * 1 * 32 * 2;
  constexpr std::int64_t kState = 5 * 7 * 4;
  EXPECT_EQ(*cache_bytes(body, kPage, {.requests = 1, .context = 50}),
            50 * kWindowToken + 2 * 50 * kFullToken + 2 * kState);
  EXPECT_EQ(*cache_bytes(body, kPage, {.requests = 3, .context = 1000}),
            3 * (100 * kWindowToken + 2 * 1000 * kFullToken + 2 * kState));
}

TEST(StepBytes, TablesUsedOnlyForLookupsAreExcluded) {
  const ir::Graph body = graph(kBody);
  const ir::Graph untied = graph("graph @head { input %hidden: bf16[T, 8] weight %w: bf16[8, 8] return %hidden }");
  const ir::Graph tied = graph("graph @head { input %hidden: bf16[T, 8] weight %table: bf16[300, 8] return %hidden }");
  EXPECT_EQ(*looked_up_bytes(body, untied), 300 * (8 + 24) * 2);
  EXPECT_EQ(*looked_up_bytes(body, tied), 300 * 24 * 2);
}

TEST(StepBytes, ExpertsCountInTheirStoredTypes) {
  const ir::Graph body = graph(R"(graph @body {
  input %x: bf16[T, 64]
  input %weights: f32[T, 2]
  input %ids: i32[T, 2]
  weight %gate_up: u8[1024, 64]
  weight %down: u8[512, 64]
  weight %scales: f32[16, 1]
  %y: bf16[T, 64] = moe_experts(%x, %weights, %ids, %gate_up, %down, %scales)
  %z: bf16[T, 64] = moe_experts(%y, %weights, %ids, %gate_up, %down, %scales)
  return %z
})");
  EXPECT_EQ(*expert_bytes(body), 1024 * 64 + 512 * 64 + 16 * 4) << "each weight once";
  EXPECT_EQ(*expert_bytes(graph(kBody)), 0);
}

}  // namespace
}  // namespace tessera::cli
