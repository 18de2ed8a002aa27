// Catches: a delta net that is read with other sizes or in other layers than config.json says; contradictory fields
// that are accepted; weights that are split wrongly between ranks.
#include <cmath>

#include "tessera/model/config/config.h"
#include "tessera/model/family.h"
#include "tessera/model/model.h"
#include "tessera/model/test_support.h"
#include "tessera/model/weights/unread_tensors.h"
#include "tessera/ops/built_in_ops.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using ::testing::ElementsAre;

Result<ModelConfig> small_delta_net(const char* changes = "{}") {
  Json json = *Json::parse(R"({"architectures": ["Qwen3_5ForCausalLM"], "vocab_size": 512, "hidden_size": 64,
      "intermediate_size": 160, "num_hidden_layers": 5, "num_attention_heads": 4, "num_key_value_heads": 2,
      "head_dim": 32, "max_position_embeddings": 2048, "linear_num_key_heads": 2,
      "linear_num_value_heads": 6, "linear_key_head_dim": 16, "linear_value_head_dim": 8})",
                           "base");
  const Result<Json> extra = Json::parse(changes, "changes");
  EXPECT_TRUE(extra.ok()) << changes;
  for (const auto& [key, value] : extra->as_object()) json.set(key, value);
  return ModelConfig::from_json(json, "m/config.json", built_in_families());
}

Result<ModelGraphs> graphs_of(const ModelConfig& config, int rank = 0, int ranks = 1) {
  return build_model(config, {.tp_rank = rank, .tp_size = ranks}, built_in_ops(), built_in_families());
}

TEST(DeltaNetConfigs, ReadSizesAndLayers) {
  const ModelConfig config = *small_delta_net();
  EXPECT_THAT(config.delta_net->layers, ElementsAre(true, true, true, false, true));
  EXPECT_EQ(config.delta_net->key_heads, 2);
  EXPECT_EQ(config.delta_net->value_heads, 6);
  EXPECT_EQ(config.delta_net->key_head_dim, 16);
  EXPECT_EQ(config.delta_net->value_head_dim, 8);
  EXPECT_EQ(config.delta_net->conv_size, 4);
  EXPECT_TRUE(config.unit_offset_norms);
  EXPECT_TRUE(config.attention_gate);
  EXPECT_EQ(config.rope.partial_rotary_factor, 0.25);
  EXPECT_THAT(small_delta_net(R"({"full_attention_interval": 2})")->delta_net->layers,
              ElementsAre(true, false, true, false, true));
  EXPECT_THAT(
      small_delta_net(R"({"layer_types": ["full_attention", "linear_attention", "linear_attention", "linear_attention",
      "full_attention"]})")
          ->delta_net->layers,
      ElementsAre(false, true, true, true, false));
  EXPECT_TRUE(small_delta_net(R"({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.25,
      "mrope_section": [2, 1, 1], "mrope_interleaved": true}})")
                  .ok());
}

TEST(DeltaNetConfigs, RefuseContradictions) {
  const auto refused = [](const char* changes, StatusCode code, const std::vector<std::string>& parts) {
    SCOPED_TRACE(changes);
    expect_error(small_delta_net(changes), code, parts);
  };
  refused(R"({"layer_types": ["full_attention"]})", StatusCode::kInvalidArgument, {"layer_types", "(5)"});
  refused(R"({"layer_types": ["full_attention", "linear_attention", "linear_attention", "sliding_attention",
      "full_attention"]})",
          StatusCode::kUnimplemented, {"layer_types", "linear_attention"});
  refused(R"({"full_attention_interval": 4, "layer_types": ["full_attention", "linear_attention", "linear_attention",
      "full_attention", "linear_attention"]})",
          StatusCode::kInvalidArgument, {"layer_types", "every 4th layer", "full_attention_interval"});
  refused(R"({"linear_num_value_heads": 5})", StatusCode::kInvalidArgument, {"linear_num_value_heads", "(2)"});
  refused(R"({"linear_num_key_heads": 0})", StatusCode::kInvalidArgument, {"linear_num_key_heads"});
  refused(R"({"linear_value_head_dim": 4096})", StatusCode::kInvalidArgument, {"linear_value_head_dim"});
  refused(R"({"linear_conv_kernel_dim": 1})", StatusCode::kUnimplemented, {"linear_conv_kernel_dim", "2 to 8"});
  refused(R"({"linear_conv_kernel_dim": 9})", StatusCode::kInvalidArgument, {"linear_conv_kernel_dim"});
  refused(R"({"attn_output_gate": false})", StatusCode::kUnimplemented, {"attn_output_gate"});
  refused(R"({"hidden_act": "gelu"})", StatusCode::kUnimplemented, {"hidden_act", "silu"});
  refused(R"({"rope_parameters": {"rope_type": "default", "mrope_section": [2, 2, 1]}})", StatusCode::kInvalidArgument,
          {"mrope_section", "4 rotated pairs"});
}

// The layers use two cache groups. One group holds the KV cache of attention. The other group holds the states of the
// delta nets and has one slot for each sequence.
TEST(DeltaNetConfigs, LayersShareAStateGroup) {
  const Result<ModelGraphs> graphs = graphs_of(*small_delta_net());
  ASSERT_TRUE(graphs.ok()) << graphs.status().message();
  const std::vector<ir::CacheGroup>& groups = graphs->body.cache_groups;
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].kind, ir::CacheGroup::Kind::kState);
  EXPECT_THAT(groups[0].layers, ElementsAre(0, 1, 2, 4));
  EXPECT_EQ(groups[1].kind, ir::CacheGroup::Kind::kPaged);
  EXPECT_THAT(groups[1].layers, ElementsAre(3));
}

TEST(DeltaNetConfigs, RanksHoldWholeHeads) {
  for (const char* architecture : {"Qwen3_5ForCausalLM", "Qwen3NextForCausalLM", "Qwen3_5MoeForCausalLM"}) {
    const ModelConfig config =
        *small_delta_net((R"({"num_experts": 12, "architectures": [")" + std::string(architecture) + R"("]})").c_str());
    for (const int rank : {0, 1}) {
      const Result<ModelGraphs> graphs = graphs_of(config, rank, 2);
      ASSERT_TRUE(graphs.ok()) << graphs.status().message();
      EXPECT_EQ(parameter_count(graphs->weights), parameter_count(graphs_of(config)->weights));
    }
    expect_error(graphs_of(config, 0, 4), StatusCode::kInvalidArgument, {"linear_num_key_heads is 2", "4 ranks"});
  }
}

TEST(DeltaNetConfigs, MixturesReadTheirExperts) {
  const ModelConfig next = *small_delta_net(R"({"architectures": ["Qwen3NextForCausalLM"]})");
  EXPECT_EQ(next.moe->num_experts, 512);
  EXPECT_EQ(next.moe->experts_per_token, 10);
  EXPECT_EQ(next.moe->intermediate_size, 512);
  EXPECT_EQ(next.moe->shared_intermediate_size, 512);
  EXPECT_TRUE(next.moe->shared_gate && next.moe->normalise);
  EXPECT_EQ(next.moe->scoring, RouterScoring::kSoftmax);
  EXPECT_TRUE(next.tensor_prefix == "model." && next.unit_offset_norms && next.attention_gate);
  const ModelConfig changed = *small_delta_net(R"({"architectures": ["Qwen3NextForCausalLM"], "norm_topk_prob": false,
      "mlp_only_layers": [2], "shared_expert_intermediate_size": 48})");
  EXPECT_FALSE(changed.moe->normalise);
  EXPECT_THAT(changed.moe->layers, ElementsAre(true, true, false, true, true));
  EXPECT_EQ(changed.moe->shared_intermediate_size, 48);
  expect_error(small_delta_net(R"({"architectures": ["Qwen3NextForCausalLM"], "shared_expert_intermediate_size": 0})"),
               StatusCode::kInvalidArgument, {"shared_expert_intermediate_size"});

  // For Qwen3.5, Hugging Face's code ignores norm_topk_prob and mlp_only_layers. The router always normalises, and no
  // layer has an MLP.
  const ModelConfig later = *small_delta_net(R"({"architectures": ["Qwen3_5MoeForCausalLM"], "norm_topk_prob": false,
      "mlp_only_layers": [2]})");
  EXPECT_EQ(later.moe->num_experts, 256);
  EXPECT_EQ(later.moe->experts_per_token, 8);
  EXPECT_TRUE(later.moe->normalise);
  EXPECT_THAT(later.moe->layers, ::testing::Each(true));
}

// The expected counts are sums over the tensors' sizes: embeddings and head, delta nets, attention layers, MLPs or
// experts.
TEST(DeltaNetConfigs, PublishedModelsHaveTheirSizes) {
  const fs::path configs = test::shared_dir() / "data/configs/aiconfigurator";
  TESSERA_SKIP_WITHOUT(configs);
  const auto expect_size = [&](const char* file, const char* prefix, std::int64_t parameters) {
    const Result<ModelConfig> config = ModelConfig::read((configs / file).string(), built_in_families());
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_EQ(config->tensor_prefix, prefix);
    const Result<ModelGraphs> graphs = graphs_of(*config);
    ASSERT_TRUE(graphs.ok()) << graphs.status().message();
    EXPECT_EQ(parameter_count(graphs->weights), parameters) << file;
  };
  // The second summand is the size of the vision tower, which has 27 blocks of hidden size 1152 and a merger to 5120 or
  // 2048.
  expect_size("Qwen--Qwen3.5-27B_config.json", "model.language_model.", 26'895'998'464 + 460'730'096);
  expect_size("Qwen--Qwen3.5-35B-A3B_config.json", "model.language_model.", 34'660'610'688 + 446'571'248);
  expect_size("Qwen--Qwen3-Next-80B-A3B-Thinking_config.json", "model.", 79'674'391'296);
}

TEST(UnreadTensors, AreNamedByTheirUniquePrefix) {
  const fs::path folder = testing::data_path("goldens/qwen3.5");
  const Result<ModelConfig> config = ModelConfig::read(folder.string(), built_in_families());
  ASSERT_TRUE(config.ok()) << config.status().message();
  const Result<Checkpoint> checkpoint = Checkpoint::open(folder.string());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  std::vector<WeightSpec> specs = graphs_of(*config)->weights;
  EXPECT_EQ(unread_tensors(*checkpoint, specs), "mtp.* (2)") << "head and tower are read";
  std::erase_if(specs, [](const WeightSpec& spec) { return spec.name.starts_with("model.visual."); });
  const std::string unread = unread_tensors(*checkpoint, specs);
  EXPECT_TRUE(unread.starts_with("model.visual.* (")) << unread;
  EXPECT_TRUE(unread.ends_with(", mtp.* (2)")) << unread;
  std::erase_if(specs, [](const WeightSpec& spec) { return spec.name.starts_with("lm_head."); });
  EXPECT_TRUE(unread_tensors(*checkpoint, specs).starts_with("lm_head.* (1), ")) << unread_tensors(*checkpoint, specs);
}

}  // namespace
}  // namespace tessera
