// Tests how a model is divided into pipeline stages. Catches: a stage that lacks a value of an earlier stage; a stage
// that sends a value that later stages do not read; a stage that repeats nodes with weights; a stage that reads the
// cache of another stage's layer; stages whose weights together are not the model's weights.
#include "tessera/model/stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tessera/ir/text.h"
#include "tessera/ir/verify.h"
#include "tessera/model/config/config_test_util.h"
#include "tessera/model/model.h"
#include "tessera/ops/built_in_ops.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

TEST(LayersOfStage, AreAllLayersInEqualParts) {
  EXPECT_EQ(layers_of_stage(5, 0, 2), (LayerRange{0, 2}));
  EXPECT_EQ(layers_of_stage(5, 1, 2), (LayerRange{2, 5}));
  for (int stages = 1; stages <= 7; ++stages) {
    std::int64_t next = 0;
    for (int stage = 0; stage < stages; ++stage) {
      const LayerRange layers = layers_of_stage(7, stage, stages);
      EXPECT_EQ(layers.begin, next);
      EXPECT_GT(layers.end, layers.begin);
      next = layers.end;
    }
    EXPECT_EQ(next, 7);
  }
}

// A body with three layers. %t depends only on inputs and a constant. Only the last layer reads %s.
constexpr const char* kBody = R"(graph @body {
  group "full" paged layers [0, 1, 2]
  input %ids: i32[T]
  input %positions: i32[T]
  weight %table: f32[32, 8]
  weight %frequencies: f32[2]
  weight %w.0: f32[8]
  weight %w.1: f32[8]
  weight %w.2: f32[8]
  %e: f32[T, 8] = embed(%ids, %table)
  %t: f32[T, 4] = rotation(%positions, %frequencies)
  %h.0: f32[T, 8] = layer(%e, %t, %w.0)
  %s: f32[T, 2] = side(%h.0)
  %h.1: f32[T, 8] = layer(%h.0, %t, %w.1)
  %h.2: f32[T, 8] = last(%h.1, %t, %w.2, %s)
  return %h.2
})";
constexpr std::array<std::size_t, 3> kStarts{2, 4, 5};

BodyCuts cuts() {
  return {.layer_starts = kStarts, .is_constant = [](std::string_view weight) { return weight == "frequencies"; }};
}

std::string stage_text(const std::string& body, const LayerRange& layers) {
  const Result<ir::Graph> graph = ir::parse_graph(body, nullptr);
  EXPECT_TRUE(graph.ok()) << graph.status().to_string();
  const Result<ir::Graph> stage = take_stage(*graph, layers, cuts());
  return stage.ok() ? ir::to_text(*stage) : stage.status().to_string();
}

std::string as_printed(const std::string& text) {
  const Result<ir::Graph> graph = ir::parse_graph(text, nullptr);
  EXPECT_TRUE(graph.ok()) << graph.status().to_string();
  return graph.ok() ? ir::to_text(*graph) : "";
}

TEST(TakeStage, TheFirstSendsWhatLaterLayersRead) {
  EXPECT_EQ(stage_text(kBody, {0, 1}), as_printed(R"(graph @body {
  group "full" paged layers [0]
  input %ids: i32[T]
  input %positions: i32[T]
  weight %table: f32[32, 8]
  weight %frequencies: f32[2]
  weight %w.0: f32[8]
  %e: f32[T, 8] = embed(%ids, %table)
  %t: f32[T, 4] = rotation(%positions, %frequencies)
  %h.2: f32[T, 8] = layer(%e, %t, %w.0)
  %s: f32[T, 2] = side(%h.2)
  send_to_next(mut %h.2)
  send_to_next(mut %s)
  return %h.2
})"));
}

TEST(TakeStage, AMiddleStagePassesOnValuesForLaterStages) {
  EXPECT_EQ(stage_text(kBody, {1, 2}), as_printed(R"(graph @body {
  group "full" paged layers [1]
  input %ids: i32[T]
  input %positions: i32[T]
  weight %frequencies: f32[2]
  weight %w.1: f32[8]
  %t: f32[T, 4] = rotation(%positions, %frequencies)
  %h.0: f32[T, 8] = empty() {dtype = "f32", shape = "T, 8"}
  receive_from_previous(mut %h.0)
  %s: f32[T, 2] = empty() {dtype = "f32", shape = "T, 2"}
  receive_from_previous(mut %s)
  %h.2: f32[T, 8] = layer(%h.0, %t, %w.1)
  send_to_next(mut %s)
  send_to_next(mut %h.2)
  return %h.2
})"));
}

TEST(TakeStage, TheLastReceivesInTheOrderOfSending) {
  EXPECT_EQ(stage_text(kBody, {2, 3}), as_printed(R"(graph @body {
  group "full" paged layers [2]
  input %ids: i32[T]
  input %positions: i32[T]
  weight %frequencies: f32[2]
  weight %w.2: f32[8]
  %t: f32[T, 4] = rotation(%positions, %frequencies)
  %s: f32[T, 2] = empty() {dtype = "f32", shape = "T, 2"}
  receive_from_previous(mut %s)
  %h.1: f32[T, 8] = empty() {dtype = "f32", shape = "T, 8"}
  receive_from_previous(mut %h.1)
  %h.2: f32[T, 8] = last(%h.1, %t, %w.2, %s)
  return %h.2
})"));
}

TEST(TakeStage, ACacheOfAnotherStageIsRefused) {
  std::string body = kBody;
  body.replace(body.find("weight %w.0"), 0, "state %k.0: f32[P, 16, 1, 8]\n  ");
  for (const char* call : {"layer(%e, %t, %w.0", "last(%h.1, %t, %w.2"})
    body.replace(body.find(call), std::string(call).size(), std::string(call) + ", %k.0");
  EXPECT_THAT(stage_text(body, {0, 1}), HasSubstr("layers of several stages read %k.0"));
}

TEST(TakeStage, AValueWithoutTokenRowsIsNotSent) {
  std::string body = kBody;
  for (const char* type : {"%s: f32[T, 2]"}) body.replace(body.find(type), std::string(type).size(), "%s: f32[2]");
  EXPECT_THAT(stage_text(body, {0, 1}), HasSubstr("send_to_next takes X[T, N], not f32[2]"));
}

// Checks three families, one of them with experts. Each weight must be in exactly one stage, except constants and a
// tied embedding, which several stages may have. Each stage must list all weights of the model: its own weights, and
// the weights of other stages.
TEST(BuildModel, StagesHaveTheModelsWeights) {
  for (const char* architecture : {"LlamaForCausalLM", "Gemma2ForCausalLM", "Qwen3MoeForCausalLM"}) {
    SCOPED_TRACE(architecture);
    Json json = test::small_config(architecture, "{}");
    json.set("num_hidden_layers", 4);
    const ModelConfig config = *ModelConfig::from_json(json, "m/config.json", built_in_families());
    const ModelGraphs whole = *build_model(config, {}, built_in_ops(), built_in_families());
    std::map<std::string, int> found;
    for (int stage = 0; stage < 3; ++stage) {
      const Result<ModelGraphs> part =
          build_model(config, {.pp_stage = stage, .pp_size = 3}, built_in_ops(), built_in_families());
      ASSERT_TRUE(part.ok()) << part.status().to_string();
      EXPECT_TRUE(ir::verify(part->body, built_in_ops()).ok());
      EXPECT_EQ(part->has_head, stage == 2);
      EXPECT_EQ(parameter_count(all_weights(*part)), parameter_count(whole.weights));
      for (const WeightSpec& spec : part->weights) ++found[spec.name];
    }
    for (const WeightSpec& spec : whole.weights) {
      const bool shared =
          spec.parts.empty() || (config.tie_word_embeddings && spec.name.find("embed") != std::string::npos);
      EXPECT_GE(found[spec.name], 1) << spec.name;
      EXPECT_LE(found[spec.name], shared ? 3 : 1) << spec.name;
    }
    const Status refused =
        build_model(config, {.pp_stage = 0, .pp_size = 5}, built_in_ops(), built_in_families()).status();
    EXPECT_EQ(refused.message(), "pp_size: 5 is not accepted; 1 to 4, the number of layers, is");
  }
}

}  // namespace
}  // namespace tessera
