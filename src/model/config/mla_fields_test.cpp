// Catches: a config with latent attention that is read differently than in transformers; a size that is multiplied
// without a check; a value that the graph does not implement but that is accepted.
#include "tessera/model/config/mla_fields.h"

#include <cstdio>
#include <random>

#include "tessera/model/family.h"
#include "tessera/model/layers/mla.h"
#include "tessera/model/model.h"
#include "tessera/model/test_support.h"
#include "tessera/ops/built_in_ops.h"

namespace tessera {
namespace {

using test::expect_error;
using ::testing::ElementsAre;

constexpr const char* kV2 = "DeepseekV2ForCausalLM";
constexpr const char* kV3 = "DeepseekV3ForCausalLM";
constexpr const char* kLite = "Glm4MoeLiteForCausalLM";

Json base(const char* architecture) {
  Json json = *Json::parse(R"({"vocab_size": 512, "hidden_size": 60, "intermediate_size": 160, "num_hidden_layers": 4,
      "num_attention_heads": 7, "max_position_embeddings": 2048, "kv_lora_rank": 32, "qk_nope_head_dim": 12,
      "qk_rope_head_dim": 8, "v_head_dim": 20, "n_routed_experts": 16, "num_experts_per_tok": 2,
      "moe_intermediate_size": 40})",
                           "base");
  json.set("architectures", Json(Json::Array{Json(architecture)}));
  return json;
}
Result<ModelConfig> read_latent(const char* architecture, const char* changes = "{}") {
  Json json = base(architecture);
  const Result<Json> extra = Json::parse(changes, "changes");
  EXPECT_TRUE(extra.ok()) << changes;
  for (const auto& [key, value] : extra->as_object()) json.set(key, value);
  return ModelConfig::from_json(json, "m/config.json", built_in_families());
}

TEST(LatentConfig, TakesSizesAndDefaultsOfTheArchitecture) {
  const ModelConfig v3 = *read_latent(kV3);
  EXPECT_EQ(v3.mla->q_lora_rank, 1536);
  EXPECT_EQ(v3.mla->kv_lora_rank, 32);
  EXPECT_EQ(v3.mla->qk_nope_head_dim, 12);
  EXPECT_EQ(v3.mla->qk_rope_head_dim, 8);
  EXPECT_EQ(v3.mla->v_head_dim, 20);
  EXPECT_TRUE(v3.mla->interleaved);
  EXPECT_EQ(v3.head_dim, 8) << "what is rotated";
  EXPECT_FALSE(v3.qkv_bias || v3.o_bias);
  EXPECT_EQ(v3.rms_norm_eps, 1e-6);
  EXPECT_EQ(read_latent(kLite)->mla->q_lora_rank, 768);
  EXPECT_EQ(read_latent(kLite)->rms_norm_eps, 1e-5);
  EXPECT_EQ(read_latent(kV2, R"({"q_lora_rank": null})")->mla->q_lora_rank, 0) << "null is not absent";
  EXPECT_EQ(read_latent(kV2, R"({"q_lora_rank": 24})")->mla->q_lora_rank, 24);
  EXPECT_FALSE(read_latent(kV3, R"({"rope_interleave": false})")->mla->interleaved);
  const ModelConfig biased = *read_latent(kV3, R"({"attention_bias": true})");
  EXPECT_TRUE(biased.qkv_bias && biased.o_bias);
  EXPECT_EQ(read_latent(kV3, R"({"head_dim": 64})")->head_dim, 8) << "transformers overrides it, too";
}

TEST(LatentConfig, TakesTheRoutingOfTheArchitecture) {
  const MoeConfig v3 = *read_latent(kV3)->moe;
  EXPECT_THAT(v3.layers, ElementsAre(false, false, false, true));
  EXPECT_EQ(v3.scoring, RouterScoring::kSigmoid);
  EXPECT_TRUE(v3.correction_bias && v3.normalise);
  EXPECT_EQ(v3.groups, 8);
  EXPECT_EQ(v3.groups_per_token, 4);
  EXPECT_EQ(v3.scale, 2.5);
  EXPECT_EQ(v3.shared_intermediate_size, 40);

  const MoeConfig lite = *read_latent(kLite)->moe;
  EXPECT_THAT(lite.layers, ElementsAre(false, true, true, true));
  EXPECT_EQ(lite.groups, 1);
  EXPECT_EQ(lite.scale, 1.8);
  EXPECT_THAT(read_latent(kLite, R"({"mlp_layer_types": ["sparse", "dense", "dense", "sparse"]})")->moe->layers,
              ElementsAre(true, false, false, true));
  EXPECT_THAT(read_latent(kLite, R"({"first_k_dense_replace": 2})")->moe->layers,
              ElementsAre(false, false, true, true));

  const MoeConfig v2 = *read_latent(kV2)->moe;
  EXPECT_THAT(v2.layers, ::testing::Each(true));
  EXPECT_EQ(v2.scoring, RouterScoring::kSoftmax);
  EXPECT_FALSE(v2.correction_bias || v2.normalise);
  EXPECT_EQ(v2.scale, 1.0);
  EXPECT_EQ(v2.shared_intermediate_size, 80);
  EXPECT_EQ(read_latent(kV2, R"({"n_group": 4, "topk_group": 2})")->moe->groups, 1) << "greedy has none";
  const MoeConfig limited = *read_latent(kV2, R"({"n_group": 4, "topk_group": 2, "topk_method": "group_limited_greedy",
                                            "routed_scaling_factor": 16})")
                                 ->moe;
  EXPECT_EQ(limited.groups, 4);
  EXPECT_EQ(limited.groups_per_token, 2);
  EXPECT_EQ(limited.scale, 16);

  EXPECT_EQ(read_latent(kV3, R"({"n_shared_experts": null})")->moe->shared_intermediate_size, 0);
  EXPECT_FALSE(read_latent(kV3, R"({"n_routed_experts": null})")->moe) << "every layer is dense";
}

TEST(LatentConfig, RefusesByFieldName) {
  using enum StatusCode;
  const struct {
    const char* architecture;
    const char* changes;
    StatusCode code;
    std::vector<std::string> parts;
  } cases[] = {
      {kV3, R"({"kv_lora_rank": null})", kInvalidArgument, {"\"kv_lora_rank\" is null"}},
      {kV3, R"({"kv_lora_rank": 0})", kInvalidArgument, {"\"kv_lora_rank\" is 0"}},
      {kV3, R"({"q_lora_rank": 0})", kInvalidArgument, {"\"q_lora_rank\" is 0"}},
      {kV3, R"({"qk_rope_head_dim": 7})", kInvalidArgument, {"\"qk_rope_head_dim\" is 7", "even"}},
      {kV3, R"({"qk_nope_head_dim": 4096})", kInvalidArgument, {"\"qk_nope_head_dim\" is 4096"}},
      {kV3, R"({"v_head_dim": -1})", kInvalidArgument, {"\"v_head_dim\" is -1"}},
      {kV3, R"({"kv_lora_rank": 262144, "num_attention_heads": 4096})", kInvalidArgument, {"\"num_attention_heads\""}},
      {kV3, R"({"rope_interleave": 1})", kInvalidArgument, {"\"rope_interleave\" is 1"}},
      {kV3, R"({"n_group": 3})", kInvalidArgument, {"\"n_group\" is 3", "divisor of the number of experts (16)"}},
      {kV3, R"({"topk_group": 9})", kInvalidArgument, {"\"topk_group\" is 9"}},
      {kV3, R"({"num_experts_per_tok": 9})", kInvalidArgument, {"\"topk_group\"", "num_experts_per_tok (9)"}},
      {kV3, R"({"moe_layer_freq": 2})", kUnimplemented, {"\"moe_layer_freq\" is 2", "accepted: 1"}},
      {kV3, R"({"scoring_func": "softmax"})", kUnimplemented, {"\"scoring_func\"", "accepted: sigmoid"}},
      {kV3, R"({"topk_method": "greedy"})", kUnimplemented, {"\"topk_method\"", "accepted: noaux_tc"}},
      {kLite, R"({"mlp_layer_types": ["dense"]})", kInvalidArgument, {"\"mlp_layer_types\"", "num_hidden_layers (4)"}},
      {kLite,
       R"({"mlp_layer_types": ["dense", "sparse", "moe", "sparse"]})",
       kInvalidArgument,
       {"\"mlp_layer_types\""}},
      {kV2, R"({"topk_method": "noaux_tc"})", kUnimplemented, {"\"topk_method\"", "group_limited_greedy"}},
      {kV2, R"({"scoring_func": "sigmoid"})", kUnimplemented, {"\"scoring_func\"", "accepted: softmax"}},
      {kV2, R"({"norm_topk_prob": true})", kUnimplemented, {"\"norm_topk_prob\"", "accepted: false"}},
      {kV2, R"({"mlp_bias": true})", kUnimplemented, {"\"mlp_bias\"", "accepted: false"}},
      {kV2, R"({"rope_scaling": {"type": "dynamic", "factor": 2}})", kUnimplemented, {"rope_scaling.type"}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.changes);
    expect_error(read_latent(c.architecture, c.changes), c.code, c.parts);
  }
}

std::int64_t parameters_of(const Json& json) {
  const Result<ModelConfig> config = ModelConfig::from_json(json, "config.json", built_in_families());
  EXPECT_TRUE(config.ok()) << config.status().message();
  if (!config.ok()) return 0;
  const Result<ModelGraphs> graphs = build_model(*config, {}, built_in_ops(), built_in_families());
  EXPECT_TRUE(graphs.ok()) << graphs.status().message();
  return graphs.ok() ? parameter_count(graphs->weights) : 0;
}

// The expected sizes are those on the models' cards, without the next-token layers.
TEST(LatentConfig, PublishedModelsHaveTheirKnownSizes) {
  const Json flash = *Json::parse(R"({"architectures": ["Glm4MoeLiteForCausalLM"], "vocab_size": 154880,
      "hidden_size": 2048, "intermediate_size": 10240, "moe_intermediate_size": 1536, "num_hidden_layers": 47,
      "num_attention_heads": 20, "num_key_value_heads": 20, "n_shared_experts": 1, "n_routed_experts": 64,
      "routed_scaling_factor": 1.8, "kv_lora_rank": 512, "q_lora_rank": 768, "qk_rope_head_dim": 64, "v_head_dim": 256,
      "qk_nope_head_dim": 192, "topk_method": "noaux_tc", "num_experts_per_tok": 4, "first_k_dense_replace": 1,
      "norm_topk_prob": true, "max_position_embeddings": 202752, "partial_rotary_factor": 1.0})",
                                  "GLM-4.7-Flash");
  EXPECT_EQ(parameters_of(flash), 29'943'393'920);

  const std::filesystem::path configs = test::shared_dir() / "data" / "configs";
  TESSERA_SKIP_WITHOUT(configs);
  Json lite = *Json::read_file((configs / "mlc_preset/deepseek_v2_lite.json").string());
  // The published q_lora_rank is null. The test's file omits null fields, and an absent q_lora_rank would mean 1536.
  lite.set("q_lora_rank", Json());
  EXPECT_EQ(parameters_of(lite), 15'706'484'224);
  const Json v3 = *Json::read_file((configs / "aiconfigurator/deepseek-ai--DeepSeek-V3_config.json").string());
  EXPECT_EQ(parameters_of(v3), 671'026'419'200);
}

// Applies deterministic mutations to single values. Nothing may crash. If a config is accepted, its model must build,
// or the build must fail with an error that names what does not fit.
TEST(LatentConfigFuzz, NeverCrashesAndAcceptsOnlySoundConfigs) {
  std::mt19937 random(20240517);
  const char* const architectures[] = {kV2, kV3, kLite};
  const Json values =
      *Json::parse(R"([null, true, -1, 0, 1, 2, 3, 7, 1024, 4294967296, 1e308, 0.5, "", "greedy", [], {}])", "values");
  int accepted = 0;
  for (int round = 0; round < 2000; ++round) {
    Json json = base(architectures[round % 3]);
    json.set(json.as_object()[random() % json.as_object().size()].first,
             values.as_array()[random() % values.as_array().size()]);
    const Result<ModelConfig> config = ModelConfig::from_json(json, "fuzz", built_in_families());
    if (!config.ok()) continue;
    ++accepted;
    ASSERT_EQ(config->head_dim, config->mla->qk_rope_head_dim) << json.dump();
    ASSERT_EQ(config->head_dim % 2, 0) << json.dump();
    ASSERT_GT(latent_attention_scale(*config), 0) << json.dump();
    if (!config->moe) continue;
    ASSERT_EQ(config->moe->layers.size(), static_cast<std::size_t>(config->num_hidden_layers)) << json.dump();
    ASSERT_EQ(config->moe->num_experts % config->moe->groups, 0) << json.dump();
  }
  std::printf("%d of 2000 mutated configs accepted\n", accepted);
  EXPECT_GT(accepted, 50);
}

}  // namespace
}  // namespace tessera
